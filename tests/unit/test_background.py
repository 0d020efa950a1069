"""The round of the background: what fails in it is tried again."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import anyio
import pytest
from virtual_daemon import Home, Peer, Virtual, asked, living, recovered, run, text_of
from walld_client.wire import messages as wire

from walld.daemon.sessions import Sessions
from walld.ledger.store import LedgerStore
from walld.sessions.state import SessionState

UID = os.getuid()
START = wire.Start(1, 0, "r", "s")


def test_trouble_in_the_background_is_not_the_end(tmp_path: Path) -> None:
    """An orphan whose partial cannot be written now is kept by the log, and tried again."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, wire.Token(1, 1, b"a"))
                await agent.drain()
                replace, tries = virtual.disk.replace, []

                def failing(path: str, data: bytes) -> None:
                    tries.append(path)
                    if len(tries) < 4:
                        raise OSError(28, "planted", path)
                    replace(path, data)

                virtual.disk.replace = failing  # type: ignore[method-assign]
                virtual.engine.orphan(virtual.engine.registry.by_key[UID, "r"], "agent_lost")
                await anyio.sleep(2)
                assert len(virtual.engine.kept) == 0
                assert text_of(await recovered(virtual, "r")) == b"a"
                await anyio.sleep(10)
                assert len(virtual.engine.kept) == 1
                assert await asked(virtual, wire.Status(1))

    run(main)


PLANTED = {
    "a delta": (SessionState, "take_delta", "snapshot of session bad"),
    "a base": (SessionState, "to_base", "snapshot of session bad"),
    "a line": (LedgerStore, "append", "session bad"),
    "opening": (Sessions, "_look_at_turns", "session bad"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_bug_met_by_one_session_is_the_end_of_no_other(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kind, name, told = PLANTED[what]
    whole, armed = getattr(kind, name), []

    def planted(self: object, *given: object, **named: object) -> object:
        state = getattr(given[0], "state", None) if given else self
        is_bad = "bad" in given or "from bad" in getattr(state, "ids", ())
        if is_bad and armed:
            raise UnicodeEncodeError("utf-8", "x", 0, 1, "planted")
        return whole(self, *given, **named)

    monkeypatch.setattr(kind, name, planted)

    async def append(virtual: Virtual, session_id: str, first: int) -> None:
        entries = [wire.NewEntry("app.x", b"{}", f"from {session_id}")] if first == 0 else []
        entries += [wire.NewEntry("app.x", b"{}", f"{first}.{at}") for at in range(60)]
        await asked(virtual, wire.Append(1, session_id, entries))

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            for number in range(3):
                if number == (what != "a base") and what != "opening":
                    armed.append(True)
                for session_id in ("bad", "good"):
                    await append(virtual, session_id, number)
                await anyio.sleep(2)
            good = virtual.engine.ledgers.open[UID, "good"]
            assert not good.pending, "it is held up"
        armed.append(True)
        async with living(home) as virtual:
            await anyio.sleep(5)
            lines = await asked(virtual, wire.Events(1, "good", 0, 0))
            assert len(lines) == 181
            assert (
                what == "opening" or len(await asked(virtual, wire.Events(1, "bad", 0, 0))) == 181
            )
            armed.clear()
            await append(virtual, "bad", 3)
            await anyio.sleep(130)
            assert not virtual.engine.ledgers.pending_bytes, "it is tried again"
        async with living(home) as virtual:
            assert len(await asked(virtual, wire.Events(1, "bad", 0, 0))) == 241

    with caplog.at_level(logging.ERROR):
        run(main)
    said = [one.getMessage() for one in caplog.records if one.exc_info]
    assert said
    assert all(told in one for one in said), said
