"""The metrics port, which anybody of the machine may crowd or take: agents are served."""

from __future__ import annotations

import re
import socket
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest
import walld_client
from daemon_process import MakeDaemon, until
from wire_peer import Daemon

CROWD = 600


def test_a_crowd_at_the_metrics_port_takes_no_agents_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALLD_METRICS", "127.0.0.1:0")
    with Daemon(tmp_path, files_max=500) as daemon, ExitStack() as stack:
        port = re.search(r"metrics on 127\.0\.0\.1 port (\d+)", daemon.logged("metrics on"))
        assert port is not None
        for _ in range(CROWD):
            peer = stack.enter_context(socket.socket())
            peer.settimeout(10)
            peer.connect(("127.0.0.1", int(port[1])))
            peer.send(b"G")
        client = walld_client.connect(daemon.socket_path)
        reply = client.reply("s")
        reply.token("said beside a crowd")
        assert reply.drain(timeout=10, level="synced")
        found = client.recover("s")
        assert found is not None
        assert found.text == "said beside a crowd"
        client.close()
        assert "cannot accept" not in daemon.log_text()


def test_a_port_that_somebody_has_keeps_no_daemon_from_starting(
    make_daemon: MakeDaemon,
) -> None:
    """Anybody of the machine may have it: that is said, and the port taken once it is free."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        daemon = make_daemon("--metrics", str(port)).start()
        said = f"metrics on 127.0.0.1:{port}: Address already in use"
        status = daemon.status()
        assert (status["state"], said in str(status["trouble"])) == ("degraded", True)
        client = daemon.reader
        reply = client.reply("s")
        reply.token("said all the same")
        assert reply.drain(timeout=30, level="synced")
        daemon.logged(said)
    until(lambda: daemon.status()["state"] == "ok", "a port that is taken once it is free")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert b"walld_build_info" in answer.read()
    daemon.logged(f"metrics on 127.0.0.1 port {port}")
    assert daemon.log_text().count(said) == 1, "once"
    assert daemon.terminate() == 0


def test_a_daemon_ends_while_somebody_has_its_port(make_daemon: MakeDaemon) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        daemon = make_daemon("--metrics", str(taken.getsockname()[1])).start()
        assert daemon.terminate() == 0


def test_an_address_that_no_interface_has_is_refused(make_daemon: MakeDaemon) -> None:
    """192.0.2.0/24 is for pages alone (RFC 5737): to wait for it would be to wait for ever."""
    daemon = make_daemon("--metrics", "192.0.2.1:9464").start(wait=False)
    assert daemon.ended() == 1
    assert "metrics on 192.0.2.1:9464: Cannot assign requested address" in daemon.log_text()
