"""First terminal wins; late events; releases; a second producer of one stream."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from agents.process import Obedient
from daemon_process import DaemonProcess, until
from walld_client import PartialReply
from walld_client.wire import messages as wire
from wire_peer import Peer

TERMINALS = {
    "end": ("reply.end('stop')", "complete"),
    "cancel": ("reply.cancel('user')", "cancelled"),
    "error": ("reply.error('broke', kind='auth')", "errored"),
}


def kept(daemon: DaemonProcess, stream_id: str = "r") -> PartialReply:
    reply = daemon.reader.recover(stream_id=stream_id)
    assert reply is not None
    return reply


@pytest.mark.parametrize("second", TERMINALS)
@pytest.mark.parametrize("first", TERMINALS)
def test_the_first_terminal_wins(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], first: str, second: str
) -> None:
    agent = make_agent(daemon)
    seqs = agent.do(
        f"""
        reply = client.reply('s', stream_id='r', auto_release=False)
        reply.token('text')
        [{TERMINALS[first][0]}, {TERMINALS[second][0]}, client.stats().late]
        """
    )
    assert seqs == [2, 0, 1], "the second is counted and not sent"
    agent.do("reply.drain(20)")
    reply = kept(daemon)
    assert (reply.status, reply.last_seq, reply.text) == (TERMINALS[first][1], 2, "text")
    agent.kill()
    reply = daemon.orphan("r")
    assert (reply.status, reply.last_seq) == (TERMINALS[first][1], 2)


@pytest.mark.parametrize("terminal", TERMINALS)
def test_late_events_do_nothing_and_are_counted(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], terminal: str
) -> None:
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r', auto_release=False); reply.token('before')")
    agent.do(TERMINALS[terminal][0])
    late = agent.do(
        """
        [
            reply.token('after'), reply.token('x' * 5000), reply.token('after', at=1),
            reply.reasoning('after'), reply.tool('after'), reply.tool_arguments('1', call_id='c'),
            reply.tool_result('after', call_id='c'), reply.step(), reply.event('after', 1),
            reply.retry('after'), reply.move('after'), reply.finish('after'),
        ]
        """
    )
    assert late == [0] * 12
    assert agent.do("client.stats().late") == 12
    agent.do("reply.drain(20)")
    assert (kept(daemon).text, kept(daemon).last_seq) == ("before", 2)
    assert daemon.reader.recover("after") is None


@pytest.mark.parametrize("terminal", TERMINALS)
def test_release_is_legal_after_any_terminal_and_only_then(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], terminal: str
) -> None:
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r', auto_release=False); reply.token('saved')")
    too_early = agent.do(
        """
        try:
            reply.release()
        except ValueError as error:
            message = str(error)
        message
        """
    )
    assert "has not ended" in too_early
    agent.do("reply.drain(20)")
    agent.do(TERMINALS[terminal][0])
    assert agent.do("reply.release(), reply.release()") == [3, 0]
    until(lambda: daemon.reader.recover("s") is None, "released")
    until(lambda: daemon.holding([b"saved"]) == [], "its bytes gone")


def test_on_the_wire_a_late_event_is_refused_and_the_others_go_on(
    daemon_on_each: DaemonProcess,
) -> None:
    """A client that does not know the rule: refused by (stream, seq), nothing else happens."""
    daemon = daemon_on_each
    with Peer(daemon, "agent") as peer:  # type: ignore[arg-type]
        peer.send(
            wire.Start(1, 0, "r", "s"),
            wire.Start(2, 0, "other", "s"),
            wire.Token(1, 1, b"whole"),
            wire.Release(1, 2),
            wire.End(1, 2, True),
            wire.Token(1, 3, b"late"),
            wire.End(1, 4, False),
            wire.AppError(1, 5, "late"),
            wire.Token(2, 1, b"goes on"),
        )
        refused = [peer.hear() for _ in range(4)]
        codes = [(one.stream, one.seq, one.code) for one in refused]  # type: ignore[union-attr]
        assert codes == [
            (1, 2, "not_terminal"),
            (1, 3, "after_terminal"),
            (1, 4, "after_terminal"),
            (1, 5, "after_terminal"),
        ]
        peer.drain()
        reply = kept(daemon)
        assert (reply.status, reply.text, reply.last_seq) == ("complete", "whole", 2)
        assert kept(daemon, "other").text == "goes on"
        metrics = daemon.metrics()
        assert metrics['walld_events_discarded_total{reason="late"}'] == 3
        peer.send(wire.Release(1, 3))
        peer.drain(2)
        assert daemon.reader.recover(stream_id="r") is None


REFUSED = """
try:
    word = reply.drain(20)
except walld_client.Refused as error:
    word = error.code
assert str(word).startswith("stream_"), word
"""


def test_a_second_producer_of_a_stream_is_refused(
    daemon_on_each: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """One stream, one producer: the second loses its own events and nobody else's."""
    daemon = daemon_on_each
    first, second = make_agent(daemon), make_agent(daemon)
    first.do("reply = client.reply('s', stream_id='r'); reply.token('mine'); reply.drain(20)")
    second.do("other = client.reply('s', stream_id='other'); other.token('fine')")
    second.do("reply = client.reply('s', stream_id='r'); reply.token('theirs')")
    second.do("other.token(', too'); other.drain(20); reply.token('theirs'); other.drain(20)")
    assert second.do("client.stats().refused") >= 1
    assert second.do("reply.token('still'), reply.end()") == [0, 0], "given up, and harmless"
    first.do("reply.token(' alone'); reply.drain(20)")
    assert (kept(daemon).text, kept(daemon).status) == ("mine alone", "live")
    assert kept(daemon, "other").text == "fine, too"
    assert daemon.metrics()['walld_protocol_errors_total{code="stream_owned"}'] == 1

    first.kill()
    assert daemon.orphan("r").text == "mine alone"
    third = make_agent(daemon)
    third.do("reply = client.reply('s', stream_id='r'); reply.token('again')")
    third.do(REFUSED)
    assert third.do("client.stats().refused") >= 1, "not before the first is resolved"
    assert daemon.orphan("r").text == "mine alone"
    assert daemon.reader.resolve("r") is True
    fourth = make_agent(daemon)
    fourth.do("reply = client.reply('s', stream_id='r'); reply.token('free'); reply.drain(20)")
    assert (kept(daemon).text, kept(daemon).status) == ("free", "live")


def test_a_second_producer_after_a_restart_is_refused_too(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    first = make_agent(daemon)
    first.do("reply = client.reply('s', stream_id='r'); reply.token('mine'); reply.drain(20)")
    daemon.restart()
    second = make_agent(daemon)
    second.do("reply = client.reply('s', stream_id='r'); reply.token('theirs')")
    second.do(REFUSED)
    first.do("reply.token(' alone'); reply.drain(20)")
    assert (kept(daemon).text, kept(daemon).status) == ("mine alone", "live")
    assert second.do("client.stats().refused") >= 1


def test_only_the_owning_process_may_release(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    owner, other = make_agent(daemon), make_agent(daemon)
    owner.do("reply = client.reply('s', stream_id='r', auto_release=False); reply.token('x')")
    owner.do("reply.end(); reply.drain(20)")
    assert other.do("client.release('r')") is False
    refused = other.do(
        """
        try:
            client.resolve('r')
        except walld_client.Refused as error:
            refused = [error.code, error.got]
        refused
        """
    )
    assert refused == ["refused", "alive"]
    assert kept(daemon).status == "complete"
    owner.kill()
    daemon.orphan("r")
    assert other.do("client.resolve('r')") is True


def test_two_clients_of_one_process_are_one_producer(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """They share the link: one closes, the other goes on; both read what either wrote."""
    agent = make_agent(daemon)
    agent.do(f"again = walld_client.connect({daemon.socket_path!r})")
    agent.do("reply = client.reply('s', stream_id='r'); reply.token('x')")
    assert agent.do("again.recover('s').text") == "x", "it reads its own writes"
    agent.do(
        "reply.end(); again.close(); other = client.reply('s', stream_id='o'); other.token('y')"
    )
    assert agent.do("client.recover('s').text") == "y"
    assert kept(daemon, "o").status == "live"
