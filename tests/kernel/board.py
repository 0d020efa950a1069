"""What an agent tried and was told, in memory that outlives SIGKILL and touches no file system.

Owns: one row a stream in a shared mapping made before the agent is forked. Refuses: judging it
(`judge.py`).

A row is written by the agent alone: what it is about to do stands there before it does it, what it
was told as soon as it has read it.
"""

from __future__ import annotations

import mmap
from typing import Final, NamedTuple

__all__ = ["STREAMS_MAX", "TOKENS_MAX", "Board", "Row"]

STREAMS_MAX: Final = 8
TOKENS_MAX: Final = 4096
"""Tokens of one stream: each has a place for the time at which it was sent."""
_NAMES: Final = ("tokens", "tried", "sent", "written", "synced", "ended", "released")
_HEAD: Final = 5


class Row(NamedTuple):
    """One stream. tokens: seq of its last token. tried: seq of its last event of any kind.

    sent: `sent_seq`. written, synced: as the daemon's acks said. ended, released: seq of that
    event, 0 where there is none. All but the first two are -1 where there was no word.
    """

    tokens: int
    tried: int
    sent: int
    written: int
    synced: int
    ended: int
    released: int


class Board:
    """The rows of one agent, and some words of its own."""

    def __init__(self) -> None:
        columns = len(_NAMES) * STREAMS_MAX
        self._numbers = memoryview(mmap.mmap(-1, 8 * (_HEAD + columns))).cast("q")
        self._times = memoryview(mmap.mmap(-1, 8 * STREAMS_MAX * TOKENS_MAX)).cast("d")

    @property
    def streams(self) -> int:
        """Streams that were begun."""
        return self._numbers[0]

    @property
    def is_finished(self) -> bool:
        """It has said all it will, and knows all of it synced."""
        return bool(self._numbers[1])

    @property
    def failed(self) -> bool:
        """A call of the client did what it must not do; its log says what."""
        return bool(self._numbers[2])

    def is_told(self) -> bool:
        """Anything of it is synced."""
        return any(self.row(at).synced >= 0 for at in range(self.streams))

    def begin(self) -> int:
        """The next stream; its place. The row is whole before it counts."""
        at = self._numbers[0]
        for name in ("sent", "written", "synced"):
            self.put(at, name, -1)
        self._numbers[0] = at + 1
        return at

    @property
    def peer(self) -> int:
        """Pid of the daemon that all `sent` are about; 0 where they may be about several."""
        return self._numbers[3]

    def put_peer(self, pid: int) -> None:
        self._numbers[3] = pid

    @property
    def slowest_seconds(self) -> float:
        """Of all calls that give a token to the client."""
        return self._numbers[4] / 1e9

    def took(self, seconds: float) -> None:
        self._numbers[4] = max(self._numbers[4], int(seconds * 1e9))

    def finish(self) -> None:
        self._numbers[1] = 1

    def fail(self) -> None:
        self._numbers[2] = 1

    def put(self, at: int, name: str, value: int) -> None:
        self._numbers[_HEAD + at * len(_NAMES) + _NAMES.index(name)] = value

    def told(self, at: int, written: int, synced: int) -> None:
        """An ack; what was said once is never taken back."""
        row = self.row(at)
        self.put(at, "written", max(row.written, written, synced))
        self.put(at, "synced", max(row.synced, synced))

    def row(self, at: int) -> Row:
        first = _HEAD + at * len(_NAMES)
        return Row(*self._numbers[first : first + len(_NAMES)])

    def sent_at(self, at: int, seq: int, now: float) -> None:
        """A token is given to the client now."""
        self._times[at * TOKENS_MAX + seq] = now

    def time_of(self, at: int, seq: int) -> float:
        return self._times[at * TOKENS_MAX + seq]
