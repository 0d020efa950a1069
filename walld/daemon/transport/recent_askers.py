"""Who asked last, and the last who was somebody else.

Owns: those two and when. Refuses: what follows from it (`process_shares.py`, `user_shares.py`,
`api/rate_limit.py`), clocks (`now` is an argument).

Whether somebody else waits is asked of each turn and each request: two times answer that for
everybody, however many ask.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from walld import limits

__all__ = ["RecentAskers"]

T = TypeVar("T")


class RecentAskers(Generic[T]):
    """Of those of one kind, users or processes. None: one who is never the same as another."""

    def __init__(self) -> None:
        self._last: tuple[T | None, float] = (None, -limits.ASKED_SECONDS)
        self._last_other: tuple[T | None, float] = self._last

    def asked(self, who: T | None, now: float) -> None:
        """That one asks."""
        if who is None or who != self._last[0]:
            self._last_other = self._last
        self._last = who, now

    def anybody(self, now: float) -> bool:
        """Somebody asked a moment ago."""
        return now - self._last[1] < limits.ASKED_SECONDS

    def others(self, who: T, now: float) -> bool:
        """Somebody else than that one did."""
        last = self._last_other if self._last[0] == who else self._last
        return now - last[1] < limits.ASKED_SECONDS
