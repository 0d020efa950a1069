"""Makes the last messages of a session of the lines at its end.

Owns: the index of each session that was asked, how much of them is kept, and which lines are read
for a page. Refuses: what a page is (`views/message_page.py`), from where the lines suffice
(`views/tail_index.py`), the session as a whole (`api/sessions.py`): where a page needs it, or its
file is damaged.

Invariants: an index is of the lines that are there: the last line it knows is read again with those
behind it, and where that is another, of a session that was deleted and begun anew, say, the index
is made anew. All of them hold TAIL_INDEX_BYTES_MAX bytes at most.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from walld import limits
from walld.daemon.session_store.view_events import written
from walld.errors import FormatError, ProtocolError, Refusal
from walld.ledger.line import are_whole
from walld.sessions.gate.children import ChildrenUnknown, with_children
from walld.sessions.gate.processes import processes_of
from walld.sessions.state.entries import line_event
from walld.sessions.state.events import Event
from walld.sessions.views.event_memory import shortened
from walld.sessions.views.message_page import NeedsMore, cursor_seq, page
from walld.sessions.views.tail_index import TailIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from walld.daemon.session_store.files import Lines
    from walld.daemon.session_store.open_sessions import Sessions
    from walld.daemon.session_store.view_events import HeldEvents, ViewEvents
    from walld.daemon.storage.disk_threads import Worker
    from walld.sessions.gate.processes import NamedProcess
    from walld.sessions.state.account import Unreleased
    from walld.sessions.state.events import Child

    _SeenNow = Callable[[Iterable[NamedProcess]], Mapping[NamedProcess, str]]

__all__ = ["MessagePages"]

_HEADER = b'{"walld":'
_TRIES = 4
_MORE = 4
"""A page that needs more is tried of so many times the messages."""
_SPARE = 8
"""Messages beside those that are asked for: pages begin where they may."""


class _Known:
    """An index, and the last line that it knows."""

    __slots__ = ("held_bytes", "index", "line")

    def __init__(self) -> None:
        self.index = TailIndex()
        self.line = b""
        self.held_bytes = 0

    def start_for(self, messages: int, before: int | None, replies: Sequence[Unreleased]) -> int:
        """The last place that so many messages stand behind, and these replies."""
        start = self.index.start_for(messages, before)
        first = self.index.first_of((one.turn, one.stream_id) for one in replies)
        return start if first is None else min(start, self.index.start_for(0, first))

    def take(self, lines: Iterable[bytes]) -> None:
        """Those behind what it knows. FormatError where one cannot be read."""
        line = self.line
        for line in lines:
            self._take(line)
        self.line = line
        self.held_bytes = self.index.held_bytes + len(line)

    def glance(self, text: bytes) -> bool:
        """Lines of its file that nobody has looked at; False: one is damaged, or missing."""
        lines = text.splitlines(keepends=True)
        if not self.index.last_seq and lines and lines[0].startswith(_HEADER):
            del lines[0]
        try:
            self.take(lines)
        except FormatError:
            return False
        return are_whole(lines)

    def _take(self, line: bytes) -> None:
        try:
            event = _decode_event(line)
        except (msgspec.DecodeError, UnicodeDecodeError):  # half a character
            event = line_event(line)
        if event.seq != self.index.last_seq + 1:
            raise FormatError(f"line {event.seq} stands behind {self.index.last_seq}")
        self.index.take(event)


class MessagePages:
    """Of one daemon."""

    def __init__(
        self, sessions: Sessions, view_events: ViewEvents, views: Worker, seen_now: _SeenNow
    ) -> None:
        """seen_now: looks whether processes are there. For a thread."""
        self._seen_now = seen_now
        self._sessions = sessions
        self._view_events = view_events
        self._views = views
        self._known: dict[tuple[int, str], _Known] = {}
        """The one that was asked last stands last. One that is in use is not there."""
        self._held_bytes = 0

    async def page(
        self,
        uid: int,
        session_id: str,
        arguments: dict[str, Any],
        replies: Sequence[Unreleased],
        children: Mapping[str, Child | None],
    ) -> tuple[bytearray | None, Lines | None]:
        """The page as JSON, and what was read for it; None: it has to be made of all.

        Raises Refusal, also where what it is made of is too long; ProtocolError, ChildrenUnknown.
        """
        key, last, look = (uid, session_id), arguments["last"], self._seen_now
        if last is None or last < 1:
            return None, None  # it says so
        before = cursor_seq(arguments.get("before"))
        known = self._known.pop(key, None)
        if known is not None:
            self._held_bytes -= known.held_bytes
        elif (known := await self._made(uid, session_id)) is None:
            return None, None
        wanted = last + _SPARE
        for _ in range(_TRIES):
            start = known.start_for(wanted, before, replies)
            end = known.index.end_for(before)
            if start <= 1 and end is None:
                break
            found = await self._view_events.lines(uid, session_id, start - 1)
            if found is None or found.breaks or not found.total:
                return None, None
            tail_from = known.index.last_seq
            keep = None if end is None else partial(_shortened_from, end)
            try:
                async with self._view_events.held(uid, session_id, found, keep, tail_from) as held:
                    places = start, end
                    job = partial(_page, known, held, places, arguments, replies, children, look)
                    is_known, told = await self._views.run(job)
            except (ProtocolError, Refusal, ChildrenUnknown):
                self._keep(key, known)
                raise
            if not is_known:
                return None, None
            if told is not None:
                self._keep(key, known)
                return told, found
            wanted *= _MORE
        self._keep(key, known)
        return None, None

    def _keep(self, key: tuple[int, str], known: _Known) -> None:
        if (other := self._known.pop(key, None)) is not None:  # of two who asked at once
            self._held_bytes -= other.held_bytes
        self._known[key] = known
        self._held_bytes += known.held_bytes
        while self._held_bytes > limits.TAIL_INDEX_BYTES_MAX:
            oldest = next(iter(self._known))
            self._held_bytes -= self._known.pop(oldest).held_bytes

    async def _made(self, uid: int, session_id: str) -> _Known | None:
        """The index of a session that was not asked yet, of what its file holds; None where there
        is none, or where it is damaged.
        """
        known, offset = _Known(), 0
        if not await self._sessions.exists(uid, session_id):
            return None
        while text := await self._sessions.text(uid, session_id, offset):
            if not await self._views.run(partial(known.glance, text)):
                return None
            offset += len(text)
        return known if known.index.last_seq else None


def _page(
    known: _Known,
    held: HeldEvents,
    places: tuple[int, int | None],
    arguments: dict[str, Any],
    replies: Sequence[Unreleased],
    children: Mapping[str, Child | None],
    seen_now: _SeenNow,
) -> tuple[bool, bytearray | None]:
    """For the thread: whether the index is of these lines, and the page where they suffice.

    places: where the events begin, and where they are shortened from.
    """
    start, end = places
    if held.events[0].seq != start or held.tail[:1] != [known.line]:
        return False, None
    known.take(held.tail[1:])
    before, last = cursor_seq(arguments.get("before")), arguments["last"]
    # It may lie behind the place where these lines begin, or before: entries came since.
    begin = known.start_for(last + _SPARE, before, replies)
    begin = begin if begin > start else start
    brings = any(message.get("tool_results") for one in replies for message in one.messages)
    if end is not None and not known.index.is_independent(end):
        return True, None  # what came since acts on both sides of it
    events = with_children(held.events, children, replies)
    arguments = arguments | {"processes": seen_now(processes_of(events))}
    if start <= 1:
        return True, written(page(events, unreleased=replies, **arguments), held)
    if brings or not known.index.is_independent(begin):
        return True, None
    events = events[begin - start :]
    try:
        opening = known.index.opening(begin, events)
        told = page(events, unreleased=replies, opening=opening, **arguments)
    except NeedsMore:
        return True, None
    return True, written(told, held)


def _shortened_from(end: int, event: Event) -> Event:
    """Entries behind the page act on it by their order alone."""
    return event if event.seq < end else shortened(event)


_decode_event = msgspec.json.Decoder(Event).decode
"""Half of `line_event`'s time; the index looks at fields alone that are named alike in both."""
