"""Bounds what one process may send between two flushes while others wait.

Owns: when reading is tight, and how many bytes a process may give in its turn then. Refuses: who is
watched where (`fair_queue.py`), reading (`socket_reader.py`).

A flush is as long as what all have given, and a share a connection (`fair_queue.py`) is as many
shares as somebody opens connections: 60 of one process kept 63 others waiting 186 ms (p99) instead
of 16, 20 processes that begin and release short replies 1 s. So reading is tight

- while somebody waits for a flush, or has within ASKED_SECONDS, for all processes but that one:
  together they may give PARTS_BYTES between two flushes;
- beyond CROWD_BYTES between two flushes, and a little for each live stream, for everybody.

While somebody of another user waits all processes of a user have a share besides, in which little
things count (`user_shares.py`).

What may be given is parted evenly among the processes that gave much the last time. Who says
little, up to LITTLE_BYTES, is read whatever the others do; STREAM_BYTES for each live stream are
little, too: one process with 10,000 of them is no flood. So a flush holds PARTS_BYTES and so much
of each process. All that have exited are one process of their user, with one part and nothing
besides: nobody waits for their acks, and children that speak and go are as many as one forks.

It is work that is counted: an event that does not fold takes as long as EVENT_BYTES of tokens, and
tokens of a stream of their own, however few, FOLD_BYTES beyond theirs.
Rejected: a part at all times. Who is alone has no reason to flush more often, and a flush costs
each stream that is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walld import limits
from walld.daemon import event_loop
from walld.daemon.transport.recent_askers import RecentAskers
from walld.daemon.transport.user_shares import UserShares

if TYPE_CHECKING:
    from walld.engine.engine import Engine
    from walld.engine.stream import Process

__all__ = ["ProcessShares"]

_LEAST_BYTES = 256
"""Of a turn, however dear what it says is: some frames are longer than none."""


class ProcessShares:
    """What processes may give now."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._spent: dict[Process | int, int] = {}
        """Since the last flush began, by process, and by uid of all that have exited."""
        self._part = limits.PARTS_BYTES
        self._begun = 0
        """All that had ever come when the last flush began."""
        self._waiting: RecentAskers[Process] = RecentAskers()
        """Who waits for a flush, or did a moment ago."""
        self._agent_asked_at = -limits.ASKED_SECONDS
        self.users = UserShares()
        self._now = 0.0
        self.is_awaited = False
        """Somebody waits for a flush, or did a moment ago."""
        self.is_tight = False
        self.is_stuck = False
        """A flush waits for a disk that hangs: nobody gains by holding."""

    def _come(self) -> int:
        """All work that has ever come, from everybody."""
        return self._engine.counters.received_bytes + limits.EVENT_BYTES * self._engine.decoder.slow

    def look(self, now: float) -> None:
        """Note who asked for a flush since the last look, and whether reading is tight.

        Called once a slice, so it is cheap where nobody asked: one subtraction.
        """
        self._now = now
        if self._engine.askers:
            for uid, process in self._engine.askers:
                if uid is not None:
                    self.users.waiting.asked(uid, now)
                if process is not None:
                    self._agent_asked_at = now
                self._waiting.asked(process, now)
            self._engine.askers.clear()
        self.is_awaited = self._waiting.anybody(now)
        self.is_tight = self.is_awaited or self._is_crowd()

    def agents_wait(self) -> bool:
        """Some agent waits for a flush, or did a moment ago."""
        return event_loop.now() - self._agent_asked_at < limits.ASKED_SECONDS

    def other_users_wait(self, uid: int) -> bool:
        """Somebody of another user does."""
        return self.users.waiting.others(uid, event_loop.now())

    def _is_crowd(self) -> bool:
        streams = limits.STREAM_BYTES * len(self._engine.registry.by_no)
        most = min(limits.CROWD_BYTES + streams, limits.QUEUE_BYTES_MAX // 4)
        return self._come() - self._begun > most

    def renew(self, *, withheld: bool) -> None:
        """A flush has begun. withheld: much is not synced, so who gave its part gets no new one."""
        much = [one for one, spent in self._spent.items() if spent > limits.LITTLE_BYTES]
        self._begun = self._come()
        if withheld:
            self._spent = {one: self._spent[one] for one in much}
        else:
            self._part = limits.PARTS_BYTES // max(1, len(much))
            self._spent = {}
            self.users.renew()

    def turn_bytes(self, process: Process) -> int:
        """How much it may give in this turn. 0: nothing, until a flush has begun."""
        if not self.is_tight or self._waits_alone(process):
            return limits.READ_BYTES_MAX
        if self._engine.disk_full or self.is_stuck:
            return limits.BUSY_READ_BYTES  # no flush comes that would let it go on
        left = self._part - self._spent.get(_account(process), 0)
        if not process.has_exited:
            little = max(limits.LITTLE_BYTES, limits.STREAM_BYTES * len(process.streams))
            left = max(left, min(little, limits.CROWD_BYTES) - self._spent.get(process, 0))
        if self.users.waiting.others(process.uid, self._now):
            left = min(left, self.users.left(process.uid))
        if self._engine.schedule.oldest is None:
            left = max(left, limits.BUSY_READ_BYTES)  # no flush comes yet that would let it go on
        if left <= 0:
            return 0
        return max(_LEAST_BYTES, min(left // process.work_per_byte, limits.BUSY_READ_BYTES))

    def _waits_alone(self, process: Process) -> bool:
        """Nobody but itself waits, and not too much has come."""
        return not (self._waiting.others(process, self._now) or self._is_crowd())

    def gave(self, process: Process, count: int, events: int, folds: int) -> None:
        """In its turn it gave so many bytes.

        events: those that do not fold. folds: how often tokens of one stream joined its run.
        """
        work = count + limits.EVENT_BYTES * events + limits.FOLD_BYTES * folds
        process.gave(count, work)
        self.users.gave(process.uid, work)
        account = _account(process)
        self._spent[account] = self._spent.get(account, 0) + work


def _account(process: Process) -> Process | int:
    """Under what is counted that it gave: all of a user that have exited are one."""
    return process.uid if process.has_exited else process
