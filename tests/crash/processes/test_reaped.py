"""A supervisor that has waited for its killed agent and asks at once: gone means gone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import walld_client
from daemon_process import DaemonProcess, environment

AGENT = """
import os, sys
import walld_client
client = walld_client.connect(sys.argv[1])
for at in range(int(sys.argv[2])):
    client.reply('s', stream_id=f'{sys.argv[3]}-{at}').token('cut off')
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("streams", [1, 30])
def test_what_a_reaped_process_left_is_an_orphan_at_once(
    make_daemon: Callable[..., DaemonProcess], streams: int
) -> None:
    daemon = make_daemon().start()
    reader = daemon.reader
    for round_no in range(10):
        assert reader.orphans("s") == []
        command = [sys.executable, "-c", AGENT, daemon.socket_path, str(streams), str(round_no)]
        assert subprocess.run(command, env=environment(), check=False).returncode == -9
        found = reader.orphans("s")
        assert len(found) == streams
        assert not any(reply.owner_alive for reply in found)
        assert {reply.text for reply in found} <= {"cut off", ""}
        for reply in found:
            assert reader.resolve(reply.stream_id, reply.last_seq) is True


def test_a_restart_with_agents_alive_breaches_no_bound(
    make_daemon: Callable[..., DaemonProcess],
) -> None:
    """What a returning client says first is as old as its connection, not as the machine."""
    daemon = make_daemon().start()
    client = walld_client.connect(daemon.socket_path)
    replies = [client.reply("s") for _ in range(3)]
    for _ in range(4):
        for reply in replies:
            reply.token("x")
            assert reply.drain(20, "synced")
        daemon.restart()
        for reply in replies:
            reply.token("y")
            assert reply.drain(20, "written")
        metrics = daemon.metrics()
        assert (
            metrics['walld_flush_lag_seconds_bucket{le="10.0"}']
            == (metrics['walld_flush_lag_seconds_bucket{le="+Inf"}'])
        )
    assert "bound breached" not in daemon.log_text()
    for reply in replies:
        reply.end()
    client.close()
