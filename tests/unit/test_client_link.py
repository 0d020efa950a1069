"""The connection: made, lost, made again; full; refused; drained. Against a scripted daemon."""

from __future__ import annotations

import logging
import os
import random
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
import walld_client
from fake_daemon import FakeDaemon, Peer, fake_daemon
from walld_client import frames, process
from walld_client.limits import SHORT_FRAME_BYTES_MAX
from walld_client.reply import Reply
from walld_client.wire import messages as wire

LOG = b"L" * 16


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(process, "_numbers", count(1))
    return str(tmp_path / "s")


@pytest.fixture
def daemon(path: str) -> Iterator[FakeDaemon]:
    with fake_daemon(path) as daemon:
        yield daemon


@pytest.fixture
def client(path: str) -> Iterator[walld_client.Client]:
    client = walld_client.connect(path)
    yield client
    client.close(0.0)


def soon(condition: Callable[[], object]) -> None:
    """Wait for another thread of this process; the bound only ends a test that has failed."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "never came"
        time.sleep(0.002)


def unfolded(peer: Peer, stream: int = 1) -> list[int]:
    seqs: list[int] = []
    for event in peer.events():
        if event.stream == stream:
            count = 1
            if isinstance(event, wire.Run):
                count = sum(1 for b in event.lengths if b < 0x80)
            seqs += range(event.seq, event.seq + count)
    return seqs


def fill(daemon: FakeDaemon, client: walld_client.Client, reply: Reply) -> None:
    """Send until the daemon takes no more, the kernel is full and something waits."""
    daemon.parked.clear()
    daemon.reading.clear()
    sent = 0
    while True:
        lags = reply.token("0123456789" * 50) != reply.sent_seq
        if lags and daemon.parked.is_set():
            connection = client._link._socket
            assert connection is not None
            # Not select(2): it takes no descriptor above 1,023.
            waits = select.poll()
            waits.register(connection, select.POLLOUT)
            if not waits.poll(0):
                return
        sent += 1
        assert sent < 1_000_000


# --- all is well ---


def test_hello_and_first_events_do_not_wait_for_welcome(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    daemon.greets = False
    reply = client.reply("S", turn_id="t", parent="p", model="m")
    assert [reply.token("a"), reply.token("b")] == [1, 2]
    assert reply.sent_seq == 2
    peer = daemon.has_text("ab")
    hello, start = peer.messages[:2]
    assert (hello.version, hello.role, len(hello.producer)) == (1, "agent", 16)
    assert (start.stream, start.seq, start.session_id) == (1, 0, "S")
    assert (start.stream_id, start.turn_id, start.parent) == (reply.stream_id, "t", "p")


def test_one_connection_carries_all_streams_of_all_clients(
    daemon: FakeDaemon, client: walld_client.Client, path: str
) -> None:
    other = walld_client.connect(path)
    replies = [client.reply("A"), other.reply("B"), client.reply("C")]
    for index, reply in enumerate(replies):
        reply.token(str(index))
    daemon.has_text("2", stream=3)
    other.close()
    replies[0].token("!")
    peer = daemon.has_text("0!")
    assert len(daemon.agents()) == 1
    assert not peer.ended
    assert [m.stream for m in peer.messages if isinstance(m, wire.Start)] == [1, 2, 3]


def test_acks_trim_the_ring_and_forget_the_released(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    with client.reply("S") as reply:
        for _ in range(100):
            reply.token("x")
        reply.end()
    peer = daemon.agent()
    daemon.until(lambda: peer.events() and peer.events()[-1].seq == 102)
    assert client.stats().streams == 1
    peer.say(wire.Ack(LOG, 3, 3, [(1, 102, 102)]))
    soon(lambda: reply.durable_seq == 102)
    assert client.stats().streams == 0
    other = client.reply("S2")
    for _ in range(500):
        other.token("y")
    peer.say(wire.Ack(LOG, 4, 4, [(2, 500, 500)]))
    for _ in range(2000):
        other.token("y")
    peer.say(wire.Ack(LOG, 5, 5, [(2, 2000, 2000)]))
    soon(lambda: other.durable_seq == 2000)
    for _ in range(1100):  # a token does the chores now and then, nothing else is called
        other.token("y")
    held = client.stats().unsynced_bytes / (len(client._link.backlog.sent[0]) + 48)
    assert 1600 <= held <= 1601


def test_durable_seq_follows_acks_and_never_passes_what_was_said(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    reply.token("x")
    assert reply.durable_seq == -1
    daemon.agent().say(wire.Ack(LOG, 1, 1, [(1, 1, 0), (77, 1, 1)]))
    soon(lambda: reply.durable_seq == 0)
    daemon.agent().say(wire.Ack(LOG, 1, 1, [(1, 9, 9)]))
    soon(lambda: reply.durable_seq == 1)


# --- the daemon dies ---


def test_an_agent_that_is_silent_hands_over_what_it_held(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    reply.token("hello ")
    reply.token("world")
    peer = daemon.has_text("hello world")
    peer.say(wire.Ack(LOG, 7, 6, [(1, 2, 1)]))
    soon(lambda: reply.durable_seq == 1)
    daemon.stop()
    daemon.start()
    again = daemon.agent(1)  # nothing is called meanwhile: the hang-up alone wakes the client
    daemon.until(lambda: again.text() == "world")
    hello, resume = again.messages[:2]
    assert (hello.log, hello.synced_no) == (LOG, 6)
    assert hello.producer == peer.messages[0].producer
    assert isinstance(resume, wire.Resume)
    assert resume.start == peer.messages[1]
    assert (resume.synced, resume.next_seq, resume.released) == (1, 3, False)
    assert resume.held_from <= 2
    assert again.events()[-1] == peer.events()[-1]
    assert unfolded(again) == [2]
    assert client.stats().reconnects == 1


def test_what_is_said_while_nobody_is_there_arrives_folded_and_in_order(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    reply.token("a")
    daemon.has_text("a")
    daemon.stop()
    want = "a"
    for index in range(300):
        want += f"{index} "
        assert reply.token(f"{index} ") == index + 2
    reply.tool("ls", call_id="c")
    reply.token("end")
    stats = client.stats()
    assert stats.backlog >= 302
    assert reply.sent_seq == -1
    daemon.start()
    again = daemon.has_text(want + "end", 1)
    assert unfolded(again) == list(range(304))
    assert len(again.messages) < 20
    soon(lambda: client.stats().backlog == 0)
    assert reply.sent_seq == 303


def test_a_released_stream_that_was_acked_is_not_resent(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    done = client.reply("S")
    done.token("x")
    done.end()
    live = client.reply("S")
    live.token("y")
    peer = daemon.has_text("y", stream=2)
    peer.say(wire.Ack(LOG, 1, 1, [(1, 3, 3)]))
    soon(lambda: done.durable_seq == 3)
    daemon.stop()
    daemon.start()
    again = daemon.has_text("y", 1, stream=2)
    assert unfolded(again, 1) == []
    assert [m.start.stream for m in again.messages if isinstance(m, wire.Resume)] == [2]


def test_a_released_stream_that_was_not_acked_is_resent_and_says_so(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    reply.token("x")
    reply.end()
    peer = daemon.agent()
    daemon.until(lambda: unfolded(peer) == [0, 1, 2, 3])
    daemon.stop()
    daemon.start()
    again = daemon.agent(1)
    daemon.until(lambda: unfolded(again) == [0, 1, 2, 3])
    assert [m.released for m in again.messages if isinstance(m, wire.Resume)] == [True]


def test_a_stream_released_before_any_daemon_heard_of_it_is_never_sent(
    client: walld_client.Client, path: str
) -> None:
    gone = client.reply("S")
    gone.token("secret")
    gone.end()
    kept = client.reply("S")
    kept.token("kept")
    with fake_daemon(path) as daemon:
        peer = daemon.has_text("kept", stream=kept._stream.number)
        assert b"secret" not in b"".join(peer.bodies)
        client.close()


def test_a_daemon_that_dies_again_and_again_gets_everything_once_it_stays(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    want = ""
    for death in range(4):
        for index in range(20):
            want += f"{death}.{index} "
            reply.token(f"{death}.{index} ")
        daemon.has_text(want, death)
        daemon.stop()
        daemon.start()
    reply.end()
    last = daemon.has_text(want, 4)
    assert client.stats().dropped == 0
    daemon.until(lambda: isinstance(last.messages[-1], wire.Release))


# --- the kernel is full ---


def test_a_full_socket_never_blocks_loses_nothing_and_keeps_the_order(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    fill(daemon, client, reply)
    for _ in range(200):
        last = reply.token("tail")
    stats = client.stats()
    assert stats.backlog == last - reply.sent_seq > 0
    taken = reply.sent_seq
    daemon.reading.set()
    peer = daemon.agent()
    daemon.until(lambda: unfolded(peer)[-1:] == [last])
    assert unfolded(peer) == list(range(last + 1))
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
    daemon.until(lambda: unfolded(peer)[-1:] == [after])
    assert unfolded(peer) == list(range(after + 1))
    assert taken < last


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
        daemon.until(lambda: unfolded(peer)[-1:] == [5001])
        seqs = unfolded(peer)
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
    assert unfolded(peer) == [0, 1, 2, 3]


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
    assert unfolded(peer) == [0, 1, 2, 3, 4, 5]
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
    assert unfolded(peer) == [0, 1, 2]


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
    folded = frames.folded

    def interrupted(_loose: list[bytes]) -> list[bytes]:
        monkeypatch.setattr(frames, "folded", folded)
        raise KeyboardInterrupt

    monkeypatch.setattr(frames, "folded", interrupted)
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
        fill(daemon, client, reply)
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


# --- refused, error ---


def test_a_refused_event_is_counted_told_once_and_not_resent(
    daemon: FakeDaemon, client: walld_client.Client, caplog: pytest.LogCaptureFixture
) -> None:
    reply = client.reply("S")
    for text in "abc":
        reply.token(text)
    peer = daemon.has_text("abc")
    peer.say(wire.Refused(1, 2, "text_length", "9", "8"))
    peer.say(wire.Refused(1, 1, "text_length", "9", "8"))
    soon(lambda: reply.durable_seq == -1 and client.stats().refused == 2)
    assert len([r for r in caplog.records if "text_length" in r.getMessage()]) == 1
    daemon.stop()
    daemon.start()
    again = daemon.has_text("c", 1)
    assert unfolded(again) == [0, 3]


def test_a_stream_whose_start_was_refused_says_no_more_and_hurts_no_other(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    bad, good = client.reply("S", stream_id="x"), client.reply("S")
    daemon.agent().say(wire.Refused(bad._stream.number, 0, "stream_exists", "x", ""))
    soon(lambda: good.durable_seq == -1 and client.stats().refused == 1)
    assert bad.token("no") == 0
    assert good.token("yes") == 1
    peer = daemon.has_text("yes", stream=good._stream.number)
    assert peer.text(bad._stream.number) == ""


@pytest.mark.parametrize(
    "words", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x01\xc1", b"\x00\x00\x00\x02\x91\x63"]
)
def test_a_daemon_that_talks_nonsense_is_left_and_tried_again(
    daemon: FakeDaemon, client: walld_client.Client, words: bytes
) -> None:
    reply = client.reply("S")
    reply.token("a")
    daemon.has_text("a").socket.sendall(words)
    soon(lambda: reply.durable_seq == -1 and client.stats().reconnects == 1)
    daemon.has_text("a", 1)


def test_another_version_means_a_long_wait(
    daemon: FakeDaemon, client: walld_client.Client, caplog: pytest.LogCaptureFixture
) -> None:
    reply = client.reply("S")
    reply.token("a")
    peer = daemon.has_text("a")
    peer.say(wire.Error("version", "another version", "1", "2"))
    peer.socket.shutdown(socket.SHUT_RDWR)
    soon(lambda: not client.stats().connected)
    soon(lambda: client._link._socket is None)
    assert client._link.dialing.retry_at > time.monotonic() + 30
    assert "code version, got 1, limit 2" in caplog.text


# --- nobody is there ---


def test_a_program_that_has_seeded_chance_draws_the_same(client: walld_client.Client) -> None:
    random.seed(7)
    before = random.getstate()
    client.reply("S").token("x")
    soon(lambda: client._link.dialing._attempts >= 3)
    assert random.getstate() == before


def test_one_line_is_logged_until_a_daemon_comes(
    client: walld_client.Client, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "walld")
    reply = client.reply("S")
    for _ in range(100):
        reply.token("x")
    soon(lambda: client._link.dialing._attempts >= 3)
    (line,) = [r.getMessage() for r in caplog.records]
    assert path in line
    assert "errno 2" in line
    assert f"uid {os.geteuid()}" in line
    with fake_daemon(path) as daemon:
        daemon.has_text("x" * 100)
        soon(lambda: reply.sent_seq == 100)
        client._link.hearing.welcomed = True
        client.close()


def test_the_socket_is_looked_for_again_at_each_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_numbers", count(1))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("WALLD_SOCKET", raising=False)
    client = walld_client.connect()
    reply = client.reply("S")
    reply.token("x")
    (tmp_path / "walld").mkdir()
    with fake_daemon(str(tmp_path / "walld" / "walld.sock")) as daemon:
        daemon.has_text("x")
        client.close()


def test_no_thread_is_started_for_a_client_that_sends_nothing(path: str) -> None:
    before = threading.active_count()
    client = walld_client.connect(path)
    client.stats()
    client.check()
    assert threading.active_count() == before
    assert client.close()


# --- drain ---


def test_drain_waits_for_the_daemon_and_no_longer(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    reply.token("x")
    assert not reply.drain(0.05)
    answered: list[bool] = []
    waiting = threading.Thread(target=lambda: answered.append(reply.drain(10, "synced")))
    waiting.start()
    peer = daemon.agent()
    daemon.until(lambda: isinstance(peer.messages[-1], wire.Drain) and peer.messages[-1].id == 2)
    assert peer.text() == "x"
    peer.say(wire.Drained(2, "synced"))
    waiting.join(10)
    assert answered == [True]


@pytest.mark.parametrize(
    "answer", [wire.Drained(1, "written"), wire.Refused(0, 1, "bad_level", "", "")]
)
def test_a_level_that_was_not_reached_is_false(
    daemon: FakeDaemon, client: walld_client.Client, answer: wire.Drained | wire.Refused
) -> None:
    reply = client.reply("S")
    answered: list[bool] = []
    waiting = threading.Thread(target=lambda: answered.append(reply.drain(10, "replicated")))
    waiting.start()
    peer = daemon.agent()
    daemon.until(lambda: isinstance(peer.messages[-1], wire.Drain))
    peer.say(answer)
    waiting.join(10)
    assert answered == [False]


def test_a_drain_is_asked_again_of_the_next_daemon_after_what_is_resent(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    reply.token("x")
    answered: list[bool] = []
    waiting = threading.Thread(target=lambda: answered.append(reply.drain(10)))
    waiting.start()
    peer = daemon.agent()
    daemon.until(lambda: isinstance(peer.messages[-1], wire.Drain))
    daemon.stop()
    daemon.start()
    again = daemon.agent(1)
    daemon.until(lambda: isinstance(again.messages[-1], wire.Drain))
    assert again.text() == "x"
    again.say(wire.Drained(1, "written"))
    waiting.join(10)
    assert answered == [True]


def test_an_unknown_level_is_a_mistake(daemon: FakeDaemon, client: walld_client.Client) -> None:
    with pytest.raises(ValueError, match="written, synced, replicated"):
        client.reply("S").drain(1, "burnt")


# --- many threads, close ---


def test_many_threads_on_one_client(daemon: FakeDaemon, client: walld_client.Client) -> None:
    def stream(name: str) -> None:
        with client.reply(name) as reply:
            for index in range(1500):
                assert reply.token(f"{name}{index} ") == index + 1
            reply.end()

    threads = [threading.Thread(target=stream, args=(f"s{n}-",)) for n in range(8)]
    shared = client.reply("shared")
    seqs: list[int] = []
    hammers = [
        threading.Thread(target=lambda: seqs.extend([shared.token("x") for _ in range(500)]))
        for _ in range(4)
    ]
    for thread in threads + hammers:
        thread.start()
    for thread in threads + hammers:
        thread.join()
    assert sorted(seqs) == list(range(1, 2001))
    assert client.close(10)
    peer = daemon.agent()
    daemon.until(lambda: peer.ended)
    for start in [m for m in peer.messages if isinstance(m, wire.Start)]:
        last = 2000 if start.session_id == "shared" else 1502
        assert unfolded(peer, start.stream) == list(range(last + 1))


def test_close_hands_over_the_rest_and_ends_the_connection(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    fill(daemon, client, reply)
    last = reply.token("last")
    daemon.reading.set()
    assert client.close(10)
    peer = daemon.agent()
    daemon.until(lambda: peer.ended)
    assert unfolded(peer) == list(range(last + 1))
    assert reply.token("late") == 0
    assert client.reply("S").token("late") == 0


def test_close_waits_no_longer_than_it_was_told(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    fill(daemon, client, reply)
    assert not client.close(0.05)


def test_stats_and_check_say_where_things_are(
    daemon: FakeDaemon, client: walld_client.Client, path: str
) -> None:
    assert client.check().startswith("recoverable: walld listens at")
    reply = client.reply("S")
    reply.token("x")
    stats = client.stats()
    assert (stats.connected, stats.socket, stats.sent, stats.backlog) == (True, path, 2, 0)
    assert client.check().startswith("recoverable: walld at")
    daemon.stop()
    soon(lambda: client._link._socket is None)
    assert client.check().startswith("not recoverable")
    assert client.stats().backlog == 2
    assert walld_client.check(path).startswith("not recoverable")


def test_after_a_daemons_death_only_what_is_synced_counts_as_sent(
    daemon: FakeDaemon, path: str
) -> None:
    """A full ring has dropped what the dead daemon had taken: nobody holds it any more."""
    client = walld_client.connect(path, backlog_bytes_max=64 * 1024)
    reply = client.reply("S")
    for _ in range(3000):
        reply.token("x" * 1000)
    assert client.stats().unheld + client.stats().dropped > 0
    soon(lambda: daemon.peers and daemon.peers[0].messages)
    daemon.stop()
    soon(lambda: not client.stats().connected)
    reply.token("y")
    assert reply.sent_seq == reply.durable_seq == -1
    client.close(0.0)
