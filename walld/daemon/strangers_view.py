"""Coarse metrics and status for strangers: rounded, and renewed once a second.

Owns: rounding the metrics and the status. Refuses: who is a stranger, anybody but root and the
daemon's user (`api/server.py`), the exact numbers (`metrics.py`, `ops/status.py`), HTTP
(`metrics_http.py`).

An exact count of bytes, read after each token, is the length of each token of everybody's replies,
and the age of a flush is the time of one. So whatever goes by token, byte or flush is rounded for
strangers, and nothing is renewed more often than once a second. Fixed multiples would not do: who
adds his own bytes finds out how far the next multiple is. So a counter takes its next step at a
distance that is drawn anew for each step. A gauge is rounded up or down by chance, and that holds
until it has moved by a distance that is drawn anew, too: drawn at each look, the mean of many would
be the exact number of whoever stands still. What is seen is never above the truth for a counter,
and less than two roundings from it for a gauge.

Exact is what alerts are for: breaches of the flush bound, errors, what was lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from secrets import SystemRandom
from typing import Final, Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from walld import limits

__all__ = ["MetricsView", "StatusView"]

T = TypeVar("T")

_EVENTS: Final = 100
_BYTES: Final = 64 * limits.KIB
_FLUSHES: Final = 8
_SECONDS: Final = 1.0

_TOKEN_KINDS: Final = ("token", "reasoning", "tool_arguments", "custom")
"""Events that a reply has any number of; of the others an observer learns that they were."""
_COUNTERS: Final = {
    "walld_events_discarded_total": _EVENTS,
    "walld_received_bytes_total": _BYTES,
    "walld_wal_writes_total": _FLUSHES,
    "walld_wal_write_bytes_total": _BYTES,
}
_GAUGES: Final = {
    "walld_queue_events": _EVENTS,
    "walld_queue_bytes": _BYTES,
    "walld_wal_size_bytes": _BYTES,
    "walld_ledger_pending_bytes": _BYTES,
    "walld_reclaim_lag_seconds": _SECONDS,
}
_STATUS: Final = {
    "flush_lag_seconds": _SECONDS,
    "flush_linger_ms": 50,
    "queue_events": _EVENTS,
    "queue_bytes": _BYTES,
    "written_no": _FLUSHES,
    "synced_no": _FLUSHES,
    "ledger_pending_bytes": _BYTES,
    "unsynced_bytes": _BYTES,
    "wal_size_bytes": _BYTES,
    "wal_live_bytes": _BYTES,
    "reclaim_lag_seconds": _SECONDS,
    "record_bytes_first": _BYTES,
    "record_bytes_carried": _BYTES,
}
_BOUND_SECONDS: Final = limits.FLUSH_BOUND_MS_MAX / 1000

_draw = SystemRandom().random


class _Steps:
    """A counter that is seen in multiples of `grain`."""

    __slots__ = ("_behind", "_grain", "_seen")

    def __init__(self, grain: float) -> None:
        self._grain = grain
        self._seen = 0.0
        self._behind = _draw() * grain

    def of(self, value: float) -> float:
        """Multiples only, never above `value`, and never less than before; but 1 is seen at once,
        so that whoever waits for the first one hears of it.
        """
        step = (value - self._behind) // self._grain * self._grain
        if step > self._seen:
            self._seen = step
            self._behind = _draw() * self._grain
        return self._seen or float(value >= 1)


class _Held:
    """A gauge that is seen in multiples of `grain`, less than two of them from the truth."""

    __slots__ = ("_grain", "_high", "_low", "_seen")

    def __init__(self, grain: float) -> None:
        self._grain = grain
        self._seen = self._low = self._high = 0.0

    def of(self, value: float) -> float:
        """A multiple, at its draw the nearer one more likely. None at all is seen at once."""
        if value == 0 or not self._low < value < self._high:
            grain = self._grain
            self._seen = (value + _draw() * grain) // grain * grain
            self._low, self._high = value - _draw() * grain, value + _draw() * grain
        return self._seen


class MetricsView:
    """The metrics of one daemon for strangers: a prometheus_client collector, for any thread."""

    def __init__(self, exact: CollectorRegistry) -> None:
        self._steps: dict[tuple[str, ...], _Steps] = {}
        self._held = {name: _Held(grain) for name, grain in _GAUGES.items()}
        self._metrics = _Renewed(lambda: [self._coarse(one) for one in exact.collect()])
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def describe(self) -> list[Metric]:
        """Nothing, so that registering asks for none."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All of them, under their names."""
        yield from self._metrics.value()

    def _coarse(self, exact: Metric) -> Metric:
        coarse = Metric(exact.name, exact.documentation, exact.type)
        if exact.type == "histogram":
            coarse.samples = list(self._histogram(exact.samples))
        else:
            coarse.samples = [one._replace(value=self._number(one)) for one in exact.samples]
        return coarse

    def _number(self, sample: Sample) -> float:
        name = sample.name
        if (held := self._held.get(name)) is not None:
            return held.of(sample.value)
        if sample.labels.get("kind") in _TOKEN_KINDS:
            return self._step(sample.value, _EVENTS, name, sample.labels["kind"])
        if (grain := _COUNTERS.get(name)) is not None:
            return self._step(sample.value, grain, name, *sample.labels.values())
        return sample.value

    def _step(self, value: float, grain: float, *name: str) -> float:
        steps = self._steps.get(name)
        if steps is None:
            steps = self._steps[name] = _Steps(grain)
        return steps.of(value)

    def _histogram(self, samples: list[Sample]) -> Iterator[Sample]:
        """Each bucket by itself, so that they add up to what `_count` says."""
        exact = seen = lower = 0.0
        for one in samples:
            if one.name.endswith("_bucket"):
                here, exact = one.value - exact, one.value
                is_breach = lower >= _BOUND_SECONDS
                lower = float(one.labels["le"])
                seen += here if is_breach else self._step(here, _FLUSHES, one.name, str(lower))
                yield one._replace(value=seen)
            elif one.name.endswith("_count"):
                yield one._replace(value=seen)
            else:
                yield one._replace(value=self._step(one.value, _SECONDS, one.name))


class StatusView:
    """The status of one daemon, as each may see it."""

    def __init__(self, exact: Callable[[], dict[str, object]]) -> None:
        self._exact = exact
        self._held = {name: _Held(grain) for name, grain in _STATUS.items()}
        self._coarse = _Renewed(self._rounded)

    def status(self, sees_all: bool) -> dict[str, object]:
        """The same keys for everybody."""
        return self._exact() if sees_all else self._coarse.value()

    def _rounded(self) -> dict[str, object]:
        found = self._exact()
        for name, held in self._held.items():
            value = found[name]
            assert isinstance(value, int | float), f"{name} is a number"
            found[name] = type(value)(held.of(value))
        return found


class _Renewed(Generic[T]):
    """What is made anew once a second at most, when somebody asks."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: tuple[float, T] | None = None

    def value(self) -> T:
        """Of this second."""
        with self._lock:
            now = time.monotonic()
            if self._made is None or now - self._made[0] >= _SECONDS:
                self._made = now, self._make()
            return self._made[1]
