"""The exposition: exact names, no created series, closed labels, a scrape that changes nothing."""

import socket
import threading
import urllib.request

import pytest

from walld.daemon.metrics import DURATION_BUCKETS, LAG_BUCKETS, Metrics
from walld.daemon.settings import Address
from walld.engine.counters import DISCARD_REASONS, EVENT_KINDS, Counters, Gauges

NAMES = {
    "walld_flush_lag_seconds": "histogram",
    "walld_flush_duration_seconds": "histogram",
    "walld_wal_write_duration_seconds": "histogram",
    "walld_wal_fsync_duration_seconds": "histogram",
    "walld_events_received_total": "counter",
    "walld_events_discarded_total": "counter",
    "walld_wal_writes_total": "counter",
    "walld_wal_write_bytes_total": "counter",
    "walld_received_bytes_total": "counter",
    "walld_recoveries_total": "counter",
    "walld_protocol_errors_total": "counter",
    "walld_lost_acked_total": "counter",
    "walld_queue_events": "gauge",
    "walld_queue_bytes": "gauge",
    "walld_streams_live": "gauge",
    "walld_partials": "gauge",
    "walld_wal_size_bytes": "gauge",
    "walld_wal_segments": "gauge",
    "walld_reclaim_lag_seconds": "gauge",
    "walld_connections": "gauge",
    "walld_sessions_open": "gauge",
    "walld_ledger_pending_bytes": "gauge",
    "walld_build_info": "gauge",
}


@pytest.fixture
def counters():
    return Counters()


@pytest.fixture
def metrics(counters):
    made = Metrics(counters, lambda: Gauges(connections=7), version="0.1.0", backend="trio")
    yield made
    made.close()


def samples(text):
    rows = [line for line in text.splitlines() if not line.startswith("#")]
    return dict(row.rsplit(" ", 1) for row in rows)


def test_names_and_types_are_exactly_these(metrics):
    types = {}
    for line in metrics.exposition().splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            types[name] = kind
    assert types == NAMES


def test_every_metric_has_help_and_none_has_created(metrics):
    metrics.flush_lag.observe(1)
    text = metrics.exposition()
    helped = {line.split()[2] for line in text.splitlines() if line.startswith("# HELP ")}
    assert helped == set(NAMES)
    assert "_created" not in text


def test_buckets():
    assert len(DURATION_BUCKETS) == 18
    assert DURATION_BUCKETS[0] == 0.0001
    assert DURATION_BUCKETS[-1] == pytest.approx(13.1072)
    assert LAG_BUCKETS[-8:] == (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 5.0, 10.0)
    assert list(LAG_BUCKETS) == sorted(LAG_BUCKETS)


def test_the_bound_is_an_edge(metrics):
    metrics.flush_lag.observe(3.0)
    metrics.flush_lag.observe(3.001)
    read = samples(metrics.exposition())
    assert read['walld_flush_lag_seconds_bucket{le="3.0"}'] == "1.0"
    assert read['walld_flush_lag_seconds_bucket{le="3.5"}'] == "2.0"


def test_counters_are_read_at_the_scrape(metrics, counters):
    before = samples(metrics.exposition())
    for kind in EVENT_KINDS:
        assert before[f'walld_events_received_total{{kind="{kind}"}}'] == "0.0"
    for reason in DISCARD_REASONS:
        assert before[f'walld_events_discarded_total{{reason="{reason}"}}'] == "0.0"
    counters.received["token"] += 1000
    counters.protocol_errors["too_long"] += 1
    counters.wal_write_bytes += 123456789
    counters.lost_acked += 2
    read = samples(metrics.exposition())
    assert read['walld_events_received_total{kind="token"}'] == "1000.0"
    assert read['walld_protocol_errors_total{code="too_long"}'] == "1.0"
    assert float(read["walld_wal_write_bytes_total"]) == 123456789
    assert read["walld_lost_acked_total"] == "2.0"
    assert read["walld_connections"] == "7.0"
    assert 'backend="trio"' in metrics.exposition()
    assert samples(metrics.exposition()) == read


def test_labels_that_appear_during_a_scrape_do_no_harm(metrics, counters):
    stop = threading.Event()

    def grow():
        number = 0
        while not stop.is_set() and number < 20_000:
            counters.protocol_errors[f"code{number}"] += 1
            number += 1

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        for _ in range(20):
            metrics.exposition()
    finally:
        stop.set()
        thread.join()


def test_no_gauge_is_asked_before_a_scrape(counters):
    def not_yet():
        raise AssertionError("asked too early")

    Metrics(counters, not_yet, version="0", backend="asyncio")


def test_served_on_loopback_and_closed(metrics):
    port = metrics.serve(Address("127.0.0.1", 0))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        body = response.read().decode()
        assert response.headers["Content-Type"].startswith("text/plain; version=")
    assert body == metrics.exposition()
    metrics.close()
    metrics.close()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
