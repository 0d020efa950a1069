"""The last messages of a path, a page at a time, of no more entries than it takes.

Owns: where a page may begin, its cursor, and whether the entries of a session's end suffice for it.
Refuses: what the messages are (`messages.py`), where an end may begin (`tail_index.py`), reading.

A page begins with a message that an entry said, so that the calls and replies that stand behind it
go with it. It takes no call from its result, and no message from one that a provider is sent as the
same message. A cursor names that entry, and the leaf of the first page: the pages behind it are
those of the path up to there, whatever is appended meanwhile.

Invariant
- Q4 A page is a slice of what `messages` has of all events; `NeedsMore` where those at hand may not
  say so. Pages by their cursors are the whole list, each message once.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, Final, NamedTuple

from walld_client.recovered.calls import CallsOfId, sendable_arguments
from walld_client.recovered.provider import in_format
from walld_client.recovered.said import answer_of

from walld.sessions.gate.processes import NamedProcess
from walld.sessions.state.account import Calls, Unreleased, calls_in, results_in
from walld.sessions.state.errors import BadArgument
from walld.sessions.state.events import Event
from walld.sessions.state.path import path_events, tail_path
from walld.sessions.views.call_results import without_unknown
from walld.sessions.views.messages import Conversation, Item, Place, check_words, messages, tell

__all__ = ["NeedsMore", "Tail", "cursor_seq", "messages_or_page", "page"]

_SAY: Final = ("user", "assistant")
# No set: a said outcome may be no word.
_RESULTS: Final = ("done", "failed", "timeout", "cancelled")


class NeedsMore(Exception):
    """The events at hand do not say what the page is."""


def messages_or_page(
    events: Sequence[Event],
    format: str = "plain",  # noqa: A002
    branch: str | None = None,
    compacted: bool = True,
    unknown: str = "say",
    unreleased: Sequence[Unreleased] = (),
    last: int | None = None,
    before: str | None = None,
    processes: Mapping[NamedProcess, str] | None = None,
) -> list[dict[str, Any]] | dict[str, Any] | None:
    """The view `messages`: a list, and with `last` a page of it. Raises BadArgument."""
    if last is None and before is None:
        return messages(events, format, branch, compacted, unknown, unreleased, processes)
    return page(
        events,
        format,
        branch,
        compacted,
        unknown,
        unreleased,
        last=last,
        before=before,
        processes=processes,
    )


def page(
    events: Sequence[Event],
    format: str = "plain",  # noqa: A002
    branch: str | None = None,
    compacted: bool = True,
    unknown: str = "say",
    unreleased: Sequence[Unreleased] = (),
    *,
    last: int | None,
    before: str | None = None,
    opening: Sequence[Event] | None = None,
    processes: Mapping[NamedProcess, str] | None = None,
) -> dict[str, Any] | None:
    """`messages`: the last n, or so many before the page of a cursor; a few more where they belong
    together. `before`: the cursor of this page, None where it is the first of the list.

    opening: the events are those behind an independent place alone, and this is said of the turns
    that go on there. Raises NeedsMore; BadArgument, with code "stale" where the path of the cursor
    was left.
    """
    check_words(format, unknown)
    if last is None or last < 1:
        raise BadArgument("last", last, "a number of messages, 1 at least")
    cursor = None if before is None else _read_cursor(before)
    if not events:
        return None
    path, is_rooted = _path(events, branch, cursor, before, is_whole=opening is None)
    conversation = Conversation() if is_rooted else Tail()
    begins: list[tuple[int, Item]] = []
    if opening:
        events = [*opening, *events]
    told = tell(
        conversation,
        events,
        path,
        unreleased,
        compacted=compacted,
        begins=begins,
        processes=processes,
    )
    is_all = conversation.is_all(compacted=compacted) if isinstance(conversation, Tail) else True
    if unknown == "drop":
        told, begins = _without_unknown(told, begins)
    stop, named = len(told), _named(begins, path)
    if cursor is not None:
        stop = next((at for at, one in named if one == (cursor.seq, cursor.number)), -1)
        if stop < 0 and not is_all:
            raise NeedsMore
        if stop < 0:
            raise _stale(before)
    begin = _begin(told, named, stop, last, is_all=is_all)
    if begin is None and not is_all:
        raise NeedsMore
    at, cursor_text = 0, None
    if begin is not None:
        at, (seq, index) = begin
        cursor_text = f"{seq}.{index}.{path[-1].id}"
    return {"messages": in_format(told[at:stop], format), "before": cursor_text}


class _Cursor(NamedTuple):
    """seq, number: of the entry of a page's first message, and which of its messages. leaf: of the
    first page.
    """

    seq: int
    number: int
    leaf: str


def cursor_seq(before: str | None) -> int | None:
    """The entry that a page of the cursor ends before. Raises BadArgument."""
    return None if before is None else _read_cursor(before).seq


def _read_cursor(text: str) -> _Cursor:
    seq, _, rest = text.partition(".")
    index, _, leaf = rest.partition(".")
    if not (seq.isascii() and seq.isdecimal() and index.isascii() and index.isdecimal() and leaf):
        raise BadArgument("before", text[:80], "the `before` of a page")
    return _Cursor(int(seq[:20]), int(index[:20]), leaf)


def _stale(before: str | None) -> BadArgument:
    limit = "a page of the path that leads to the leaf: begin with the last page"
    return BadArgument("before", (before or "")[:80], limit, "stale")


def _path(
    events: Sequence[Event],
    branch: str | None,
    cursor: _Cursor | None,
    before: str | None,
    *,
    is_whole: bool,
) -> tuple[Sequence[Event], bool]:
    """The events of the path that are at hand, and whether they are all of it."""
    find = _whole_path if is_whole else _tail_path
    if cursor is None:
        return find(events, branch)
    if branch is not None:
        if branch != cursor.leaf:
            raise _stale(before)
        return find(events, branch)
    path, is_rooted = find(events, None)
    place = next((at for at, event in enumerate(path) if event.id == cursor.leaf), -1)
    if place < 0 and not is_rooted:
        raise NeedsMore
    if place < 0:
        raise _stale(before)
    return path[: place + 1], is_rooted


def _whole_path(events: Sequence[Event], branch: str | None) -> tuple[Sequence[Event], bool]:
    return path_events(events, branch), True


def _tail_path(events: Sequence[Event], branch: str | None) -> tuple[Sequence[Event], bool]:
    if (found := tail_path(events, branch)) is None:
        raise NeedsMore
    return found


class Tail(Conversation):
    """The list of a path whose beginning is not at hand.

    What is there stands as in the list of all of it, or it is NeedsMore: where an entry acts on
    what stands before.
    """

    def __init__(self) -> None:
        super().__init__()
        self._has_all_items = False
        self._has_all_seen = False

    def is_all(self, *, compacted: bool) -> bool:
        """Nothing stands before what is there."""
        return self._has_all_seen if compacted else self._has_all_items

    def _place(self, place: int, name: str) -> Place:
        found = super()._place(place, name)
        if found.last is None or (found.tail is None and not self._has_all_seen):
            raise NeedsMore
        return found

    def _edit(self, place: int, payload: dict[str, Any]) -> None:
        super()._edit(place, payload)
        if "messages" in payload and not payload.get("append"):
            self._has_all_items = self._has_all_seen = True

    def _undo(self, count: int) -> None:
        if count > len(self.items) - self.kept_from and not self._has_all_seen:
            raise NeedsMore
        super()._undo(count)
        if self._has_all_seen and not self.items and not self.prefix:
            self._has_all_items = True

    def _compact(self, place: int, event: Event) -> None:
        payload = event.payload
        is_more = bool(payload.get("append"))
        if is_more and not self._has_all_seen:
            raise NeedsMore
        if "replacement" not in payload and payload["first_kept"] not in self.place_of:
            raise NeedsMore
        super()._compact(place, event)
        self._has_all_seen = True

    def with_calls(
        self,
        calls: Calls,
        unreleased: Sequence[tuple[Unreleased, dict[str, Any]]] = (),
        *,
        compacted: bool,
        begins: list[tuple[int, Item]] | None = None,
    ) -> list[dict[str, Any]]:
        """Raises NeedsMore."""
        if calls.has_recovered and not self.ends:
            raise NeedsMore  # a turn that ended before may say what is cut
        return super().with_calls(calls, unreleased, compacted=compacted, begins=begins)


def _without_unknown(
    told: list[dict[str, Any]], begins: list[tuple[int, Item]]
) -> tuple[list[dict[str, Any]], list[tuple[int, Item]]]:
    kept: list[dict[str, Any]] = []
    places = []
    for message in told:
        places.append(len(kept))
        kept += without_unknown([message])
    return kept, [(places[at], item) for at, item in begins]


def _named(
    begins: list[tuple[int, Item]], path: Sequence[Event]
) -> list[tuple[int, tuple[int, int]]]:
    """Where messages of entries stand, with each entry's seq and which of its messages it is."""
    counts: dict[int, int] = {}
    named = []
    for at, item in begins:
        index = counts[item.place] = counts.get(item.place, -1) + 1
        named.append((at, (path[item.place].seq, index)))
    return named


# --- where a page may begin ---------------------------------------------------------------------


def _begin(
    told: list[dict[str, Any]],
    named: list[tuple[int, tuple[int, int]]],
    stop: int,
    last: int,
    *,
    is_all: bool,
) -> tuple[int, tuple[int, int]] | None:
    """The last place with `last` messages behind it; None: the beginning. not is_all: messages that
    are not at hand stand before. Raises NeedsMore.
    """
    said_at, unsaid = _called_at(told)
    first_call, looked_at = stop, stop
    for at, name in reversed(named):
        if at >= stop:
            continue
        first_call = min([first_call, *(said_at[place] for place in range(at, looked_at))])
        looked_at = at
        if stop - at < last or at == 0:
            continue
        is_torn = first_call < at
        if not is_torn and not is_all and at <= unsaid < stop:
            raise NeedsMore  # its call may stand before
        if not is_torn and _parts(told, at):
            return at, name
    return None


def _called_at(told: list[dict[str, Any]]) -> tuple[list[int], int]:
    """By message, where the first call stands that it has a result of, or where it stands itself;
    and the last with a result of a call that nothing before it says, or -1.
    """
    of_id: dict[str, CallsOfId[int, int]] = {}
    unsaid = -1
    for at, message in enumerate(told):
        if message.get("role") == "assistant" and "_attempt" not in message:
            for one in calls_in(message):
                of_id.setdefault(one["id"], CallsOfId()).say(at, one.get("turn"))
        for call_id, _ in results_in(message):
            if call_id in of_id:
                of_id[call_id].answer(at)
            else:
                unsaid = at
    said_at = list(range(len(told)))
    for calls in of_id.values():
        for call, result in calls.pairs():
            said_at[result] = min(said_at[result], call)
    return said_at, unsaid


def _parts(told: list[dict[str, Any]], at: int) -> bool:
    """The message there is not sent as one with what stands before it, in any format."""
    role = told[at].get("role")
    if role not in _SAY or "_attempt" in told[at] or not _is_sent(told[at], set()):
        return False
    answered = set[str]()
    for place in range(at - 1, -1, -1):  # by index: a copy for each place that is tried adds up
        before = told[place]
        if "_attempt" in before:
            continue  # no provider is sent anything of it
        answered.update(call_id for call_id, _ in results_in(before))
        if before.get("role") in _SAY:
            break
        if before.get("role") != "tool":
            return False
    else:
        return False
    if before.get("role") != role:
        if role == "user" and not _ends_in_text(before, answered):
            return False  # results stand before it: Anthropic takes both as one
        return _is_sent(before, answered)
    answer = answer_of(told[at])
    if answer is not None and answer == answer_of(before):
        return False
    return role == "assistant" and _ends_in_calls(before) and _is_answered(before, answered)


def _is_sent(message: dict[str, Any], answered: Container[str]) -> bool:
    """A provider is sent something of it, whatever stands around it."""
    content = message.get("content")
    told = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [one.get("text") for one in told if isinstance(one, dict) and one.get("type") == "text"]
    if not message.get("_wal_cut") and any(isinstance(one, str) and one.strip() for one in texts):
        return True
    return message.get("role") == "assistant" and _is_answered(message, answered)


def _is_answered(message: dict[str, Any], answered: Container[str]) -> bool:
    """A provider is sent a call of it."""
    return any(_is_sendable(one) for one in _given(message, answered))


def _given(message: dict[str, Any], answered: Container[str]) -> list[dict[str, Any]]:
    """Its calls that go where a provider takes them: with a result."""
    return [
        one
        for one in calls_in(message)
        if "superseded_by" not in one
        if one["id"] in answered or "synthetic" in one or one.get("outcome") in _RESULTS
    ]


def _is_sendable(one: dict[str, Any]) -> bool:
    function = one.get("function")
    told = function if isinstance(function, dict) else one
    arguments = sendable_arguments(
        told.get("input" if one.get("type") == "tool_use" else "arguments")
    )
    is_named = isinstance(told.get("name"), str) and told["name"] != ""
    return is_named and "_artifact" not in arguments


def _ends_in_text(message: dict[str, Any], answered: Container[str]) -> bool:
    """No result of its calls is the last that a provider is sent of it."""
    given, content = _given(message, answered), message.get("content")
    if not given:
        return True
    if message.get("_wal_cut") or not isinstance(content, str):
        return False
    ends = [
        at if isinstance(at := one.get("at"), int) else len(content) for one in calls_in(message)
    ]
    return ends == sorted(ends) and bool(content[ends[-1] :].strip())


def _ends_in_calls(message: dict[str, Any]) -> bool:
    """No text stands behind its calls."""
    if message.get("_wal_cut"):
        return False
    content = message.get("content")
    if not isinstance(content, str):
        return False
    ends = [one.get("at") for one in calls_in(message)]
    return not content.strip() or all(at is None or at == len(content) for at in ends)
