"""When a flush and a sync are due: two limits each, linger and bound.

Owns: the deadlines. Refuses: clocks (`now` is an argument, seconds of a monotonic clock), and doing
anything about it.

    linger = clamp(20 x cost of the last flush, min(250 ms, bound / 2), bound / 2)

so lingering keeps the overhead at 5 % wherever the cost lies. Nothing waits beyond the bound; the
age counts from the end of the sweep before the one that read the oldest event, so the time an event
lay unread in the kernel is in it. A fixed linger is shortened to the bound less the slowest recent
flush, never refused. Whoever waits for an answer cuts the linger short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from walld import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from walld.engine.stream import Stream

__all__ = ["FlushSchedule", "Waiter"]


class Waiter(NamedTuple):
    """Somebody waits until all that is queued now is at `level` ("written" or "synced").

    streams: those it waits for. A full disk writes what has ended and leaves the rest: whoever
    waits for nothing of the rest does not wait with it (P7).
    """

    level: str
    tell: Callable[[], None]
    streams: Callable[[], Iterable[Stream]]


class FlushSchedule:
    """Deadlines of the next flush and the next sync."""

    def __init__(self, bound_ms: int, linger_ms: int | None) -> None:
        """bound_ms: the promise. linger_ms: a fixed linger, or None to adapt."""
        assert limits.FLUSH_BOUND_MS_MIN <= bound_ms <= limits.FLUSH_BOUND_MS_MAX
        self.bound = bound_ms / 1000
        self._fixed = None if linger_ms is None else linger_ms / 1000
        self._flush_cost = 0.0
        self._flush_slow = 0.0
        self._sync_cost = 0.0
        self._oldest: float | None = None
        self._in_flight: float | None = None
        self._unsynced_since: float | None = None
        self._hurry_flush = False
        self._hurry_sync = False

    # --- flush ---------------------------------------------------------------------------------

    @property
    def linger(self) -> float:
        """Seconds the oldest event waits for company."""
        most = self.bound / 2
        if self._fixed is not None:
            return min(self._fixed, max(0.0, self.bound - self._flush_slow))
        least = min(limits.LINGER_MS_MAX / 1000, most)
        return max(least, min(limits.LINGER_COST_FACTOR * self._flush_cost, most))

    @property
    def linger_shortened(self) -> bool:
        """True where a fixed linger does not fit under the bound."""
        return self._fixed is not None and self.linger < self._fixed

    def offered(self, since: float) -> None:
        """An event that may have been there since `since` is queued."""
        if self._oldest is None:
            self._oldest = since

    def hurry_flush(self) -> None:
        """Somebody waits until what is queued is written."""
        self._hurry_flush = True

    def hurry_sync(self) -> None:
        """Somebody waits until what is written is synced."""
        self._hurry_sync = True

    @property
    def oldest(self) -> float | None:
        """Since when the oldest event not written has waited, None where all is written."""
        if self._in_flight is None or self._oldest is None:
            return self._oldest if self._in_flight is None else self._in_flight
        return min(self._in_flight, self._oldest)

    def flush_at(self) -> float | None:
        """When the next flush is due (0.0: at once), None where nothing is queued."""
        if self._oldest is None:
            return None
        return 0.0 if self._hurry_flush else self._oldest + self.linger

    def flush_begun(self) -> float | None:
        """Everything queued is about to be taken. Returns the age mark of the oldest of it."""
        self._in_flight, self._oldest = self._oldest, None
        self._hurry_flush = False
        return self._in_flight

    def flush_ended(self) -> None:
        """What flush_begun took is written, or given back by flush_returned."""
        self._in_flight = None

    def flush_returned(self, oldest: float | None) -> None:
        """Not all of a flush was written: what is left has waited since `oldest`."""
        if oldest is not None and (self._oldest is None or oldest < self._oldest):
            self._oldest = oldest

    def flush_cost(self, seconds: float, took: float) -> None:
        """What a flush cost: encode and write; and what it took, with all it had to wait for."""
        self._flush_cost = seconds
        # The slowest recent flush, forgotten at 10 % a flush.
        self._flush_slow = max(took, self._flush_slow * 0.9)

    # --- sync ----------------------------------------------------------------------------------

    def written(self, now: float) -> None:
        """Something was written that is not synced."""
        if self._unsynced_since is None:
            self._unsynced_since = now

    def sync_at(self, unsynced_bytes: int) -> float | None:
        """When the next sync is due (0.0: at once), None where all is synced."""
        if self._unsynced_since is None:
            return None
        if self._hurry_sync or unsynced_bytes >= limits.UNSYNCED_BYTES_MAX // 2:
            return 0.0
        period = max(limits.SYNC_PERIOD_MS / 1000, limits.LINGER_COST_FACTOR * self._sync_cost)
        return self._unsynced_since + min(period, self.bound)

    def sync_begun(self) -> None:
        """All that is written so far is about to be synced."""
        self._unsynced_since = None
        self._hurry_sync = False

    def sync_cost(self, seconds: float) -> None:
        """What the last sync took."""
        self._sync_cost = seconds
