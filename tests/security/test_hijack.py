"""Whose stream it is: another process of the same user, another user, and what either may learn.

Beside these: `acceptance/replies/test_terminals.py` (a second producer, through the client) and
`acceptance/replies/test_two_users.py` (one session name, two users).
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec
import pytest
from agents.process import Obedient
from daemon_process import DaemonProcess
from strangers import as_user, needs_root
from walld_client.wire import framing
from walld_client.wire import messages as wire
from wire_peer import Peer, recovered, text_of

VICTIM = os.urandom(16)
SAID = "said by its owner"
START = wire.Start(1, 0, "r", "s")

ATTACKS: dict[str, list[msgspec.Struct]] = {
    "start": [START, wire.Token(1, 1, b"forged")],
    "start under another number": [wire.Start(7, 0, "r", "s"), wire.Token(7, 1, b"forged")],
    "resume": [wire.Resume(START, 0, -1, 9), wire.Token(1, 2, b"forged")],
    "resume as synced": [wire.Resume(START, 2, 1, 2), wire.Token(1, 2, b"forged")],
    "token": [wire.Token(1, 2, b"forged")],
    "run": [wire.Run(1, 2, 3, b"\x06", b"forged")],
    "end": [wire.End(1, 2, True)],
    "error": [wire.AppError(1, 2, "forged")],
    "release": [wire.End(1, 2, True), wire.Release(1, 3)],
    "released": [wire.Resume(START, 2, 1, 3, released=True)],
    "move": [wire.Move(1, 2, "elsewhere")],
}


@pytest.fixture
def victim(daemon: DaemonProcess) -> Peer:
    peer = Peer(daemon, "agent", VICTIM)  # type: ignore[arg-type]
    peer.send(START, wire.Token(1, 1, SAID.encode()))
    peer.drain(1, "synced")
    return peer


def untouched(daemon: DaemonProcess, victim: Peer) -> None:
    """Nothing was added, ended or taken away, and the owner goes on."""
    victim.send(wire.Token(1, 2, b", and more"))
    victim.drain(2, "synced")
    reply = recovered(daemon, "r", [wire.Seen(VICTIM, 1, 2)])  # type: ignore[arg-type]
    assert (text_of(reply), reply.status, reply.session_id) == (SAID + ", and more", "live", "s")
    assert (reply.gaps, reply.last_seq) == ([], 2)
    victim.socket.close()


def test_another_producer_of_the_same_user_changes_nothing(
    daemon: DaemonProcess, victim: Peer
) -> None:
    for name, attack in ATTACKS.items():
        with Peer(daemon, "agent") as other:  # type: ignore[arg-type]
            other.send(*attack, wire.Drain(9, "synced"))
            codes = []
            while not isinstance(message := other.hear(), wire.Drained):
                assert isinstance(message, wire.Refused), name
                codes.append(message.code)
        if name != "released":  # it says it is done with the stream: there is nothing to refuse
            assert codes, name
            assert set(codes) <= {"stream_owned", "unknown_stream"}, name
    untouched(daemon, victim)


@needs_root
def test_another_user_who_even_knows_the_producer_changes_nothing(
    make_daemon: Callable[..., DaemonProcess],
) -> None:
    daemon = make_daemon("--socket-mode", "0666")
    os.chmod(daemon.folder, 0o711)
    daemon.start()
    victim = Peer(daemon, "agent", VICTIM)  # type: ignore[arg-type]
    victim.send(START, wire.Token(1, 1, SAID.encode()))
    victim.drain(1, "synced")
    source = """
for raw in sys.argv[3:]:
    peer = socket.socket(socket.AF_UNIX)
    peer.settimeout(20)
    peer.connect(sys.argv[2])
    peer.sendall(bytes.fromhex(raw))
    said = b""
    while b"\\x93\\x21\\x09" not in said:
        said += peer.recv(65536)
    print("drained", end=" ")
"""
    hello, drain = wire.Hello(1, "agent", VICTIM), wire.Drain(9, "synced")
    raws = [b"".join(map(framing.encode, [hello, *one, drain])).hex() for one in ATTACKS.values()]
    said = as_user(61002, source, daemon.socket_path, *raws)
    assert said.split() == ["drained"] * len(ATTACKS)
    untouched(daemon, victim)


@needs_root
def test_another_user_learns_nothing_not_even_that_there_is_something(
    make_daemon: Callable[..., DaemonProcess], make_agent: Callable[..., Obedient]
) -> None:
    """The same answers, byte for byte, as to a question about a session that never was."""
    daemon = make_daemon("--socket-mode", "0666")
    os.chmod(daemon.folder, 0o711)
    daemon.start()
    alice = make_agent(daemon, uid=61001)
    alice.do("reply = client.reply('s', stream_id='r'); reply.token('secret'); reply.drain(20)")
    bob = make_agent(daemon, uid=61002)
    asked = """
        from walld_client.wire import messages as wire
        import walld_client
        def ask(make):
            try:
                return client._query.ask(make).hex()
            except (walld_client.Refused, walld_client.Unavailable) as error:
                return str(error)
        [
            ask(lambda id: wire.Recover(id, "latest", {session!r})),
            ask(lambda id: wire.Recover(id, "all", None, {stream!r})),
            ask(lambda id: wire.Recover(id, "orphans")),
            ask(lambda id: wire.HasPartial(id, {session!r})),
            ask(lambda id: wire.Resolve(id, {stream!r})),
            ask(lambda id: wire.List(id, "")),
        ]
        """
    about_hers = bob.do(asked.format(session="s", stream="r"))
    about_none = bob.do(asked.format(session="q", stream="q"))
    assert about_hers == about_none
    assert bob.do("client.reply('s', stream_id='r').token('mine') > 0") is True
    assert alice.do("client.recover('s').text") == "secret"


def test_no_answer_names_a_producer(daemon: DaemonProcess, victim: Peer) -> None:
    """Its 128 random bits are what tells a returning client from another: nobody is told them."""
    requests: list[wire.FromQuery] = [
        wire.Recover(1, "all"),
        wire.List(2),
        wire.Status(3),
        wire.Metrics(4),
    ]
    with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
        answers = [peer.ask(request) for request in requests]
    assert SAID.encode() in answers[0]
    for answer in answers:
        assert VICTIM not in answer
        assert VICTIM.hex().encode() not in answer
    untouched(daemon, victim)
    assert VICTIM.hex() not in daemon.log_text()
