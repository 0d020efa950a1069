"""What a daemon asks of its disk while it lives, verb by verb.

Owns: the rules that what is left behind cannot show. Refuses: what is left (`oracle.py`,
`crash_states.py`), failing a verb (`disks.py`).

Invariants: SIM13 once another owner has raised the epoch, what was
under way in the log may end and nothing is changed any more; SIM15 a batch is one write, and a
segment has no more syncs than writes. A second sync of a file whose first has failed (SIM11) is
refused by the disk itself (`walld/disk/simulated.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walld.disk.lock_record import LOCK_NAME, lock_record, parse_lock

from .oracle import Wrong

if TYPE_CHECKING:
    from walld.daemon.service import Daemon

    from .world import World

__all__ = ["Watch"]

_HARMLESS = frozenset(("open", "read", "list", "stat", "statvfs", "sync_dir"))
"""Verbs that change nothing."""
_IN_THE_LOG = frozenset(("write", "sync", "truncate"))
"""What a flush or a sync that was under way still does, before it looks."""


class Watch:
    """Over the daemons of one world, one after the other."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_whole = not (world.plan.short_writes or world.plan.tight)
        """Each write takes all that it is given: also the last that a full disk takes."""
        self._is_sound = not (world.plan.hurts or world.plan.ambush)
        self._batches = -1
        self._unsynced: dict[str, int] = {}
        """Writes to each segment of this life, less its syncs."""
        self._writes = 0
        """To segments, since the first of this life was made; -1 headers."""
        self.is_fenced = False
        self._late_writes = 0

    def begins(self) -> None:
        """A daemon is started."""
        self._batches = -1
        self._unsynced.clear()
        self.is_fenced, self._late_writes = False, 0

    def fence(self) -> None:
        """Another owner raises the epoch: this one stood still, and had lost its lock."""
        lock = self._world.storage.node(LOCK_NAME)
        told = parse_lock(bytes(lock.data), LOCK_NAME)
        if told is None:
            return
        lock.data[:] = lock.durable[:] = lock_record(told._replace(epoch=told.epoch + 1))
        self.is_fenced, self._late_writes = True, 0

    def verb(self, verb: str, path: str) -> None:
        """It is about to be done. Raises Wrong."""
        if verb in _HARMLESS:
            return
        is_segment = path.startswith("wal/") and path.endswith(".wal")
        if self.is_fenced:
            self._check_fenced(verb, path)
        if verb == "write" and is_segment:
            self._writes += 1
            if path in self._unsynced:
                self._unsynced[path] += 1
        elif verb == "sync" and path in self._unsynced:
            self._unsynced[path] -= 1
            if self._unsynced[path] < 0 and self._is_sound:
                raise Wrong(f"{path} has had more syncs than writes (SIM15)")
        elif verb == "create" and is_segment:
            self._unsynced[path] = 0
            self._created()

    def _check_fenced(self, verb: str, path: str) -> None:
        self._late_writes += verb == "write"
        is_late = self._late_writes > 1 and self._is_whole
        if is_late or not path.startswith("wal/") or verb not in _IN_THE_LOG:
            raise Wrong(f"{verb} {path}: another daemon owns the directory (SIM13)")

    def _created(self) -> None:
        daemon = self._world.lives.daemon
        if daemon is not None and self._batches < 0:
            self._batches, self._writes = daemon.engine.batches.written_no, 0
        self._writes -= 1  # its header's

    def check_writes(self, daemon: Daemon) -> None:
        """SIM15, where no write was cut short and none failed."""
        if self._batches < 0 or not self._is_whole or not self._is_sound:
            return
        batches = daemon.engine.batches.written_no - self._batches
        if self._writes > batches + 1:  # one may be under way
            raise Wrong(f"{self._writes} writes for {batches} batches (SIM15)")
