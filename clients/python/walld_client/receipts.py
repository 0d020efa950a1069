"""Receipts of a client: what it was told of its sessions, to be shown to the next daemon.

Owns: the last receipt of each session. Refuses: what one says, which the daemon alone knows; when
it is shown (`requests.py`).

A batch at the end of a log can go without a trace. Who was told that it is synced lives, and knows.
"""

from __future__ import annotations

__all__ = ["Receipts"]

_SESSIONS_MAX = 4096
"""Of more, those that were appended to longest ago are forgotten."""


class Receipts:
    """Of one client, over all its connections, one after another."""

    __slots__ = ("_by_session", "_unshown")

    def __init__(self) -> None:
        self._by_session: dict[str, bytes] = {}
        self._unshown: set[str] = set()
        """Sessions whose receipt the daemon at hand did not give, and has not seen."""

    def connected(self) -> None:
        """To a daemon that may be another one."""
        self._unshown = set(self._by_session)

    def keep(self, session_id: str, receipt: bytes) -> None:
        """The newest of that session, from the daemon at hand."""
        self.forget(session_id)
        self._by_session[session_id] = receipt
        if len(self._by_session) > _SESSIONS_MAX:
            self.forget(next(iter(self._by_session)))

    def forget(self, session_id: str) -> None:
        """It is deleted."""
        self._by_session.pop(session_id, None)
        self._unshown.discard(session_id)

    def to_show(self, session_id: str) -> bytes | None:
        """What the daemon at hand is to see, once, before it is asked about that session."""
        if session_id not in self._unshown:
            return None
        self._unshown.remove(session_id)
        return self._by_session[session_id]

    def not_seen(self, session_id: str) -> None:
        """It could not be looked at: it is shown with the next request."""
        if session_id in self._by_session:
            self._unshown.add(session_id)
