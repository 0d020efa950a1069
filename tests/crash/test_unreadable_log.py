"""A segment that cannot be read at a start: what was acknowledged of a living reply is a gap."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import walld_client
from agents.process import Obedient
from daemon_process import DaemonProcess, until

MakeDaemon = Callable[..., DaemonProcess]
MakeAgent = Callable[..., Obedient]
needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed: no fault can be injected"
)
COUNT = 30


def failing(daemon: DaemonProcess, path: Path) -> None:
    """Its next life cannot read a file."""
    daemon.wrapper = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=pread64"]
    daemon.wrapper += ["-e", "inject=pread64:error=EIO", "-P", str(path)]


@needs_strace
def test_what_was_acknowledged_and_cannot_be_read_is_a_gap(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """Its agent is alive and knows how far it got, whatever the log tells."""
    daemon = make_daemon()
    daemon.start()
    agent = make_agent(daemon)
    agent.do("r = client.reply('s', stream_id='r')")
    agent.do(f"[r.token(f'{{i}} ') for i in range({COUNT})]; r.drain(20, level='synced')")
    (segment,) = (daemon.data / "wal").iterdir()
    daemon.kill()
    failing(daemon, segment)
    daemon.start()

    def gaps() -> list[tuple[int, int, str]]:
        reply = daemon.reader.recover("s")
        assert reply is not None
        return [(gap.first_seq, gap.last_seq, gap.verdict) for gap in reply.gaps]

    def is_back() -> bool:
        try:
            return gaps() == [(1, COUNT, "corrupt")]
        except walld_client.Unavailable:  # not back yet: nothing is proven
            return False

    until(is_back, "the agent, and a gap of what it was told is synced")
    agent.kill()
    until(is_back, "the same of a reply that nobody goes on with")


@needs_strace
def test_a_segment_begun_behind_one_that_could_not_be_read_may_be_unread_too(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """V4: what a third daemon writes then has numbers of its own, and is read with all the rest."""
    daemon = make_daemon()

    def newest() -> Path:
        return max((daemon.data / "wal").glob("*.wal"))

    def life(name: str, *, then: Callable[[Obedient], None] = Obedient.kill) -> Path:
        """A daemon, an agent that says much to it, and the end of both."""
        daemon.start()
        agent = make_agent(daemon)
        agent.do(f"r = client.reply('session-{name}', stream_id='{name}')")
        for number in range(15):
            agent.do(f"r.token('{number} '); r.drain(20, level='synced')")
        segment = newest()
        daemon.kill()
        then(agent)
        return segment

    life("hold", then=lambda _agent: None)
    second = life("b")
    failing(daemon, second)
    third = life("c")
    failing(daemon, third)
    life("d")
    daemon.wrapper = []
    daemon.start()
    text = "".join(f"{number} " for number in range(15))
    for name in "bcd":
        reply = daemon.reader.recover(stream_id=name)
        assert reply is not None, name
        assert (reply.text, reply.gaps) == (text, [])


@needs_strace
@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("getdents64", ""),
        ("getdents64", "wal"),
        ("getdents64", "partials"),
        ("getdents64", "quarantine"),
        ("fsync", "wal"),
        ("fsync", "partials"),
        ("pread64", "LOCK"),
    ],
)
def test_one_error_of_the_kernel_is_no_reason_not_to_start(
    make_daemon: MakeDaemon, make_agent: MakeAgent, call: str, name: str
) -> None:
    """P9: it is read again; what cannot be synced is written once more elsewhere."""
    daemon = make_daemon()
    daemon.start()
    agent = make_agent(daemon)
    agent.do("r = client.reply('s', stream_id='r'); r.token('kept'); r.drain(20, level='synced')")
    agent.kill()
    daemon.kill()
    daemon.wrapper = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e"]
    daemon.wrapper += [f"inject={call}:error=EIO:when=1", "-P", str(daemon.data / name)]
    daemon.start()
    reply = daemon.reader.recover("s")
    assert reply is not None
    assert reply.text == "kept"
    daemon.wrapper = []
    daemon.restart()
    assert daemon.reader.recover("s") == reply
    assert daemon.reader.recover("nobody's") is None
