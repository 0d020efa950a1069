"""A program that forks after it has connected: child and parent are two agents (P1)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from agents.process import Obedient
from agents.words import said
from daemon_process import DaemonProcess, until

FORK = """
import os, signal
ready, told = os.pipe()
child = os.fork()
if child == 0:
    {child}
    os.write(told, b'1')
    while True:
        signal.pause()
os.read(ready, 1)
child
"""


def sockets_of(pid: int) -> int:
    """How many sockets a process has open."""
    folder = f"/proc/{pid}/fd"
    return sum(os.readlink(f"{folder}/{fd}").startswith("socket:") for fd in os.listdir(folder))


def test_the_parent_is_lost_at_once_though_its_child_lives(
    daemon_on_each: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """The child closed the socket it inherited: else the parent's death gave no end of it."""
    daemon = daemon_on_each
    assert daemon.reader.recover_all() == []
    without_agents = daemon.status()["connections"]
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='parent')")
    agent.do("[reply.token(token(0, seq)) for seq in range(1, 101)][-1]")
    child = agent.do(FORK.format(child="pass"))
    assert sockets_of(agent.pid) == 1
    assert sockets_of(child) == 0
    try:
        assert agent.do("reply.token(token(0, 101))") == 101
        agent.kill()
        reply = daemon.orphan("parent")
        assert (reply.text, reply.last_seq) == (said(0, 101), 101)
        assert (reply.status, reply.lost_reason) == ("crashed", "agent_lost")
        until(lambda: daemon.status()["connections"] == without_agents, "EOF")
    finally:
        os.kill(child, signal.SIGKILL)


def test_the_child_streams_on_a_connection_of_its_own(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='parent'); reply.token('the parent, ')")
    child = agent.do(
        FORK.format(
            child="""
    assert reply.token('never said') == 0
    assert client.stats().late == 1
    own = client.reply('s', stream_id='child')
    own.token('the child')
    assert own.drain(20)
    assert client.recover('s').stream_id == 'child'
"""
        )
    )
    try:
        agent.do("reply.token('alone'); reply.drain(20)")
        mine = daemon.reader.recover(stream_id="parent")
        its = daemon.reader.recover(stream_id="child")
        assert mine is not None
        assert its is not None
        assert (mine.text, mine.status) == ("the parent, alone", "live")
        assert (its.text, its.status) == ("the child", "live")
        agent.kill()
        assert daemon.orphan("parent").text == "the parent, alone"
        its = daemon.reader.recover(stream_id="child")
        assert its is not None
        assert (its.text, its.status, its.owner_alive) == ("the child", "live", True)
    finally:
        os.kill(child, signal.SIGKILL)
    assert daemon.orphan("child").text == "the child"


def test_forked_while_threads_stream(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """Locks may be held by threads that are not there in the child; nothing may hang or tear."""
    agent = make_agent(daemon)
    children = agent.do(
        """
        import os, signal, threading
        replies = [client.reply('s', stream_id=f'r{at}') for at in range(4)]
        def stream(at):
            for seq in range(1, 5001):
                replies[at].token(token(at, seq))
        threads = [threading.Thread(target=stream, args=(at,)) for at in range(4)]
        [thread.start() for thread in threads]
        children = []
        for number in range(5):
            pid = os.fork()
            if pid == 0:
                own = client.reply('children', stream_id=f'child {number}')
                own.token('hello')
                os._exit(0 if own.drain(20) else 1)
            children.append(pid)
        [thread.join() for thread in threads]
        [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
        """
    )
    assert children == [0] * 5
    assert agent.do("[reply.drain(30) for reply in replies]") == [True] * 4, "the kernel had room"
    agent.kill()
    for at in range(4):
        reply = daemon.orphan(f"r{at}")
        assert (reply.text, reply.last_seq, reply.gaps) == (said(at, 5000), 5000, [])
    for number in range(5):
        assert daemon.orphan(f"child {number}").text == "hello"
    assert daemon.metrics()["walld_lost_acked_total"] == 0
