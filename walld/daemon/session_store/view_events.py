"""Reads the events that a view or a fork is made of, in bounded memory.

Owns: how much they take, and that one long session is folded at a time. Refuses: what a view tells
(`sessions/views/`), its answer's bytes, where lines stand (`open_sessions.py`).

A view folds all of a session, and what it makes shares the texts of its events. So their memory is
counted as they are read, a page of lines at a time, and a view that would need more is refused with
what to ask instead. Long ones take turns, each user one at a time: so whoever waits for another
user waits for one view of bounded length.

Invariant
- Q5 All views together hold VIEW_BYTES_MAX of events and answers in the making (of a view without
  words, which has no pages, JUDGED_BYTES_MAX; of a fork FORK_BYTES_MAX with its lines), and those
  of short sessions besides (1 MiB of lines, for each user that asks); one that would take more is
  refused.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import anyio
import msgspec

from walld import limits
from walld.errors import FormatError, Refusal
from walld.ledger.line import line_seq
from walld.sessions.state.entries import line_event
from walld.sessions.views.event_memory import held_bytes
from walld.sessions.views.view_json import TooLong, view_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from walld.daemon.session_store.files import Lines
    from walld.daemon.session_store.open_sessions import Sessions
    from walld.daemon.storage.disk_threads import Worker
    from walld.ledger.runs import Run
    from walld.sessions.state.events import Event

__all__ = ["HeldEvents", "ViewEvents", "written"]

_WHAT_TO_DO = (
    "read it in pages: messages(last=, before=), or its events, `walld session events`; a program"
    " goes on in a new session"
)


class HeldEvents:
    """Events of one view, and their memory. tail: the lines from seq `tail_from` on."""

    def __init__(
        self,
        found: Lines,
        keep: Callable[[Event], Event | None] | None,
        tail_from: int | None,
        bytes_max: int,
    ) -> None:
        """keep: gives of an event what the view needs, None for nothing."""
        self.events: list[Event] = []
        self.tail: list[bytes] = []
        self.bytes = 0
        self.found = found
        self.bytes_max = bytes_max
        self._keep = keep
        self._tail_from = tail_from
        self._last_id: str | None = None

    def take(self, lines: Iterable[bytes]) -> None:
        """The next lines. For a thread. FormatError; Refusal beyond what a view may hold."""
        for line in lines:
            read = line_event(line)
            if read.parent == self._last_id:
                msgspec.structs.force_setattr(read, "parent", self._last_id)  # one text for both
            self._last_id = read.id
            event = read if self._keep is None else self._keep(read)
            if event is not None:
                self.events.append(event)
                self.hold(held_bytes(event))
            if self._tail_from is not None and line_seq(line) >= self._tail_from:
                self.tail.append(line)
                self.hold(len(line))

    def hold(self, count: int) -> None:
        """So many bytes more. Refusal beyond what a view may hold."""
        self.bytes += count
        if self.bytes > self.bytes_max:
            raise _too_long(self)


class ViewEvents:
    """Of all views of one daemon. views: the thread that folds."""

    def __init__(self, sessions: Sessions, views: Worker) -> None:
        self._sessions = sessions
        self._views = views
        self._long = anyio.Lock()

    async def lines(
        self, uid: int, session_id: str, after: int = 0, limit: int = 0
    ) -> Lines | None:
        """Where those behind a seq stand, for `held`; None of a session never written."""
        most = limits.ANSWER_HELD_BYTES_MAX
        try:
            return await self._sessions.lines(uid, session_id, after, limit, most)
        except FormatError as error:
            raise Refusal("unreadable", str(error)) from None

    @asynccontextmanager
    async def held(
        self,
        uid: int,
        session_id: str,
        found: Lines,
        keep: Callable[[Event], Event | None] | None = None,
        tail_from: int | None = None,
        bytes_max: int = limits.VIEW_BYTES_MAX,
    ) -> AsyncIterator[HeldEvents]:
        """Events of these lines, until the answer is made. FormatError, Refusal."""
        held = HeldEvents(found, keep, tail_from, bytes_max)
        if not found.runs:
            await self._views.run(partial(held.take, found.lines))
            yield held
            return
        async with self._long:
            try:
                await self._read(uid, session_id, found, held)
                yield held
            finally:
                held.events.clear()

    async def _read(self, uid: int, session_id: str, found: Lines, held: HeldEvents) -> None:
        for run in found.runs:
            behind: Run | None = run
            while behind is not None:
                most = limits.ANSWER_PAGE_BYTES
                try:
                    page = await self._sessions.page(uid, session_id, behind, most)
                except (FileNotFoundError, FormatError) as error:
                    raise Refusal("behind", f"{error}: ask again") from None
                lines, behind = page
                await self._views.run(partial(held.take, lines))
        await self._views.run(partial(held.take, found.lines))


def written(told: object, held: HeldEvents) -> bytearray:
    """A view of these events as JSON. For a thread. Refusal where both are too long."""
    try:
        return view_json(told, held.bytes_max - held.bytes)
    except TooLong:
        raise _too_long(held) from None


def _too_long(held: HeldEvents) -> Refusal:
    """Why there is no view of these lines."""
    found = held.found
    count = sum(run.end - run.offset for run in found.runs) + sum(map(len, found.lines))
    return Refusal(
        "view_length",
        f"a view or a fork of this session takes more memory than one may: {_WHAT_TO_DO}",
        f"{found.total} events of {count} bytes",
        f"{held.bytes_max} bytes of events and what is made of them",
    )
