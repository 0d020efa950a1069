"""Ids of the daemon's entries that others have taken: few lines are read, near ones together."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import anyio
import pytest
from engine_world import UID, World
from inline_worker import InlineWorker
from partial_reply import open_call, piece, reply
from walld_client.recovered.entry_messages import entry_messages
from walld_client.recovered.partial import PartialReply
from walld_client.wire import messages as wire

from walld.daemon.session_store.handles import Files
from walld.daemon.session_store.open_sessions import Sessions
from walld.daemon.session_store.released_calls import ReadReply, ReleasedCalls
from walld.daemon.session_store.reply_messages import ReplyMessages
from walld.disk.medium import Storage
from walld.disk.simulated import SimulatedDisk
from walld.engine.session_log import SessionLog
from walld.ledger.artifacts import ArtifactStore
from walld.ledger.snapshot import SnapshotStore
from walld.ledger.store import LedgerStore
from walld.sessions.state.session_state import SessionState


class Read(Sessions):
    """Notes which lines are read."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.asked: list[tuple[int, int]] = []

    async def lines(
        self, uid: int, session_id: str, after: int = 0, limit: int = 0, *more: Any
    ) -> Any:
        self.asked.append((after, limit))
        return await super().lines(uid, session_id, after, limit, *more)


class Held:
    """A session all of whose lines are pending, and who looks at it."""

    def __init__(self) -> None:
        self.world, disk = World(), SimulatedDisk(Storage(Random(1)))
        stores = (LedgerStore(disk), SnapshotStore(disk), ArtifactStore(disk))
        files = Files(*stores, InlineWorker(), InlineWorker())
        nothing: Any = None
        self.sessions = Read(self.world.engine, nothing, files, "", nothing)
        self.of, self.calls = ReplyMessages(files, self.sessions), ReleasedCalls(self.sessions)
        self.ledger = SessionLog(UID, "s", SessionState(), SessionLog.first_chain(UID, "s"))
        self.world.engine.session_logs.open[UID, "s"] = self.ledger

    def append(self, *entries: wire.NewEntry) -> None:
        self.world.engine.session_logs.append(self.ledger, list(entries), None, None, 5, 0.0)

    def take(self, name: str, count: int) -> None:
        """Somebody else's entries have it, and the next ones."""
        for number in range(count):
            self.append(wire.NewEntry("note", b"{}", name + "'" * number))

    async def named(self, reply: PartialReply) -> list[tuple[wire.NewEntry, bool]]:
        """The entries of its messages, and which are there."""
        told = [(one, (await self.of.fitted(None, one))[0]) for one in entry_messages(reply)]
        names = await self.of.named(self.ledger, reply, told)
        return [
            (wire.NewEntry("message", payload, name), there)
            for (name, there), (_, payload) in zip(names, told, strict=True)
        ]

    async def left(self, reply: PartialReply) -> list[wire.NewEntry]:
        """The entries of its calls that are not there."""
        found = await self.calls.entries(self.ledger, ReadReply(reply, set()), is_moved=False)
        assert found is not None
        return found


@pytest.fixture
def held() -> Held:
    return Held()


SAID = reply(piece("text", 1, "Done."))
OPEN = reply(open_call(1))


def test_a_message_whose_ids_are_taken_reads_few_lines(held: Held) -> None:
    held.take("st:1", 200)
    ((entry, there),) = anyio.run(held.named, SAID)
    assert not there
    assert entry.id not in held.ledger.state.ids  # type: ignore[union-attr]
    assert len(held.sessions.asked) < 12


@pytest.mark.parametrize("first", ["st:1", "st:1:call"])
def test_calls_whose_ids_are_taken_read_few_lines(held: Held, first: str) -> None:
    held.take(first, 200)
    (entry,) = anyio.run(held.left, OPEN)
    assert entry.id not in held.ledger.state.ids  # type: ignore[union-attr]
    assert len(held.sessions.asked) < 12


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 20])
def test_where_others_have_taken_ids_it_is_there_once(held: Held, count: int) -> None:
    """Also where an application gives each reply of a session the same id."""
    for name in ("st:1", "st:1:call"):
        held.take(name, count)
    ((entry, _),) = anyio.run(held.named, SAID)
    held.append(entry)
    assert anyio.run(held.named, SAID) == [(entry, True)]
    (call,) = anyio.run(held.left, OPEN)
    held.append(call)
    assert anyio.run(held.left, OPEN) == []


def test_ids_that_nobody_can_have_taken_are_left(held: Held) -> None:
    """Whoever knows all about a reply takes ids of its entries without an end."""
    seen = set[str]()
    for _ in range(20):
        ((entry, there),) = anyio.run(held.named, SAID)
        (call,) = anyio.run(held.left, OPEN)
        assert not there
        for name in (entry.id, call.id):
            assert name not in seen
            seen.add(name)
            held.append(wire.NewEntry("note", b"{}", name))
    held.sessions.asked.clear()
    anyio.run(held.named, SAID)
    assert len(held.sessions.asked) < 12


def test_lines_that_are_far_apart_are_read_apart(held: Held) -> None:
    """And near ones together."""
    said = reply(*(piece("text", seq, f"{seq}.", step=seq) for seq in range(1, 9)))
    entries = [entry for entry, _ in anyio.run(held.named, said)]
    held.append(*entries[:4])
    for number in range(300):
        held.append(wire.NewEntry("note", b"{}", f"n{number}"))
    held.append(*entries[4:])
    assert [there for _, there in anyio.run(held.named, said)] == [True] * 8
    assert held.sessions.asked == [(0, 4), (304, 4)]
    assert json.loads(entries[0].payload)["content"] == "1."
