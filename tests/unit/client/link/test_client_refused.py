"""A process that the daemon does not let in is told why, and never called recoverable."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import walld_client
from fake_daemon import soon
from walld_client import aio, stats
from walld_client.link.ack_handler import AckHandler
from walld_client.link.registry import Registry
from walld_client.query import aio_query, query
from walld_client.wire import framing
from walld_client.wire import messages as wire

from walld.cli import client, main

NO = wire.Error("foreign_uid", "the uid of this peer cannot be told from others", "65534", "mapped")


def refused() -> socket.socket:
    """A connection that was accepted, told why not and closed before it said a word."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    theirs.send(framing.encode(NO))
    theirs.close()
    return ours


@pytest.fixture
def door(tmp_path: Path) -> Iterator[str]:
    """A socket that lets nobody in."""
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def see_off() -> None:
            while True:
                try:
                    accepted, _ = listener.accept()
                except OSError:
                    return
                with accepted, contextlib.suppress(OSError):
                    accepted.send(framing.encode(NO))

        thread = threading.Thread(target=see_off)
        thread.start()
        yield path
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_an_agent_that_is_not_let_in_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each try to connect is told the same. Once it was let in, the next time is news."""
    handler = AckHandler(Registry())

    def told(*messages: wire.Welcome | wire.Error) -> int:
        caplog.clear()
        handler.start()
        for message in messages:
            handler.feed(framing.encode(message))
        return len(caplog.messages)

    assert [told(NO) for _ in range(3)] == [1, 0, 0]
    assert handler.fatal == "foreign_uid"
    assert told(wire.Error("too_many_peers", "no room", "90", "90")) == 1, "another reason"
    welcome = wire.Welcome(framing.PROTOCOL_VERSION, "0.1.0", bytes(16), 1 << 20, 1 << 20)
    assert told(welcome) == 0
    assert told(NO) == 1


def test_a_request_says_why(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "_connect", lambda path, seconds: refused())
    client = walld_client.connect(door)
    with pytest.raises(walld_client.Unavailable, match="foreign_uid"):
        client.recover("s")
    client.close()


def test_so_does_one_in_asyncio(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def connected(self: object, loop: object) -> socket.socket:
        found = refused()
        found.setblocking(False)
        return found

    async def asks() -> None:
        client = aio.connect(door)
        with pytest.raises(walld_client.Unavailable, match="foreign_uid"):
            await client.recover("s")
        await client.close()

    monkeypatch.setattr(aio_query.AsyncQuery, "_connected", connected)
    asyncio.run(asks())


def test_so_does_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client, "_connected", lambda given, timeout: refused())
    assert main(["status"]) == 1
    assert "cannot be told from others (got 65534, limit mapped)" in capsys.readouterr().err


def test_check_does_not_call_it_recoverable(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "_KNOCK_MS", 10_000)
    client = walld_client.connect(door)
    replies = []
    for _ in range(2):  # before anything is sent, and when the agent's own connection was refused
        said = client.check()
        assert said.startswith("not recoverable")
        assert "foreign_uid" in said
        replies.append(client.reply("s"))
        replies[-1].token("x")
        soon(lambda: not client._link.connected)
    assert client.check().endswith("4 events wait in memory")
    client.close()
