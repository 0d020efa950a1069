"""Malformed and illegal frames, fed to a real daemon through a real socket.

Every case of `clients/vectors/malformed.json`, whole and byte by byte, and noise from hypothesis:
each gets the answer the protocol names and counts once, only its own connection closes, and a
healthy agent on the same daemon keeps every token.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from walld_client.wire import framing
from walld_client.wire import messages as wire
from wire_peer import Daemon, Healthy, Peer, recovered, text_of

from walld import limits
from walld.engine.protocol_errors import explain

ROOT = Path(__file__).parents[3]
CASES = json.loads((ROOT / "clients/vectors/malformed.json").read_text(encoding="ascii"))["cases"]
BYTE_BY_BYTE_MAX = 4096
"""Longer cases arrive in pieces of a prime size instead."""


@pytest.fixture(scope="module", params=["whole", "byte by byte"])
def feed(request: pytest.FixtureRequest) -> Callable[[socket.socket, bytes], None]:
    """How the bytes of a case arrive."""

    def whole(to: socket.socket, frame: bytes) -> None:
        to.sendall(frame)

    def byte_by_byte(to: socket.socket, frame: bytes) -> None:
        step = 1 if len(frame) <= BYTE_BY_BYTE_MAX else 8191
        for at in range(0, len(frame), step):
            to.sendall(frame[at : at + step])

    return whole if request.param == "whole" else byte_by_byte


@pytest.fixture(scope="module")
def daemon(feed: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon takes all the cases of one way of feeding: `feed` makes it one of two."""
    with Daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture(scope="module")
def healthy(daemon: Daemon) -> Iterator[Healthy]:
    with Healthy(daemon) as agent:
        yield agent


def bytes_of(vector: dict[str, Any]) -> bytes:
    """The bytes of a case: `hex`, or `parts` that repeat."""
    if "hex" in vector:
        return bytes.fromhex(vector["hex"])
    return b"".join(
        bytes.fromhex(part) if isinstance(part, str) else bytes.fromhex(part["hex"]) * part["times"]
        for part in vector["parts"]
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_case(
    case: dict[str, Any],
    feed: Callable[[socket.socket, bytes], None],
    daemon: Daemon,
    healthy: Healthy,
) -> None:
    expected = dict(case["answer"])
    kind, code = expected.pop("message"), expected["code"]
    before = daemon.counted(code)
    with Peer(daemon, case["role"]) as peer:
        for frame in case["before"]:
            peer.socket.sendall(bytes.fromhex(frame))
        try:
            feed(peer.socket, bytes_of(case))
        except (BrokenPipeError, ConnectionResetError):
            assert case["closes"]
        answer = peer.hear()
        assert type(answer).__name__ == kind, answer
        for name, value in expected.items():
            assert value is None or getattr(answer, name) == value, answer
        if case["closes"]:
            assert peer.hear() is None, "the connection must close"
        elif case["role"] == "agent":
            peer.drain()
        else:
            assert peer.ask(wire.HasPartial(8, "nobody")) == b"\xc2"
    assert daemon.counted(code) == before + 1
    healthy.say(f"{case['name']} ")


def test_z_the_healthy_stream_has_lost_nothing(daemon: Daemon, healthy: Healthy) -> None:
    """Stands behind the cases: all that was said among them is there."""
    healthy.say("end")
    reply = healthy.recovered()
    assert text_of(reply) == "".join(healthy.said)
    assert (reply.status, reply.last_seq, reply.gaps) == ("live", len(healthy.said), [])
    assert daemon.process.poll() is None


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(
    body=st.binary(max_size=64)
    | st.tuples(st.integers(0, 70), st.binary(max_size=40)).map(
        lambda parts: bytes((0x94, parts[0])) + parts[1]
    )
)
def test_noise_gets_its_answer(
    feed: Callable[[socket.socket, bytes], None], daemon: Daemon, healthy: Healthy, body: bytes
) -> None:
    try:
        msgspec.msgpack.decode(body, type=wire.FromAgent)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        expected = explain(body, error)
    else:
        return  # a message by chance
    with Peer(daemon, "agent") as peer:
        feed(peer.socket, len(body).to_bytes(4, "big") + body)
        assert peer.hear() == expected
        if isinstance(expected, wire.Error):
            assert peer.hear() is None
        else:
            peer.drain()
    healthy.say("n")


def test_what_came_before_a_broken_frame_is_taken_and_nothing_behind_it(fresh: Daemon) -> None:
    producer = os.urandom(16)
    sent = [wire.Start(1, 0, "r", "s"), wire.Token(1, 1, b"kept")]
    behind = framing.encode(wire.Token(1, 2, b" lost"))
    with Peer(fresh, "agent", producer) as peer:
        peer.socket.sendall(b"".join(map(framing.encode, sent)) + b"\xff\xff\xff\xff" + behind)
        error = peer.hear()
        assert isinstance(error, wire.Error)
        assert (error.code, error.got) == ("frame_too_long", "4294967295")
        assert peer.hear() is None
        reply = recovered(fresh, "r", [wire.Seen(producer, 1, 1)])
        assert (text_of(reply), reply.last_seq, reply.status) == ("kept", 1, "live")


def test_a_connection_that_ends_within_a_frame_is_no_error(fresh: Daemon) -> None:
    producer = os.urandom(16)
    frame = framing.encode(wire.Token(1, 1, b"whole")) + framing.encode(wire.Token(1, 2, b"half"))
    with Peer(fresh, "agent", producer) as peer:
        peer.send(wire.Start(1, 0, "r", "s"))
        peer.socket.sendall(frame[:-1])
        peer.socket.shutdown(socket.SHUT_WR)
        while peer.hear() is not None:
            pass
    reply = recovered(fresh, "r", [wire.Seen(producer, 1, 1)])
    assert (text_of(reply), reply.last_seq) == ("whole", 1)
    with Peer(fresh, "query") as peer:
        text = msgspec.msgpack.decode(peer.ask(wire.Metrics(1)), type=str)
    counts = re.findall(r"^walld_protocol_errors_total{.*} (\S+)$", text, re.M)
    assert not any(map(float, counts)), text


def test_a_peer_that_floods_and_does_not_read_costs_no_memory(fresh: Daemon) -> None:
    illegal = b"\x00\x00\x00\x04\x93\x03\x01\x02" * 8192
    with Healthy(fresh) as healthy, Peer(fresh, "agent") as peer:
        healthy.say("before")
        before = fresh.resident_bytes()
        for _ in range(32):  # 262,144 refusals, which would be 20 MB of answers
            peer.socket.sendall(illegal)
        healthy.say("after")
        grown = fresh.resident_bytes() - before
        peer.send(wire.Drain(1, "written"))
        peer.socket.shutdown(socket.SHUT_WR)
        answers = 0
        while (message := peer.hear()) is not None:
            answers += isinstance(message, wire.Refused)
        assert 0 < answers <= 8192
        assert grown < 8 * limits.MIB
        assert fresh.counted("malformed_event") == 32 * 8192
        assert text_of(healthy.recovered()) == "beforeafter"


def test_a_frame_that_never_gets_whole_is_told_so(fresh: Daemon) -> None:
    with Healthy(fresh) as healthy, Peer(fresh, "agent") as slow, Peer(fresh, None) as silent:
        slow.socket.sendall(b"\x00\x00\x00")
        silent.socket.sendall(b"\x00")
        for peer in (slow, silent):
            error = peer.hear()
            assert isinstance(error, wire.Error)
            assert error.code == "slow_frame"
            assert peer.hear() is None
        assert fresh.counted("slow_frame") == 2
        healthy.say("still here")


def test_more_peers_than_there_is_room_for(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, files_max=limits.PEERS_RESERVE_FDS + 24)
    peers: list[Peer] = []
    try:
        with Healthy(daemon) as healthy:
            error = None
            while error is None:
                assert len(peers) < 100, "somebody must be turned away"
                peer = Peer(daemon, None)
                peers.append(peer)
                with suppress(BrokenPipeError):  # turned away before it could say so: it hears why
                    peer.send(wire.Hello(1, "agent", os.urandom(16)))
                said = peer.hear()
                error = said if isinstance(said, wire.Error) else None
            assert error.code == "too_many_peers"
            assert int(error.got) >= int(error.limit)
            assert peers[-1].hear() is None
            healthy.say("undisturbed")
            for peer in peers:
                peer.socket.close()
            healthy.say(", and there is room again")
            assert text_of(healthy.recovered()) == "undisturbed, and there is room again"
            assert daemon.counted("too_many_peers") == 1
    finally:
        for peer in peers:
            peer.socket.close()
        daemon.stop()
