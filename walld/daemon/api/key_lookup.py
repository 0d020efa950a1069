"""Finds events by key without reading the session from its beginning.

Owns: which lines `find` needs. Refuses: what it finds in them (`sessions/views/find.py`).

    key             where its first and newest event are, the fold says: one line of the file, or
                    none, unless more than one of it is asked for, or the newest is lost
    last            from the end of the log, a window at a time
    neither         all of it
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from walld.errors import FormatError, Refusal
from walld.sessions.state.entries import events_of
from walld.sessions.views.projections import check, project

if TYPE_CHECKING:
    from walld.daemon.session_store.files import Lines
    from walld.daemon.session_store.open_sessions import Sessions
    from walld.daemon.storage.disk_threads import Worker

__all__ = ["KeyLookup"]

_WINDOW_EVENTS = 32
"""Of a search from the end; the next is eight times as long."""


class KeyLookup:
    """Searches of all sessions. views: the thread that folds."""

    def __init__(self, sessions: Sessions, views: Worker) -> None:
        self._sessions = sessions
        self._views = views

    async def find(
        self, uid: int, session_id: str, arguments: dict[str, Any]
    ) -> tuple[list[dict[str, Any]] | None, Lines | None]:
        """What `find` gives for these arguments, and the lines that were read for it.

        None for a session never written. Refusal where it cannot be read, ProtocolError for
        arguments that `find` refuses.
        """
        check("find", arguments)
        try:
            if arguments.get("key") is not None:
                return await self._of_key(uid, session_id, arguments)
            if (arguments.get("last") or 0) > 0:
                return await self._newest(uid, session_id, arguments)
            return await self._read(uid, session_id, arguments)
        except FormatError as error:
            raise Refusal("unreadable", str(error)) from None

    async def _of_key(
        self, uid: int, session_id: str, arguments: dict[str, Any]
    ) -> tuple[list[dict[str, Any]] | None, Lines | None]:
        ledger = await self._sessions.open(uid, session_id)
        if ledger is None or ledger.state is None:
            return None, None
        seqs = ledger.state.seqs_of_key(arguments["key"], arguments.get("type"))
        if seqs is None:
            # Arguments that do not go together are refused here too.
            return await self._found_in([], arguments), None
        first, newest = seqs
        if arguments.get("last") == 1 or first == newest:
            found, lines = await self._read(uid, session_id, arguments, newest - 1, 1)
            if found or first == newest:
                return found, lines
            # The newest is lost to damage: one before it stands all the same.
            return await self._newest(uid, session_id, arguments)
        return await self._read(uid, session_id, arguments, first - 1)

    async def _newest(
        self, uid: int, session_id: str, arguments: dict[str, Any]
    ) -> tuple[list[dict[str, Any]] | None, Lines | None]:
        """The newest cost what lies behind them."""
        end = await self._sessions.last_seq(uid, session_id)
        window = _WINDOW_EVENTS
        while True:
            after = max(0, end - window)
            found, lines = await self._read(uid, session_id, arguments, after)
            if found is None or after == 0 or len(found) >= arguments["last"]:
                return found, lines
            window *= 8

    async def _read(
        self,
        uid: int,
        session_id: str,
        arguments: dict[str, Any],
        after: int = 0,
        limit: int = 0,
    ) -> tuple[list[dict[str, Any]] | None, Lines | None]:
        """What is found behind a seq, in at most `limit` lines (0: all)."""
        lines = await self._sessions.lines(uid, session_id, after, limit)
        if lines is None:
            return None, None
        return await self._found_in(lines.lines, arguments), lines

    async def _found_in(
        self, lines: list[bytes], arguments: dict[str, Any]
    ) -> list[dict[str, Any]]:
        found: Any = await self._views.run(partial(_job, lines, arguments))
        return list(found)


def _job(lines: list[bytes], arguments: dict[str, Any]) -> object:
    return project("find", events_of(lines), arguments)
