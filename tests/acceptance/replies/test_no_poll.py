"""An agent in a process where `select.poll` is gone, as after eventlet's `monkey_patch()`."""

from __future__ import annotations

import pytest
from agents.process import Obedient
from daemon_process import DaemonProcess, until

GONE = """
import select
for name in ("poll", "epoll"):
    delattr(select, name)
"""
MANY = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
files = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
"""


@pytest.mark.parametrize("files", ["", MANY], ids=["", "beyond FD_SETSIZE"])
def test_it_reaches_a_restarted_daemon(daemon: DaemonProcess, agent: Obedient, files: str) -> None:
    agent.do(f"{GONE}{files}")
    agent.do("reply = client.reply('s', stream_id='r')")
    assert agent.do("reply.token('one ')") == 1
    assert agent.do("reply.drain(20, 'synced'), reply.durable_seq") == [True, 1]
    daemon.kill()
    daemon.start()
    # A program that is silent: its thread alone can notice.
    until(lambda: agent.do("client.stats().reconnects") == 1, "a hang-up that was noticed")
    assert agent.do("reply.token('two')") == 2
    assert agent.do("reply.drain(20, 'synced'), reply.durable_seq") == [True, 2]
    assert daemon.arrived("r", 2).text == "one two"
    assert agent.do("client.check()").startswith("recoverable")


def test_it_appends_without_waiting(daemon: DaemonProcess, agent: Obedient) -> None:
    agent.do(GONE)
    agent.do("session = client.session('s')")
    agent.do("session.append('note', {'n': 1}, wait=False)")
    assert agent.do("len(session.events())") == 1
    daemon.kill()
    agent.do("session.append('note', {'n': 2}, wait=False)")
    daemon.start()
    until(lambda: agent.do("len(client._append_queue)") == 0, "what was posted is answered")
    assert agent.do("len(session.events())") == 2
