"""A crowd at the metrics port, of whoever is on the machine: agents find room all the same."""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
import walld_client
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
