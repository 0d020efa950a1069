"""Finishes deletes and forks that a killed daemon had begun.

Owns: that the rest of such a session goes before anybody asks for it, and when its note does; and
that the room which a note, or whatever else, was given on a full disk is put aside again.
Refuses: what a note is (`ledger/intents.py`), deletes and forks of now (`open_sessions.py`).

A delete that was not answered is done all the same: the log may have let go of the newest lines
already, and a session without those would say that it is whole. A fork is all there or gone.
"""

from __future__ import annotations

import errno
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from walld import limits
from walld.daemon import event_loop
from walld.disk.retrying import patiently
from walld.errors import FormatError
from walld.escape import escaped_line
from walld.ledger.intents import DELETE, Intent
from walld.ledger.names import DELETED_FILE
from walld.wal.layout import Flag

if TYPE_CHECKING:
    from collections.abc import Callable

    from walld.daemon.session_store.handles import Files
    from walld.daemon.session_store.open_sessions import Sessions
    from walld.daemon.storage.flusher import Flusher
    from walld.engine.engine import Engine
    from walld.engine.stream import Stream

__all__ = ["IntentFinisher"]

T = TypeVar("T")

_log = logging.getLogger("walld.sessions")


class IntentFinisher:
    """The notes that one start found."""

    def __init__(self, engine: Engine, flusher: Flusher, files: Files, sessions: Sessions) -> None:
        self._engine = engine
        self._flusher = flusher
        self._files = files
        self._sessions = sessions
        self._left: list[Intent] = []
        """Of sessions that the log lets go of: until that is synced a crash brings lines back."""
        self._is_asked = self._is_synced = False
        self._look_at = 0.0

    async def restore(self) -> None:
        """For a start, before anybody asks. A session whose rest cannot go now is not served."""
        notes = self._files.ledgers.intents
        try:
            if DELETED_FILE in await self._run(notes.sweep):
                await self._load_deleted()
            found = await self._run(lambda: list(notes.notes()))
        except OSError as error:
            _log.error("what is left of deletes and forks cannot be read: %s", error)
            self._sessions.unread_notes = error
            return
        for note in found:
            if isinstance(note, FormatError):
                _log.error("what is left of a delete or a fork: %s", note)
                continue
            try:
                await self._finish(note)
            except OSError as error:
                name = escaped_line(note.session_id)
                _log.error("what is left of session %s of uid %d: %s", name, note.uid, error)
                self._sessions.unread[note.key] = error

    async def _load_deleted(self) -> None:
        deleted = self._files.ledgers.deleted
        await self._run(deleted.load)
        self._engine.resolved.found(dict(deleted.replies))

    async def _finish(self, note: Intent) -> None:
        streams = [one for one in self._engine.registry.by_no.values() if _is_of(one, note)]
        if note.what == DELETE:
            is_same = note.log == self._engine.log_uuid.hex()
            gone = [one for one in streams if is_same and one.no <= note.until_no]
            await self._run(partial(self._erase, note))
            for stream in gone:
                self._engine.release(stream, Flag.RELEASED, event_loop.now())
            if gone or self._engine.is_unread:
                self._left.append(note)
                return
        elif not streams:
            await self._run(partial(self._take_back, note))
        await self._run(partial(self._files.ledgers.intents.drop, note))

    async def _run(self, job: Callable[[], T]) -> T:
        """On the thread; each of these may be done again from its start, whatever came of it."""
        return await self._files.thread.run(partial(patiently, job))

    def _erase(self, note: Intent) -> None:
        """For the thread. Behind it the note speaks of the log alone."""
        if note.erase:
            self._files.ledgers.delete(*note.key)
            deleted = self._files.ledgers.deleted
            deleted.ended(deleted.begin(), *note.key)
            self._files.ledgers.intents.note(msgspec.structs.replace(note, erase=False))
            name = escaped_line(note.session_id)
            _log.info("the delete of session %s of uid %d is finished", name, note.uid)

    def _take_back(self, note: Intent) -> None:
        """For the thread."""
        if not self._files.ledgers.exists(*note.key):
            self._files.artifacts.remove(*note.key, map(bytes.fromhex, note.artifacts))

    async def round(self, now: float) -> None:
        """Notes go once nothing can bring back what they are of. In the background."""
        if self._sessions.unread_notes is not None and now >= self._look_at:
            self._look_at = now + limits.DISK_RETRY_SECONDS
            await self._look_again()
        notes = self._files.ledgers.intents
        if notes.has_spent and now >= self._look_at and not self._engine.disk_full:
            self._look_at = now + limits.DISK_RETRY_SECONDS
            with suppress(OSError):  # as full as before
                await self._files.thread.run(notes.put_aside)
        if self._left and not self._is_asked and not self._engine.is_unread:
            self._is_asked = True
            self._engine.when("synced", self._synced, event_loop.now())
            self._flusher.wake()
        while self._left and self._is_synced:
            note = self._left.pop()
            if note.key not in self._sessions.going:  # a later delete has its note there
                with suppress(OSError):  # the next start drops it
                    drop = partial(self._files.ledgers.intents.drop, note)
                    await self._files.thread.run(drop)

    async def _look_again(self) -> None:
        """At notes that the start could not read: they tell which sessions are not to be served.

        A delete that did not end waits for the next start: lines of its session are pending by now.
        """
        notes = self._files.ledgers.intents
        try:
            await self._load_deleted()
            found = await self._run(lambda: list(notes.notes()))
        except OSError:
            return
        for note in found:
            if isinstance(note, FormatError):
                _log.error("what is left of a delete or a fork: %s", note)
            elif note.what == DELETE:
                why = "its delete had begun, and is ended by the next start"
                waits = InterruptedError(errno.EINTR, why, note.session_id)
                self._sessions.unread.setdefault(note.key, waits)
        self._sessions.unread_notes = None
        _log.info("what is left of deletes and forks can be read again")

    def _synced(self) -> None:
        self._is_synced = True


def _is_of(stream: Stream, note: Intent) -> bool:
    return stream.is_ledger and (stream.begin.uid, stream.begin.session_id) == note.key
