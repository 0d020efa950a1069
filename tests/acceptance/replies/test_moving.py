"""Session ids rotate under a running stream: the reply is where it was moved to, and only there."""

from __future__ import annotations

from collections.abc import Callable

from agents.process import Obedient
from daemon_process import DaemonProcess, until


def sessions(daemon: DaemonProcess, *names: str) -> list[tuple[str | None, bool | None]]:
    """For each: the text that is recovered there, and whether it is said to have a partial."""
    found = []
    for name in names:
        reply = daemon.reader.recover(name)
        found.append((None if reply is None else reply.text, daemon.reader.has_partial(name)))
    return found


def test_a_live_stream_moves_and_stays_moved(
    daemon_on_each: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    daemon = daemon_on_each
    agent = make_agent(daemon)
    agent.do("reply = client.reply('old', stream_id='r'); reply.token('before '); reply.drain(20)")
    assert sessions(daemon, "old", "new") == [("before ", True), (None, False)]
    assert agent.do("reply.move('new'), reply.token('after'), reply.session_id") == [2, 3, "new"]
    agent.do("reply.drain(20)")
    moved = [(None, False), ("before after", True)]
    assert sessions(daemon, "old", "new") == moved
    assert agent.do("client.recover('old')") is None
    assert agent.do("client.recover('new').session_id") == "new"
    daemon.restart()
    assert sessions(daemon, "old", "new") == moved
    agent.do("reply.token('!'); reply.drain(20)")
    agent.kill()
    assert daemon.orphan("r").session_id == "new"
    until(daemon.partials, "the partial")
    assert len(daemon.partials()) == 1
    for _ in range(2):
        assert sessions(daemon, "old", "new") == [(None, False), ("before after!", True)]
        daemon.restart()
    assert daemon.reader.resolve("r") is True
    assert sessions(daemon, "old", "new") == [(None, False)] * 2


def test_moved_twice_and_back(daemon: DaemonProcess, make_agent: Callable[..., Obedient]) -> None:
    agent = make_agent(daemon)
    agent.do("reply = client.reply('a', stream_id='r'); reply.token('1')")
    for text, name in (("1x", "b"), ("1xx", "c"), ("1xxx", "a")):
        agent.do(f"reply.move({name!r}); reply.token('x'); reply.drain(20)")
        expected = [(text, True) if at == name else (None, False) for at in "abc"]
        assert sessions(daemon, *"abc") == expected
    daemon.restart()
    assert sessions(daemon, *"abc") == [("1xxx", True), (None, False), (None, False)]
    agent.do("reply.end()")
    until(lambda: daemon.reader.recover_all() == [], "released")
    assert sessions(daemon, *"abc") == [(None, False)] * 3


def test_moved_while_there_was_no_daemon(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    agent.do("reply = client.reply('old', stream_id='r'); reply.token('1'); reply.drain(20)")
    daemon.kill()
    agent.do("reply.move('new'); reply.token('2')")
    daemon.start()
    assert agent.do("reply.drain(20)") is True
    assert sessions(daemon, "old", "new") == [(None, False), ("12", True)]


def test_two_replies_of_a_session_one_of_which_moves(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    agent.do("first = client.reply('s', stream_id='1'); first.token('first')")
    agent.do("second = client.reply('s', stream_id='2'); second.token('second')")
    agent.do("second.move('t'); second.drain(20)")
    assert sessions(daemon, "s", "t") == [("first", True), ("second", True)]
    assert [reply.stream_id for reply in daemon.reader.recover_all()] == ["1", "2"]
    agent.kill()
    daemon.orphan("1")
    daemon.orphan("2")
    assert [reply.stream_id for reply in daemon.reader.orphans("t")] == ["2"]
