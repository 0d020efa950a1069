"""The conversation a path tells: its messages, as edits, undos and compactions left them.

Owns: what each entry on a path does to the list. Refuses: which path (`path.py`), what is said of
calls (`call_results.py`), what a provider takes (the client's `provider.py`).

A reply that is not in the session yet stands in its turn: behind the turn's last entry before the
next submission on the path. So does a recovered one that was appended behind that submission. The
first are no entries: they go when the entry before them goes, and nothing counts or edits them.
What an undo took so stays gone, also once it is adopted.

Invariants: pure; events are never lost to a compaction, which changes only what is seen. An undo
counts messages as they were seen at its place: one that takes a summary off takes what the summary
stood for. A message of a reply that was said anew stands where it first stood; one that was undone
or edited meanwhile stays as that left it. Where the id of one message's entry is the message id of
another, it names the first. A stream id that two turns have is two replies. What was
learnt on a branch that was left (its summary) is told as the user's. An entry whose payload is
malformed does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from walld_client.recovered.provider import FORMATS, in_format

from walld.sessions.gate.processes import NamedProcess, seen
from walld.sessions.state.account import Calls, Unreleased, calls_of_events, results_in
from walld.sessions.state.artifacts import whole_text
from walld.sessions.state.call_account import CallAccount
from walld.sessions.state.errors import BadArgument
from walld.sessions.state.events import Event, check_payload, declared_message
from walld.sessions.state.path import path_events
from walld.sessions.views.call_results import (
    journal_messages,
    messages_of_gone_replies,
    with_results,
    without_unknown,
)

__all__ = [
    "UNKNOWN_WORDS",
    "Conversation",
    "Fate",
    "Item",
    "Place",
    "check_words",
    "edit_target",
    "fates",
    "messages",
    "submitted_message",
    "tell",
    "undone",
]

UNKNOWN_WORDS: Final = ("say", "drop")
"""What is done with calls of which nobody knows whether they ran."""


def messages(
    events: Sequence[Event],
    format: str = "plain",  # noqa: A002
    branch: str | None = None,
    compacted: bool = True,
    unknown: str = "say",
    unreleased: Sequence[Unreleased] = (),
    processes: Mapping[NamedProcess, str] | None = None,
) -> list[dict[str, Any]] | None:
    """The messages on the path to the leaf, or to entry `branch`; None of no events at all.

    compacted: False shows what compactions hide. unknown: "drop" leaves out calls that may have run
    or still run and of which nobody said more. unreleased: the session's, in order of their
    beginning. processes: of those that starts name, running or gone. A provider's format is of the
    events alone: what stands beside the session is its beginning there, so the client renders what
    it has read.
    Raises BadArgument.
    """
    check_words(format, unknown)
    if not events:
        return None
    path = path_events(events, branch)
    told = tell(Conversation(), events, path, unreleased, compacted=compacted, processes=processes)
    return in_format(without_unknown(told) if unknown == "drop" else told, format)


def check_words(format: str, unknown: str) -> None:  # noqa: A002
    """Raises BadArgument for a word that `messages` does not know."""
    if format not in FORMATS:
        raise BadArgument("format", format, " | ".join(FORMATS))
    if unknown not in UNKNOWN_WORDS:
        raise BadArgument("unknown", unknown, " | ".join(UNKNOWN_WORDS))


def tell(
    conversation: Conversation,
    events: Sequence[Event],
    path: Sequence[Event],
    unreleased: Sequence[Unreleased],
    *,
    compacted: bool,
    begins: list[tuple[int, Item]] | None = None,
    processes: Mapping[NamedProcess, str] | None = None,
) -> list[dict[str, Any]]:
    """The plain messages of a path. conversation: an empty one. begins: is given the place of each
    message that an entry said; the others stand behind one of those.
    """
    calls = calls_of_events(events, unreleased)
    if processes:
        calls.look(lambda call: seen(call, processes) == "running")
    gone = messages_of_gone_replies(calls) if calls.has_gone_replies else []
    placed = {reply.turn for reply in (*unreleased, *(one for one, _ in gone))}
    if calls.has_recovered:
        placed |= _recovered_turns(conversation, path)
    _walk(conversation, path, placed)
    if calls.calls or placed:
        said = [*(_not_there(unreleased, events) if unreleased else ()), *gone]
        return conversation.with_calls(calls, said, compacted=compacted, begins=begins)
    if begins is not None:
        begins += enumerate(conversation.listed(compacted=compacted))
    return conversation.seen() if compacted else conversation.whole()


def _walk(
    conversation: Conversation, path: Sequence[Event], placed: Collection[str | None]
) -> None:
    """placed: turns in which replies stand, recovered ones too."""
    if not placed:
        for place, event in enumerate(path):
            conversation.take(place, event)
        return
    for place, event in enumerate(path):
        conversation.take(place, event)
        conversation.note(place, event, placed)


def _recovered_turns(conversation: Conversation, path: Sequence[Event]) -> set[str | None]:
    """Turns of recovered messages that were appended; the conversation is told of their streams."""
    recovered = _recovered_streams(path)
    if not recovered:
        return set()
    conversation.turn_of = _turns_of_streams(path)
    turns = (turn or conversation.turn_of.get(stream) for turn, stream in recovered)
    return {turn for turn in turns if turn is not None}


def _recovered_streams(path: Sequence[Event]) -> set[tuple[str | None, str]]:
    """Turn, where they say it, and stream of the recovered messages that were appended."""
    return {
        (event.turn or _turn_of(event.payload), str(event.payload.get("_wal_stream")))
        for event in path
        if event.type == "message" and event.payload.get("_wal_recovered")
    }


def _turns_of_streams(path: Sequence[Event]) -> dict[str, str | None]:
    return {
        str(event.payload.get("stream_id")): event.turn
        for event in path
        if event.type == "turn_assistant_started"
    }


def _not_there(
    unreleased: Sequence[Unreleased], events: Sequence[Event]
) -> list[tuple[Unreleased, dict[str, Any]]]:
    """What no entry says of what replies say. A text that may go on is told to be cut."""
    there = {_reply_of(event.payload) for event in events if event.type == "message"}
    found = []
    for reply in unreleased:
        for message in reply.messages:
            if _reply_of(message) not in there:
                is_cut = message is reply.messages[-1] and not reply.has_ended
                told = {"_turn": reply.turn} | ({"_wal_cut": True} if is_cut else {})
                found.append((reply, message | told))
    return found


class Fate(NamedTuple):
    """What became of a message. gone: "undone", "replaced" by a whole list, or "" where it stands.
    edited: what took its place.
    """

    gone: str
    edited: dict[str, Any] | None


def fates(events: Sequence[Event]) -> dict[str, Fate]:
    """By the ids of their entries, those on the path to the leaf that do not stand as they were
    said. What a compaction hides does stand.
    """
    conversation = Conversation()
    items: dict[str, Item] = {}
    path = path_events(events) if events else []
    placed = _recovered_turns(conversation, path)
    for place, event in enumerate(path):
        conversation.take(place, event)
        conversation.note(place, event, placed)
        if event.type in ("message", "turn_submitted"):
            for item in conversation.by_id.get(event.id, ()):
                items[event.id] = item
    return {
        id_: Fate(item.gone, item.message if item.edited else None)
        for id_, item in items.items()
        if item.gone or item.edited
    }


def undone(events: Sequence[Event]) -> frozenset[str]:
    """Ids of the entries whose messages an undo on the path took off."""
    if not any(event.type == "undo" for event in events):
        return frozenset()
    return frozenset(id_ for id_, fate in fates(events).items() if fate.gone == "undone")


def edit_target(
    events: Sequence[Event],
    of: str = "",
    role: bool = False,
) -> dict[str, str] | None:
    """What an edit at the leaf changes that names message `of`; None of no events at all. role: of
    the message, too.

    target: what its entry is to name, and message_id beside it where the message has no entry of
    its own. why: what it would have to name, for it would change nothing. What is the name of
    nothing on the path is given back as it is.
    """
    if not events:
        return None
    conversation = Conversation()
    path = path_events(events)
    _walk(conversation, path, _recovered_turns(conversation, path))
    items = conversation.named(of)
    told = {id(item) for item in (*conversation.items, *conversation.prefix)}
    if items and not any(id(item) in told for item in items):
        return {"why": "a message that was not undone"}
    if items:
        said = path[items[-1].place]
        has_role = {"role": str(items[-1].message.get("role"))} if role else {}
        is_id = any(event.id == of for event in events)
        if of in conversation.by_id or (said.type == "turn_submitted" and not is_id):
            return {"target": of} | has_role
        return {"target": said.id, "message_id": of} | has_role
    known = [event for event in path if event.id == of or _message_id_of(event) == of]
    if known and known[-1].type in _MESSAGES:
        return {"why": "a message that no whole list took the place of"}
    return {"why": f"a message, no {known[-1].type}"} if known else {"target": of}


def _message_id_of(event: Event) -> object:
    name = "message_id" if event.type == "turn_submitted" else "_message_id"
    return event.payload.get(name) if event.type in _MESSAGES else None


def submitted_message(event: Event) -> dict[str, Any]:
    """The user message of a turn_submitted."""
    payload = event.payload
    message = {"role": "user", "content": payload.get("content")}
    if payload.get("attachments"):
        message["attachments"] = payload["attachments"]
    return message | {"_turn": event.turn, "_message_id": payload.get("message_id")}


class Item:
    """A message of the list. place: of its entry on the path. gone: why it is there no more.

    of_turn: the turn in which it stands, where it was recovered and appended later.
    """

    __slots__ = ("edited", "gone", "message", "of_turn", "place")

    def __init__(self, place: int, message: dict[str, Any]) -> None:
        self.place = place
        self.message = message
        self.edited = False
        self.gone = ""
        self.of_turn: str | None = None


class Place(NamedTuple):
    """Of an intent on the path, or the last entry of a turn. tail: the message it stands behind, of
    what is seen; last: of all.
    """

    place: int
    id: str
    tail: Item | None
    last: Item | None


class Conversation:
    """The list while a path is walked. What is seen: `prefix`, then `items` from `kept_from`."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.prefix: list[Item] = []
        self.kept_from = 0
        self.by_id: dict[str, list[Item]] = {}
        """Entry id -> its items."""
        self.by_message_id: dict[str, list[Item]] = {}
        self.by_reply: dict[tuple[object, object], dict[str | None, Item]] = {}
        """By turn; None: it does not say of which."""
        self.place_of: dict[str, int] = {}
        self.intents: list[Place] = []
        self.turn: str | None = None
        """The one that was submitted last."""
        self.ends: dict[str, Place] = {}
        """The last entry of a turn before the next was submitted."""
        self.turn_of: dict[str, str | None] = {}
        """Stream -> the turn that it is a reply of."""
        self.starts: dict[str, int] = {}
        """Stream -> where a turn's reply began."""
        self.undone: dict[str, int] = {}
        """Turn -> up to where its replies had begun when an undo took the entry before them."""
        self.kept_place = 0
        """Of the first entry that the last compaction kept."""

    def listed(self, *, compacted: bool) -> list[Item]:
        """What is seen, or all."""
        return [*self.prefix, *self.items[self.kept_from :]] if compacted else self.items

    def seen(self) -> list[dict[str, Any]]:
        """The messages that are seen."""
        return [item.message for item in (*self.prefix, *self.items[self.kept_from :])]

    def whole(self) -> list[dict[str, Any]]:
        """All messages, also those that a compaction hides."""
        return [item.message for item in self.items]

    def with_calls(
        self,
        calls: Calls,
        unreleased: Sequence[tuple[Unreleased, dict[str, Any]]] = (),
        *,
        compacted: bool,
        begins: list[tuple[int, Item]] | None = None,
    ) -> list[dict[str, Any]]:
        """What is seen, or all, with the results of calls, the calls that no message names, and
        messages of replies.

        Those go with the message before them. They are no entries: nothing counts them.
        """
        prefix = self.prefix if compacted else []
        items = [*prefix, *self.items[self.kept_from if compacted else 0 :]]
        by_intent = {
            call.intent.id: call
            for call in calls.calls
            if call.intent is not None and not call.is_said
        }
        behind: dict[int, list[_Behind]] = {}
        is_placed = bool(by_intent) or bool(self.ends)
        standing = {id(item) for item in items} if is_placed else set[int]()

        def tail_of(one: Place) -> int | None:
            """The message it stands behind, by id(); None where that is not seen."""
            tail = one.tail if compacted else one.last
            if tail is None and compacted and one.place < self.kept_place:
                return None  # it stood before all that the compaction kept
            if tail is not None and id(tail) not in standing:
                is_kept = bool(prefix) and one.place >= self.kept_place and not tail.gone
                if not is_kept:
                    return None
                tail = prefix[-1]
            return id(tail)

        for one in self.intents if by_intent else ():
            call = by_intent.get(one.id)
            if call is not None and (tail := tail_of(one)) is not None:
                behind.setdefault(tail, []).append((one.place, call))
        if self.ends:
            items = self._placed(items, unreleased, tail_of, behind, calls)
        told = _told_behind(behind.get(id(None), ()), calls)
        answers = {
            at: held
            for at, item in enumerate(items)
            if item.message.get("role") != "assistant"
            and (held := [id(one) for _, one in results_in(item.message)])
        }
        shown = {one for held in answers.values() for one in held}
        for at, item in enumerate(items):
            message = item.message
            is_said = message.get("role") == "assistant"
            if begins is not None:
                begins.append((len(told), item))
            told.append(with_results(message, calls, shown) if is_said else message)
            if at in answers:
                shown.difference_update(answers[at])  # for calls behind it, it is in no list
            if behind and (named := behind.get(id(item))) is not None:
                told += _told_behind(named, calls)
        return told

    def _placed(
        self,
        items: list[Item],
        unreleased: Sequence[tuple[Unreleased, dict[str, Any]]],
        tail_of: Callable[[Place], int | None],
        behind: dict[int, list[_Behind]],
        calls: Calls,
    ) -> list[Item]:
        """Messages of replies to where their turns end; the items that stay where they are."""
        retried = set(calls.turns.values())
        stay: list[Item] = []
        said: list[tuple[str, object, dict[str, Any]]] = []
        for item in items:
            message = item.message
            turn = item.of_turn or _turn_of(message)
            is_cut = message.get("_wal_recovered") and message.get("_partial")
            if is_cut and turn is not None and turn in retried:
                message = item.message = message | {"_wal_cut": True}
            end = None if item.of_turn is None else self.ends.get(item.of_turn)
            if item.of_turn is None or end is None or tail_of(end) is None:
                stay.append(item)
            else:
                said.append((item.of_turn, message.get("_wal_stream"), message))
        said += [
            (turn, reply.stream_id, message)
            for reply, message in unreleased
            if not self._is_undone(turn := reply.turn or "", reply.stream_id)
        ]
        last = len(self.place_of)
        said.sort(key=lambda one: self.starts.get(str(one[1]), last))
        for turn, _, message in said:
            end = self.ends.get(turn)
            if end is not None and (tail := tail_of(end)) is not None:
                behind.setdefault(tail, []).append((end.place, message))
        for listed in behind.values():
            listed.sort(key=lambda one: (one[0], isinstance(one[1], dict)))
        return stay

    def note(self, place: int, event: Event, placed: Container[str | None]) -> None:
        """The entry that was taken last, in whose turn replies may stand."""
        kind, turn = event.type, event.turn
        if kind == "turn_submitted":
            self.turn = turn
        if turn is None or turn not in placed:
            return
        if kind == "turn_assistant_started":
            self.starts.setdefault(str(event.payload.get("stream_id")), place)
        is_said = kind == "message" and event.payload.get("_wal_recovered")
        if turn == self.turn and kind != "tool_settled" and not is_said:
            self.ends[turn] = self._place(place, "")

    def _place(self, place: int, name: str) -> Place:
        count = len(self.items)
        while count and self.items[count - 1].of_turn is not None:
            count -= 1  # it stands elsewhere
        last = self.items[count - 1] if count else None
        is_hidden = count <= self.kept_from
        tail = (self.prefix[-1] if self.prefix else None) if is_hidden else last
        return Place(place, name, tail, last)

    def take(self, place: int, event: Event) -> None:
        """The next entry of the path."""
        self.place_of[event.id] = place
        kind, payload = event.type, event.payload
        if kind == "tool_intent":
            self.intents.append(self._place(place, event.id))
            return
        if kind not in _SAID:
            if (declared := declared_message(event)) is not None:
                self._say(place, event.id, declared)
            return
        if check_payload(kind, payload) is not None:
            return
        if kind == "message":
            self._say(place, event.id, payload)
            if (self.ends or self.undone) and payload.get("_wal_recovered"):
                self._recover(event, self.by_id[event.id][-1], place)
        elif kind == "turn_submitted":
            if payload.get("retry_of") is None:
                self._say(place, event.id, submitted_message(event))
        elif kind == "branch_summary":
            if payload["text"]:
                content = whole_text(payload, "text")
                told = {"role": "user", "content": content, "_branch_summary": event.id}
                self._say(place, event.id, told)
        elif kind == "message_edit":
            self._edit(place, payload)
        elif kind == "undo":
            self._undo(payload["n"])
        else:
            self._compact(place, event)

    def _recover(self, event: Event, item: Item, place: int) -> None:
        """What was adopted stands where it stood as a reply, or is undone as that was."""
        stream = str(event.payload.get("_wal_stream"))
        turn = event.turn or _turn_of(event.payload) or self.turn_of.get(stream)
        if item.place != place or turn is None:
            return  # it was said before
        if self._is_undone(turn, stream):
            _go(self.items, "undone", len(self.items) - 1)
        elif turn != self.turn and turn in self.ends:
            item.of_turn = turn

    def _is_undone(self, turn: str, stream: str) -> bool:
        return self.starts.get(stream, 0) < self.undone.get(turn, 0)

    def _say(self, place: int, entry_id: str, message: dict[str, Any]) -> None:
        item = self._said_before(message)
        if item is None:
            item = self._item(place, message)
            self.items.append(item)
        else:
            self._know(item, message)
            if not item.edited:
                item.message = message
        self.by_id.setdefault(entry_id, []).append(item)

    def _item(self, place: int, message: dict[str, Any]) -> Item:
        item = Item(place, message)
        message_id = message.get("_message_id")
        if isinstance(message_id, str):
            self.by_message_id.setdefault(message_id, []).append(item)
        self._know(item, message)
        return item

    def _know(self, item: Item, message: dict[str, Any]) -> None:
        """It stands for that step of that reply from now on, the newest last."""
        if (reply := _reply_of(message)) is None:
            return
        of_turns = self.by_reply.setdefault(reply, {})
        turn = _turn_of(message)
        for known, other in list(of_turns.items()):
            if other is item:
                del of_turns[known]
                turn = turn or known
        of_turns.pop(turn, None)
        of_turns[turn] = item

    def _said_before(self, message: dict[str, Any]) -> Item | None:
        """The item of the same step of the same reply, where there is one."""
        reply = _reply_of(message)
        of_turns = {} if reply is None else self.by_reply.get(reply, {})
        turn = _turn_of(message)
        if turn is None:
            return next(reversed(of_turns.values()), None)
        return of_turns.get(turn) or of_turns.get(None)

    def named(self, name: str, message_id: object = None) -> Sequence[Item]:
        """What the entry of that id said, or else what goes by that message id.

        message_id: the one that is meant; `name` is then the entry that holds it.
        """
        if isinstance(message_id, str):
            return self.by_message_id.get(message_id, ())
        return self.by_id.get(name, self.by_message_id.get(name, ()))

    def _edit(self, place: int, payload: dict[str, Any]) -> None:
        if "messages" in payload:
            if not payload.get("append"):
                self.by_id.clear()
                self.by_message_id.clear()
                _go(self.items, "replaced")
                self.intents.clear()
                self.ends.clear()
                self.prefix, self.items, self.kept_from = [], [], 0
            self.items += [self._item(place, message) for message in payload["messages"]]
            return
        for item in self.named(payload["target"], payload.get("message_id")):
            item.message = payload["message"]
            item.edited = True

    def _undo(self, count: int) -> None:
        kept = len(self.items) - self.kept_from
        if count <= kept:
            _go(self.items, "undone", len(self.items) - count)
            self._undo_replies()
            return
        _go(self.items, "undone", self.kept_from)
        del self.prefix[max(len(self.prefix) - (count - kept), 0) :]
        if not self.prefix:
            _go(self.items, "undone")
        self._undo_replies()
        if not self.prefix:
            self.intents.clear()
            self.ends.clear()
            self.kept_from = 0

    def _undo_replies(self) -> None:
        """Those that stand behind what was undone go with it, whatever comes of their turn."""
        for turn, end in self.ends.items():
            if end.last is not None and end.last.gone:
                self.undone[turn] = len(self.place_of)

    def _compact(self, place: int, event: Event) -> None:
        payload = event.payload
        if "replacement" in payload:
            said, self.kept_from = _marked(payload, event.id), len(self.items)
            self.kept_place = place
        else:
            content = whole_text(payload, "summary")
            said = [{"role": "user", "content": content, "_compaction": event.id}]
            self.kept_from = self._place_in_items(payload["first_kept"])
            self.kept_place = self.place_of.get(payload["first_kept"], place)
        added = [Item(place, message) for message in said]
        self.prefix = [*self.prefix, *added] if payload.get("append") else added
        if "replacement" not in payload:
            self.by_id[event.id] = added
        for item in added:
            message_id = item.message.get("_message_id")
            if isinstance(message_id, str):
                self.by_message_id.setdefault(message_id, []).append(item)

    def _place_in_items(self, name: str) -> int:
        """The first item at or behind an entry of the path or a message; the end for any other."""
        place = self.place_of.get(name)
        if place is None:
            place = min((item.place for item in self.named(name)), default=None)
        if place is None:
            return len(self.items)
        low, high = 0, len(self.items)
        while low < high:
            middle = (low + high) // 2
            if self.items[middle].place < place:
                low = middle + 1
            else:
                high = middle
        return low


_MESSAGES: Final = frozenset(("message", "turn_submitted", "branch_summary", "compaction"))
_SAID: Final = frozenset(
    ("message", "turn_submitted", "message_edit", "undo", "compaction", "branch_summary")
)


_Behind: TypeAlias = "tuple[int, CallAccount | dict[str, Any]]"
"""A call that only its journal names, or a reply's message, with its place on the path."""


def _told_behind(placed: Sequence[_Behind], calls: Calls) -> list[dict[str, Any]]:
    """As messages. Calls share one where nothing stands between."""
    told: list[dict[str, Any]] = []
    named: list[CallAccount] = []
    for _, one in placed:
        if not isinstance(one, dict):
            named.append(one)
            continue
        told += journal_messages(named, calls)
        told.append(with_results(one, calls))
        named = []
    return told + journal_messages(named, calls)


def _go(items: list[Item], why: str, begin: int = 0) -> None:
    """Those from there on are in the list no more."""
    for item in items[begin:]:
        item.gone = why
    del items[begin:]


def _marked(payload: dict[str, Any], entry_id: str) -> list[dict[str, Any]]:
    """A compaction's replacement; the message in it that is its summary says so."""
    summary, said = payload.get("summary"), payload["replacement"]
    mark = {"_compaction": entry_id}
    return [mark | one if summary and one.get("content") == summary else one for one in said]


def _turn_of(message: dict[str, Any]) -> str | None:
    turn = message.get("_turn")
    return turn if isinstance(turn, str) else None


def _reply_of(message: dict[str, Any]) -> tuple[object, object] | None:
    """Which step of which reply a message is, None where it is of none."""
    stream_id, seq = message.get("_wal_stream"), message.get("_wal_seq")
    if isinstance(stream_id, str) and isinstance(seq, int):
        return stream_id, seq
    return None
