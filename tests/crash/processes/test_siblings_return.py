"""A daemon that was restarted, and processes that hold what they said while none was there."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
import walld_client
from agents.process import Obedient
from daemon_process import DaemonProcess
from walld_client import Unavailable

MakeAgent = Callable[..., Obedient]


def test_of_what_a_living_process_may_hold_nothing_is_proven_until_it_is_back(
    daemon: DaemonProcess, make_agent: MakeAgent
) -> None:
    agent = make_agent(daemon)
    agent.do("warm = client.reply('s', stream_id='warm')")
    agent.do("warm.token('x'); warm.drain(20, 'synced')")
    daemon.kill()
    agent.do("held = client.reply('t', stream_id='held')")
    agent.do("[held.token(word) for word in ('all ', 'of it')]")
    os.kill(agent.pid, signal.SIGSTOP)
    daemon.start()
    hasty = walld_client.connect(daemon.socket_path, timeout=1)
    assert hasty.recover(stream_id="warm") is not None
    with pytest.raises(Unavailable, match="has come back"):
        hasty.recover(stream_id="held")
    assert hasty.has_partial("t") is None, "it cannot know"
    hasty.close()
    os.kill(agent.pid, signal.SIGCONT)
    assert daemon.arrived("held", 2).text == "all of it"
    assert daemon.reader.recover(stream_id="never said") is None


@pytest.mark.parametrize("then", ["None", "warm.finish('stop')"])
def test_nothing_is_proven_soon_behind_a_restart(
    daemon: DaemonProcess, make_agent: MakeAgent, then: str
) -> None:
    agent = make_agent(daemon)
    agent.do("warm = client.reply('s', stream_id='warm')")
    agent.do(f"warm.token('x'); {then}")
    agent.do("warm.drain(20, 'synced')")
    daemon.restart()
    assert daemon.reader.recover(stream_id="never said") is None


def test_who_is_killed_has_nothing_to_come_back_with(
    daemon: DaemonProcess, make_agent: MakeAgent
) -> None:
    agent = make_agent(daemon)
    agent.do("warm = client.reply('s', stream_id='warm')")
    agent.do("warm.token('x'); warm.drain(20, 'synced')")
    os.kill(agent.pid, signal.SIGSTOP)
    daemon.restart()
    agent.kill()
    assert daemon.reader.recover(stream_id="never said") is None
