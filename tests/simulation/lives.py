"""The daemon of a world, through all its lives.

Owns: that it comes back whenever it is gone, how it is killed or stopped, and what stands for its
lock and its threads. Refuses: when it goes (`trouble.py`), what is right (`oracle.py`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, TypeVar

import anyio
import trio
from inline_worker import InlineWorker

from walld.daemon.ops.systemd import Notifier
from walld.daemon.service import Daemon
from walld.daemon.transport import listener as sockets
from walld.disk.lock import Marks
from walld.disk.lock_record import (
    LOCK_BYTES,
    LOCK_NAME,
    WRITTEN_AT,
    LockRecord,
    lock_record,
    parse_lock,
)
from walld.disk.medium import Crashed
from walld.disk.simulated import SimulatedDisk
from walld.errors import DirectoryTaken
from walld.wal.headers import good_headers
from walld.wal.log_scan import list_segments

from .disks import Mood, ShortDisk
from .oracle import REST_SECONDS

if TYPE_CHECKING:
    from .world import World

__all__ = ["Lives", "Owner"]

T = TypeVar("T")
_LOOK_SECONDS = 0.05


class Owner(Marks):
    """The hold on a simulated directory: `Owner` on disk verbs, without a lock to wait for."""

    def __init__(self, disk: SimulatedDisk, untold: list[int] | None = None) -> None:
        """untold: gets each first batch that there was no room to name."""
        self._untold = untold
        ids = list_segments(disk)
        newest = next(good_headers(disk, ids), None)
        self.path = LOCK_NAME
        self._disk = disk
        self._has_failed = False
        names = [entry.name for entry in disk.list_dir("")]
        self._file = disk.open(LOCK_NAME) if LOCK_NAME in names else disk.create(LOCK_NAME)
        raw = self._file.read_at(LOCK_BYTES, 0)
        told = parse_lock(raw, LOCK_NAME) or LockRecord(0, b"")
        known = [0 if newest is None else newest.epoch, told.epoch, *ids]
        log_uuid = os.urandom(16) if newest is None else newest.log_uuid
        if told.log_uuid and ids:
            log_uuid = told.log_uuid
        if told.log_uuid != log_uuid:
            told = told._replace(synced_no=0, first_no=0)
        self.lock_before = told
        own = told._replace(epoch=max(known) + 1, log_uuid=log_uuid)
        super().__init__(own)
        self._record = lock_record(own)
        self._file.write_at(self._record, 0)
        self._file.sync()
        disk.sync_dir("")

    def begins(self, first_no: int) -> None:
        """As it is, and noted where the disk is too full for it."""
        try:
            super().begins(first_no)
        except OSError as error:
            if error.errno == errno.ENOSPC and self._untold is not None:
                self._untold.append(first_no)
            raise

    def is_owner(self) -> bool:
        """Until `Watch.fence`."""
        return self._file.read_at(WRITTEN_AT, 0) == self._record[:WRITTEN_AT]

    def still_is_owner(self) -> bool:
        """The same without a verb: asked as often as one likes, crashes stand where they stood."""
        return bytes(self._file._node.data[:WRITTEN_AT]) == self._record[:WRITTEN_AT]

    async def look(self) -> None:
        """As the background does it, without a job: seeds are the runs they were."""
        if not self.still_is_owner():
            raise DirectoryTaken("another daemon raised the epoch")

    def _write_lines(self, lines: bytes) -> None:
        if self._has_failed:
            # All of them are written again, so there is something to sync; this disk asserts that
            # a file whose sync failed is not asked again, which a segment never may be.
            self._file = self._disk.open(LOCK_NAME)
            self._has_failed = False
        self._file.write_at(lines, WRITTEN_AT)
        try:
            self._file.sync()
        except OSError:
            self._has_failed = True
            raise

    def close(self) -> None:
        """Nothing to close."""


class _Worker(InlineWorker):
    """A thread of the daemon: its jobs run on the loop, one at a time, after their time."""

    def __init__(self, mood: Mood) -> None:
        self._mood = mood
        self._lock = anyio.Lock()

    async def run(self, job: Callable[[], T]) -> T:
        with anyio.CancelScope(shield=True):  # a thread is not cancelled either
            async with self._lock:
                if self._mood.works_early():
                    # What comes after its beginning is not in it, however long it takes.
                    done = job()
                    await anyio.sleep(self._mood.latency())
                    return done
                await anyio.sleep(self._mood.latency())
                return job()


class Lives:
    """One daemon after the other."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._plan = world.plan
        self._random = world.random
        self._kernel = world.kernel
        self._storage = world.storage
        self._oracle = world.oracle
        self._murphy = world.murphy
        self._shorts = Random(f"short {world.plan.seed}")
        self.daemon: Daemon | None = None
        self.starts = 0
        self.untold: list[int] = []
        """First batches that LOCK had no room to name, though segments before may have gone."""
        self.over = anyio.Event()
        """Nobody starts it again."""
        self._scope = anyio.CancelScope()
        self._down = anyio.Event()
        self._ending = anyio.Event()
        self._has_ended = False

    async def keep(self) -> None:
        """A supervisor: whenever it is gone it is started again."""
        while True:
            self._down = anyio.Event()
            with anyio.CancelScope() as self._scope:
                await self._one_life()
            self.daemon = None
            self._down.set()
            if self.over.is_set():
                return
            await anyio.sleep(self._random.choice((0.0, 0.01, 0.5, 2.0)))

    async def _one_life(self) -> None:
        self.starts += 1
        self._kernel.daemon_no = self.starts
        storage = self._storage
        if self.starts == 1:
            storage.crash_at = self._plan.crash_at
        elif self.starts == 2 and self._plan.crash_again and not self._world.is_calm:
            storage.crash_at = storage.ops + self._plan.crash_again
            self._world.mood.takes_power = self._plan.power
        elif not self._world.is_calm and self._random.random() < self._plan.crash_in_recovery:
            storage.crash_at = storage.ops + self._random.randrange(1, 60)
            self._world.mood.takes_power = self._plan.ambush and self._murphy.random() < 0.5
        disk = ShortDisk(storage, self._plan.short_writes, self._shorts)
        self._world.watch.begins()
        self._ending = anyio.Event()
        self._has_ended = False
        listener = None
        daemon = None
        try:
            owner = Owner(disk, self.untold)
            listener = sockets.bind(self._world.socket_path, 0o600, None)
            daemon = Daemon(
                self._world.settings,
                disk,  # type: ignore[arg-type]
                owner,  # type: ignore[arg-type]
                [listener],
                Notifier(),
                lambda: _Worker(self._world.mood),
            )
            daemon.status._now = anyio.current_time  # type: ignore[method-assign]
            daemon._disk._is_owner = owner.still_is_owner
            daemon.maintenance._look_at_epoch = owner.look
            self.daemon = daemon
            await daemon.run(self._stopped)
            self._has_ended = True
        except BaseException as error:
            if daemon is None and isinstance(error, OSError):
                return  # it cannot use its directory now: exit 1, and the supervisor tries again
            crashed, rest = _split(error, is_fenced=self._world.watch.is_fenced)
            if not crashed:
                raise
            if rest is not None:
                raise rest from None
            self._died()
            self.daemon = None  # it is not there to be killed once more
            if (self.starts == 1 and self._plan.power) or self._world.mood.takes_power:
                await self._world.trouble.cut_power()
        finally:
            self._world.books.daemon_gone()
            if storage.life == disk._life:
                storage.life += 1
            self.daemon = None
            if daemon is not None:
                with suppress(OSError, ValueError):
                    daemon.socket_reader.close()
                daemon.metrics.close()
            if listener is not None:
                listener.close()
                with suppress(OSError):
                    os.unlink(self._world.socket_path)

    def _died(self) -> None:
        """A crash: what was promised of the dead is less now."""
        self._world.mood.ambushed = ""
        self._kernel.daemon_no = 0
        self._storage.kill()
        self._world.books.crashed()
        self._oracle.crashed(anyio.current_time(), hurts=self._plan.hurts)

    async def _stopped(self) -> str:
        await self._ending.wait()
        return "the run says so"

    async def stop(self) -> None:
        """SIGTERM: it ends when all that was sent to it is kept."""
        if self.daemon is None or not self.daemon._ready.is_set():
            return
        self._kernel.daemon_no = 0  # what is sent from here on it may not read any more
        down = self._down
        self._ending.set()
        await down.wait()
        if self._has_ended:
            self._oracle.stopped()

    async def kill(self) -> None:
        """SIGKILL, between two steps."""
        if self.daemon is None:
            return
        self._died()
        down = self._down
        self._scope.cancel()
        await down.wait()

    async def up(self) -> Daemon:
        """The daemon, once it has read its log."""
        with anyio.fail_after(REST_SECONDS):
            while True:
                if self.daemon is not None and self.daemon._ready.is_set():
                    return self.daemon
                await anyio.sleep(_LOOK_SECONDS)


def _split(error: BaseException, *, is_fenced: bool) -> tuple[bool, BaseException | None]:
    """(a crash is in it, what else is in it). is_fenced: so is a directory that was taken."""
    ends = (Crashed, DirectoryTaken) if is_fenced else (Crashed,)
    if isinstance(error, BaseExceptionGroup):
        crashed, rest = error.split((*ends, trio.Cancelled))
        return crashed is not None, rest
    return isinstance(error, ends), None
