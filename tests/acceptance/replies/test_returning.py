"""What the protocol promises a producer that comes back or says things twice, seen from outside."""

from __future__ import annotations

import os
import socket

from walld_client.wire import messages as wire
from wire_peer import Daemon, Peer, recovered, text_of


def test_a_run_that_overlaps_what_was_taken_adds_its_rest(fresh: Daemon) -> None:
    producer = os.urandom(16)
    with Peer(fresh, "agent", producer) as peer:
        peer.send(wire.Start(1, 0, "r", "s"), wire.Token(1, 1, b"a"), wire.Token(1, 2, b"b"))
        peer.send(wire.Run(1, 1, 3, b"\x01\x01\x01\x01", b"abcd"), wire.Token(1, 5, b"e"))
        peer.drain()
        reply = recovered(fresh, "r", [wire.Seen(producer, 1, 5)])
        assert (text_of(reply), reply.last_seq, reply.gaps) == ("abcde", 5, [])


def test_streams_that_nothing_is_known_of_are_resumed_all_of_them(fresh: Daemon) -> None:
    """As after the death of a daemon that had not written them yet."""
    producer = os.urandom(16)
    starts = [wire.Start(number, 0, f"r{number}", "s") for number in (1, 2, 3)]
    with Peer(fresh, "agent", producer) as peer:
        for start in reversed(starts):
            peer.send(wire.Resume(start, 0, -1, 2))
        for start in starts:
            peer.send(start, wire.Token(start.stream, 1, b"x"))
        peer.drain()
        for start in starts:
            reply = recovered(fresh, start.stream_id, [wire.Seen(producer, start.stream, 1)])
            assert (text_of(reply), reply.last_seq, reply.gaps) == ("x", 1, [])


def test_the_end_of_one_connection_leaves_the_producer_its_other(fresh: Daemon) -> None:
    producer = os.urandom(16)
    with Peer(fresh, "agent", producer) as first, Peer(fresh, "agent", producer) as second:
        first.socket.shutdown(socket.SHUT_WR)
        while first.hear() is not None:
            pass
        second.send(wire.Start(1, 0, "r", "s"))
        second.drain(1)
        second.send(wire.Token(1, 1, b"x"))
        second.drain(2)
        reply = recovered(fresh, "r", [wire.Seen(producer, 1, 1)])
        assert (text_of(reply), reply.last_seq, reply.gaps) == ("x", 1, [])


def test_a_stream_goes_on_over_another_connection(fresh: Daemon) -> None:
    producer = os.urandom(16)
    start = wire.Start(1, 0, "r", "s")
    with Peer(fresh, "agent", producer) as first:
        first.send(start, wire.Token(1, 1, b"a"))
        first.drain()
    with Peer(fresh, "agent", producer) as second:
        second.send(wire.Resume(start, 0, -1, 3))
        second.send(start, wire.Token(1, 1, b"a"), wire.Token(1, 2, b"b"))
        second.drain()
        reply = recovered(fresh, "r", [wire.Seen(producer, 1, 2)])
        assert (text_of(reply), reply.last_seq, reply.gaps) == ("ab", 2, [])
        assert (reply.status, reply.owner_alive) == ("live", True)


def test_another_producer_may_not_send_a_live_stream(fresh: Daemon) -> None:
    start = wire.Start(1, 0, "r", "s")
    with Peer(fresh, "agent") as first, Peer(fresh, "agent") as second:
        first.send(start, wire.Token(1, 1, b"mine"))
        first.drain()
        second.send(start, wire.Token(1, 1, b"theirs"))
        refused = second.hear()
        assert isinstance(refused, wire.Refused)
        assert (refused.stream, refused.seq, refused.code) == (1, 0, "stream_owned")
        second.drain()
        reply = recovered(fresh, "r", [])
        assert text_of(reply) == "mine"
