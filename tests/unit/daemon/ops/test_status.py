"""What the daemon says of itself."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import anyio
from virtual_daemon import Home, Peer, asked, living, run
from walld_client.wire import messages as wire

UID = os.getuid()
START = wire.Start(1, 0, "r", "s")


def test_the_numbers_are_those_of_the_rooms(tmp_path: Path) -> None:
    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, wire.Token(1, 1, b"x" * 100))
                agent.send(wire.Start(2, 0, "q", "s"))
                await agent.drain("synced")
                virtual.engine.orphan(virtual.engine.registry.by_key[UID, "q"], "agent_lost")
                agent.send(wire.Token(1, 2, b"x"))
                await anyio.sleep(0.01)
                status = await asked(virtual, wire.Status(1))
                assert status["state"] == "ok"
                assert status["trouble"] is None
                assert (status["pid"], status["backend"]) == (
                    os.getpid(),
                    virtual.home.settings.backend,
                )
                assert status["connections"] == 2, "the agent, and this query"
                assert (status["streams_live"], status["partials"]) == (1, 1)
                assert (status["queue_events"] > 0, status["queue_bytes"] > 0) == (True, True)
                assert status["wal_size_bytes"] == home.wal_bytes()
                assert status["wal_segments"] == 1
                assert 0 < status["wal_live_bytes"] < status["wal_size_bytes"]
                assert status["record_bytes_first"] > 100
                assert status["record_bytes_carried"] == 0
                assert status["written_no"] >= status["synced_no"] >= 1
                assert 0 < status["flush_lag_seconds"] < 0.25
                assert (status["log"], status["epoch"]) == (virtual.engine.log_uuid.hex(), 1)
                assert status["lost_acked"] == 0
                assert status["start"]["corrupt"] == status["start"]["torn"] == 0
                await agent.drain()
                assert (await asked(virtual, wire.Status(1)))["queue_bytes"] == 0

    run(main)


def test_a_word_for_each_trouble(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            status = virtual.daemon.status
            assert (status.word, status.trouble) == ("ok", None)
            with Peer(virtual) as agent:
                agent.send(START)
                await agent.drain("synced")
                virtual.faults.stuck["sync"] = errno.EIO
                agent.send(wire.Token(1, 1, b"x"))
                await anyio.sleep(3)
                assert status.word == "degraded"
                assert status.trouble is not None
                assert "Input/output error" in status.trouble
                virtual.faults.stuck.clear()
                await agent.drain("synced")
                assert status.line().startswith("ok: ")
                virtual.faults.stuck["write"] = errno.ENOSPC
                agent.send(wire.Token(1, 2, b"x"))
                await anyio.sleep(3)
                assert status.word == "disk_full"
                assert status.trouble is not None
                assert "No space left" in status.trouble
                assert (await asked(virtual, wire.Status(1)))["state"] == "disk_full"
                virtual.faults.stuck.clear()

    run(main)


def test_reclaim_lag_is_what_is_overdue(tmp_path: Path) -> None:
    async def main() -> None:
        home = Home(tmp_path, reclaim_seconds="10")
        async with living(home) as virtual:
            status = virtual.daemon.status
            with Peer(virtual) as agent:
                agent.send(START, wire.Start(2, 0, "q", "s"), wire.Token(2, 1, b"x" * 50_000))
                await agent.drain("synced")
                assert status.reclaim_lag() == 0.0
                agent.send(wire.End(1, 1, clean=True), wire.Release(1, 2))
                await agent.drain("synced")
                await anyio.sleep(5)
                assert status.reclaim_lag() == 0.0, "released, and not due"
                virtual.engine.agent_bytes = 0  # no budget: nothing may be carried
                await anyio.sleep(25)
                assert 15 < status.reclaim_lag() < 25
                assert (await asked(virtual, wire.Status(1)))["reclaim_lag_seconds"] > 15
                virtual.engine.agent_bytes = 10**6
                await anyio.sleep(5)
                assert status.reclaim_lag() == 0.0

    run(main)


def test_gauges_and_line_agree(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START)
                await agent.drain()
                gauges = virtual.daemon.status.gauges()
                assert (gauges.streams_live, gauges.partials, gauges.connections) == (1, 0, 1)
                assert virtual.daemon.status.line() == "ok: 1 live streams, 0 partials"
                exposition = await asked(virtual, wire.Metrics(1))
                assert "walld_streams_live 1.0" in exposition

    run(main)


def test_sessions_of_which_none_is_served_are_a_trouble(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            status, sessions = virtual.daemon.status, virtual.daemon.status.sessions
            assert sessions is not None
            sessions.unread_notes = OSError(errno.EIO, "planted", "sessions")
            assert status.word == "degraded"
            assert "no session is served" in str(status.trouble)
            assert "planted: 'sessions'" in str(status.trouble)
            sessions.unread_notes = None
            assert (status.word, status.trouble) == ("ok", None)

    run(main)
