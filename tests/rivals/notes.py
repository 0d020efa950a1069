"""What a writer tried and what its store acknowledged, in memory that outlives SIGKILL.

Owns: pages shared by a writer and who started it. Refuses: judging it (`judge.py`).
"""

from __future__ import annotations

import mmap
import time
from typing import Any, Final

__all__ = ["EVENTS_MAX", "Notes"]

EVENTS_MAX: Final = 20_000
"""A writer that has said so much rests, so that reading all of it takes no minutes."""

_NAMES: Final = ("tried", "acked", "errors", "stop", "finished")


class Notes:
    """tried: seq of the last event the writer gave to its store, noted before it did.

    acked: seq up to which the store has said "have it", noted as soon as that was read. errors:
    calls of the store that failed. stop: the writer is to say no more. finished: it has, and all of
    it is acknowledged.
    """

    tried: int
    acked: int
    errors: int
    stop: int
    finished: int

    def __init__(self) -> None:
        self._numbers: Any
        self._times: Any
        object.__setattr__(self, "_numbers", memoryview(mmap.mmap(-1, 4096)).cast("q"))
        times = memoryview(mmap.mmap(-1, 8 * (EVENTS_MAX + 1))).cast("d")
        object.__setattr__(self, "_times", times)

    def __getattr__(self, name: str) -> int:
        try:
            number: int = self._numbers[_NAMES.index(name)]
        except ValueError:
            raise AttributeError(name) from None
        return number

    def __setattr__(self, name: str, value: int) -> None:
        self._numbers[_NAMES.index(name)] = value

    def ack(self, seq: int) -> None:
        """The store has all up to this one; what was said once is never taken back."""
        now = time.monotonic()
        for one in range(self.acked + 1, seq + 1):
            self._times[one] = now
        self.acked = max(self.acked, seq)

    def acked_by(self, moment: float) -> int:
        """Seq up to which all was acknowledged at that time."""
        seq = self.acked
        while seq and self._times[seq] > moment:
            seq -= 1
        return seq

    def acked_at(self, seq: int) -> float:
        when: float = self._times[seq]
        return when
