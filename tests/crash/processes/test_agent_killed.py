"""An agent killed after k sends, for many k: every byte the kernel took is back, and no more (P1).

`sent_seq` says which bytes those are: exactly where the agent stood still when it was killed, and
between the send that had returned and the one under way where it was killed in full flight.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from agents.process import Board, Nursery, Obedient
from agents.words import said
from daemon_process import DaemonProcess, until
from walld_client import PartialReply
from walld_client.paths import path_name

FLAT_OUT = (0, 1, 2, 3, 4, 7, 64, 277, 278, 279, 1000, 2047, 2048, 2049, 5000)
"""278 small frames fill a default socket; every 2048 tokens the client does its chores."""
PACED = (1, 5, 40, 160)


def check(reply: PartialReply, at: int, last_seq: int) -> None:
    """The reply is that of a killed agent, whole up to `last_seq`."""
    assert reply.last_seq == last_seq
    assert reply.text == said(at, last_seq)
    assert reply.events == last_seq, "nothing missing, nothing twice (the start does not count)"
    assert reply.gaps == []
    assert (reply.status, reply.lost_reason, reply.owner_alive) == ("crashed", "agent_lost", False)


def check_all(daemon: DaemonProcess, ids: list[str], board: Board) -> None:
    for at, stream_id in enumerate(ids):
        check(daemon.orphan(stream_id), at, board.sent(at))


def test_after_k_sends_on_one_stream(
    daemon_on_each: DaemonProcess, make_nursery: Callable[..., Nursery]
) -> None:
    nursery = make_nursery(daemon_on_each)
    for pace_seconds, kills in ((0.0, FLAT_OUT), (0.001, PACED)):
        for sends in kills:
            ids, board = nursery.stream(sends, pace_seconds=pace_seconds)
            assert nursery.ended() == -9
            assert board.sent() == sends, "all was well, so the kernel took all of it"
            check_all(daemon_on_each, ids, board)
    assert daemon_on_each.metrics()["walld_lost_acked_total"] == 0


def test_after_k_sends_on_a_hundred_streams(
    daemon_on_each: DaemonProcess, make_nursery: Callable[..., Nursery]
) -> None:
    nursery = make_nursery(daemon_on_each)
    for sends, pace_seconds in ((0, 0.0), (1, 0.0), (150, 0.001), (999, 0.0), (10_000, 0.0)):
        ids, board = nursery.stream(sends, streams=100, pace_seconds=pace_seconds)
        assert nursery.ended() == -9
        assert sum(board.sent(at) for at in range(100)) == sends
        check_all(daemon_on_each, ids, board)


@pytest.mark.parametrize("pace_seconds", [0.0, 0.0003], ids=["flat out", "paced"])
@pytest.mark.parametrize("streams", [1, 100])
def test_in_full_flight(
    daemon: DaemonProcess,
    make_nursery: Callable[..., Nursery],
    streams: int,
    pace_seconds: float,
) -> None:
    """Killed from outside, wherever it is: in a send, between two, in the chores."""
    nursery = make_nursery(daemon)
    for after in (1, 2, 5, 9, 17):
        most = after * (60 if pace_seconds == 0.0 and streams == 1 else 1)
        ids, board = nursery.stream(
            10_000_000, streams=streams, pace_seconds=pace_seconds, then="stay"
        )
        nursery.until_sent(board, most)
        nursery.kill_child()
        for at, stream_id in enumerate(ids):
            reply = daemon.orphan(stream_id)
            assert board.sent(at) <= reply.last_seq <= board.tried(at)
            check(reply, at, reply.last_seq)


def test_with_the_kernel_full(
    daemon_on_each: DaemonProcess, make_nursery: Callable[..., Nursery]
) -> None:
    """After EAGAIN `sent_seq` stops where the kernel did, and that much is back."""
    daemon = daemon_on_each
    nursery = make_nursery(daemon)
    daemon.freeze()
    ids, board = nursery.stream(200_000, then="kill")
    assert nursery.ended() == -9
    daemon.thaw()
    assert 0 < board.sent() < 200_000, "the socket must be smaller than what was sent"
    check_all(daemon, ids, board)


def test_with_the_kernel_full_and_many_streams(
    daemon: DaemonProcess, make_nursery: Callable[..., Nursery]
) -> None:
    nursery = make_nursery(daemon)
    daemon.freeze()
    ids, board = nursery.stream(200_000, streams=100, then="kill")
    assert nursery.ended() == -9
    daemon.thaw()
    check_all(daemon, ids, board)


def test_within_a_frame_that_the_kernel_took_in_part(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """A long token that went out in part is none: it does not count in `sent_seq`."""
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r'); reply.drain()")
    daemon.freeze()
    sent, backlog = agent.do(
        """
        for number in range(100):
            reply.token(chr(97 + number % 26) * 300_000)
            if client.stats().backlog:
                break
        [reply.sent_seq, client.stats().backlog]
        """
    )
    agent.kill()
    daemon.thaw()
    assert sent >= 1
    assert backlog >= 1
    reply = daemon.orphan("r")
    assert reply.last_seq == sent
    assert reply.text == "".join(chr(97 + number % 26) * 300_000 for number in range(sent))
    assert reply.gaps == []


def test_a_crash_leaves_one_partial_and_resolve_removes_it_for_good(
    daemon_on_each: DaemonProcess, make_nursery: Callable[..., Nursery]
) -> None:
    daemon = daemon_on_each
    nursery = make_nursery(daemon)
    (stream_id,), board = nursery.stream(500)
    nursery.ended()
    check_all(daemon, [stream_id], board)
    until(daemon.partials, "a partial file")
    assert len(daemon.partials()) == 1
    session = daemon.orphan(stream_id).session_id
    assert [reply.stream_id for reply in daemon.reader.orphans()] == [stream_id]
    assert daemon.reader.has_partial(session) is True

    daemon.restart()
    assert len(daemon.partials()) == 1
    check_all(daemon, [stream_id], board)

    assert daemon.reader.resolve(stream_id, board.sent()) is True
    daemon.restart()
    assert daemon.reader.resolve(stream_id) is False
    assert daemon.reader.recover(session) is None
    assert daemon.reader.recover_all() == []
    assert daemon.reader.has_partial(session) is False
    assert daemon.partials() == []
    until(lambda: daemon.holding([said(0, 20).encode()]) == [], "the last byte of it gone")


def test_resolved_while_no_partial_can_be_made(
    daemon: DaemonProcess,
    make_nursery: Callable[..., Nursery],
    make_agent: Callable[..., Obedient],
) -> None:
    """Until there is one the segment serves it; resolved at once, killed at once, it stays gone."""
    alive = make_agent(daemon)  # so that the segments stay
    alive.do("reply = client.reply('alive', stream_id='alive'); reply.token('x'); reply.drain(20)")
    uid = daemon.data / "partials" / str(os.geteuid())
    nursery = make_nursery(daemon)
    for turn in range(4):
        # A folder in the way of its temporary file.
        in_the_way = uid / path_name(f"session {turn + 1}") / f".r{turn + 1}.0.tmp"
        in_the_way.mkdir(parents=True)
        (stream_id,), board = nursery.stream(50)
        nursery.ended()
        check_all(daemon, [stream_id], board)
        if turn % 2:
            until(lambda: daemon.status()["queue_events"] == 0, "its bytes written")
        assert in_the_way.name == f".{stream_id}.tmp"
        assert not (in_the_way.parent / stream_id).exists()
        assert daemon.reader.resolve(stream_id) is True
        daemon.restart()
        assert daemon.reader.recover(stream_id=stream_id) is None
    assert [reply.stream_id for reply in daemon.reader.recover_all()] == ["alive"]
