"""A data directory read while a daemon writes and reclaims it, and after its death."""

import os
import subprocess
import sys

import pytest

from walld.cli.inspect.offline import find

AGENT = """
import sys, time, walld_client
client = walld_client.connect(socket=sys.argv[1])
kept = client.reply("kept")
number = 0
for turn in range(40):
    with client.reply(f"turn {turn}") as reply:
        for _ in range(200):
            kept.token(f"{number} ")
            number += 1
            reply.token("z" * 50)
        reply.end()
    time.sleep(0.02)
drained = kept.drain(20)  # the daemon may have come later than the agent
print(kept.sent_seq, drained, flush=True)
sys.stdin.read()
"""


def text_of(found):
    """Text and last seq of the one reply that is always there."""
    for reply in found.replies:
        if reply.session_id == "kept":
            return b"".join(part.text for part in reply.segments).decode(), reply
    return "", None


@pytest.fixture
def both(tmp_path):
    """(daemon, agent, data directory) with the agent streaming."""
    data, path = tmp_path / "data", str(tmp_path / "walld.sock")
    command = [sys.executable, "-m", "walld", "serve", "--data", str(data), "--socket", path]
    environment = {name: text for name, text in os.environ.items() if name[:6] != "WALLD_"}
    with (
        open(tmp_path / "log", "wb") as log,
        subprocess.Popen(
            [*command, "--reclaim-seconds", "0"], stderr=log, env=environment
        ) as daemon,
        subprocess.Popen(
            [sys.executable, "-c", AGENT, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        ) as agent,
    ):
        try:
            yield daemon, agent, data
        finally:
            daemon.kill()
            agent.kill()


def test_every_reading_is_a_prefix_and_both_dead_lose_nothing_drained(both):
    daemon, agent, data = both
    os.set_blocking(agent.stdout.fileno(), False)
    last_seq = readings = 0
    said = b""
    while not said:
        said = agent.stdout.read() or b""
        assert daemon.poll() is None
        assert agent.poll() is None
        if not (data / "wal").is_dir():
            continue
        found = find(str(data))
        assert found.doubts == []
        text, reply = text_of(found)
        if reply is not None:
            readings += 1
            assert reply.last_seq >= last_seq
            last_seq = reply.last_seq
            assert text == "".join(f"{number} " for number in range(last_seq))
            assert (reply.status, reply.owner_alive) == ("live", True)
    assert readings > 0
    assert said.split() == [b"8000", b"True"]
    daemon.kill()
    agent.kill()
    daemon.wait()
    agent.wait()
    found = find(str(data))
    text, reply = text_of(found)
    assert found.doubts == []
    assert text == "".join(f"{number} " for number in range(8000))
    assert (reply.status, reply.lost_reason, reply.owner_alive) == ("crashed", "agent_lost", False)
