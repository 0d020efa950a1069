"""U1 a delete that has begun ends; U2 of a fork without events nothing stays."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from random import Random
from typing import Any

import anyio
import pytest
from inline_worker import InlineWorker
from ledger_world import SESSION, UID, lines_of
from walld_client.wire import messages as wire

from walld.cli.inspect.session_salvage import SessionSalvage
from walld.daemon.session_store.files import SessionFiles
from walld.daemon.session_store.fork_contents import Forked, forked_session
from walld.daemon.session_store.handles import Files
from walld.daemon.session_store.open_sessions import Sessions
from walld.daemon.session_store.session_fork import SessionFork, Source
from walld.daemon.startup.finish_intents import IntentFinisher
from walld.disk.base import Disk
from walld.disk.medium import Crashed, Storage
from walld.disk.simulated import SimulatedDisk
from walld.engine.engine import Engine
from walld.engine.flush_schedule import FlushSchedule
from walld.errors import FormatError, Refusal
from walld.ledger.artifacts import ArtifactStore
from walld.ledger.intents import DELETE, FORK, Intent, IntentStore
from walld.ledger.line import chain_of, make_line
from walld.ledger.snapshot import SnapshotStore
from walld.ledger.store import LedgerStore
from walld.sessions.state.entries import events_of

CONTENT = b"what an entry names"
DIGEST = sha256(CONTENT).digest()
NAMED = b'{"sha256":"%b","size":19,"media_type":"a/b"}' % DIGEST.hex().encode()
LINES = lines_of(3)
LINES.append(make_line(4, "e4", 4, "artifact", NAMED, chain_of(LINES[-1]), parent="e3"))
NOTE = Intent(DELETE, UID, SESSION, erase=True)


class World:
    """What a daemon has of sessions, on a disk."""

    def __init__(self, storage: Storage) -> None:
        self.disk: Disk = SimulatedDisk(storage)
        stores = (LedgerStore(self.disk), SnapshotStore(self.disk), ArtifactStore(self.disk))
        self.files = Files(*stores, InlineWorker(), InlineWorker())
        engine, flusher = Engine(FlushSchedule(3000, None)), Any
        self.sessions = Sessions(engine, flusher, self.files, "", lambda *_: None)
        self._intent_finisher = IntentFinisher(engine, flusher, self.files, self.sessions)

    def start(self) -> None:
        anyio.run(self._intent_finisher.restore)
        self.files.ledgers.sweep_temporary()

    def write(self, session_id: str) -> None:
        self.files.artifacts.put(UID, session_id, DIGEST, len(CONTENT), 0, CONTENT)
        lines = forked().lines if session_id == "fork" else LINES
        self.files.ledgers.append(UID, session_id, 1, lines)
        self.files.snapshots.write_base(UID, session_id, 4, 1, b"never the truth")

    def fork(self) -> bool:
        forks = SessionFork(self.files, SessionFiles(*self.files[:2]))
        return forks.found(UID, "fork", forked(), Source(UID, SESSION))

    def delete(self) -> None:
        self.sessions._note_delete(NOTE, is_open=False)
        number = self.files.ledgers.deleted.begin()
        self.sessions._remove(NOTE, number, {}, is_open=False)

    def is_whole(self, session_id: str) -> bool:
        """False: not a file of it is there."""
        left = self.files.ledgers.has_files(UID, session_id)
        if not self.files.ledgers.exists(UID, session_id):
            assert not left
            assert not self.files.artifacts.exists(UID, session_id, DIGEST)
            return False
        reading = self.files.ledgers.read(UID, session_id)
        assert (len(reading.lines) >= len(LINES), reading.breaks) == (True, [])
        assert self.files.artifacts.read(UID, session_id, DIGEST) == CONTENT
        return True

    def notes(self) -> list[Intent | FormatError]:
        return list(self.files.ledgers.intents.notes())


def forked() -> Forked:
    return forked_session(events_of(LINES), wire.Fork(1, SESSION, "fork", None), UID, 1)


def crashed(do: Callable[[World], object], at: int, crash: str) -> tuple[Storage, bool]:
    """A storage on which the daemon died at a verb of that, and whether it had been done."""
    storage = Storage(Random(at))
    World(storage).write(SESSION)
    world = World(storage)
    storage.crash_at = storage.ops + at
    is_done = False
    with suppress(Crashed):
        do(world)
        is_done = True
    getattr(storage, crash)()
    return storage, is_done


@pytest.mark.parametrize("crash", ["kill", "cut_power"])
@pytest.mark.parametrize("what", [World.fork, World.delete])
def test_a_crash_at_each_verb_and_at_each_of_the_start_behind_it(
    what: Callable[[World], object], crash: str
) -> None:
    session_id = "fork" if what is World.fork else SESSION
    for at in range(1, 200):
        for second in (0, 3, 5, 7, 9, 11, 14, 17):
            storage, is_done = crashed(what, at, crash)
            if second:
                storage.crash_at = storage.ops + second
                with suppress(Crashed):
                    World(storage).start()
                getattr(storage, crash)()
            world = World(storage)
            world.start()
            assert world.is_whole(session_id) == (what is World.fork) or not is_done
            assert world.is_whole(SESSION) or session_id == SESSION
            if not world.is_whole(SESSION):  # so nobody is told that it is lost
                assert world.files.ledgers.deleted.since(0, UID, SESSION)
            assert world.notes() == []
            world.files.ledgers.delete(UID, session_id)
            world.write(session_id)
            storage.cut_power()
            World(storage).start()
            assert World(storage).is_whole(session_id), "what was begun behind it stays"
        if is_done:
            return
    raise AssertionError("more verbs than looked at")


@pytest.mark.parametrize("what", [World.fork, World.delete])
def test_an_error_of_the_disk_that_passes_changes_nothing_of_the_start(
    what: Callable[[World], object],
) -> None:
    """Whichever verb of that start meets it; a session would not be served until the next one."""
    session_id = "fork" if what is World.fork else SESSION
    for at in range(1, 200):
        met, failing = True, 0
        while met:
            storage, is_done = crashed(what, at, "kill")
            verbs: list[str] = []

            def fails(verb: str, path: str, seen: list[str] = verbs, until: int = failing) -> int:
                seen.append(f"{verb} {path}")
                return errno.EIO if len(seen) - 1 == until else 0

            world = World(storage)
            storage.fail = fails
            anyio.run(world._intent_finisher.restore)
            met, failing = failing < len(verbs), failing + 1
            storage.fail = lambda *_: 0
            assert (world.sessions.unread, world.sessions.unread_notes) == ({}, None), verbs
            world.files.ledgers.sweep_temporary()
            assert world.is_whole(session_id) == (what is World.fork) or not is_done
            assert world.notes() == [], verbs
        if is_done:
            return
    raise AssertionError("more verbs than looked at")


@pytest.mark.parametrize("what", [World.fork, World.delete])
def test_salvage_takes_what_the_next_start_would_serve(what: Callable[[World], object]) -> None:
    """Of what a daemon leaves that is killed at any verb; the old directory stays as it is."""
    for at in range(1, 200):
        storage, is_done = crashed(what, at, "kill")
        before, new = storage.files(), Storage(Random(at))
        salvage = SessionSalvage(SimulatedDisk(storage), SimulatedDisk(new), lambda *_: None)
        taken = {one.session_id for one in salvage.run(None)}
        ended = {session_id for _, session_id in salvage.end_deletes()}
        assert storage.files() == before
        world, salvaged = World(storage), World(new)
        world.start()
        salvaged.start()
        for session_id in (SESSION, "fork"):
            is_whole = world.is_whole(session_id)
            assert salvaged.is_whole(session_id) == is_whole == (session_id in taken - ended)
        if not salvaged.is_whole(SESSION):
            assert salvaged.files.ledgers.deleted.since(0, UID, SESSION)
        if is_done:
            return
    raise AssertionError("more verbs than looked at")


@pytest.mark.parametrize("seed", range(6))
def test_the_note_of_a_delete_that_is_done_takes_nothing_that_comes_behind_it(seed: int) -> None:
    storage = Storage(Random(seed))
    world = World(storage)
    world.write("fork")  # which holds the directories that they are in
    world.write(SESSION)
    world.delete()
    world.write(SESSION)
    storage.cut_power()
    world = World(storage)
    world.start()
    assert world.is_whole(SESSION)


@pytest.mark.parametrize("session_id", ["s", "a/b", "", "\ud800", "x" * 200, "s.fork"])
def test_a_note_is_read_as_it_was_written_or_not_at_all(session_id: str) -> None:
    storage = Storage(Random(1))
    disk = SimulatedDisk(storage)
    disk.make_dir("sessions")
    store = IntentStore(disk)
    notes = [
        Intent(DELETE, UID, session_id, erase=True, log="ab" * 16, until_no=7),
        Intent(FORK, UID, session_id, artifacts=[DIGEST.hex()]),
    ]
    for note in notes:
        assert store.earlier(note) is None
        store.note(note)
        assert store.earlier(note) == note
    assert list(store.notes()) == notes
    path = next(f"sessions/{one.name}" for one in SimulatedDisk(storage).list_dir("sessions"))
    file = SimulatedDisk(storage).reopen(path)
    content = file.read_at(file.size(), 0)
    for at in range(len(content)):
        file.write_at(bytes([content[at] ^ 1]), at)
        found = list(store.notes())
        assert isinstance(found[0], FormatError)
        assert found[1:] == notes[1:]
        file.write_at(content[at : at + 1], at)
    for note in notes:
        store.drop(note)
        store.drop(note)
    assert list(store.notes()) == []


def test_nothing_comes_of_a_source_that_is_gone() -> None:
    world = World(Storage(Random(1)))
    world.write(SESSION)
    with world.sessions.forks.source(UID, SESSION) as source:
        world.sessions.forks.goes((UID + 1, SESSION))
        assert not source.is_gone
        world.sessions.forks.goes((UID, SESSION))
        with pytest.raises(Refusal, match="deleted meanwhile"):
            world.sessions.forks.found(UID, "fork", forked(), source)
    assert not world.is_whole("fork")


def test_notes_that_cannot_be_read_keep_sessions_from_being_written() -> None:
    """Else a later start that can read them would take what was written since."""
    storage = Storage(Random(1))
    World(storage).write(SESSION)
    World(storage).sessions._note_delete(NOTE, is_open=True)
    storage.fail = lambda verb, path: 5 if (verb, path) == ("list", "sessions") else 0
    world = World(storage)
    anyio.run(world._intent_finisher.restore)
    with pytest.raises(OSError, match="Input/output"):
        anyio.run(world.sessions.open, UID, SESSION)
    storage.fail = lambda verb, path: 5 if verb == "unlink" and "chat" not in path else 0
    world = World(storage)
    anyio.run(world._intent_finisher.restore)
    with pytest.raises(OSError, match="Input/output"):
        anyio.run(world.sessions.open, UID, SESSION)
    storage.fail = lambda *_: 0
    world.start()
    assert not World(storage).is_whole(SESSION)


def test_notes_that_can_be_read_again_keep_their_own_sessions_alone() -> None:
    """No start is needed for the others; what a delete had begun is ended by the next one."""
    storage = Storage(Random(1))
    for name in (SESSION, "fork"):
        World(storage).write(name)
    World(storage).sessions._note_delete(NOTE, is_open=True)
    storage.fail = lambda verb, path: 5 if (verb, path) == ("list", "sessions") else 0
    world = World(storage)
    anyio.run(world._intent_finisher.restore)
    anyio.run(world._intent_finisher.round, 1.0)
    with pytest.raises(OSError, match="Input/output"):
        anyio.run(world.sessions.open, UID, "fork")
    storage.fail = lambda *_: 0
    anyio.run(world._intent_finisher.round, 1.5)
    with pytest.raises(OSError, match="Input/output"):  # it looks once a second
        anyio.run(world.sessions.open, UID, "fork")
    anyio.run(world._intent_finisher.round, 2.0)
    assert anyio.run(world.sessions.open, UID, "fork") is not None
    for ask in (world.sessions.open, world.sessions.delete):
        with pytest.raises(OSError, match="is ended by the next start"):
            anyio.run(ask, UID, SESSION)
    assert World(storage).is_whole("fork")
    World(storage).start()
    assert not World(storage).is_whole(SESSION)


class Aside:
    """Room of a full disk that is kept aside."""

    def __init__(self, storage: Storage, room: int) -> None:
        self._storage = storage
        self.room = room

    @property
    def is_spent(self) -> bool:
        return not self.room

    def spend(self) -> bool:
        room, self.room = self.room, 0
        self._storage.room += room
        return room > 0

    def make(self) -> bool:
        self.room, self._storage.room = self._storage.room, 0
        return self.room > 0


def test_on_a_full_disk_the_note_of_a_delete_has_the_reserve() -> None:
    """So it is ended by the next start wherever it is killed; a fork waits for room."""
    storage = Storage(Random(1))
    World(storage).write(SESSION)
    storage.room = 0
    aside = Aside(storage, 4096)
    store = IntentStore(SimulatedDisk(storage), aside)
    with pytest.raises(OSError, match="No space"):
        store.note(Intent(FORK, UID, "fork"))
    assert aside.room == 4096
    world = World(storage)
    world.files = Files(LedgerStore(world.disk, aside), *world.files[1:])
    world.sessions._store = world.files.ledgers
    world.sessions._note_delete(NOTE, is_open=True)
    assert world.notes() == [NOTE]
    assert aside.room == 0
    world.sessions._remove(NOTE, world.files.ledgers.deleted.begin(), {}, is_open=False)
    assert aside.room == 0
    world._intent_finisher._files = world.files
    anyio.run(world._intent_finisher.round, 1.0)
    assert aside.room > 0, "put aside again"
    assert not World(storage).is_whole(SESSION)


def test_a_full_disk_takes_no_note_and_a_delete_makes_room() -> None:
    storage = Storage(Random(1))
    world = World(storage)
    world.write(SESSION)
    storage.room = 0
    world.delete()
    assert not world.is_whole(SESSION)
    assert world.notes() == []
