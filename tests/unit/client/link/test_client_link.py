"""The connection: made, lost, made again; refused. Against a scripted daemon."""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
from itertools import count
from pathlib import Path

import pytest
import walld_client
from fake_daemon import FakeDaemon, fake_daemon, soon
from walld_client.link import process
from walld_client.wire import messages as wire

LOG = b"L" * 16


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
    assert again.seqs() == [2]
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
    assert again.seqs() == list(range(304))
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
    assert again.seqs(1) == []
    assert [m.start.stream for m in again.messages if isinstance(m, wire.Resume)] == [2]


def test_a_released_stream_that_was_not_acked_is_resent_and_says_so(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    reply.token("x")
    reply.end()
    peer = daemon.agent()
    daemon.until(lambda: peer.seqs() == [0, 1, 2, 3])
    daemon.stop()
    daemon.start()
    again = daemon.agent(1)
    daemon.until(lambda: again.seqs() == [0, 1, 2, 3])
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
    assert again.seqs() == [0, 3]


def test_what_a_full_disk_dropped_comes_again_and_is_never_called_safe(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    """Its daemon covers it with an Ack once a later one is taken; the next may have room for it."""
    reply = client.reply("S")
    for text in "abc":
        reply.token(text)
    daemon.has_text("abc").say(wire.Refused(1, 2, "disk_full", "token", "room on the disk"))
    soon(lambda: reply.durable_seq == -1 and client.stats().refused == 1)
    daemon.stop()
    daemon.start()
    again = daemon.has_text("abc", 1)
    again.say(wire.Ack(LOG, 1, 1, [(1, 3, 3)]))
    soon(lambda: reply.durable_seq == 1)


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
    assert client._link.reconnect.retry_at > time.monotonic() + 30
    assert "code version, got 1, limit 2" in caplog.text


# --- nobody is there ---


def test_a_program_that_has_seeded_chance_draws_the_same(client: walld_client.Client) -> None:
    random.seed(7)
    before = random.getstate()
    client.reply("S").token("x")
    soon(lambda: client._link.reconnect._attempts >= 3)
    assert random.getstate() == before


def test_one_line_is_logged_until_a_daemon_comes(
    client: walld_client.Client, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "walld")
    reply = client.reply("S")
    for _ in range(100):
        reply.token("x")
    soon(lambda: client._link.reconnect._attempts >= 3)
    (line,) = [r.getMessage() for r in caplog.records]
    assert path in line
    assert "errno 2" in line
    assert f"uid {os.geteuid()}" in line
    with fake_daemon(path) as daemon:
        daemon.has_text("x" * 100)
        soon(lambda: reply.sent_seq == 100)
        client._link.acks.welcomed = True
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
