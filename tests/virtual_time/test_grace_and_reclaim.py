"""Grace, reclaim, hold and retention, in virtual time: hours and days of a daemon's life."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest
from virtual_daemon import Home, Peer, Virtual, asked, living, peers_named, recovered, run, text_of
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode

from walld import limits
from walld.daemon.storage import partial_writer
from walld.daemon.storage.partial_writer import PartialWriter

START = wire.Start(1, 0, "r", "s")
GRACE = limits.RECONNECT_GRACE_SECONDS
TICK = 1.0
UID = os.getuid()
WORDS = b"the words of one reply"


async def status_of(virtual: Virtual, stream_id: str) -> tuple[str, bool]:
    reply = await recovered(virtual, stream_id)
    assert reply is not None
    return reply.status, reply.owner_alive


# --- liveness -----------------------------------------------------------------------------------


def test_a_process_that_is_there_is_live_however_long_it_is_silent(tmp_path: Path) -> None:
    """Its connection is gone and it says nothing for an hour: the kernel says it is there (I3)."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, wire.Token(1, 1, b"a"))
                await agent.drain()
            await anyio.sleep(3600)
            assert await status_of(virtual, "r") == ("live", True)

    run(main)


def test_a_peer_that_cannot_be_seen_has_its_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, wire.Token(1, 1, b"a"))
                await agent.drain()
                await anyio.sleep(3600)
                assert await status_of(virtual, "r") == ("live", True), "connected is alive"
            await anyio.sleep(GRACE - 0.1)
            assert await status_of(virtual, "r") == ("live", True)
            await anyio.sleep(0.1 + TICK + 0.1)
            assert await status_of(virtual, "r") == ("crashed", False)
            await anyio.sleep(2)
            assert home.holds(b"r")
            assert len(virtual.engine.partials) == 1, "and a partial is made of it"

    with peers_named(monkeypatch, 0):
        run(main)


def test_back_within_the_grace_it_was_never_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, wire.Token(1, 1, b"a"))
                await agent.drain()
            await anyio.sleep(GRACE - 1)
            with Peer(virtual, producer=agent.producer) as again:
                again.send(wire.Resume(START, 2, 1, 2), wire.Token(1, 2, b"b"))
                await again.drain()
                await anyio.sleep(10 * GRACE)
                assert await status_of(virtual, "r") == ("live", True)
                assert text_of(await recovered(virtual, "r")) == b"ab"

    with peers_named(monkeypatch, 0):
        run(main)


@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_turn_is_of_its_process_whichever_connection_of_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_restarted: bool
) -> None:
    """An agent in a long tool call asks nothing: its link is back, or is all that is left (N5)."""
    producer = os.urandom(16)

    async def turn_of(virtual: Virtual) -> str:
        answer = await asked(virtual, wire.Project(1, "s", "state"))
        return str(json.loads(answer)["turns"][0]["state"])

    async def begins(virtual: Virtual) -> None:
        submit = wire.NewEntry("turn_submitted", b'{"message_id":"m","content":"x"}', "t", turn="t")
        with Peer(virtual, "query", producer) as asking:
            asking.send(wire.Append(1, "s", [submit], level="synced"))
            await asking.hear(wire.Answer)

    async def goes_on(virtual: Virtual) -> None:
        with Peer(virtual, producer=producer):
            await anyio.sleep(10 * GRACE)
            assert await turn_of(virtual) == "submitted"
        await anyio.sleep(GRACE + 2 * TICK)
        assert await turn_of(virtual) == "interrupted"

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            await begins(virtual)
            if is_restarted:
                await virtual.crash()
            else:
                await goes_on(virtual)
        if is_restarted:
            async with living(home) as again:
                await goes_on(again)

    with peers_named(monkeypatch, 0):
        run(main)


def test_back_after_the_grace_it_goes_on_behind_its_partial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, wire.Token(1, 1, b"a"))
                await agent.drain("synced")
            await anyio.sleep(2 * GRACE)
            assert await status_of(virtual, "r") == ("crashed", False)
            with Peer(virtual, producer=agent.producer) as again:
                again.send(wire.Resume(START, 2, 1, 2), wire.Token(1, 2, b"b"))
                await again.drain()
                assert text_of(await recovered(virtual, "r")) == b"ab"
                assert await status_of(virtual, "r") == ("live", True)
                again.send(wire.End(1, 3, clean=True), wire.Release(1, 4))
                await again.drain("synced")
            await anyio.sleep(limits.RECLAIM_SECONDS_DEFAULT)
            assert await recovered(virtual, "r") is None
            assert len(virtual.engine.partials) == 0
            assert virtual.engine.counters.lost_acked == 0

    with peers_named(monkeypatch, 0):
        run(main)


def test_after_a_start_who_cannot_be_seen_has_its_grace_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, wire.Token(1, 1, b"a"))
                await agent.drain()
                await virtual.crash()
        await anyio.sleep(3600)
        async with living(home) as virtual:
            await anyio.sleep(GRACE - 1)
            assert await status_of(virtual, "r") == ("live", True)
            await anyio.sleep(1 + TICK + 0.1)
            assert await status_of(virtual, "r") == ("crashed", False)

    with peers_named(monkeypatch, 0):
        run(main)


def test_a_frame_that_never_gets_whole_ends_its_connection(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as slow, Peer(virtual) as well:
                slow.socket.send(b"\x00\x00\x01\x00half")
                well.send(START)
                await anyio.sleep(limits.FRAME_SECONDS_MAX - 0.1)
                assert (slow.heard(), slow.ended) == ([], False)
                await anyio.sleep(TICK + 0.2)
                (error,) = slow.heard()
                assert (error.code, slow.ended) == ("slow_frame", True)
                await well.drain()
                assert not well.ended

    run(main)


def test_a_frame_whose_rest_waits_in_the_kernel_is_no_slow_one(tmp_path: Path) -> None:
    """Sweeps last longer than a frame may: what has come and is not read is the daemon's delay.

    One that sends a byte a second is as slow as ever.
    """

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as honest, Peer(virtual) as slow:
                honest.send(START)
                await honest.drain()
                frame = encode(wire.Token(1, 1, WORDS))
                honest.socket.send(frame[:10])
                slow.socket.send(b"\x00\x00\x01\x00")
                await anyio.sleep(0.5)
                sweep = virtual.daemon.socket_reader.sweep

                async def long_sweep() -> bool:
                    await anyio.sleep(2 * limits.FRAME_SECONDS_MAX)
                    return await sweep()

                virtual.daemon.socket_reader.sweep = long_sweep  # type: ignore[method-assign]
                slow.socket.send(b"-")
                await anyio.sleep(1)  # the sweep that these wake begins
                honest.socket.send(frame[10:])
                for _ in range(int(limits.FRAME_SECONDS_MAX + TICK) + 1):
                    with suppress(OSError):
                        slow.socket.send(b"-")
                    await anyio.sleep(1)
                (error,) = slow.heard()
                assert (error.code, slow.ended) == ("slow_frame", True)
                virtual.daemon.socket_reader.sweep = sweep  # type: ignore[method-assign]
                await honest.drain()
                assert text_of(await recovered(virtual, "r")) == WORDS
                assert virtual.engine.counters.protocol_errors["slow_frame"] == 1

    run(main)


def test_a_request_whose_rest_waits_in_the_kernel_is_no_slow_one(tmp_path: Path) -> None:
    """Its connection has its turn late, since others of its user ask as well."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:

            async def late(*_: object, **_named: object) -> None:
                await anyio.sleep(2 * limits.FRAME_SECONDS_MAX)

            virtual.daemon.query_server._rate_limit.wait = late  # type: ignore[method-assign]
            with Peer(virtual, "query") as honest, Peer(virtual, "query") as slow:
                frame = encode(wire.Recover(7, "x" * 20_000))
                honest.socket.send(frame[:10_000])
                slow.socket.send(frame[:10_000])
                await anyio.sleep(1)
                honest.socket.send(frame[10_000:])
                slow.socket.send(b"x")
                error = await honest.hear(wire.Error, 20 * limits.FRAME_SECONDS_MAX)
                assert (error.code, error.id) == ("bad_request", 7)
                error = await slow.hear(wire.Error, 20 * limits.FRAME_SECONDS_MAX)
                assert (error.code, error.id) == ("slow_frame", 0)

    run(main)


# --- released bytes -----------------------------------------------------------------------------


def test_with_nothing_else_live_released_bytes_leave_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, wire.Token(1, 1, WORDS))
                await agent.drain("synced")
                assert len(home.holds(WORDS)) == 1
                agent.send(wire.End(1, 2, clean=True), wire.Release(1, 3))
                await anyio.sleep(2.0)
                assert home.holds(WORDS) == []

    run(main)


def test_beside_a_live_reply_they_leave_within_reclaim_seconds(tmp_path: Path) -> None:
    """P5, and K1: the live one is carried out first, whole."""

    async def main() -> None:
        home = Home(tmp_path, reclaim_seconds="20")
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, wire.Start(2, 0, "q", "s"))
                agent.send(wire.Token(1, 1, WORDS), wire.Token(2, 1, b"stays"))
                await agent.drain("synced")
                agent.send(wire.End(1, 2, clean=True), wire.Release(1, 3))
                await agent.drain("synced")
                await anyio.sleep(19.0)
                assert len(home.holds(WORDS)) == 1
                await anyio.sleep(4.0)
                assert home.holds(WORDS) == []
                assert text_of(await recovered(virtual, "q")) == b"stays"
                await virtual.crash()
        async with living(home) as again:
            assert text_of(await recovered(again, "q")) == b"stays"
            assert await recovered(again, "r") is None

    run(main)


def test_beside_much_that_is_live_they_leave_as_soon(tmp_path: Path) -> None:
    """Carrying waits for its own writes, not for a linger each: 6 MB are 24 writes."""

    async def main() -> None:
        home = Home(tmp_path, reclaim_seconds="20")
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, wire.Token(1, 1, WORDS))
                for number in range(2, 302):
                    agent.send(wire.Start(number, 0, f"q{number}", "s"))
                    agent.send(wire.Token(number, 1, b"stays" * 4000))
                    await anyio.sleep(0.002)
                await agent.drain("synced")
                agent.send(wire.End(1, 2, clean=True), wire.Release(1, 3))
                await agent.drain("synced")
                await anyio.sleep(23.0)
                assert home.holds(WORDS) == []

    run(main)


def test_released_bytes_are_held_where_that_is_asked_for(tmp_path: Path) -> None:
    async def main() -> None:
        home = Home(tmp_path, release_hold_seconds="600")
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, wire.Token(1, 1, WORDS))
                agent.send(wire.End(1, 2, clean=True))
                await agent.drain("synced")
                agent.send(wire.Release(1, 3))
                await anyio.sleep(590.0)
                assert len(home.holds(WORDS)) == 1
                await anyio.sleep(20.0)
                assert home.holds(WORDS) == []

    run(main)


def test_a_resolved_orphan_is_gone_and_stays_gone(tmp_path: Path) -> None:
    """K3: the tombstone is written before the file goes."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent, Peer(virtual) as other:
                agent.send(START, wire.Token(1, 1, WORDS))
                other.send(wire.Start(1, 0, "q", "s"), wire.Token(1, 1, b"stays"))
                await agent.drain("synced")
                await other.drain("synced")
                virtual.engine.orphan(virtual.engine.registry.by_key[UID, "r"], "agent_lost")
                await anyio.sleep(5.0)
                assert [where.partition("/")[0] for where in home.holds(WORDS)] == [
                    "partials",
                    "wal",
                ]
                assert await asked(virtual, wire.Resolve(1, "r", 1)) is True
                assert all(not where.startswith("partials") for where in home.holds(WORDS))
                assert await asked(virtual, wire.Resolve(1, "r", 1)) is False
                await virtual.crash()
        async with living(home) as again:
            assert await recovered(again, "r") is None
            assert text_of(await recovered(again, "q")) == b"stays"

    run(main)


LOOK = 600.0
DAY = 24 * 3600.0


def wall_clock(
    monkeypatch: pytest.MonkeyPatch, days: list[float], asleep: Sequence[float] = (0.0,)
) -> None:
    """The daemon's wall clock goes with the virtual one, and `days` away from it; asleep: seconds
    that the machine slept, which no clock of the loop counts.
    """
    begun = time.time()

    def now_ns() -> int:
        return int((begun + anyio.current_time() + days[0] * DAY) * 1e9)

    def boot_ns(_clock: int) -> int:
        return int((anyio.current_time() + asleep[0]) * 1e9)

    clock = SimpleNamespace(
        time_ns=now_ns, monotonic=time.monotonic, clock_gettime_ns=boot_ns, CLOCK_BOOTTIME=0
    )
    monkeypatch.setattr(partial_writer, "time", clock)


async def left_behind(virtual: Virtual) -> None:
    with Peer(virtual) as agent:
        agent.send(START, wire.Token(1, 1, WORDS))
        await agent.drain("synced")
    virtual.engine.orphan(virtual.engine.registry.by_key[UID, "r"], "agent_lost")


def test_a_partial_goes_when_daemons_ran_for_its_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P6. Age is running time, over restarts and kills; a daemon that is off adds nothing."""

    async def main() -> None:
        home = Home(tmp_path, retention_seconds=str(4 * LOOK))
        async with living(home) as virtual:
            await left_behind(virtual)
            await anyio.sleep(2.5 * LOOK)
            await virtual.crash()
        days[0] += 30.0  # nothing ran meanwhile
        async with living(home) as virtual:
            await anyio.sleep(1.5 * LOOK)
            assert await status_of(virtual, "r") == ("crashed", False)
        async with living(home) as virtual:
            await anyio.sleep(0.5 * LOOK)
            assert await status_of(virtual, "r") == ("crashed", False)
            await anyio.sleep(3 * LOOK)
            assert await recovered(virtual, "r") is None
            assert home.holds(WORDS) == []

    days = [0.0]
    wall_clock(monkeypatch, days)
    run(main)


def test_of_a_partial_that_goes_for_its_age_its_session_knows_the_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with living(Home(tmp_path, retention_seconds=str(2 * LOOK))) as virtual:
            note = wire.NewEntry("note", b"{}", "e1")
            await asked(virtual, wire.Append(1, "s", [note], level="synced"))
            with Peer(virtual) as agent:
                agent.send(START, wire.Tool(1, 1, "c1", "deploy", b"{}"))
                await agent.drain("synced")
            virtual.engine.orphan(virtual.engine.registry.by_key[UID, "r"], "agent_lost")
            await anyio.sleep(4 * LOOK)
            assert await recovered(virtual, "r") is None
            lines = [json.loads(line) for line in await asked(virtual, wire.Events(2, "s"))]
            assert [line["id"] for line in lines] == ["e1", "r:1:call", "r:expired"]

    wall_clock(monkeypatch, [0.0])
    run(main)


def test_of_a_partial_that_goes_for_its_age_its_session_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, also where the daemon is killed between the line and the file; `explain` has it."""

    async def main() -> None:
        home = Home(tmp_path, retention_seconds=str(2 * LOOK))
        submit = wire.NewEntry("turn_submitted", b'{"message_id":"m","content":"x"}', "t", turn="t")
        async with living(home) as virtual:
            await asked(virtual, wire.Append(1, "s", [submit], level="synced"))
            with Peer(virtual) as agent:
                agent.send(wire.Start(1, 0, "r", "s", turn_id="t"), wire.Token(1, 1, WORDS))
                await agent.drain("synced")
            virtual.engine.orphan(virtual.engine.registry.by_key[UID, "r"], "agent_lost")
            await anyio.sleep(1.5 * LOOK)
            assert json.loads(await asked(virtual, wire.Project(2, "s", "explain")))["saying"]
            monkeypatch.setattr(PartialWriter, "resolve_partial", killed)
            await anyio.sleep(4 * LOOK)
            assert home.holds(WORDS), "its file did not go"
            await virtual.crash()
        monkeypatch.undo()
        wall_clock(monkeypatch, [0.0])
        async with living(home) as virtual:
            await anyio.sleep(4 * LOOK)
            assert home.holds(WORDS) == []
            told = json.loads(await asked(virtual, wire.Project(3, "s", "explain")))
            lines = [json.loads(line) for line in await asked(virtual, wire.Events(4, "s"))]
        assert [one["id"] for one in lines if one["type"] == "reply_expired"] == ["r:expired"]
        assert told["saying"] == []
        (note,) = told["notes"]
        assert (note["kind"], note["stream"], note["turn"]) == ("expired", "r", "t")
        assert (note["characters"], note["calls"], note["last_seq"]) == (len(WORDS), 0, 1)

    async def killed(*_names: object) -> None:
        raise OSError("killed here")

    wall_clock(monkeypatch, [0.0])
    run(main)


@pytest.mark.parametrize("days_away", [8.0, -8.0, pytest.param(3650.0, marks=pytest.mark.sweep)])
def test_no_step_of_the_clock_makes_a_partial_old(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    days_away: float,
) -> None:
    """Wrong at a start, then put right beneath the daemon: it is said, and a day nothing goes."""

    async def main() -> None:
        home = Home(tmp_path, retention_seconds=str(4 * LOOK))
        async with living(home) as virtual:
            await left_behind(virtual)
            await anyio.sleep(1.5 * LOOK)
        days[0] = days_away
        async with living(home) as virtual:
            await anyio.sleep(1.5 * LOOK)
            assert await status_of(virtual, "r") == ("crashed", False)
            days[0] = 0.0
            caplog.clear()
            await anyio.sleep(LOOK / 60)
            assert caplog.text.count("the wall clock has stepped by") == 1, "at once, and once"
            await anyio.sleep(4.5 * LOOK)
            assert await status_of(virtual, "r") == ("crashed", False), "within the day"

    days = [0.0]
    wall_clock(monkeypatch, days)
    run(main)


def test_a_machine_that_sleeps_has_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A laptop, each night: a night is as long as a look may be, and holds nothing."""

    async def main() -> None:
        async with living(Home(tmp_path, retention_seconds=str(6 * LOOK))) as virtual:
            await left_behind(virtual)
            await anyio.sleep(2.5 * LOOK)
            days[0], asleep[0] = 0.4, 0.4 * DAY
            await anyio.sleep(LOOK)
            assert await status_of(virtual, "r") == ("crashed", False)
            await anyio.sleep(4 * LOOK)
            assert await recovered(virtual, "r") is None

    days, asleep = [0.0], [0.0]
    wall_clock(monkeypatch, days, asleep)
    run(main)
    assert "stepped" not in caplog.text


def test_time_that_a_machine_sleeps_is_no_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """P6. A laptop that sleeps as long as it runs: no daemon ran meanwhile."""

    async def main() -> None:
        async with living(Home(tmp_path, retention_seconds=str(6 * LOOK))) as virtual:
            await left_behind(virtual)
            for _ in range(5):
                await anyio.sleep(LOOK)
                days[0], asleep[0] = days[0] + LOOK / DAY, asleep[0] + LOOK
            assert await status_of(virtual, "r") == ("crashed", False)
            await anyio.sleep(3 * LOOK)
            assert await recovered(virtual, "r") is None

    days, asleep = [0.0], [0.0]
    wall_clock(monkeypatch, days, asleep)
    run(main)
    assert "stepped" not in caplog.text


def test_damaged_ages_begin_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        home = Home(tmp_path, retention_seconds=str(4 * LOOK))
        async with living(home) as virtual:
            await left_behind(virtual)
            await anyio.sleep(3.5 * LOOK)
        ages = home.data / "ages"
        ages.write_bytes(ages.read_bytes().replace(b"running ", b"running 9"))
        async with living(home) as virtual:
            await anyio.sleep(3.5 * LOOK)
            assert "ages: its checksum does not match" in caplog.text
            assert await status_of(virtual, "r") == ("crashed", False)

    wall_clock(monkeypatch, [0.0])
    run(main)
