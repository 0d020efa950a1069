"""Writes a forked session: artifacts, lines, snapshot; all or nothing.

Owns: the order of that, and that nothing comes of a session that was deleted meanwhile. Refuses:
which lines (`fork_contents.py`), who may open the new session (`open_sessions.py`). For the thread
of the files, in which a delete takes those of the source, too.
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from walld.daemon.session_store.handles import Source
from walld.errors import Refusal
from walld.ledger.intents import FORK, Intent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from walld.daemon.session_store.files import SessionFiles
    from walld.daemon.session_store.fork_contents import Forked
    from walld.daemon.session_store.handles import Files

__all__ = ["SessionFork"]

_log = logging.getLogger("walld.sessions")
_hashes = re.compile(rb"[0-9a-f]{64,}").findall
"""What may name artifacts: a session can have as many of them as lines."""


class SessionFork:
    """The forks of one daemon."""

    def __init__(self, files: Files, session_files: SessionFiles) -> None:
        self._store, self._snapshots, self._artifacts = files[:3]
        self._files = session_files
        self._sources: list[Source] = []

    @contextmanager
    def source(self, uid: int, session_id: str) -> Iterator[Source]:
        """From before its lines are read until the copy, or a view of its artifacts, is there."""
        source = Source(uid, session_id)
        self._sources.append(source)
        try:
            yield source
        finally:
            self._sources.remove(source)

    def goes(self, key: tuple[int, str]) -> None:
        """The delete of this session begins. What is being copied of it comes before that whole, or
        not at all: its artifacts go.
        """
        for source in self._sources:
            source.is_gone |= source.key == key

    def found(self, uid: int, session_id: str, forked: Forked, source: Source) -> bool:
        """False: there is one. Refusal where the source is gone.

        The artifacts first: no event may name one that is not there.
        """
        if self._files.exists(uid, session_id):
            return False
        if source.is_gone:
            limit = "a session that is there"
            raise Refusal("unknown_session", "it was deleted meanwhile", source.key[1], limit)
        named = {text for line in forked.lines for text in _hashes(line)}
        wanted = [one for one in self._artifacts.list(*source.key) if one.hex().encode() in named]
        note = self._noted(uid, session_id, wanted)
        made: list[bytes] = []
        try:
            self._artifacts.link(*source.key, session_id, wanted, made)
            self._store.append(uid, session_id, 1, forked.lines)
        except BaseException:
            with suppress(OSError):  # the note stays: a start takes away what could not go now
                if not self._store.exists(uid, session_id):  # else it came to be, if not durably
                    self._artifacts.remove(uid, session_id, made)
                self._done(note)
            raise
        self._done(note)
        self._snap(uid, session_id, forked)
        return True

    def _done(self, note: Intent | None) -> None:
        if note is not None:
            with suppress(OSError):  # a start drops it
                self._store.intents.drop(note)

    def _noted(self, uid: int, session_id: str, wanted: Sequence[bytes]) -> Intent | None:
        """Killed before there is an event, a start takes what is new of these away again (U2)."""
        note = Intent(FORK, uid, session_id)
        earlier = self._store.intents.earlier(note)
        came = [] if earlier is None else list(earlier.artifacts)
        came += [one.hex() for one in wanted if not self._artifacts.exists(uid, session_id, one)]
        if not came:
            return None
        note = msgspec.structs.replace(note, artifacts=came)
        self._store.intents.note(note)
        return note

    def _snap(self, uid: int, session_id: str, forked: Forked) -> None:
        tail = self._store.tail(uid, session_id)
        if tail is not None:
            try:
                self._snapshots.write_base(uid, session_id, tail.last_seq, tail.size, forked.base)
            except OSError as error:  # the session is there: who opens it folds its lines
                _log.warning("a snapshot is not written: %s", error)
