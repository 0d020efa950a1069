"""The round of the background: what fails in it is tried again."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
from virtual_daemon import Home, Peer, asked, living, recovered, run, text_of
from walld_client.wire import messages as wire

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
