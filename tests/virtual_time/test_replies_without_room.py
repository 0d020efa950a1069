"""Released replies of turns, where what waits for the files of sessions fills its memory (P10)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from virtual_daemon import Home, Peer, Virtual, asked, living, run, until
from walld_client.wire import messages as wire

from walld import limits
from walld.engine.session_log import SessionLog, SessionLogs
from walld.ledger.store import LedgerStore

SAID = b"x" * 500
A_REPLY_BYTES = 2000
"""At most, of the lines of one."""


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Bytes that wait, of one session and in all, behind each append."""
    seen, append = list[tuple[int, int]](), SessionLogs.append

    def noted(self: SessionLogs, ledger: SessionLog, *given: Any, **more: Any) -> Any:
        placed = append(self, ledger, *given, **more)
        seen.append((ledger.pending_bytes, self.pending_bytes))
        return placed

    monkeypatch.setattr(SessionLogs, "append", noted)
    return seen


async def turn(virtual: Virtual) -> None:
    payload = json.dumps({"message_id": "m", "content": "go"}).encode()
    submit = wire.NewEntry("turn_submitted", payload, "t", turn="t")
    await asked(virtual, wire.Append(1, "s", [submit], level="synced"))


def release(agent: Peer, numbers: range) -> None:
    for number in numbers:
        agent.send(wire.Start(number, 0, f"r{number}", "s", "t"), wire.Token(number, 1, SAID))
        agent.send(wire.End(number, 2, clean=True), wire.Release(number, 3))


async def ids(virtual: Virtual) -> list[str]:
    return [json.loads(line)["id"] for line in await asked(virtual, wire.Events(9, "s"))]


def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """No file of a session can be written until that is called."""
    fails, write = [True], LedgerStore.append

    def fail(self: LedgerStore, uid: int, session_id: str, *args: Any, **kwargs: Any) -> None:
        if fails:
            raise OSError(5, "planted", session_id)
        write(self, uid, session_id, *args, **kwargs)

    monkeypatch.setattr(LedgerStore, "append", fail)
    return fails.clear


def test_replies_of_a_session_whose_file_cannot_be_written_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waited: list[tuple[int, int]]
) -> None:
    """They are replies until then, and go once it can be."""
    monkeypatch.setattr(limits, "LEDGER_FAILING_BYTES_MAX", 4000)
    mend = failing(monkeypatch)

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            await turn(virtual)
            await anyio.sleep(limits.CHECKPOINT_SECONDS + 5)
            with Peer(virtual) as agent:
                release(agent, range(1, 41))
                await anyio.sleep(60)
                assert max(own for own, _ in waited) <= 2 * 4000 + A_REPLY_BYTES
                assert len(virtual.engine.turn_commit.streams) > 20
                told = await asked(virtual, wire.Project(8, "s", "messages"))
                assert told.count(SAID) == 40, "as replies that are not in the session"
                note = wire.NewEntry("message", b'{"role":"user","content":"next"}', "next")
                with Peer(virtual, "query") as peer:
                    peer.send(wire.Append(7, "s", [note]))
                    assert (await peer.hear(wire.Error)).code == "unwritable"
                mend()
                await until(lambda: not virtual.engine.turn_commit.streams)
                assert await ids(virtual) == ["t", *(f"r{number}:1" for number in range(1, 41))]

    run(main)


def test_so_do_replies_where_all_that_waits_is_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waited: list[tuple[int, int]]
) -> None:
    """An entry that comes behind them stands behind them."""
    monkeypatch.setattr(limits, "LEDGER_BYTES_MAX", 4000)

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            await turn(virtual)
            with Peer(virtual) as agent:
                release(agent, range(1, 41))
                await agent.drain()
                assert max(total for _, total in waited) <= 4000 + A_REPLY_BYTES
                release(agent, range(41, 61))
                await until(lambda: len(virtual.engine.turn_commit.streams) == 20)
                note = wire.NewEntry("message", b'{"role":"user","content":"next"}', "next")
                assert await asked(virtual, wire.Append(7, "s", [note]))
                assert max(total for _, total in waited) <= 4000 + A_REPLY_BYTES
                names = (f"r{number}:1" for number in range(1, 61))
                assert await ids(virtual) == ["t", *names, "next"]

    run(main)
