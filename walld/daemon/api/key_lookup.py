"""Finds events by key without reading the session from its beginning.

Owns: which lines `find` needs. Refuses: what it finds in them (`sessions/views/find.py`).

    key             where its first and newest event are, the fold says: one line of the file, or
                    none, unless more than one of it is asked for, or the newest is lost
    last            from the end of the log, a window at a time
    neither         all of it
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from walld.daemon.session_store.files import Lines
from walld.daemon.session_store.view_events import written
from walld.errors import FormatError, Refusal
from walld.sessions.views.projections import check, project

if TYPE_CHECKING:
    from walld.daemon.session_store.open_sessions import Sessions
    from walld.daemon.session_store.view_events import HeldEvents, ViewEvents
    from walld.daemon.storage.disk_threads import Worker
    from walld.sessions.state.events import Event

__all__ = ["KeyLookup"]

_WINDOW_EVENTS = 32
"""Of a search from the end; the next is eight times as long."""


class _Found(NamedTuple):
    """What `find` gives: how many, as JSON; and the lines that were read for it."""

    total: int
    told: bytearray
    lines: Lines


class KeyLookup:
    """Searches of all sessions. views: the thread that folds."""

    def __init__(self, sessions: Sessions, view_events: ViewEvents, views: Worker) -> None:
        self._sessions = sessions
        self._view_events = view_events
        self._views = views

    async def find(
        self, uid: int, session_id: str, arguments: dict[str, Any]
    ) -> tuple[bytearray | None, Lines | None]:
        """What `find` gives for these arguments, as JSON, and the lines that were read for it.

        None for a session never written. Refusal where it cannot be read, or too much is found;
        ProtocolError for arguments that `find` refuses.
        """
        check("find", arguments)
        try:
            if arguments.get("key") is not None:
                found = await self._of_key(uid, session_id, arguments)
            elif (arguments.get("last") or 0) > 0:
                found = await self._newest(uid, session_id, arguments)
            else:
                found = await self._read(uid, session_id, arguments)
        except FormatError as error:
            raise Refusal("unreadable", str(error)) from None
        return (None, None) if found is None else (found.told, found.lines)

    async def _of_key(self, uid: int, session_id: str, arguments: dict[str, Any]) -> _Found | None:
        ledger = await self._sessions.open(uid, session_id)
        if ledger is None or ledger.state is None:
            return None
        seqs = ledger.state.seqs_of_key(arguments["key"], arguments.get("type"))
        if seqs is None:
            # Arguments that do not go together are refused here too.
            return await self._found_in(uid, session_id, Lines([], []), arguments)
        first, newest = seqs
        if arguments.get("last") == 1 or first == newest:
            found = await self._read(uid, session_id, arguments, newest - 1, 1)
            if found is None or found.total or first == newest:
                return found
            # The newest is lost to damage: one before it stands all the same.
            return await self._newest(uid, session_id, arguments)
        return await self._read(uid, session_id, arguments, first - 1)

    async def _newest(self, uid: int, session_id: str, arguments: dict[str, Any]) -> _Found | None:
        """The newest cost what lies behind them."""
        end = await self._sessions.last_seq(uid, session_id)
        window = _WINDOW_EVENTS
        while True:
            after = max(0, end - window)
            found = await self._read(uid, session_id, arguments, after)
            if found is None or after == 0 or found.total >= arguments["last"]:
                return found
            window *= 8

    async def _read(
        self,
        uid: int,
        session_id: str,
        arguments: dict[str, Any],
        after: int = 0,
        limit: int = 0,
    ) -> _Found | None:
        """What is found behind a seq, in at most `limit` lines (0: all)."""
        lines = await self._view_events.lines(uid, session_id, after, limit)
        if lines is None:
            return None
        return await self._found_in(uid, session_id, lines, arguments)

    async def _found_in(
        self, uid: int, session_id: str, lines: Lines, arguments: dict[str, Any]
    ) -> _Found:
        alone = {**arguments, "last": None}

        def keep(event: Event) -> Event | None:
            return event if project("find", [event], alone) else None

        async with self._view_events.held(uid, session_id, lines, keep) as held:
            return await self._views.run(partial(_job, held, arguments))


def _job(held: HeldEvents, arguments: dict[str, Any]) -> _Found:
    found: Any = project("find", held.events, arguments)
    return _Found(len(found), written(found, held), held.found)
