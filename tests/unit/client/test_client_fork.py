"""The child of a fork: the parent's socket is closed, its replies are mute, a new start works.

Real forks in processes of their own, against a scripted daemon in this one.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest
from fake_daemon import FakeDaemon, Peer
from walld_client.link.connection import Connection
from walld_client.query.aio_query import AsyncQuery
from walld_client.query.query import Query
from walld_client.session.append_connection import AppendConnection
from walld_client.wire import messages as wire

PREAMBLE = """
import os, sys, time
import walld_client
client = walld_client.connect(sys.argv[1])
reply = client.reply("parent", stream_id="p")
reply.token("from the parent")
"""


def run(daemon: FakeDaemon, script: str, stderr: int | None = None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PREAMBLE + script, daemon.path]
    env = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    return subprocess.Popen(command, env=env, stderr=stderr)


def of_session(daemon: FakeDaemon, session_id: str) -> Peer:
    def found() -> Peer | None:
        for peer in daemon.agents():
            if any(isinstance(m, wire.Start) and m.session_id == session_id for m in peer.messages):
                return peer
        return None

    peer: Peer = daemon.until(found)
    return peer


def test_killing_the_parent_ends_its_connection_though_the_child_lives(
    daemon: FakeDaemon,
) -> None:
    parent = run(
        daemon,
        """
child = os.fork()
if child == 0:
    assert reply.token("from the child") == 0
    assert reply.end() == 0
    mine = client.reply("child", stream_id="c")
    assert mine.token("from the child") == 1
    mine.event("pid", os.getpid())
    time.sleep(60)
time.sleep(60)
""",
    )
    try:
        theirs = of_session(daemon, "parent")
        mine = of_session(daemon, "child")
        daemon.until(lambda: any(isinstance(m, wire.Custom) for m in mine.messages))
        assert theirs is not mine
        assert mine.text() == "from the child"
        assert theirs.messages[0].producer != mine.messages[0].producer
        assert not theirs.ended
        parent.send_signal(signal.SIGKILL)
        daemon.until(lambda: theirs.ended)
        assert not mine.ended
        assert theirs.text() == "from the parent"
        pid = next(m for m in mine.messages if isinstance(m, wire.Custom))
        os.kill(int.from_bytes(pid.payload[-4:].lstrip(b"\xcd\xce\xcf"), "big"), signal.SIGKILL)
        daemon.until(lambda: mine.ended)
    finally:
        parent.kill()
        parent.wait()


def test_the_parent_goes_on_after_a_fork(daemon: FakeDaemon) -> None:
    parent = run(
        daemon,
        """
for _ in range(3):
    child = os.fork()
    if child == 0:
        sys.exit(0)          # a child that ends runs atexit and finalizers too
    os.waitpid(child, 0)
reply.token("!")
assert reply.drain(10)
reply.end()
assert client.close(10)
""",
    )
    peer = of_session(daemon, "parent")
    daemon.until(lambda: any(isinstance(m, wire.Drain) for m in peer.messages))
    peer.say(wire.Drained(1, "written"))
    assert parent.wait(20) == 0
    daemon.until(lambda: peer.ended)
    assert peer.text() == "from the parent!"
    events = [message for message in peer.messages if not isinstance(message, wire.Drain)]
    assert isinstance(events[-1], wire.Release)
    assert len(daemon.agents()) == 1


def test_the_child_inherits_no_descriptor_and_says_once_that_it_is_mute(
    daemon: FakeDaemon,
) -> None:
    parent = run(
        daemon,
        """
import logging
class Count(logging.Handler):
    lines = []
    def emit(self, record):
        self.lines.append(record.getMessage())
logging.getLogger("walld").addHandler(Count())
client.stats()
ours = set(os.listdir("/proc/self/fd"))
child = os.fork()
if child == 0:
    left = [fd for fd in os.listdir("/proc/self/fd") if int(fd) > 2]
    links = [f"/proc/self/fd/{fd}" for fd in left]
    kinds = [os.readlink(link) for link in links if os.path.lexists(link)]
    assert not [k for k in kinds if k.startswith(("socket:", "pipe:"))], kinds
    assert reply.token("x") == reply.token("x") == 0
    assert len(Count.lines) == 1 and "'p' belongs to the parent" in Count.lines[0], Count.lines
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
""",
    )
    assert parent.wait(20) == 0


def test_requests_work_in_the_child(daemon: FakeDaemon) -> None:
    daemon.answers([])
    parent = run(
        daemon,
        """
assert client.recover("S") is None
child = os.fork()
if child == 0:
    assert client.recover("S") is None
    os._exit(7)
status = os.waitpid(child, 0)[1]
assert os.waitstatus_to_exitcode(status) == 7
assert client.recover("S") is None
""",
    )
    assert parent.wait(20) == 0
    assert len([p for p in daemon.peers if p.role == "query"]) == 2


def test_a_fork_in_the_middle_of_another_thread_s_send(daemon: FakeDaemon) -> None:
    """The lock may be held at the fork by a thread that the child does not have."""
    parent = run(
        daemon,
        """
import threading
stop = False
def hammer():
    while not stop:
        reply.token("x")
threads = [threading.Thread(target=hammer) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        assert reply.token("no") == 0
        mine = client.reply("child")
        os._exit(0 if mine.token("x") == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
stop = True
for thread in threads:
    thread.join()
os._exit(0)
""",
    )
    assert parent.wait(60) == 0


def test_a_fork_in_the_middle_of_another_thread_s_end_of_the_client(daemon: FakeDaemon) -> None:
    """Its wait is the parent's; in the child nobody is in it."""
    parent = run(
        daemon,
        """
with client._closing.lock:
    child = os.fork()
    if child == 0:
        client.reply("child").token("x")
        os._exit(7 if client.close(60) else 8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
""",
    )
    assert parent.wait(20) == 0


MAKERS: list[Callable[[Callable[[], str]], Query | AsyncQuery | AppendConnection | Connection]] = [
    lambda locate: Query(locate, 1.0),
    lambda locate: AsyncQuery(locate, 1.0),
    AppendConnection,
    lambda locate: Connection(locate, 1 << 20, b""),
]


@pytest.mark.parametrize("make", MAKERS, ids=["query", "aio query", "posts", "link"])
def test_a_fork_in_the_middle_of_another_thread_s_close(
    make: Callable[[Callable[[], str]], Query | AsyncQuery | AppendConnection | Connection],
) -> None:
    """socket.close() lets other threads go on, maybe to a fork, with its descriptor already -1."""
    thing = make(lambda: "/nowhere")
    ours, theirs = socket.socketpair()
    thing._socket = ours
    with theirs:
        ours.close()
        if isinstance(thing, Connection):
            thing.leave_to_parent()
        else:
            thing.forked()
    assert thing._socket is None


def test_what_fails_in_the_child_keeps_nothing_else_from_being_left_to_the_parent(
    daemon: FakeDaemon,
) -> None:
    parent = run(
        daemon,
        """
from walld_client.link import process
class Fails:
    def __init__(self, error):
        self.error = error
    def forked(self):
        raise self.error
bad = [Fails(OSError("the first")), Fails(KeyboardInterrupt("the second"))]
process._registered = [*bad, *process._registered]
assert client._link.has_socket
child = os.fork()
if child == 0:
    os._exit(8 if client._link.has_socket else 7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
""",
        stderr=subprocess.PIPE,
    )
    _, said = parent.communicate(timeout=20)
    assert parent.returncode == 0, said.decode()
    assert b"OSError('the first')" in said
    assert b"KeyboardInterrupt('the second')" in said
