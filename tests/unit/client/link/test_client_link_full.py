"""The connection while the kernel or the ring is full. Against a scripted daemon."""

from __future__ import annotations

import logging

import pytest
import walld_client
from fake_daemon import FakeDaemon, fake_daemon, soon
from walld_client.encoding import event_frames
from walld_client.limits import SHORT_FRAME_BYTES_MAX
from walld_client.wire import messages as wire


def test_a_full_socket_never_blocks_loses_nothing_and_keeps_the_order(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    daemon.fill(client, reply)
    for _ in range(200):
        last = reply.token("tail")
    stats = client.stats()
    assert stats.backlog == last - reply.sent_seq > 0
    taken = reply.sent_seq
    daemon.reading.set()
    peer = daemon.agent()
    daemon.until(lambda: peer.seqs()[-1:] == [last])
    assert peer.seqs() == list(range(last + 1))
    assert len(peer.messages) < last
    assert taken < last
    soon(lambda: reply.sent_seq == last)


def test_a_frame_cut_in_the_middle_is_finished_first(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    daemon.reading.clear()
    reply = client.reply("S")
    big = "x" * (1 << 20)
    last = reply.token(big)
    while reply.sent_seq == last:
        last = reply.token(big)
    taken = reply.sent_seq
    after = reply.token("after")
    daemon.reading.set()
    peer = daemon.agent()
    daemon.until(lambda: peer.seqs()[-1:] == [after])
    assert peer.seqs() == list(range(after + 1))
    assert taken < last


def test_replies_that_were_given_up_are_forgotten_also_where_their_object_was_gone_before(
    path: str,
) -> None:
    client = walld_client.connect(path, backlog_bytes_max=64 * 1024)
    for _ in range(5000):
        client.reply("S").cancel()
    stats = client.stats()
    assert stats.streams < 1000
    assert (stats.sent, stats.dropped + stats.backlog) == (0, 10_000)


def test_overflow_is_a_gap_that_can_be_seen_and_is_counted(path: str) -> None:
    client = walld_client.connect(path, backlog_bytes_max=64 * 1024)
    reply = client.reply("S")
    for index in range(5000):
        reply.token(f"token number {index} ", n=1)
    reply.cancel("stop")
    stats = client.stats()
    assert stats.dropped > 1000
    assert stats.unsynced_bytes <= 64 * 1024
    with fake_daemon(path) as daemon:
        peer = daemon.agent()
        daemon.until(lambda: peer.seqs()[-1:] == [5001])
        seqs = peer.seqs()
        assert seqs[0] == 0
        assert seqs == sorted(seqs)
        assert len(seqs) == 5002 - stats.dropped
        assert seqs[1:] == list(range(5002 - len(seqs) + 1, 5002))
        client.close()


def test_a_token_taken_in_part_is_finished_first(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    send = client._link.send

    def sparing(view: bytes | memoryview, flags: int) -> int:
        client._link.send = send
        return send(bytes(view)[:9], flags)

    client._link.send = sparing
    assert [reply.token("one "), reply.token("two "), reply.token("three")] == [1, 2, 3]
    peer = daemon.has_text("one two three")
    assert peer.seqs() == [0, 1, 2, 3]


def test_arguments_taken_in_part_or_not_at_all_are_finished_first(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    """A short event goes to the kernel as a token does, and waits as one where it does not."""
    reply = client.reply("S")
    reply.tool("f", call_id="c")
    send = client._link.send
    took = iter((9, 0))

    def sparing(view: bytes | memoryview, flags: int) -> int:
        if not (most := next(took)):
            client._link.send = send
            raise BlockingIOError
        return send(bytes(view)[:most], flags)

    client._link.send = sparing
    assert [reply.tool_arguments(one, call_id="c") for one in ("1 ", "2 ", "3")] == [2, 3, 4]
    soon(lambda: reply.sent_seq == 4)
    assert client.stats().backlog == 0
    assert reply.token("end") == reply.sent_seq == 5
    peer = daemon.has_text("end")
    assert peer.seqs() == [0, 1, 2, 3, 4, 5]
    said = [one for one in peer.events() if isinstance(one, wire.ToolArguments)]
    assert [one.delta for one in said] == [b"1 ", b"2 ", b"3"]


def test_short_and_long_events_are_counted_alike(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply, backlog = client.reply("S"), client._link.backlog
    for at in range(200):
        reply.event("k", "x" * (at * 20))
        assert reply.sent_seq == at + 1
        backlog.count()
        counted = backlog.frames_bytes
        backlog.recount()
        assert counted == backlog.frames_bytes


def test_nothing_overtakes_an_event_that_was_put_and_not_pushed(
    daemon: FakeDaemon, client: walld_client.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = client.reply("S")

    def interrupted() -> None:
        raise KeyboardInterrupt

    push = client._link.push
    monkeypatch.setattr(type(client._link), "push", lambda link: interrupted())
    with pytest.raises(KeyboardInterrupt):
        reply.event("long", "x" * SHORT_FRAME_BYTES_MAX)
    monkeypatch.setattr(type(client._link), "push", lambda link: push())
    reply.token("x")
    peer = daemon.has_text("x", 1)
    assert peer.seqs() == [0, 1, 2]


def test_an_interrupt_at_the_door_of_the_lock_ends_nothing(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    """A signal's exception met `Lock.__exit__` before its first step: nobody will unset `held`."""
    reply = client.reply("S")
    client._link.held = True
    assert [reply.token("one "), reply.reasoning("why"), reply.token("two")] == [1, 2, 3]
    daemon.has_text("one two", 1)
    soon(lambda: client.stats().backlog == 0)
    with client._link.mutex, client._link:  # and a call in the middle of another is still told
        assert client._link.held
        assert reply.step() == 0
    assert reply.step() == 5


def test_an_interrupt_in_the_middle_of_folding_loses_nothing(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = walld_client.connect(path)  # nobody is there
    reply = client.reply("S")
    folded = event_frames.folded

    def interrupted(_loose: list[bytes]) -> list[bytes]:
        monkeypatch.setattr(event_frames, "folded", folded)
        raise KeyboardInterrupt

    monkeypatch.setattr(event_frames, "folded", interrupted)
    interrupts = 0
    for _ in range(5000):
        try:
            reply.token("x ")
        except KeyboardInterrupt:
            interrupts += 1
    assert interrupts == 1
    with fake_daemon(path) as daemon:
        daemon.has_text("x " * 5000)
        soon(lambda: client.stats().backlog == 0)
        client.close()


def test_an_overflow_is_told_once_though_the_ring_stays_full(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "walld")
    with fake_daemon(path) as daemon:
        client = walld_client.connect(path, backlog_bytes_max=256 * 1024)
        reply = client.reply("S")
        daemon.until(lambda: daemon.agents() and daemon.agent().messages)
        daemon.fill(client, reply)
        while not client.stats().dropped:
            reply.token("x" * 50, n=1)
        daemon.reading.set()
        soon(lambda: client.stats().backlog == 0)
        for _ in range(3000):  # flowing again, but nothing is ever acknowledged
            reply.token("x" * 50, n=1)
        told = [r.getMessage() for r in caplog.records]
        assert len(told) == 1
        assert "the oldest are dropped" in told[0]
        client.close()


def test_a_ring_too_small_for_anything_is_a_mistake(path: str) -> None:
    with pytest.raises(ValueError, match="at least 65536, got 1000"):
        walld_client.connect(path, backlog_bytes_max=1000)
