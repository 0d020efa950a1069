"""An entry that `append(wait=False)` was given.

Owns: its request, and what is said of one that is refused. Refuses: sending it
(`append_connection.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from walld_client.wire.messages import Append, Error, NewEntry, Seen

__all__ = ["Posted", "are_refused"]

_log = logging.getLogger("walld")


class Posted:
    """doubtful: it was sent once, and nobody knows whether it arrived. behind: what its process had
    released before, as far as a daemon may not have it: those messages stand before it.
    """

    __slots__ = ("behind", "doubtful", "entry", "session_id")

    def __init__(
        self, session_id: str, entry: NewEntry, behind: Callable[[], list[Seen]] = list
    ) -> None:
        self.session_id = session_id
        self.entry = entry
        self.behind = behind
        self.doubtful = False

    def request(self, request_id: int) -> Append:
        """The append of it alone."""
        seen = self.behind()
        return Append(request_id, self.session_id, [self.entry], seen=seen, in_order=True)

    def is_refused(self, error: Error) -> None:
        """Nobody waits for the answer, so a refusal is told to the log."""
        if self.doubtful and error.code == "duplicate_id":
            return  # it had arrived
        _log.warning(
            "an entry of type %r posted to session %r is not appended: code %s, got %s, limit %s",
            self.entry.type,
            self.session_id,
            error.code,
            error.got,
            error.limit,
        )


def are_refused(entries: list[Posted], error: Error) -> None:
    """All that waits of one session is given up."""
    _log.warning(
        "%d entries posted to session %r are not appended: %s: %s",
        len(entries),
        entries[0].session_id,
        error.code,
        error.message,
    )
