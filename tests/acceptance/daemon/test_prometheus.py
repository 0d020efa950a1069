"""The exposition as Prometheus itself sees it: its linter, and a real server that scrapes.

TCP names no user, so what goes by token is coarse there (`security/test_observers.py`).
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
import walld_client

from walld.daemon.metrics import Metrics
from walld.engine.counters import Counters, Gauges

TOKENS = 542
SCRAPED = [f'walld_events_received_total{{kind="token"}} {seen}.0' for seen in (400, 500)]


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


@contextlib.contextmanager
def running(log, *command, **kwargs):
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, **kwargs)
    try:
        yield process
    finally:
        process.terminate()
        assert process.wait(30) == 0, log.read_text()[-2000:]


@pytest.fixture
def daemon(tmp_path):
    """A walld that took TOKENS: (port of its metrics, its socket)."""
    port = free_port()
    path = str(tmp_path / "walld.sock")
    environment = {name: text for name, text in os.environ.items() if name[:6] != "WALLD_"}
    command = [sys.executable, "-m", "walld", "serve", "--data", str(tmp_path / "data")]
    command += ["--socket", path, "--metrics", str(port)]
    with running(tmp_path / "daemon.log", *command, env=environment) as process:
        client = walld_client.connect(socket=path)
        reply = client.reply("metrics")
        for _ in range(TOKENS):
            reply.token("word ")
        give_up = time.monotonic() + 60
        while not reply.drain(1.0):  # where the daemon is not there yet, it is connected later
            assert process.poll() is None, (tmp_path / "daemon.log").read_text()
            assert time.monotonic() < give_up
        yield port, path
        reply.end()
        client.close()


def test_a_real_daemon_is_clean_by_both_ways(daemon):
    port, path = daemon
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        scraped = response.read().decode()
    assert (lint(scraped).returncode, lint(scraped).stdout) == (0, "")
    command = [sys.executable, "-m", "walld", "status", "--prometheus", "--socket", path]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    def names(text):
        return {line.split(" ")[0] for line in text.splitlines() if line[:1] != "#"}

    assert names(printed) == names(scraped)
    assert f'walld_events_received_total{{kind="token"}} {TOKENS}.0' in printed
    assert set(SCRAPED) & set(scraped.splitlines())
    assert not [line for line in scraped.splitlines() if "_created" in line]


def asked(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
        return json.load(response)["data"]


def test_a_real_prometheus_scrapes_it(tmp_path, daemon):
    prometheus = tool("prometheus")
    scraped, _ = daemon
    port = free_port()
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 200ms, scrape_timeout: 200ms}\n"
        "scrape_configs:\n"
        "  - job_name: walld\n"
        f"    static_configs: [{{targets: ['127.0.0.1:{scraped}']}}]\n"
    )
    log = tmp_path / "prometheus.log"
    command = [
        *(prometheus, f"--config.file={tmp_path}/prometheus.yml"),
        *(f"--storage.tsdb.path={tmp_path}/tsdb", f"--web.listen-address=127.0.0.1:{port}"),
    ]
    with running(log, *command) as server:
        rows = first_sample(server, port, log)
        assert [row["value"][1] for row in rows] in (["400"], ["500"])
        assert rows[0]["metric"]["kind"] == "token"
        (target,) = asked(port, "/api/v1/targets")["activeTargets"]
        assert (target["health"], target["lastError"]) == ("up", "")
        names = asked(port, "/api/v1/label/__name__/values")
        assert "walld_flush_lag_seconds_bucket" in names
        assert not [name for name in names if name.endswith("_created")]


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
