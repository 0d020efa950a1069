"""Replies of turns go to their sessions: whom one of them keeps waiting, and for how long."""

from __future__ import annotations

import errno
from random import Random
from typing import Any, cast

import anyio
import pytest
from engine_world import UID, World
from inline_worker import InlineWorker
from walld_client.wire import messages as wire

from walld import limits
from walld.daemon.session_store.handles import Files
from walld.daemon.session_store.open_sessions import Sessions
from walld.daemon.session_store.turn_watcher import TurnWatcher
from walld.disk.medium import Storage
from walld.disk.simulated import SimulatedDisk
from walld.engine.session_log import SessionLog
from walld.engine.stream import Stream
from walld.ledger.artifacts import ArtifactStore
from walld.ledger.repair_notes import Leap
from walld.ledger.snapshot import SnapshotStore
from walld.ledger.store import LedgerStore
from walld.sessions.state.session_state import SessionState


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


def lost_turn(watched: Watched) -> SessionLog:
    """An open session, whose turn's process is gone."""
    ledger = SessionLog(UID, "s", SessionState(), SessionLog.first_chain(UID, "s"))
    logs, process = watched.world.engine.session_logs, watched.world.process()
    logs.open[UID, "s"] = ledger
    payload = b'{"message_id":"m","content":"go"}'
    submit = wire.NewEntry("turn_submitted", payload, "t", turn="t")
    logs.append(ledger, [submit], None, process, 5, 0.0)
    watched.world.engine.lose(process, "agent_lost")
    return ledger


def is_open(ledger: SessionLog) -> bool:
    assert ledger.state is not None
    return [one.turn_id for one in ledger.state.journal.open_turns()] == ["t"]


def test_a_lost_turn_whose_session_cannot_leap_is_interrupted_later(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The session is open: nobody who opens it would meet the turn again."""
    ledger, note = lost_turn(watched), LedgerStore.note_leap
    ledger.possible_leap = Leap(2, 5, ["x"])

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "planted")

    monkeypatch.setattr(LedgerStore, "note_leap", fail)
    monkeypatch.setattr(limits, "DISK_RETRY_SECONDS", 0.0)
    for _ in range(3):
        anyio.run(watched.turns.interrupt_lost)
    assert is_open(ledger)
    assert caplog.text.count("turn t") == 1, "said once"
    monkeypatch.setattr(LedgerStore, "note_leap", note)
    anyio.run(watched.turns.interrupt_lost)
    assert not is_open(ledger)
    assert not watched.world.engine.session_logs.lost_turns


@pytest.mark.parametrize("is_failing", [True, False])
def test_a_lost_turn_waits_for_room(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, is_failing: bool
) -> None:
    ledger = lost_turn(watched)
    with monkeypatch.context() as patch:
        patch.setattr(limits, "LEDGER_FAILING_BYTES_MAX" if is_failing else "LEDGER_BYTES_MAX", 9)
        ledger.is_failing = is_failing
        anyio.run(watched.turns.interrupt_lost)
        assert is_open(ledger)
    anyio.run(watched.turns.interrupt_lost)
    assert not is_open(ledger)
