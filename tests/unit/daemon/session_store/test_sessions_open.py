"""Opening and deleting a session exclude each other, however many wait."""

from __future__ import annotations

from typing import Any

import anyio

from walld.daemon.session_store.open_sessions import Sessions


def test_one_at_a_time_also_when_the_lock_passes_on() -> None:
    files: Any = (None,) * 5
    nothing: Any = None
    sessions = Sessions(nothing, nothing, files, "", nothing)
    inside: list[str] = []
    key = (1, "s")

    async def visit(name: str, rounds: int) -> None:
        async with sessions._locked(key):
            assert not inside, f"{name} beside {inside}"
            inside.append(name)
            for _ in range(rounds):
                await anyio.lowlevel.checkpoint()
            inside.remove(name)

    async def scene() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(visit, "first", 3)
            await anyio.lowlevel.checkpoint()
            tasks.start_soon(visit, "second", 20)
            for _ in range(8):
                await anyio.lowlevel.checkpoint()
            tasks.start_soon(visit, "third", 1)
        assert not sessions._opening

    anyio.run(scene)
