"""Sync tokens of a client: what it was told of its sessions, shown to the next daemon.

A sync token is what the wire calls a receipt (PROTOCOL.md, "Receipts").

Owns: the last one of each session, and which log the agent's connection was told of. Refuses: what
it says, which the daemon alone knows; when it is shown (`requests.py`).

The end of a log can go without a trace. Who was told that it is synced lives, and knows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from walld_client.link import process

__all__ = ["SyncTokens"]

_SESSIONS_MAX = 4096
"""Of more, those that were appended to longest ago are forgotten."""
_ONE_DAEMON_BYTES = 8
"""Tokens that begin alike are of one daemon: the greater is the later."""


class SyncTokens:
    """Of one client, over all its connections. Safe in any thread."""

    __slots__ = ("__weakref__", "_by_session", "_lock", "log")

    def __init__(self, log: Callable[[], bytes] = bytes) -> None:
        """log: the log that the last Ack named; b"" before one came."""
        self.log = log
        self._by_session: dict[str, bytes] = {}
        self._lock = threading.Lock()
        process.register(self)

    def keep(self, session_id: str, receipt: bytes) -> None:
        """The newest of that session: answers on several connections overtake each other."""
        with self._lock:
            before = self._by_session.pop(session_id, b"")
            if before[:_ONE_DAEMON_BYTES] == receipt[:_ONE_DAEMON_BYTES]:
                receipt = max(before, receipt)
            self._by_session[session_id] = receipt
            if len(self._by_session) > _SESSIONS_MAX:
                del self._by_session[next(iter(self._by_session))]

    def of(self, session_id: str) -> bytes | None:
        """None: nothing of it was told, or too long ago."""
        return self._by_session.get(session_id)

    def sessions(self) -> set[str]:
        """Of which there is one."""
        with self._lock:
            return set(self._by_session)

    def forked(self) -> None:
        """In the child of a fork: the thread that holds the lock may not be there."""
        self._lock = threading.Lock()
