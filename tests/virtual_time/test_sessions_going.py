"""A session whose delete waits for the log: what is left of it meanwhile is no session."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from virtual_daemon import Home, Peer, Virtual, living, run, until
from walld_client.wire import messages as wire

from walld.daemon.session_store.open_sessions import Sessions
from walld.daemon.storage.flusher import Flusher
from walld.ledger.intents import IntentStore

NOTE = wire.NewEntry("app.note", b'{"text":"x"}', "")


def notes(first: int, last: int) -> wire.Append:
    entries = [msgspec.structs.replace(NOTE, id=f"e{at}") for at in range(first, last + 1)]
    return wire.Append(1, "s", entries, level="synced")


async def asked(virtual: Virtual, request: wire.FromQuery) -> Any:
    """The answer, or what it was refused as."""
    either: Any = wire.Answer | wire.Error
    with Peer(virtual, "query") as peer:
        peer.send(request)
        told = await peer.hear(either)
    return msgspec.msgpack.decode(told.chunk) if isinstance(told, wire.Answer) else told.code


def test_who_reads_or_forks_it_waits(tmp_path: Path) -> None:
    """The log has let go of its newest lines, and its file is there still."""
    home, told = Home(tmp_path), dict[str, Any]()

    async def tell(virtual: Virtual, what: str, request: wire.FromQuery) -> None:
        told[what] = await asked(virtual, request)

    async def main() -> None:
        async with living(home) as virtual:
            await asked(virtual, notes(1, 60))
            await until(lambda: list(home.data.rglob("events.jsonl")))
            await asked(virtual, notes(61, 65))
            for slow in (virtual.worker, virtual.syncer):
                slow.seconds = 2.0
            async with anyio.create_task_group() as asking:
                asking.start_soon(tell, virtual, "delete", wire.Delete(1, "s"))
                await anyio.sleep(0.5)
                assert "delete" not in told
                asking.start_soon(tell, virtual, "events", wire.Events(1, "s"))
                asking.start_soon(tell, virtual, "audit", wire.Project(1, "s", "audit", b"{}"))
                asking.start_soon(tell, virtual, "sessions", wire.Sessions(1, ""))
                asking.start_soon(tell, virtual, "fork", wire.Fork(1, "s", "fork", None))
            assert told["delete"] is True
            assert (told["events"], told["audit"], told["sessions"]) == (None, None, [])
            assert told["fork"] == "unknown_session"
            (placed,) = await asked(virtual, notes(1, 1))
            assert placed[0] == 1

    run(main)


async def never(*_: object) -> None:
    """It is killed before that."""
    await anyio.sleep_forever()


def unreadable(_store: IntentStore) -> None:
    raise OSError(errno.EIO, "Input/output error")


def test_what_the_log_has_of_a_deleted_session_goes_to_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the log has let go of its lines; the next start cannot read the notes."""
    home = Home(tmp_path)

    async def main() -> None:
        async with living(home) as virtual:
            await asked(virtual, notes(1, 5))
            with monkeypatch.context() as patch, Peer(virtual, "query") as peer:
                patch.setattr(Sessions, "until", never)
                peer.send(wire.Delete(1, "s"))
                await anyio.sleep(0.05)
                await virtual.crash()
        with monkeypatch.context() as patch:
            patch.setattr(Flusher, "run", never)
            async with living(home) as virtual:
                await anyio.sleep(1)  # its files go, and no word of it comes into the log
                await virtual.crash()
        for is_killed in (True, False):
            with monkeypatch.context() as patch:
                patch.setattr(IntentStore, "notes", unreadable)
                async with living(home) as virtual:
                    patch.undo()
                    await anyio.sleep(100)
                    assert await asked(virtual, wire.Events(1, "s")) == "unreadable"
                    if is_killed:
                        await virtual.crash()
        for _ in range(2):
            async with living(home) as virtual:
                assert await asked(virtual, wire.Events(1, "s")) is None

    run(main)
