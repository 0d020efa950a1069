"""A program that is forked below Python: no hook runs, as in a worker of uWSGI (P1, P11)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from agents.process import Obedient
from agents.words import said
from daemon_process import DaemonProcess, environment

FORK = """
import ctypes, os, signal, traceback
libc = ctypes.PyDLL(None)
def forked(work):
    ready, told = os.pipe()
    child = libc.fork()
    if child == 0:
        try:
            work()
            os.write(told, b'.')
            while True:
                signal.pause()
        except BaseException:
            os.write(told, traceback.format_exc().encode()[-4000:])
        os._exit(1)
    os.close(told)
    error = os.read(ready, 5000)
    assert error == b'.', error.decode()
    return child
"""

WORK = """
def work():
    global own
    own = client.reply('of {name}', stream_id='{name}')
    for seq in range(1, 101):
        own.token(token({at}, seq))
    assert own.drain(20)
    mine = client.recover('of {name}')
    assert mine is not None and mine.stream_id == '{name}', mine
    own.event('alive')
    assert own.drain(20)
forked(work)
"""


@pytest.fixture
def connected(daemon: DaemonProcess, make_agent: Callable[..., Obedient]) -> Obedient:
    """An agent that has said something and asked something, before it is forked."""
    agent = make_agent(daemon)
    agent.do("reply = client.reply('parent', stream_id='parent')")
    agent.do("[reply.token(token(0, seq)) for seq in range(1, 51)][-1]")
    assert agent.do("reply.drain(20), client.recover('parent').stream_id") == [True, "parent"]
    agent.do("import asyncio, walld_client.aio; mine = walld_client.aio.connect(client._locate())")
    assert agent.do("asyncio.run(mine.recover('parent')).stream_id") == "parent"
    agent.do(FORK)
    return agent


def test_each_child_has_its_own_words_and_answers(
    daemon: DaemonProcess, connected: Obedient
) -> None:
    """They drew the same stream numbers, and shared a socket for events and one for answers."""
    children = [
        connected.do(WORK.format(name=name, at=at)) for at, name in enumerate(("a", "b"), 1)
    ]
    try:
        connected.do("reply.token(token(0, 51)), reply.drain(20)")
        assert connected.do("client.recover('parent').stream_id") == "parent"
        for at, name in enumerate(("a", "b"), 1):
            reply = daemon.reader.recover(f"of {name}")
            assert reply is not None
            assert (reply.stream_id, reply.text, reply.gaps) == (name, said(at, 100), [])
        mine = daemon.reader.recover("parent")
        assert mine is not None
        assert (mine.text, mine.gaps) == (said(0, 51), [])
        connected.kill()
        assert daemon.orphan("parent").text == said(0, 51)
        its = daemon.reader.recover(stream_id="a")
        assert its is not None
        assert (its.status, its.owner_alive) == ("live", True)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
    assert daemon.orphan("b").text == said(2, 100)
    assert daemon.metrics()["walld_lost_acked_total"] == 0


def test_the_parent_is_lost_at_once_though_its_child_says_nothing(
    daemon_on_each: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """The child has a copy of its socket, and no call of it has closed that."""
    daemon = daemon_on_each
    agent = make_agent(daemon)
    agent.do("reply = client.reply('parent', stream_id='parent')")
    agent.do("[reply.token(token(0, seq)) for seq in range(1, 51)][-1]")
    agent.do(FORK)
    child = agent.do("forked(lambda: None)")
    try:
        agent.kill()
        reply = daemon.orphan("parent")
        assert (reply.text, reply.lost_reason) == (said(0, 50), "agent_lost")
    finally:
        os.kill(child, signal.SIGKILL)


CALLS = {
    "token": "reply.token('x') == 0",
    "reasoning": "reply.reasoning('x') == 0",
    "arguments": "reply.tool_arguments('x', call_id='c') == 0",
    "long token": "reply.token('x' * 5000) == 0",
    "event": "reply.event('x') == 0",
    "end": "reply.end() == 0",
    "release": "reply.release() == 0",
    "release by id": "client.release('parent') is False",
    "sent_seq": "isinstance(reply.sent_seq, int)",
    "durable_seq": "reply.durable_seq >= -1",
    "stats": "client.stats().streams == 0",
    "check": "client.check().startswith('recoverable')",
    "drain": "reply.drain(20)",
    "reply": "client.reply('own', stream_id='own').drain(20)",
    "recover": "client.recover('nobody') is None",
    "has_partial": "client.has_partial('nobody') is False",
    "resolve": "client.resolve('nobody') is False",
    "session": "client.session('s').append('note', {'x': 1}).seq == 1",
    "post": "client.session('s').append('note', {}, wait=False).is_new and client.close(20)",
    "sessions": "client.sessions() == []",
    "delete": "client.delete('s') is False",
    "close": "client.close(20)",
    "nothing": "globals().pop('reply') and client.stats().streams == 0",
    "aio": "asyncio.run(mine.recover('parent')).stream_id == 'parent'",
}


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_whatever_the_child_calls_first_nothing_of_it_is_the_parents(
    daemon: DaemonProcess, connected: Obedient, call: str
) -> None:
    """A reply that it inherited is mute; a lock that a thread of the parent had is free."""
    connected.do("import threading; inside = threading.Event(); leave = threading.Event()")
    connected.do(
        """
        def hold():
            from walld_client import first_use
            with client._link.mutex, client._query._lock, first_use._lock:
                inside.set()
                leave.wait()
        """
    )
    child = connected.do(
        f"""
        def work():
            signal.alarm(60)
            assert {call}, {call!r}
            held = client._link.registry.by_number.values()
            assert all(one.stream_id != 'parent' for one in held)
        thread = threading.Thread(target=hold)
        thread.start()
        inside.wait()
        try:
            child = forked(work)
        finally:
            leave.set()
            thread.join()
        child
        """
    )
    try:
        connected.do("reply.token(token(0, 51)), reply.drain(20)")
        mine = daemon.reader.recover("parent")
        assert mine is not None
        assert (mine.text, mine.last_seq, mine.gaps) == (said(0, 51), 51, [])
    finally:
        os.kill(child, signal.SIGKILL)


def test_the_first_calls_of_many_threads_of_a_child(
    daemon: DaemonProcess, connected: Obedient
) -> None:
    """One of them makes all anew, before any other begins."""
    child = connected.do(
        """
        import itertools, threading, time
        from walld_client.link import process
        class Slow:
            seconds = itertools.count(1)
            def forked(self):
                time.sleep(next(self.seconds) / 10)  # a second one would end behind the first
        slow = Slow()
        process._registered = [slow, *process._registered]
        def say(at):
            start.wait()
            own = client.reply('threads', stream_id=f't{at}')
            for seq in range(1, 21):
                own.token(token(at, seq))
                time.sleep(0.05)  # longer than all that a fork takes
            kept[at] = own, own.drain(20)
        def work():
            global start, kept
            start, kept = threading.Barrier(8), {}
            threads = [threading.Thread(target=say, args=(at,)) for at in range(8)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            assert [kept[at][1] for at in range(8)] == [True] * 8, kept
        forked(work)
        """
    )
    try:
        replies = daemon.reader.recover_all("threads")
        assert {(one.stream_id, one.text) for one in replies} == {
            (f"t{at}", said(at, 20)) for at in range(8)
        }
    finally:
        os.kill(child, signal.SIGKILL)


OLD_KERNEL = """
import mmap, sys
class Older(mmap.mmap):
    def madvise(self, *_):
        raise OSError(22, 'Invalid argument')
mmap.mmap = Older
import walld_client
client = walld_client.connect(sys.argv[1])
reply = client.reply('parent', stream_id='parent')
reply.token('the parent')
assert reply.drain(20) and client.recover('parent') is not None
from walld_client.link.fork_flag import is_owner
assert is_owner == b'\\1', is_owner
def work():
    own = client.reply('own', stream_id='own')
    assert reply.token('never said') == 0
    own.token('the child')
    assert own.drain(20)
    assert client.recover('own').stream_id == 'own'
child = forked(work)
reply.token(' alone')
assert reply.drain(20)
os.kill(child, signal.SIGKILL)
"""


def test_where_the_kernel_has_no_such_flag_the_pid_says_it(daemon: DaemonProcess) -> None:
    """A token does not ask; the first call that is none does."""
    command = [sys.executable, "-c", FORK + OLD_KERNEL, daemon.socket_path]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert daemon.orphan("parent").text == "the parent alone"
    assert daemon.orphan("own").text == "the child"
