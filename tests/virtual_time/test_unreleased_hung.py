"""A disk that takes no write, and a released reply of a turn that is not written yet."""

from __future__ import annotations

import json
import os
from pathlib import Path

import anyio
import pytest
from virtual_daemon import Home, Peer, asked, living, run
from walld_client.wire import messages as wire

HANGS_SECONDS = 300.0


@pytest.mark.parametrize("name", ["messages", "events"])
def test_a_write_that_hangs_keeps_no_reader(tmp_path: Path, name: str) -> None:
    """What the reply said is told all the same, beside the session."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            payload = json.dumps({"message_id": "m", "content": "go"}).encode()
            submit = wire.NewEntry("turn_submitted", payload, "t", turn="t")
            await asked(virtual, wire.Append(1, "s", [submit], level="synced"))
            with Peer(virtual) as agent:
                agent.send(wire.Start(1, 0, "r", "s", "t"), wire.Start(2, 0, "other", "s"))
                await agent.drain("synced")
                virtual.worker.seconds = HANGS_SECONDS
                agent.send(wire.Token(2, 1, b"other"))
                await anyio.sleep(10.0)  # this is what hangs
                agent.send(wire.Token(1, 1, b"said"), wire.End(1, 2, clean=True))
                agent.send(wire.Release(1, 3))
                await anyio.sleep(10.0)
                assert virtual.engine.registry.by_key[os.getuid(), "r"].has_waiting
                begun = anyio.current_time()
                request = wire.Project(2, "s", name) if name == "messages" else wire.Events(2, "s")
                told = await asked(virtual, request)
                assert anyio.current_time() - begun < HANGS_SECONDS / 10
                assert ("said" in str(told)) == (name == "messages")
                virtual.worker.seconds = 0.0

    run(main)
