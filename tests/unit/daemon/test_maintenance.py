"""The round of the background: what fails in it is tried again."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import anyio
import pytest
from virtual_daemon import Home, Peer, Virtual, asked, living, recovered, run, text_of
from walld_client.wire import messages as wire

from walld.daemon import event_loop
from walld.daemon.session_store.open_sessions import Sessions
from walld.engine.stream import Stream
from walld.ledger.store import LedgerStore
from walld.sessions.state.session_state import SessionState

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
                assert len(virtual.engine.partials) == 0
                assert text_of(await recovered(virtual, "r")) == b"a"
                await anyio.sleep(10)
                assert len(virtual.engine.partials) == 1
                assert await asked(virtual, wire.Status(1))

    run(main)


STEPS = {
    "remove_unwanted": "partials are removed",
    "round": "sessions are written",
    "thin_out": "long indexes are folded",
    "empty_oldest": "the oldest segment is emptied",
    "expire": "old partials go",
}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails_keeps_none_behind_it(
    tmp_path: Path, step: str, caplog: pytest.LogCaptureFixture
) -> None:
    """P5: what others released goes all the same. It is said once, and in the status."""

    async def failing(*_: object) -> None:
        raise OSError(5, "planted")

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            maintenance = virtual.daemon.maintenance
            rooms = (maintenance._partial_writer, maintenance._checkpoints, maintenance._compaction)
            (room,) = [one for one in rooms if hasattr(one, step)]
            whole = getattr(room, step)
            setattr(room, step, failing)
            with Peer(virtual) as agent:
                agent.send(START, wire.Token(1, 1, b"released"))
                agent.send(wire.Start(2, 0, "q", "s"), wire.Token(2, 1, b"kept"))
                await agent.drain("synced")
                agent.send(wire.End(1, 2, True), wire.Release(1, 3))
                virtual.engine.orphan(virtual.engine.registry.by_key[UID, "q"], "agent_lost")
                await anyio.sleep(700)
            assert len(virtual.engine.partials) == 1
            if step != "empty_oldest":
                assert home.holds(b"released") == []
            status = await asked(virtual, wire.Status(1))
            assert status["state"] == "degraded"
            assert STEPS[step] in status["trouble"]
            setattr(room, step, whole)
            await anyio.sleep(60)
            assert home.holds(b"released") == []
            assert (await asked(virtual, wire.Status(1)))["state"] == "ok"

    with caplog.at_level(logging.ERROR):
        run(main)
    assert len([one for one in caplog.records if "planted" in one.getMessage()]) == 1


def test_ages_are_looked_at_soon_after_a_start(tmp_path: Path) -> None:
    """On a machine that is up for less than ten minutes, too: the loop's clock begins at boot."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            looked: list[float] = []

            async def expire() -> None:
                looked.append(event_loop.now())

            writer = virtual.daemon.maintenance._partial_writer
            writer.expire = expire  # type: ignore[method-assign]
            begun = event_loop.now()
            assert begun < 600, "as soon after boot as it is to be"
            await anyio.sleep(650)
            first, second = looked
            assert first < begun + 5
            assert second > first + 600

    run(main)


def test_a_reply_that_cannot_be_kept_keeps_no_other_waiting(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                for number in (1, 2, 3):
                    agent.send(wire.Start(number, 0, f"r{number}", "s"))
                    agent.send(wire.Token(number, 1, b"text"))
                await agent.drain()
                replace = virtual.disk.replace

                def failing(path: str, data: bytes) -> None:
                    if path.endswith("r1"):
                        raise OSError(5, "planted", path)
                    replace(path, data)

                virtual.disk.replace = failing  # type: ignore[method-assign]
                for stream in virtual.engine.registry.replies:
                    virtual.engine.orphan(stream, "agent_lost")
                await anyio.sleep(20)
                assert sorted(virtual.engine.partials.of_session(UID, "s")) == ["r2", "r3"]
                assert text_of(await recovered(virtual, "r1")) == b"text"

    run(main)


def test_who_asks_all_the_time_keeps_released_text_no_longer(tmp_path: Path) -> None:
    """P5: orphans give way to queries, and what stands behind them does not wait for each."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            maintenance = virtual.daemon.maintenance
            keep = maintenance._partial_writer.keep

            async def kept(stream: Stream) -> None:
                if stream.begin.stream_id != "r2":  # one that may not be kept yet holds up none
                    await keep(stream)

            maintenance._partial_writer.keep = kept  # type: ignore[method-assign]
            with Peer(virtual) as agent:
                agent.send(wire.Start(1, 0, "released", "s"), wire.Token(1, 1, b"released"))
                for number in range(2, 62):
                    agent.send(wire.Start(number, 0, f"r{number}", "s"))
                    agent.send(wire.Token(number, 1, b"text" * 15_000))
                    await agent.drain("synced")
                agent.send(wire.End(1, 2, True), wire.Release(1, 3))
                maintenance._reader.busy = 1
                for number in range(2, 62):
                    virtual.engine.orphan(virtual.engine.registry.by_key[UID, f"r{number}"], "dead")
                await anyio.sleep(33)  # `reclaim_seconds`, and what is live is carried, in pieces
                assert home.holds(b"released") == []
                assert len(virtual.engine.partials) >= 25, (
                    "one a second, though nobody stops asking"
                )
                maintenance._reader.busy = 0
                await anyio.sleep(2)
                assert len(virtual.engine.partials) == 59

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
            good = virtual.engine.session_logs.open[UID, "good"]
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
            assert not virtual.engine.session_logs.pending_bytes, "it is tried again"
        async with living(home) as virtual:
            assert len(await asked(virtual, wire.Events(1, "bad", 0, 0))) == 241

    with caplog.at_level(logging.ERROR):
        run(main)
    said = [one.getMessage() for one in caplog.records if one.exc_info]
    assert said
    assert all(told in one for one in said), said
