"""An agent at its limit of open files, or of threads: told, never raised into; delivered later."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import walld_client
from agents.process import Obedient
from daemon_process import DaemonProcess, environment, until
from walld_client import aio

TAKEN = """
import os, resource, threading
def take_all():
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    taken = []
    while True:
        try:
            taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            return taken
def free(taken):
    for fd in taken:
        os.close(fd)
"""
NEVER_DUE = """
from walld_client.link.reconnect import Reconnect
link = getattr(client, "inner", client)._link
is_due = Reconnect.is_due
Reconnect.is_due = lambda reconnect: False
"""
"""No attempt to connect before the descriptor of the last one is taken: one that finds nobody is
the outage's one line, one that finds the daemon ends it.
"""


def test_the_first_reply_waits_for_descriptors(daemon: DaemonProcess, agent: Obedient) -> None:
    agent.do(f"{TAKEN}\ntaken = take_all()")
    assert agent.do("reply = client.reply('s', stream_id='r'); reply.token('one ')") == 1
    assert agent.do("reply.token('two'), client.stats().backlog") == [2, 3]
    assert agent.do("reply.drain(0.1)") is False
    until(lambda: "Too many open files" in agent.log_path.read_text(), "a warning")
    assert agent.do("reply.token('.'), client.stats().dropped") == [3, 0]
    # Silent from here on: whoever waits for a tool must not be what makes it try again.
    agent.do("free(taken)")
    until(lambda: agent.do("client.stats().backlog") == 0, "nothing waits any more")
    assert daemon.arrived("r", 3).text == "one two."
    lines = [line for line in agent.log_path.read_text().splitlines() if "open files" in line]
    assert len(lines) == 1, "said once"
    assert agent.do("reply.drain(20, 'synced')") is True


def test_a_connection_that_is_lost_at_the_limit_is_made_again(
    daemon: DaemonProcess, agent: Obedient
) -> None:
    agent.do("reply = client.reply('s', stream_id='r'); reply.token('one '); reply.drain(20)")
    agent.do(f"{TAKEN}\n{NEVER_DUE}\ntaken = take_all()")
    daemon.kill()
    until(lambda: not agent.do("link.has_socket"), "a connection that is hung up")
    agent.do("taken += take_all()")  # the descriptor that was the connection's is gone, too
    daemon.start()
    agent.do("Reconnect.is_due = is_due; reply.token('two')")
    until(lambda: "Too many open files" in agent.log_path.read_text(), "a warning")
    agent.do("free(taken)")
    until(lambda: agent.do("client.stats().backlog") == 0, "nothing waits any more")
    assert daemon.arrived("r", 2).text == "one two"


def test_who_waits_does_the_work_of_a_thread_that_cannot_be_started(
    daemon: DaemonProcess, agent: Obedient
) -> None:
    agent.do("import threading; threading.stack_size(1 << 46)")
    agent.do("reply = client.reply('s', stream_id='r')")
    for said in (1, 2):
        assert agent.do("reply.token('word ')") == said
        assert agent.do("reply.drain(20, 'synced')") is True
        daemon.kill()
        daemon.start()
    assert agent.do("reply.token('word ')") == 3
    assert agent.do("client.close()") is True
    assert daemon.arrived("r", 3).text == "word " * 3


def test_a_thread_that_cannot_be_started_is_started_later(
    daemon: DaemonProcess, agent: Obedient
) -> None:
    """No address space has room for such a stack, so the kernel refuses the thread for real."""
    agent.do("import threading; before = threading.stack_size(1 << 46)")
    assert agent.do("reply = client.reply('s', stream_id='r'); reply.token('one ')") == 1
    assert daemon.arrived("r", 1).text == "one "
    assert agent.log_path.read_text().count("cannot start its thread") == 1
    daemon.kill()
    assert agent.do("reply.token('two ')") == 2
    agent.do("threading.stack_size(before)")
    daemon.start()
    # No other reply, no drain: the chores of the same reply look after it.
    assert agent.do("[reply.reasoning('.') for _ in range(600)][-1]") == 602
    assert daemon.arrived("r", 602).text == "one two "


@pytest.fixture
def no_descriptors() -> Any:
    """Takes all there are of this process when called; gives them back when the test ends."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []

    def take() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
        while True:
            try:
                taken.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                return

    def free() -> None:
        while taken:
            os.close(taken.pop())
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    yield take, free
    free()


def is_caused_by(error: BaseException | None, number: int) -> bool:
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__
    return error is not None and error.errno == number


Limit = tuple[Callable[[], None], Callable[[], None]]


@pytest.mark.parametrize("was_there", [False, True])
def test_requests_say_why(daemon: DaemonProcess, no_descriptors: Limit, was_there: bool) -> None:
    take, free = no_descriptors
    client = walld_client.connect(daemon.socket_path, timeout=0.5)
    if was_there:
        assert client.recover("s") is None
        daemon.kill()
        with pytest.raises(walld_client.Unavailable, match="no walld"):
            client.recover("s", stream_id="r")
        daemon.start()
    take()
    try:
        with pytest.raises(walld_client.Unavailable, match="Too many open files") as raised:
            client.recover("s")
        assert is_caused_by(raised.value, errno.EMFILE)
        assert "no walld at" not in str(raised.value), "whether one is there is not known"
        assert client.has_partial("s") is None
        with pytest.raises(walld_client.Unavailable, match="Too many open files"):
            client.session("s").append("note", {})
        assert "Too many open files" in client.check()
    finally:
        free()
    assert client.recover("s") is None
    client.close()


@pytest.mark.parametrize("was_there", [False, True])
def test_awaited_requests_say_why(
    daemon: DaemonProcess, no_descriptors: Limit, was_there: bool
) -> None:
    take, free = no_descriptors

    async def asks() -> None:
        client = aio.connect(daemon.socket_path, timeout=2.0)
        if was_there:
            assert await client.recover("s") is None
            daemon.kill()
            with pytest.raises(walld_client.Unavailable, match="no walld"):
                await client.recover("s", stream_id="r")
            daemon.start()
        take()
        try:
            with pytest.raises(walld_client.Unavailable, match="Too many open files") as raised:
                await client.recover("s")
            assert is_caused_by(raised.value, errno.EMFILE)
            assert await client.has_partial("s") is None
            with pytest.raises(walld_client.Unavailable, match="Too many open files"):
                await client.session("s").append("note", {})
        finally:
            free()
        assert await client.recover("s") is None
        await client.close()

    asyncio.run(asks())


ENDS = (
    TAKEN
    + """
import sys, time, walld_client
class Slow:  # goes first, while all descriptors are in use; the thread looks each 0.25 s
    def __del__(self, now=time.monotonic):
        until = now() + 1.0
        while now() < until: pass
slow = Slow()
where, own_file, how = sys.argv[1:]
client = walld_client.connect(where, timeout=1)
if how == "forked":  # the parent has a thread already; it ends as its child did
    before = client.reply("s"); before.token("one")
    child = os.fork()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
words = open(own_file, "w"); words.write("its own words")
taken = take_all()
reply = client.reply("s"); reply.token("x"); reply.token("y")
if how == "closed":
    client.close()
"""
)


@pytest.mark.parametrize("is_there", [True, False], ids=["daemon", "no daemon"])
@pytest.mark.parametrize("how", ["open", "closed", "forked"])
def test_a_program_that_ends_at_the_limit_ends_well(
    daemon: DaemonProcess, tmp_path: Path, how: str, is_there: bool
) -> None:
    """Of a thread that wakes while the interpreter ends pthread_exit(3) is called. That loads a
    library, for which there is no descriptor, and aborts the program.
    """
    where = daemon.socket_path if is_there else str(tmp_path / "nobody")
    own_file = tmp_path / "words"
    command = [sys.executable, "-c", ENDS, where, str(own_file), how]
    done = subprocess.run(
        command, check=False, env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert own_file.read_text() == "its own words"


FIRST_USES = (
    TAKEN
    + """
import importlib, sys, walld_client
if sys.argv[1] == "preloaded":
    importlib.import_module("walld_client.preload")
taken = take_all()
for use in ("walld_client.connect('/nobody/here', timeout=1)", "client.session('s')",
            "session.submit('Hello')"):
    try:
        made = eval(use)
    except walld_client.WalldError as error:
        print(type(error).__name__, "a module" in str(error))
        break
    client, session = (made, None) if "connect" in use else (client, made)
"""
)


@pytest.mark.parametrize(
    ("how", "said"), [("preloaded", "NotDurable False"), ("not", "Unavailable True")]
)
def test_what_is_first_used_at_the_limit_was_to_be_loaded_before(how: str, said: str) -> None:
    command = [sys.executable, "-c", FIRST_USES, how]
    done = subprocess.run(
        command, check=False, env=environment(), capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout.strip()) == (0, said), done.stderr
