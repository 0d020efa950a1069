"""What a crash would leave if it came now, asked at moments of a run that goes on unharmed.

Owns: when it is asked, the copy of the disk that crashes in its place, and what a reader, a
start that is cut short and another one find there. Refuses: what is right (`oracle.py`,
`books.py`), what power leaves (`walld/disk/medium.py`).

A world has few crashes, since each costs it a life of its daemon; but between any two disk verbs
there is a state that a crash could leave (the crash states of ALICE, OSDI 2014). All of them must
hold what was promised by then, so some of them are looked at: a state costs 5 ms, a world 100.
What is read is read by the code that reads without a daemon, which must say the same before a start
and after it; and where a daemon was killed also if power is cut behind that start, which has made
all that it read durable. Of a start this is what it does before a new segment is opened.
Nothing of this is seen by the world: its disk is copied, its chance and clocks stand still.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import anyio
from walld_client.wire import messages as wire

from walld.cli.inspect import directory_scan, fsck, offline, session_scan
from walld.cli.inspect.log_lines import LogLines
from walld.disk.medium import Crashed, Storage
from walld.disk.simulated import SimulatedDisk
from walld.ledger.line import line_seq, read_line
from walld.partials.store import PartialStore
from walld.recovery.startup_recovery import recover_storage
from walld.wal.log_scan import LogScan, list_segments
from walld.wal.segment_files import has_copies

from .lives import Owner
from .oracle import KILL_SECONDS, POWER_SECONDS, Wrong
from .questions import is_spoiled, words

if TYPE_CHECKING:
    from .books import Must, Session
    from .kernel import SimulatedSocket
    from .oracle import Promise
    from .world import World

__all__ = ["CrashStates"]

_CHANCES = (0.05, 0.1, 0.15)
"""Of a look before a verb that changes the disk, by run."""
_CHANGES = frozenset(
    (
        "create",
        "mkdir",
        "write",
        "truncate",
        "sync",
        "sync_dir",
        "rename",
        "link",
        "unlink",
        "rmdir",
    )
)
_POWER = 0.8
"""Share of crashes that are power cuts; the others are kills."""
_EAGER = {"unlink": 5, "rename": 5, "truncate": 5}
"""Verbs that take something away: what comes before them must hold without it."""
_START_VERBS = 40
"""A start is cut at one of so many; some are shorter."""


class _Read(NamedTuple):
    """What is there for who has no daemon. state, why: fsck's word for it. doubts: of nothing."""

    replies: list[wire.Recovered]
    lines: dict[Session, list[bytes]]
    state: str = "clean"
    why: str = ""
    doubts: tuple[str, ...] = ()


class CrashStates:
    """Those of one run. seen: how many were looked at."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = Random(f"crash states {world.plan.seed}")
        self._chance = self._random.choice(_CHANCES) * world.plan.looks
        self.seen = 0
        self._sent: dict[tuple[int, str, SimulatedSocket], list[tuple[float, int]]] = {}
        """By stream and connection: how far the kernel had it, at each look."""
        self.is_over = bool(world.plan.crash_at)
        """Bytes will rot from here on; or the run is one of many that differ in their crash."""

    def before(self, verb: str) -> None:
        """The disk is about to change. Raises Wrong."""
        if self.is_over or verb not in _CHANGES:
            return
        if self._random.random() < self._chance * _EAGER.get(verb, 1):
            self.look()

    def look(self) -> None:
        """Crash elsewhere, and judge what is there then."""
        world, now, hurts = self._world, anyio.current_time(), self._world.plan.hurts
        told = {
            (story.uid, story.stream_id): reply._stream.synced
            for agent in world.agents
            if agent.is_alive
            for reply, story in agent.open
        }
        power = self._random.random() < _POWER
        sent = self._sent_before(now - (POWER_SECONDS if power else KILL_SECONDS), now)
        promises = world.oracle.if_it_ended(now, told, sent, power=power, hurts=hurts)
        must = world.books.must_if_it_ended(now, power=power)
        storage = world.storage.copy(self._random)
        crash = storage.cut_power if power else storage.kill
        crash()
        with self._standing_still():
            cut = self._read(storage)
            if self._random.random() < 0.5:
                storage.crash_at = storage.ops + self._random.randrange(1, _START_VERBS)
                self._start(storage)
                crash()
            self._start(storage)
            if not power:
                storage.cut_power()
            found = self._read(storage)
        self.seen += 1
        what = "power were cut" if power else "the daemon were killed"
        where = f"if {what} at {now:.4f} s (state {self.seen})"
        behind = f"{where}, after a start{'' if power else ' and a power cut'}"
        spoiled = is_spoiled(storage, world.lives.untold)
        headless = _is_headless(storage)
        for one, when in ((cut, where), (found, behind)):
            if one.state == "corrupt" and not spoiled:
                raise Wrong(f"{when}: corrupt, and nothing rotted (SIM5): {one.why}")
            if one.doubts and not (spoiled or headless):
                raise Wrong(f"{when}: nothing is proven (P11): {one.doubts}")
            world.oracle.check(one.replies, when, promises, rotten=False, spoiled=spoiled)
            self._judge_lines(one, when, must, promises, spoiled=spoiled)
        if not spoiled and list(map(words, found.replies)) != list(map(words, cut.replies)):
            raise Wrong(f"{behind}: a start changed what is said (SIM8)\n{cut}\n{found}")

    def _sent_before(self, before: float, now: float) -> dict[tuple[int, str], int]:
        """How far the daemon at hand had been sent what living processes say, by a look then."""
        found, daemon_no = {}, self._world.kernel.daemon_no
        for agent in self._world.agents:
            connection = agent.socket
            if not agent.is_alive or connection is None:
                continue
            if connection.daemon_no == daemon_no > 0:
                for reply, story in agent.open:
                    key = story.uid, story.stream_id
                    sent = self._sent.setdefault((*key, connection), [])
                    sent.append((now, reply.sent_seq))
                    found[key] = max((seq for at, seq in sent if at <= before), default=-1)
        return found

    def _judge_lines(
        self,
        read: _Read,
        when: str,
        must: Must,
        promises: dict[tuple[int, str], Promise],
        *,
        spoiled: bool,
    ) -> None:
        books = self._world.books
        for session, lines in read.lines.items():
            if spoiled:  # lines may be missing; none is altered or invented
                for text in lines:
                    books.check_origin(session, read_line(text), when)
            else:
                books.judge(session, lines, when, must, calm=False)
        if not spoiled:
            books.check_replies(read.replies, read.lines, promises, when, calm=False)

    @contextmanager
    def _standing_still(self) -> Iterator[None]:
        """The world's chance and its fine clock are as they were behind this."""
        kernel = self._world.kernel
        state, ticks = kernel.random.getstate(), kernel._ticks
        try:
            yield
        finally:
            kernel.random.setstate(state)
            kernel._ticks = ticks

    def _start(self, storage: Storage) -> None:
        """What a daemon does with what it finds, up to where it would write itself."""
        disk = SimulatedDisk(storage)
        with suppress(Crashed):
            owner = Owner(disk)
            recover_storage(
                disk, PartialStore(disk), owner.log_uuid, owner.epoch, owner.lock_before
            )

    def _read(self, storage: Storage) -> _Read:
        disk = SimulatedDisk(storage)
        if not {"wal", "partials"} & {entry.name for entry in disk.list_dir("")}:
            # Power took all of it: what had been promised is missed by who judges.
            return _Read([], {key: [] for key in self._world.books.sessions()})
        if not disk.list_dir("wal") and not directory_scan.log_of(disk).had_log:
            return _Read([], self._lines(disk))  # power took the very beginning
        report = fsck.inspect(disk, "")
        why = "; ".join(map(str, (*report.damage, *report.notes, *report.sessions)))
        found = offline._Reading(disk).found()
        return _Read(found.replies, self._lines(disk), report.state, why, tuple(found.doubts))

    def _lines(self, disk: SimulatedDisk) -> dict[Session, list[bytes]]:
        """Of every session that anybody has named, those of its file and of the log behind it."""
        lines: dict[Session, list[bytes]] = {key: [] for key in self._world.books.sessions()}
        if not lines:
            return lines
        lock = directory_scan.log_of(disk)
        log, of_log = LogScan(disk, lock.log_uuid), LogLines()
        directory_scan.scan(disk, log, "", of_log.take)
        verdict = log.verdict(lock.synced_no, directory_scan.first_no(disk, log.log_uuid))
        met_damage = bool(verdict.corrupt or verdict.unreadable) or has_copies(disk)
        of_log.judged(verdict.synced_no, met_damage=met_damage)
        for found in session_scan.sessions(disk, of_log):
            if found.session_id is not None:
                both = [*found.lines, *found.from_log]
                lines[found.uid, found.session_id] = sorted(both, key=line_seq)
        return lines


def _is_headless(storage: Storage) -> bool:
    """Power took the first segment of all before any was synced, and left a later one.

    So it can be where names do not survive in order, and segments are as small as here. LOCK, which
    may have failed to say so, does not prove that nothing was promised; walld doubts.
    """
    disk = SimulatedDisk(storage)
    ids = list_segments(disk)
    return bool(ids) and ids[0] > 1 and not directory_scan.log_of(disk).had_log
