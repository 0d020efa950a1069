"""Appends on a query connection: they wait for room, and none overtakes another."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from asking import refused
from virtual_daemon import Home, Peer, asked, living, run, until
from walld_client.wire import messages as wire

from walld import limits
from walld.daemon.api import server
from walld.daemon.api.response_buffers import ResponseBuffer
from walld.daemon.session_store.open_sessions import Sessions
from walld.ledger.store import LedgerStore


def test_an_append_waits_for_room_and_is_refused_where_none_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LEDGER_BYTES_MAX", 4000)
    payload = b'{"role":"user","content":"' + b"x" * 1000 + b'"}'

    def append(number: int, *idents: str) -> wire.Append:
        return wire.Append(
            number, "s", [wire.NewEntry("message", payload, ident) for ident in idents]
        )

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            for number in range(1, 20):  # each waits for the checkpoint of those before it
                assert await asked(virtual, append(number, f"a{number}", f"b{number}"))
            error = await refused(virtual, append(50, *"abcd"))
            assert error.code == "ledger_full"

    run(main)


def test_a_session_whose_file_cannot_be_written_takes_no_room_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LEDGER_FAILING_BYTES_MAX", 2000)
    payload = b'{"role":"user","content":"' + b"x" * 100 + b'"}'
    failing, write = [True], LedgerStore.append

    def fail(self: LedgerStore, uid: int, session_id: str, *args: Any, **kwargs: Any) -> None:
        if session_id == "hurt" and failing:
            raise OSError(5, "planted", session_id)
        write(self, uid, session_id, *args, **kwargs)

    monkeypatch.setattr(LedgerStore, "append", fail)

    def append(session_id: str, number: int) -> wire.Append:
        one = wire.NewEntry("message", payload, f"a{number}")
        return wire.Append(number, session_id, [one])

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            virtual.daemon.maintenance.wake()
            said = b'{"message_id":"m","content":"q"}'
            begun = wire.NewEntry("turn_submitted", said, "t", turn="t")
            assert await asked(virtual, wire.Append(40, "hurt", [begun]))
            for number in range(1, 8):
                assert await asked(virtual, append("hurt", number))
            await anyio.sleep(limits.CHECKPOINT_SECONDS + 5)
            with Peer(virtual, "query") as peer:
                for number in range(8, 40):
                    peer.send(append("hurt", number))
                    answer = await peer.hear(wire.Answer | wire.Error)
                    if isinstance(answer, wire.Error):
                        break
            assert (answer.code, answer.limit) == ("unwritable", "2000")
            end = wire.NewEntry("turn_completed", b"{}", "end", turn="t")
            assert await asked(virtual, wire.Append(41, "hurt", [end])), "what was begun may end"
            assert await asked(virtual, append("good", 1))
            failing.clear()
            await anyio.sleep(limits.CHECKPOINT_SECONDS + 5)
            assert await asked(virtual, append("hurt", 50))
            more = [wire.NewEntry("message", payload, f"more{n}") for n in range(30)]
            assert await asked(virtual, wire.Append(51, "hurt", more)), "all its room again"
            lines = await asked(virtual, wire.Events(60, "hurt"))
            assert len(lines) == number + 32

    run(main)


# --- appends that nobody waits for ----------------------------------------------------------------


def entry(ident: str) -> wire.NewEntry:
    return wire.NewEntry("n", b"{}", ident, once=True)


def test_an_append_that_is_to_be_asked_again_is_not_overtaken(tmp_path: Path) -> None:
    """What was sent behind it comes again behind it, on another connection."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            never = wire.Seen(os.urandom(16), 1, 1)
            with Peer(virtual, "query") as peer:
                first = wire.Append(1, "s", [entry("a")], seen=[never], in_order=True)
                peer.send(first, wire.Append(2, "s", [entry("b")]))
                error = await peer.hear(wire.Error)
                assert (error.code, error.id) == ("behind", 1)
                peer_said = peer.heard()
                await until(lambda: peer.heard() == [] and peer.ended)
                assert peer_said == []
            assert await asked(virtual, wire.Events(1, "s")) in (None, [])

    run(main)


def test_nor_where_who_asks_closes_as_soon_as_it_hears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks again on another connection, and is not to be taken for one that is gone."""
    send = server._send

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual, "query") as peer:

                async def heard(own: socket.socket, data: bytes, held: ResponseBuffer) -> None:
                    await send(own, data, held)
                    if b"behind" in data:
                        peer.socket.close()

                monkeypatch.setattr(server, "_send", heard)
                never = wire.Seen(os.urandom(16), 1, 1)
                first = wire.Append(1, "s", [entry("a")], seen=[never], in_order=True)
                peer.send(first, wire.Append(2, "s", [entry("b")], in_order=True))
                await anyio.sleep(5)
            assert await asked(virtual, wire.Events(1, "s")) in (None, [])

    run(main)


@pytest.mark.parametrize("in_order", [True, False])
def test_one_that_finds_no_room_ends_its_connection_where_order_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_order: bool
) -> None:
    """A client that waits for each answer goes on with its connection."""
    monkeypatch.setattr(limits, "LEDGER_BYTES_MAX", 10)

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual, "query") as peer:
                long = wire.NewEntry("n", b'{"a":"%s"}' % (b"x" * 50), "a")
                peer.send(wire.Append(1, "s", [long], in_order=in_order), wire.Status(2))
                error = await peer.hear(wire.Error)
                assert (error.code, error.id) == ("ledger_full", 1)
                if in_order:
                    await until(lambda: peer.heard() == [] and peer.ended)
                else:
                    await peer.hear(wire.Answer)

    run(main)


def test_nor_is_one_whose_session_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file may be read a moment later: what came behind it would stand before it."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            opened, fails = Sessions.open, [True]

            async def fail(self: Sessions, *args: Any, **kwargs: Any) -> Any:
                if kwargs and fails and fails.pop():
                    raise OSError(5, "Input/output error", "events.jsonl")
                return await opened(self, *args, **kwargs)

            monkeypatch.setattr(Sessions, "open", fail)
            with Peer(virtual, "query") as peer:
                peer.send(*(wire.Append(n, "s", [entry(f"e{n}")], in_order=True) for n in (1, 2)))
                error = await peer.hear(wire.Error)
                assert (error.code, error.id) == ("unreadable", 1)
                await until(lambda: peer.heard() == [] and peer.ended)
            assert await asked(virtual, wire.Events(1, "s")) in (None, [])

    run(main)


def test_what_was_sent_together_is_answered_each_and_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual, "query") as peer:
                entries = [entry("a"), wire.NewEntry("n", b"{}", "a"), entry("c")]
                peer.send(*(wire.Append(n, "s", [one]) for n, one in enumerate(entries, 1)))
                peer.send(wire.Events(4, "s"))
                said = [await peer.hear(wire.Answer | wire.Error) for _ in range(4)]
            assert [one.id for one in said] == [1, 2, 3, 4]
            assert said[1].code == "duplicate_id"
            assert len(msgspec.msgpack.decode(said[3].chunk)) == 2

    run(main)
