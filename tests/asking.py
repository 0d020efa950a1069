"""Asking a daemon on a virtual clock, and agents whose replies are asked for."""

from __future__ import annotations

import os
from typing import Any

import msgspec
from virtual_daemon import Peer, Virtual, asked, until
from walld_client.wire import messages as wire

__all__ = ["UID", "orphaned", "refused", "replies", "say"]

UID = os.getuid()


async def refused(virtual: Virtual, request: Any, seconds: float = 60.0) -> wire.Error:
    """The Error a request gets; the connection goes on."""
    with Peer(virtual, "query") as peer:
        peer.send(request)
        error = await peer.hear(wire.Error, seconds)
        assert error.id == request.id
        peer.send(wire.Status(99))
        await peer.hear(wire.Answer)
        return error


async def replies(virtual: Virtual, which: str, **given: Any) -> list[wire.Recovered]:
    """What Recover answers."""
    answer = await asked(virtual, wire.Recover(1, which, **given))
    return msgspec.convert(answer, list[wire.Recovered])


async def say(virtual: Virtual, stream_id: str, text: bytes, session: str = "s") -> Peer:
    """An agent of one reply, written."""
    agent = Peer(virtual)
    agent.send(wire.Start(1, 0, stream_id, session), wire.Token(1, 1, text))
    await agent.drain()
    return agent


async def orphaned(virtual: Virtual, *stream_ids: str) -> None:
    """Their owners are gone and their partials are made."""
    for stream_id in stream_ids:
        virtual.engine.orphan(virtual.engine.registry.by_key[UID, stream_id], "agent_lost")
    virtual.daemon.maintenance.wake()
    await until(lambda: not virtual.engine.orphans)
