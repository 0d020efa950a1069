"""Prometheus metrics: names, help texts, buckets.

Owns: the registry and the exposition. Refuses: counting (the engine adds to `Counters`), deciding,
HTTP (`metrics_http.py`), and session, stream or user ids in labels, ever: labels are closed sets.

Invariants: one event costs no call here; histograms are observed once a flush, write or sync. A
scrape reads and changes nothing. No `_created` series. The server listens only where it is told to.

prometheus_client keeps `_created` in a module-wide switch, which is turned off when a `Metrics` is
made; walld is a process of its own and nothing else in it uses the library.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Histogram,
    disable_created_metrics,
    generate_latest,
    make_wsgi_app,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from walld.daemon.metrics_http import MetricsServer, of_this_host
from walld.daemon.settings import Address
from walld.daemon.strangers_view import MetricsView
from walld.engine.counters import Counters, Gauges

__all__ = ["DURATION_BUCKETS", "LAG_BUCKETS", "Metrics"]

DURATION_BUCKETS: Final = tuple(0.0001 * 2**power for power in range(18))
"""0.1 ms to 13.1 s."""
LAG_BUCKETS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 5.0, 10.0),
)
"""Fine around the default linger (0.25 s) and around the bound: 3 is an edge of its own."""
assert 3.0 in LAG_BUCKETS, "the promise is counted exactly"


class _Numbers:
    """Reads `Counters` and `Gauges` when a scrape asks; a prometheus_client collector."""

    def __init__(
        self, counters: Counters, gauges: Callable[[], Gauges], build: dict[str, str]
    ) -> None:
        self._counters = counters
        self._gauges = gauges
        self._build = build

    def describe(self) -> list[Metric]:
        """Nothing, so that registering does not call `gauges` before the daemon is up."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Every counter and gauge, once."""
        yield from self._labelled()
        yield from self._totals()
        yield from self._moment()
        build = GaugeMetricFamily(
            "walld_build_info", "Always 1; the labels say what is running.", labels=[*self._build]
        )
        build.add_metric([*self._build.values()], 1)
        yield build

    def _labelled(self) -> Iterator[Metric]:
        counters = self._counters
        for name, help_text, label, counts in (
            (
                "walld_events_received",
                "Events taken in from agents, by kind; each token of a run counts.",
                "kind",
                counters.received,
            ),
            (
                "walld_events_discarded",
                "Events not kept, by reason; disk_full leaves a gap in a reply.",
                "reason",
                counters.discarded,
            ),
            (
                "walld_protocol_errors",
                "Errors and refusals sent to peers, by code.",
                "code",
                counters.protocol_errors,
            ),
            (
                "walld_recoveries",
                "Requests to recover replies, by what they were answered.",
                "outcome",
                counters.recoveries,
            ),
        ):
            family = CounterMetricFamily(name, help_text, labels=[label])
            for value, count in counts.copy().items():  # the loop may add a label meanwhile
                family.add_metric([value], count)
            yield family

    def _totals(self) -> Iterator[Metric]:
        counters = self._counters
        for name, help_text, total in (
            ("walld_received_bytes", "Bytes read from agents.", counters.received_bytes),
            ("walld_wal_writes", "Writes to WAL segments, one a batch.", counters.wal_writes),
            ("walld_wal_write_bytes", "Bytes written to WAL segments.", counters.wal_write_bytes),
            (
                "walld_lost_acked",
                "Events acknowledged as synced that this log does not have. Must stay 0.",
                counters.lost_acked,
            ),
        ):
            yield CounterMetricFamily(name, help_text, value=total)

    def _moment(self) -> Iterator[Metric]:
        now = self._gauges()
        for name, help_text, value in (
            ("walld_queue_events", "Events taken in and not yet written.", now.queue_events),
            ("walld_queue_bytes", "Bytes taken in and not yet written.", now.queue_bytes),
            ("walld_streams_live", "Streams whose owner is alive.", now.streams_live),
            ("walld_partials", "Replies kept because they were not released.", now.partials),
            ("walld_wal_size_bytes", "Size of all WAL segments.", now.wal_size_bytes),
            ("walld_wal_segments", "Number of WAL segments.", now.wal_segments),
            (
                "walld_reclaim_lag_seconds",
                "How long the oldest released reply has been on disk beyond reclaim_seconds.",
                now.reclaim_lag_seconds,
            ),
            ("walld_connections", "Open connections, agents and queries.", now.connections),
            ("walld_sessions_open", "Sessions held in memory.", now.sessions_open),
            (
                "walld_ledger_pending_bytes",
                "Lines of sessions that are in the log and not yet in their session's file.",
                now.ledger_pending_bytes,
            ),
        ):
            yield GaugeMetricFamily(name, help_text, value=value)


class Metrics:
    """The registry of one daemon.

    gauges: called at each scrape, in the scrape's thread; it must only read. Observing a histogram
    (`metrics.flush_lag.observe(seconds)`) is allowed from any thread and costs about 1 us.
    """

    def __init__(
        self, counters: Counters, gauges: Callable[[], Gauges], *, version: str, backend: str
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=False)
        self.flush_lag = self._histogram(
            "walld_flush_lag_seconds",
            "Age of the oldest event of a flush when its write returned; the bound is 3.",
            LAG_BUCKETS,
        )
        self.flush_duration = self._histogram(
            "walld_flush_duration_seconds", "Time of a flush: encode, write and acks."
        )
        self.wal_write_duration = self._histogram(
            "walld_wal_write_duration_seconds", "Time of one write(2) to a WAL segment."
        )
        self.wal_fsync_duration = self._histogram(
            "walld_wal_fsync_duration_seconds", "Time of one fdatasync(2) of a WAL segment."
        )
        build = {"version": version, "python": platform.python_version(), "backend": backend}
        self.registry.register(_Numbers(counters, gauges, build))
        self._strangers = MetricsView(self.registry)
        self._metrics_server: MetricsServer | None = None

    def _histogram(
        self, name: str, help_text: str, buckets: tuple[float, ...] = DURATION_BUCKETS
    ) -> Histogram:
        return Histogram(name, help_text, buckets=buckets, registry=self.registry)

    def exposition(self, sees_all: bool = True) -> str:
        """The Prometheus text format; sees_all: with the exact numbers, which a scrape has not."""
        return generate_latest(self.registry if sees_all else self._strangers.registry).decode()

    @property
    def trouble(self) -> str | None:
        """Why no scrape is answered that should be; None where all is well."""
        return None if self._metrics_server is None else self._metrics_server.trouble

    def serve(self, at: Address) -> int:
        """Answer scrapes, in threads of their own; returns the port. OSError where it never can.

        TCP names no user, so whoever asks there is a stranger.
        """
        assert self._metrics_server is None, "one server a registry"
        try:
            application = of_this_host(make_wsgi_app(self._strangers.registry), at.host)
            self._metrics_server = MetricsServer(at.host, at.port, application)
        except OSError as error:
            raise OSError(error.errno, f"metrics on {at}: {error.strerror}") from None
        return self._metrics_server.port

    def close(self) -> None:
        """Stop serving. Harmless when nothing is served."""
        if self._metrics_server is not None:
            self._metrics_server.close()
        self._metrics_server = None
