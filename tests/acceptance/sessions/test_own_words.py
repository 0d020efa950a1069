"""A process reads its own words, also those that its daemon's successor has not been told yet.

What the client has not sent again when it asks is held up on purpose: its next attempt to connect
is an hour off, and only who asks brings it forward.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
import walld_client
from colours import connect
from daemon_process import PATIENCE_SECONDS, DaemonProcess, until
from walld_client.link.reconnect import Reconnect

HOUR = 3600.0
COUNT = 5


def die(daemon: DaemonProcess, client: Any) -> None:
    """SIGKILL, until the client has noticed; it would not try again by itself for an hour."""
    link = getattr(client, "inner", client)._link
    daemon.kill()
    until(lambda: not link.has_socket, "a client without a connection")
    with link.mutex:
        link.reconnect.retry_at = time.monotonic() + HOUR


def succeed(daemon: DaemonProcess, client: Any) -> None:
    """The daemon dies, and the next one is up."""
    die(daemon, client)
    daemon.start()


def test_its_live_reply_is_not_nothing(daemon: DaemonProcess, reader: Any) -> None:
    for at in range(COUNT):
        reply = reader.reply(f"s{at}", stream_id=f"r{at}")
        seq = reply.token("said")
        succeed(daemon, reader)
        found = reader.recover(f"s{at}")
        assert found is not None
        assert (found.text, found.last_seq, found.gaps) == ("said", seq, [])
        assert reader.has_partial(f"s{at}") is True
        reply.end()


def test_its_answers_stand_before_what_it_asked_next(daemon: DaemonProcess, reader: Any) -> None:
    """For good: an entry that was appended before the messages of a reply stays before them."""
    session = reader.session("s")
    wanted = []
    for at in range(COUNT):
        turn = session.submit(f"question {at}", message_id=f"m{at}")
        with turn.reply() as reply:
            reply.token(f"answer {at}")
            reply.end()
        wanted += [f"question {at}", f"answer {at}"]
        succeed(daemon, reader)
        if at % 2:
            assert [one["content"] for one in session.messages()] == wanted
    session.submit("last", message_id="last")
    assert [one["content"] for one in session.messages()] == [*wanted, "last"]


def test_what_was_said_while_nobody_was_there_comes_first(
    make_daemon: Callable[..., DaemonProcess], colour: str
) -> None:
    """Also by a process that never met a daemon."""
    daemon = make_daemon()
    client = connect(colour, daemon.socket_path, timeout=PATIENCE_SECONDS)
    try:
        reply = client.reply("s", stream_id="r")
        last = [reply.token(f"{at} ") for at in range(10_000)][-1]
        with client.inner._link.mutex:
            client.inner._link.reconnect.retry_at = time.monotonic() + HOUR
        daemon.start()
        (found,) = client.recover_all("s")
        assert (found.stream_id, found.last_seq, found.gaps) == ("r", last, [])
    finally:
        client.let_go()


def test_who_cannot_say_it_cannot_know(
    daemon: DaemonProcess, colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody brings the attempt forward here: then the answer is not "nothing"."""
    monkeypatch.setattr(Reconnect, "hurry", lambda _: None)
    client = connect(colour, daemon.socket_path, timeout=PATIENCE_SECONDS / 10)
    try:
        client.reply("s", stream_id="r").token("said")
        die(daemon, client)
        daemon.start()
        with pytest.raises(walld_client.Unavailable, match="behind"):
            client.recover("s")
        with pytest.raises(walld_client.Unavailable, match="behind"):
            client.session("s").messages()
        assert client.has_partial("s") is None
        assert client.recover("another") is None, "of this it said nothing"
    finally:
        client.let_go()


def test_what_is_gone_is_waited_for_by_nobody(daemon: DaemonProcess, reader: Any) -> None:
    """Released and forgotten, refused, of a parent: none of it keeps an answer waiting."""
    done = reader.reply("s", stream_id="done")
    done.token("saved elsewhere")
    done.end()
    assert done.drain(PATIENCE_SECONDS, level="synced")
    taken = reader.reply("t", stream_id="taken")
    refused = reader.reply("s", stream_id="taken")
    refused.token("x")
    assert taken.drain(PATIENCE_SECONDS, level="synced")
    succeed(daemon, reader)
    assert reader.recover("s") is None
    assert reader.has_partial("t") is True
    child = os.fork()
    if child == 0:
        client = walld_client.connect(daemon.socket_path, timeout=PATIENCE_SECONDS)
        os._exit(0 if client.recover("s") is None and client.has_partial("t") else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_two_ways_to_one_daemon_lose_nothing(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers of both links' streams are the process's: a daemon that read the higher first
    took the lower for one that is done with, and threw its reply away.
    """
    monkeypatch.setenv("WALLD_SOCKET", daemon.socket_path)
    one, other = (
        walld_client.connect(path, timeout=PATIENCE_SECONDS) for path in (daemon.socket_path, None)
    )
    try:
        assert one._link.producer != other._link.producer
        for client in (one, other):
            assert client.reply("warm").drain(PATIENCE_SECONDS)
        for number in range(6):
            first, second = (one, other) if number % 2 else (other, one)
            daemon.freeze()
            replies = [client.reply(f"s{number}") for client in (first, second)]
            for reply in replies:
                reply.token("said")
            daemon.thaw()
            for client, reply in zip((first, second), replies, strict=True):
                assert reply.drain(PATIENCE_SECONDS)
                found = client.recover(stream_id=reply.stream_id)
                assert found is not None
                assert found.text == "said"
    finally:
        one.close()
        other.close()
