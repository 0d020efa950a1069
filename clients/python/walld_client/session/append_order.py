"""The entries that `append(wait=False)` was given, and their order: a failing session's go last.

Owns: an entry's request, what is said of one that is refused, which is sent next, and when one of a
session that fails is tried again. Refuses: sending them (`append_connection.py`).

Order is kept within a session. One that cannot be written now stands aside from its first failure
until an entry of it is answered: what is posted to it meanwhile waits there too, and what is posted
to others does not wait for it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from walld_client.wire.messages import Append, Error, NewEntry, Seen

__all__ = ["AppendOrder", "PostedEntry", "are_refused"]

_log = logging.getLogger("walld")


class PostedEntry:
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


def are_refused(entries: list[PostedEntry], error: Error) -> None:
    """All that waits of one session is given up."""
    _log.warning(
        "%d entries posted to session %r are not appended: %s: %s",
        len(entries),
        entries[0].session_id,
        error.code,
        error.message,
    )


class _Due(NamedTuple):
    """When a session is tried again; and where somebody waits."""

    at: float
    hurried: float


class AppendOrder:
    """What an append connection has to send."""

    __slots__ = ("_aside", "_due", "_ready")

    def __init__(self) -> None:
        self._ready: deque[PostedEntry] = deque()
        self._aside: dict[str, deque[PostedEntry]] = {}
        self._due: dict[str, _Due] = {}
        """Of each session that stands aside, also where all of it is on its way."""

    def __len__(self) -> int:
        return len(self._ready) + sum(map(len, self._aside.values()))

    def __iter__(self) -> Iterator[PostedEntry]:
        yield from self._ready
        for queue in self._aside.values():
            yield from queue

    def add(self, posted: PostedEntry) -> None:
        """Behind all of its session."""
        self._queue_of(posted).append(posted)

    def put_back(self, sent: Iterable[PostedEntry]) -> None:
        """What was on its way and may have to be sent again: before all of its session.

        Also where this, or the sending, was cut short: each stands here once.
        """
        here = {id(one) for one in self}
        for one in reversed(list(sent)):
            if id(one) not in here:
                self._queue_of(one).appendleft(one)

    def clear(self) -> None:
        """Nothing waits."""
        self._ready.clear()
        self._aside.clear()
        self._due.clear()

    # --- sessions that fail ---------------------------------------------------------------------

    def set_aside(self, session_id: str, at: float, hurried: float) -> None:
        """The session failed: it is tried again then, and where somebody waits at `hurried`."""
        self._due[session_id] = _Due(at, hurried)
        self._part(session_id)

    def resume(self, session_id: str) -> None:
        """The session has answered: what stands aside of it goes with the rest."""
        if self._due.pop(session_id, None) is not None:
            self._ready.extend(self._aside.pop(session_id, ()))

    def drop(self, session_id: str) -> None:
        """Forget a session that stands aside."""
        self._aside.pop(session_id, None)
        self._due.pop(session_id, None)

    def hurry(self) -> None:
        """Somebody waits."""
        for session_id, due in self._due.items():
            self._due[session_id] = due._replace(at=min(due.at, due.hurried))

    def _part(self, session_id: str) -> None:
        mine = [one for one in self._ready if one.session_id == session_id]
        if mine or session_id not in self._aside:
            self._aside[session_id] = deque([*mine, *self._aside.get(session_id, ())])
            self._ready = deque(one for one in self._ready if one.session_id != session_id)

    def _queue_of(self, posted: PostedEntry) -> deque[PostedEntry]:
        if posted.session_id in self._due:
            return self._aside.setdefault(posted.session_id, deque())
        return self._ready

    # --- what is next ---------------------------------------------------------------------------

    def next_at(self) -> float | None:
        """When there is something to send: 0.0 now, None as long as nothing comes."""
        if self._ready:
            return 0.0
        return min(
            (self._due[name].at for name, queue in self._aside.items() if queue), default=None
        )

    def queue(self, now: float) -> deque[PostedEntry]:
        """Its first is sent next; empty where nothing is due."""
        if self._ready:
            return self._ready
        for session_id, queue in self._aside.items():
            if queue and self._due[session_id].at <= now:
                return queue
        return self._ready
