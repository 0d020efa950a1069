"""Coarse numbers: steps that nobody can aim at, breaches that everybody sees, once a second."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest

from walld.daemon import strangers_view
from walld.daemon.metrics import Metrics
from walld.daemon.strangers_view import MetricsView, StatusView
from walld.engine.counters import Counters, Gauges

BYTES = 64 * 1024


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.fixture
def metrics(counters: Counters) -> Metrics:
    return Metrics(counters, lambda: Gauges(queue_bytes=1000), version="0", backend="trio")


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock, to be moved."""
    clock = [100.0]

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return clock[0]

    monkeypatch.setattr(strangers_view, "time", Clock)
    return clock


def seen(metrics: Metrics, name: str) -> float:
    text = metrics.exposition(sees_all=False)
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


def test_a_page_is_renewed_once_a_second(
    metrics: Metrics, counters: Counters, seconds: list[float]
) -> None:
    counters.lost_acked = 1
    assert seen(metrics, "walld_lost_acked_total") == 1
    counters.lost_acked = 2
    seconds[0] += 0.99
    assert seen(metrics, "walld_lost_acked_total") == 1
    seconds[0] += 0.02
    assert seen(metrics, "walld_lost_acked_total") == 2


def test_a_counter_is_never_above_the_truth_nor_less_than_before(
    metrics: Metrics, counters: Counters, seconds: list[float]
) -> None:
    before, behind = 0.0, set[float]()
    for _ in range(2000):
        counters.received_bytes += 4999
        seconds[0] += 1
        now = seen(metrics, "walld_received_bytes_total")
        assert before <= now <= counters.received_bytes < now + 2 * BYTES
        assert now % BYTES == 0 or now == 1
        if now > before:
            behind.add((counters.received_bytes - now) // 8192)
        before = now
    assert len(behind) > 8, "a step says little of where the counter is"


def test_the_first_one_is_seen_at_once(
    metrics: Metrics, counters: Counters, seconds: list[float]
) -> None:
    name = 'walld_events_discarded_total{reason="disk_full"}'
    assert seen(metrics, name) == 0
    counters.discarded["disk_full"] += 1
    seconds[0] += 1
    assert seen(metrics, name) == 1


def a_status(value: list[int]) -> StatusView:
    return StatusView(lambda: dict.fromkeys(strangers_view._STATUS, value[0]))


def said_by(view: StatusView) -> int:
    value = view.status(False)["queue_bytes"]
    assert isinstance(value, int)
    return value


def test_a_gauge_is_near_the_truth_and_on_average_true_where_it_is_first_seen(
    seconds: list[float],
) -> None:
    first = [said_by(a_status([BYTES // 4])) for _ in range(1000)]
    assert set(first) == {0, BYTES}
    assert sum(first) / len(first) == pytest.approx(BYTES / 4, abs=BYTES / 8)
    behind = set[int]()
    for _ in range(10):
        value = [1000]
        view = a_status(value)
        for _ in range(100):
            seconds[0] += 1
            value[0] += 9973
            away = said_by(view) - value[0]
            assert abs(away) < 2 * BYTES
            behind.add(away // 8192)
    assert len(behind) > 8, "what is said tells little of where the gauge is"


def test_a_gauge_that_stands_still_says_the_same_however_often_it_is_asked(
    seconds: list[float],
) -> None:
    said = set[int]()
    for _ in range(40):
        view = a_status([BYTES * 3 // 2])
        first = view.status(False)
        for _ in range(50):
            seconds[0] += 1
            assert view.status(False) == first, "the mean of many is no exact number"
        said.add(said_by(view))
    assert said == {BYTES, 2 * BYTES}


def test_a_gauge_of_a_page_holds_too_and_what_was_not_is_not_seen(seconds: list[float]) -> None:
    gauges = Gauges(queue_bytes=BYTES * 3 // 2)
    metrics = Metrics(Counters(), lambda: gauges, version="0", backend="trio")
    asked = set[float]()
    for _ in range(50):
        seconds[0] += 1
        asked.add(seen(metrics, "walld_queue_bytes"))
    assert asked in ({BYTES}, {2 * BYTES})
    assert seen(metrics, "walld_queue_events") == 0


def test_a_gauge_says_none_at_once(seconds: list[float]) -> None:
    for _ in range(40):
        value = [BYTES // 2]
        view = a_status(value)
        view.status(False)
        value[0] = 0
        seconds[0] += 1
        assert said_by(view) == 0


def test_breaches_of_the_bound_are_exact_and_buckets_add_up(
    metrics: Metrics, seconds: list[float]
) -> None:
    for at in range(50):
        metrics.flush_lag.observe(at / 40)
    for _ in range(3):
        metrics.flush_lag.observe(4)
    within = seen(metrics, 'walld_flush_lag_seconds_bucket{le="3.0"}')
    assert within <= 50
    assert seen(metrics, 'walld_flush_lag_seconds_bucket{le="5.0"}') == within + 3
    assert seen(metrics, "walld_flush_lag_seconds_count") == within + 3
    assert seen(metrics, 'walld_flush_lag_seconds_bucket{le="+Inf"}') == within + 3


def test_all_is_there_under_its_name(metrics: Metrics) -> None:
    def names(text: str) -> list[str]:
        return [line.rsplit(" ", 1)[0] for line in text.splitlines()]

    metrics.flush_lag.observe(0.2)
    view = MetricsView(metrics.registry)
    assert names(generate_latest(view.registry).decode()) == names(metrics.exposition())


def test_the_status_of_strangers_has_the_same_keys_and_types() -> None:
    exact: dict[str, object] = dict.fromkeys(strangers_view._STATUS, 12_345_678)
    exact |= {"flush_lag_seconds": 0.123456, "state": "ok", "pid": 7}
    view = StatusView(exact.copy)
    assert view.status(True) == exact
    coarse = view.status(False)
    assert {key: type(value) for key, value in coarse.items()} == {
        key: type(value) for key, value in exact.items()
    }
    assert coarse["flush_lag_seconds"] in (0.0, 1.0)
    assert (coarse["state"], coarse["pid"]) == ("ok", 7)
    assert coarse["queue_bytes"] != exact["queue_bytes"]
    assert view.status(False) is coarse, "within a second"
