"""A segment that cannot be read at a start: what was acknowledged of a living reply is a gap."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import walld_client
from agents.process import MakeAgent, Obedient
from daemon_process import MakeDaemon, until
from strace import needs_strace

COUNT = 30


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
    daemon.inject("pread64:error=EIO", segment)
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

    def life(name: str, *, then: Callable[[Obedient], None] = Obedient.kill) -> Path:
        """A daemon, an agent that says much to it, and the end of both."""
        daemon.start()
        agent = make_agent(daemon)
        agent.do(f"r = client.reply('session-{name}', stream_id='{name}')")
        for number in range(15):
            agent.do(f"r.token('{number} '); r.drain(20, level='synced')")
        segment = daemon.segments()[-1]
        daemon.kill()
        then(agent)
        return segment

    life("hold", then=lambda _agent: None)
    second = life("b")
    daemon.inject("pread64:error=EIO", second)
    third = life("c")
    daemon.inject("pread64:error=EIO", third)
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
        ("pwrite64", "LOCK"),
        ("fsync", "LOCK"),
        ("openat", "LOCK"),
        ("openat", "wal"),
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
    daemon.inject(f"{call}:error=EIO:when=1", daemon.data / name)
    daemon.start()
    reply = daemon.reader.recover("s")
    assert reply is not None
    assert reply.text == "kept"
    daemon.wrapper = []
    daemon.restart()
    assert daemon.reader.recover("s") == reply
    assert daemon.reader.recover("nobody's") is None


@needs_strace
@pytest.mark.parametrize("name", ["wal", "partials", ""])
def test_a_directory_that_can_never_be_listed_is_named(make_daemon: MakeDaemon, name: str) -> None:
    """What stands there is not guessed: a number, or a resolved reply, would come again."""
    daemon = make_daemon()
    daemon.start()
    daemon.kill()
    daemon.inject("getdents64:error=EIO", daemon.data / name)
    daemon.start(wait=False)
    assert daemon.ended() == 1
    last = daemon.log_text().splitlines()[-1]
    assert f"{daemon.data / name}" in last
    assert "[Errno 5] Input/output error" in last
    assert "Traceback" not in daemon.log_text()


@needs_strace
def test_a_reply_of_a_turn_goes_to_its_session_with_all_its_words_or_waits(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """It was released while its first words could not be read."""
    daemon = make_daemon()
    daemon.start()
    agent = make_agent(daemon)
    agent.do("h = client.reply('hold'); h.token('x'); h.drain(20, level='synced')")
    agent.do("s = client.session('L'); t = s.submit('q', message_id='m'); t.worker_started()")
    daemon.terminate()
    daemon.start()
    agent.do("r = t.reply(stream_id='r'); r.token('You must NOT '); r.drain(20, level='synced')")
    segment = daemon.segments()[-1]

    def is_back() -> bool:
        try:
            reply = daemon.reader.recover(stream_id="r")
        except walld_client.Unavailable:
            return False
        return reply is not None and reply.owner_alive

    daemon.kill()
    daemon.inject("pread64:error=EIO", segment)
    daemon.start()
    until(is_back, "the agent")
    agent.do("r.token('delete it.'); r.end(); r.drain(20, level='synced')")

    def said() -> list[str]:
        return [one["content"] for one in daemon.reader.session("L").messages()]

    reply = daemon.reader.recover(stream_id="r")
    assert reply is not None
    assert (said(), reply.text, len(reply.gaps)) == (["q"], "delete it.", 1)
    daemon.kill()
    daemon.wrapper = []
    daemon.start()
    until(lambda: daemon.reader.recover(stream_id="r") is None, "the reply is done with")
    assert said() == ["q", "You must NOT delete it."], "the whole of it"
    agent.kill()
