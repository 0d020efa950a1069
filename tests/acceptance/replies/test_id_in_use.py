"""A stream_id that is in use: who gives it again hears that nothing of it is kept."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from agents.process import Obedient
from daemon_process import DaemonProcess, environment, until

REGENERATES = """
import logging, sys, walld_client
logging.basicConfig(format="log: %(message)s")
client = walld_client.connect(sys.argv[1], timeout=30)
reply = client.reply("s", stream_id="message-1")
reply.token("cancelled text")
reply.cancel("user")
again = client.reply("s", stream_id="message-1")
for n in range(5):
    again.token("regenerated ")
again.finish("stop")
"""


def test_a_second_process_is_told_where_it_waits(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], agent: Obedient
) -> None:
    first = make_agent(daemon)
    first.do("reply = client.reply('s', stream_id='r'); reply.token('mine'); reply.drain(20)")
    agent.do("reply = client.reply('s', stream_id='r'); reply.token('theirs')")
    said = """
    try:
        word = reply.drain(20, 'synced')
    except walld_client.Refused as error:
        word = [error.code, str(error)]
    """
    for _ in range(2):  # also where it is known before
        agent.do(said)
        code, text = agent.do("word")
        assert code == "stream_owned"
        assert "'r'" in text
        assert "release" in text
    assert agent.do("reply.durable_seq, reply.token('more'), reply.end()") == [-1, 0, 0]
    assert agent.do("client.stats().refused_replies, client.stats().late") == [1, 2]
    lines = [
        line for line in agent.log_path.read_text().splitlines() if "refused reply 'r'" in line
    ]
    assert len(lines) == 1
    assert "stream_owned" in lines[0]
    first.do("reply.token(' alone')")
    assert daemon.arrived("r", 2).text == "mine alone"
    assert daemon.metrics()['walld_protocol_errors_total{code="stream_owned"}'] == 1
    until(lambda: "its stream_id 'r' is in use" in daemon.log_text(), "a line of the daemon")


def test_a_program_that_waits_for_nothing_is_told_by_its_end(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], agent: Obedient
) -> None:
    first = make_agent(daemon)
    first.do("reply = client.reply('s', stream_id='r'); reply.drain(20)")
    agent.do("reply = client.reply('s', stream_id='r'); reply.token('theirs'); client.close()")
    assert "refused reply 'r' of session 's'" in agent.log_path.read_text()


@pytest.mark.parametrize("last", ["", "client.close()"])
def test_a_program_that_ends_at_once_hears_it(daemon: DaemonProcess, last: str) -> None:
    command = [sys.executable, "-c", REGENERATES + last, daemon.socket_path]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.count("walld refused reply 'message-1' of session 's'") == 1, done.stderr
    assert daemon.orphan("message-1").text == "cancelled text"


def test_the_first_can_be_released_by_its_id(daemon: DaemonProcess, agent: Obedient) -> None:
    agent.do("first = client.reply('s', stream_id='r'); first.token('a'); first.cancel('user')")
    agent.do("again = client.reply('s', stream_id='r'); again.token('b')")
    assert agent.do("first.drain(20)") is True
    assert agent.do("client.stats().refused_replies, client.release('r')") == [1, True]
    agent.do("last = client.reply('s', stream_id='r'); last.token('c')")
    assert agent.do("last.drain(20)") is True
    assert daemon.arrived("r", 1).text == "c"
