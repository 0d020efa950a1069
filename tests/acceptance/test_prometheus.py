"""The exposition as Prometheus itself sees it: its linter, and a real server that scrapes."""

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.request

import pytest

from walld.daemon.metrics import Metrics
from walld.engine.counters import Counters, Gauges


def tool(name):
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed (Debian: apt-get install prometheus)")
    return path


@pytest.fixture
def metrics():
    counters = Counters()
    counters.received["token"] = 42
    counters.protocol_errors["frame_too_long"] += 1
    made = Metrics(counters, lambda: Gauges(streams_live=3), version="0.1.0", backend="asyncio")
    made.flush_lag.observe(0.25)
    made.wal_fsync_duration.observe(0.00005)
    yield made
    made.close()


def lint(text):
    return subprocess.run(
        [tool("promtool"), "check", "metrics"],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_promtool_finds_nothing(metrics):
    done = lint(metrics.exposition())
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_promtool_would_find_something(metrics):
    bad = metrics.exposition().replace("walld_lost_acked_total", "walld_lost_acked")
    assert lint(bad).returncode != 0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def asked(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
        return json.load(response)["data"]


def test_a_real_prometheus_scrapes_it(tmp_path, metrics):
    prometheus = tool("prometheus")
    scraped = metrics.serve("127.0.0.1", 0)
    port = free_port()
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 200ms, scrape_timeout: 200ms}\n"
        "scrape_configs:\n"
        "  - job_name: walld\n"
        f"    static_configs: [{{targets: ['127.0.0.1:{scraped}']}}]\n"
    )
    log = tmp_path / "log"
    with open(log, "wb") as stderr:
        server = subprocess.Popen(
            [
                prometheus,
                f"--config.file={tmp_path}/prometheus.yml",
                f"--storage.tsdb.path={tmp_path}/tsdb",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=stderr,
            stderr=stderr,
        )
    try:
        rows = first_sample(server, port, log)
        assert [row["value"][1] for row in rows] == ["42"]
        assert rows[0]["metric"]["kind"] == "token"
        (target,) = asked(port, "/api/v1/targets")["activeTargets"]
        assert (target["health"], target["lastError"]) == ("up", "")
        names = asked(port, "/api/v1/label/__name__/values")
        assert "walld_flush_lag_seconds_bucket" in names
        assert not [name for name in names if name.endswith("_created")]
    finally:
        server.terminate()
        server.wait(30)


def first_sample(server, port, log):
    """Asks until the scrape has been stored; the 60 s only end a run that would never end."""
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        assert server.poll() is None, log.read_text()[-2000:]
        with contextlib.suppress(OSError):
            query = "/api/v1/query?query=walld_events_received_total%7Bkind%3D%22token%22%7D"
            rows = asked(port, query)["result"]
            if rows:
                return rows
        time.sleep(0.1)
    raise AssertionError("never scraped: " + log.read_text()[-2000:])
