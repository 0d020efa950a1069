"""Replies of turns go to their sessions: whom one of them keeps waiting, and for how long."""

from __future__ import annotations

from random import Random
from typing import Any, cast

import anyio
import pytest
from engine_world import UID, World
from inline_worker import InlineWorker
from walld_client.wire import messages as wire

from walld.daemon.session_store.handles import Files
from walld.daemon.session_store.open_sessions import Sessions
from walld.daemon.session_store.turn_watcher import TurnWatcher
from walld.disk.medium import Storage
from walld.disk.simulated import SimulatedDisk
from walld.engine.stream import Stream
from walld.ledger.artifacts import ArtifactStore
from walld.ledger.snapshot import SnapshotStore
from walld.ledger.store import LedgerStore


class Flusher:
    """Nobody writes, unless the test does."""

    def wake(self) -> None:
        pass


class Watched:
    """A turn watcher and its engine, with a session of one open turn."""

    def __init__(self) -> None:
        self.world, disk = World(), SimulatedDisk(Storage(Random(1)))
        stores = (LedgerStore(disk), SnapshotStore(disk), ArtifactStore(disk))
        files = Files(*stores, InlineWorker(), InlineWorker())
        flusher, nothing = cast("Any", Flusher()), cast("Any", None)
        engine = self.world.engine
        self.sessions = Sessions(engine, flusher, files, "boot", nothing)
        self.sessions.has_older = False
        self.turns = TurnWatcher(engine, flusher, files, nothing, self.sessions, lambda: 5)

    def released(self, uid: int = UID, name: str = "r") -> Stream:
        """A turn's reply, ended and released; not written."""
        agent = self.world.connect(process=self.world.process(uid))
        self.world.say(agent, wire.Start(1, 0, name, "s", "t"), wire.Token(1, 1, b"hi"))
        self.world.say(agent, wire.End(1, 2, clean=True), wire.Release(1, 3))
        assert agent.producer is not None
        return agent.producer.streams[1]


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_reply_that_takes_its_time_keeps_no_other_user(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = {stream.no: uid for uid in (1, 2) for stream in (watched.released(uid),)}
    watched.world.flush()
    settled = list[int]()

    async def settle(stream: Stream) -> None:
        if streams[stream.no] == 1:
            await anyio.sleep_forever()
        settled.append(streams[stream.no])

    monkeypatch.setattr(watched.turns, "_settle", settle)

    async def scene() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watched.turns.settle)  # the background: it is at the first user's
            await anyio.lowlevel.checkpoint()
            with anyio.fail_after(20):
                await watched.turns.settle(2, "s")
            tasks.cancel_scope.cancel()

    anyio.run(scene)
    assert settled == [2]
