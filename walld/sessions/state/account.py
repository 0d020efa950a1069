"""One account of each tool call, whoever spoke of it.

Owns: which words are about the same call, what became of it, what it gave. Refuses: what a message
is and where it stands (`views/messages.py`), whether a call may run again (`gate/`), which words
of a journal may come (`tools.py`).

A call is said by the model (an item of `tool_calls`, a `tool_use` block) and journalled by its
program (`tool_intent` and what follows). One of the two suffices. Two speakers mean the same call
by the first rule that holds:

1. Both name the same stream and seq of the call's first event.
2. In order, if it fits: an intent joins the oldest call of its turn and id that was said, that no
   intent has and that has no result, with the same tool and arguments that are equal as JSON; what
   the model says joins the oldest journalled call by the same test. What does not fit is another
   call: models and providers give `call_1` anew in each step.
3. Other words of the journal go to the call of the newest intent of their turn and id; where there
   is none, to the newest that was said.
4. A `tool` message or a `tool_result` block goes to the newest call of its id without a result,
   first of the same turn, then of any.

Invariants: pure, over all events by seq: what a call gave is known on every branch. A call that was
only said is unknown, since nothing says that it did not start, unless its program promised to
journal each call. A malformed word says nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from walld.sessions.state.artifacts import whole_text
from walld.sessions.state.events import Event, check_payload
from walld.sessions.state.tools import TOOL_TYPES, tool_state_of

__all__ = ["CallAccount", "Calls", "calls_in", "calls_of_events", "results_in"]

_RESULTS: Final = frozenset(("done", "failed", "timeout", "cancelled"))
_OPEN: Final = frozenset(("pending", "unknown"))
_LISTS: Final = ("messages", "replacement")
_COMPARED_MAX: Final = 64
"""Calls of one id that an utterance, an intent or an edit is compared with."""
_AS_JSON: Final = msgspec.json.Encoder(order="deterministic")


class CallAccount:
    """One call: seqs: stage -> seq of the newest word of it, intended | asked | approved | denied |
    started | ended | observed. intent: its journal's entry, None where it was only said. is_said: a
    message names it. word: how its result was called. denied_by: who denied it, and why.
    """

    __slots__ = (
        "arguments",
        "call_id",
        "denied_by",
        "given",
        "intent",
        "is_promised",
        "is_said",
        "key",
        "message",
        "name",
        "seqs",
        "settled",
        "superseded_by",
        "supersedes",
        "turn",
        "word",
    )

    def __init__(self, turn: str | None, call_id: str) -> None:
        self.turn = turn
        self.call_id = call_id
        self.name: str | None = None
        self.arguments: object = None
        self.is_said = False
        self.intent: Event | None = None
        self.is_promised = False
        """Its turn promised an intent before each run."""
        self.seqs: dict[str, int] = {}
        self.word: str | None = None
        self.message: Mapping[str, Any] | None = None
        """The application's own words for what it gave: a `tool` message, or a block of one."""
        self.given: dict[str, object] = {}
        """Speaker -> what it says the call gave."""
        self.denied_by: tuple[str, object] | None = None
        self.settled: str | None = None
        self.key: object = None
        self.supersedes: object = None
        self.superseded_by: CallAccount | None = None

    @property
    def has_result(self) -> bool:
        """A speaker said what it gave, and did not only observe it."""
        return self.word is not None

    @property
    def outcome(self) -> str:
        """The first that holds: what somebody settled; a result's word; denied, and it never
        started; observed; started: unknown; intended: pending; only said: unknown.
        """
        if self.settled is not None:
            return "done" if self.settled == "ran" else "not_run"
        if self.word is not None:
            return self.word
        seqs = self.seqs
        if "started" not in seqs and self.is_denied:
            return "denied"
        if "observed" in seqs:
            return "done"
        if "started" in seqs:
            return "unknown"
        return "pending" if self.intent is not None or self.is_promised else "unknown"

    @property
    def is_denied(self) -> bool:
        """The newest of what was decided, asked and approved is a no."""
        seqs = self.seqs
        return seqs.get("denied", 0) > max(seqs.get("approved", 0), seqs.get("asked", 0))

    @property
    def has_ended(self) -> bool:
        """Nobody is at work on it."""
        return self.outcome not in _OPEN

    def result(self) -> tuple[bool, object]:
        """Whether somebody said what it gave, and the words that go before the others."""
        for speaker in ("message", "observation", "journal", "said", "settled"):
            if speaker in self.given:
                return True, self.given[speaker]
        return False, None

    def _fits(self, name: object, arguments: object) -> bool:
        if self.name and isinstance(name, str) and name and self.name != name:
            return False
        own = self.arguments
        if own is None or arguments is None or own is arguments:
            return True
        return _same(own) == _same(arguments)


class _OfName:
    """The calls of one turn and id. intended: that of the newest intent.

    said: those without an intent and a result; journalled: those that nobody said; some of either
    may have found each other. answerable: some have a message of their result, the newest last.
    """

    __slots__ = ("answerable", "intended", "journalled", "newest", "said")

    def __init__(self) -> None:
        self.newest: CallAccount | None = None
        self.intended: CallAccount | None = None
        self.said: list[CallAccount] = []
        self.journalled: list[CallAccount] = []
        self.answerable: list[CallAccount] = []


class Calls:
    """All of a session's. turns: turn id -> the one that it retries, None for the first.

    ended: turns that have. of_item: id() of an item of a message -> its call; the events that hold
    the items must be kept as long.

    What an event costs does not grow with the calls before it: an utterance and an intent are
    compared with so many that wait, the oldest, and are else a call of their own.
    """

    def __init__(self) -> None:
        self.calls: list[CallAccount] = []
        self.turns: dict[str, str | None] = {}
        self.ended: set[str] = set()
        self.of_item: dict[int, CallAccount] = {}
        self._promises: set[str] = set()
        self._of_name: dict[tuple[str | None, str], _OfName] = {}
        self._answerable: dict[str, list[CallAccount]] = {}
        """Call id -> as of a name, of any turn."""
        self._of_id: dict[str, list[CallAccount]] = {}
        self._exact: dict[tuple[object, ...], CallAccount] = {}
        """By turn, id, and the place in a stream where the model said it."""

    def take(self, event: Event) -> None:
        """The next event."""
        take = _TAKES.get(event.type)
        if take is not None:
            take(self, event)

    def _submitted(self, event: Event) -> None:
        if event.turn is not None and event.turn not in self.turns:
            retried = event.payload.get("retry_of")
            self.turns[event.turn] = retried if isinstance(retried, str) else None
            if event.payload.get("calls") == "journal":
                self._promises.add(event.turn)

    def _ended(self, event: Event) -> None:
        self.ended.add(event.turn or "")

    def end(self) -> None:
        """There are no more: which calls later ones of the same message took the place of."""
        if any(self.turns.values()):
            _supersede(self.calls, self.turns)

    # --- what the model said ----------------------------------------------------------------------

    def _message(self, event: Event) -> None:
        payload = event.payload
        if not _speaks_of_calls(payload) or check_payload(event.type, payload) is not None:
            return
        turn = event.turn or _turn_of(payload)
        if payload["role"] == "assistant":
            self._say_all(turn, payload, is_new=True)
        for call_id, held in results_in(payload):
            call = self._answerable_call(turn, call_id)
            if call is not None:
                _give(call, "message", held)
                call.message = held
                call.seqs["ended"] = event.seq

    def _edited(self, event: Event) -> None:
        """An edit says the calls that its new form has; those happened already, where they did."""
        payload = event.payload
        if check_payload(event.type, payload) is not None:
            return
        listed = [one for name in _LISTS for one in payload.get(name, ())]
        if "message" in payload:
            listed.append(payload["message"])
        for message in listed:
            if not _speaks_of_calls(message):
                continue
            turn = event.turn or _turn_of(message)
            if message.get("role") == "assistant":
                self._say_all(turn, message, is_new=False)
            for call_id, held in results_in(message):
                if (call := self._answerable_call(turn, call_id)) is not None:
                    _give(call, "said", held)

    def _say_all(self, turn: str | None, message: Mapping[str, Any], *, is_new: bool) -> None:
        stream, step = message.get("_wal_stream"), message.get("_wal_seq")
        for place, one in enumerate(calls_in(message)):
            exact: list[tuple[object, ...]] = []
            if isinstance(stream, str):
                # Said anew by a build that gives no seq: the same place of the same step.
                if isinstance(one.get("seq"), int):
                    exact.append((turn, one["id"], stream, one["seq"]))
                if isinstance(step, int):
                    exact.append((turn, one["id"], stream, step, place))
            self.of_item[id(one)] = self._say(turn, one, exact, is_new=is_new)

    def _say(
        self,
        turn: str | None,
        one: Mapping[str, Any],
        exact: Sequence[tuple[object, ...]],
        *,
        is_new: bool,
    ) -> CallAccount:
        call_id, (name, arguments) = one["id"], _named(one)
        known = self._known(turn, call_id)
        call = None
        for told in exact:
            call = call or self._exact.get(told)
        if call is None and known.journalled:
            call = _take_fitting(known.journalled, name, arguments)
        if call is None and not is_new:
            newest = reversed(self._of_id.get(call_id, ())[-_COMPARED_MAX:])
            call = next((there for there in newest if there._fits(name, arguments)), None)
        if call is None:
            call = self._new(turn, call_id, known)
        if not call.is_said:
            call.is_said = True
            if call.intent is None:
                known.said.append(call)
        for told in exact:
            self._exact[told] = call
        if isinstance(name, str) and name:
            call.name = call.name or name
        if call.arguments is None:
            call.arguments = arguments
        if one.get("outcome") in _RESULTS and "said" not in call.given:
            call.given["said"] = one.get("result")
            call.word = call.word or one["outcome"]
        return call

    def _answerable_call(self, turn: str | None, call_id: str) -> CallAccount | None:
        """The newest of that id without a message of its result, of that turn before any other."""
        known = self._of_name.get((turn, call_id))
        for waiting in (known and known.answerable, self._answerable.get(call_id)):
            while waiting:
                if "message" not in waiting[-1].given:
                    return waiting[-1]
                waiting.pop()
        return None

    # --- what its program did ---------------------------------------------------------------------

    def _journalled(self, event: Event) -> None:
        kind, payload, turn = event.type, event.payload, event.turn
        if check_payload(kind, payload) is not None:
            return
        call_id = payload.get("call_id")
        if call_id is None and kind == "observation":
            turn, call_id = payload.get("of_turn"), payload.get("of_call")
        if call_id is None or turn is None:
            return
        call = self._journal_call(turn, call_id)
        if call is None:
            return
        stage = tool_state_of(kind, payload)
        if stage is None:
            return
        if kind == "tool_finished":
            told, is_failed = payload.get("outcome"), stage == "failed"
            stage = "ended"
            if call.word is None:
                word = told if told in _RESULTS else None
                call.word = word or ("failed" if is_failed else "done")
            call.given["journal"] = payload.get("result")
        elif kind == "observation":
            call.given["observation"] = whole_text(payload, "text") or ""
        elif stage == "denied":
            who = "A policy" if kind == "tool_decision" else "The user"
            call.denied_by = who, payload.get("reason") or payload.get("note")
        call.seqs[stage] = event.seq

    def _intend(self, event: Event) -> None:
        payload, turn = event.payload, event.turn
        if turn is None or check_payload(event.type, payload) is not None:
            return
        call_id: str = payload["call_id"]
        name, arguments, said = payload["tool"], payload.get("arguments"), payload.get("said")
        exact: tuple[object, ...] | None = None
        if isinstance(said, str) and ":" in said:
            stream, _, seq = said.rpartition(":")
            exact = (turn, call_id, stream, int(seq)) if seq.isdecimal() else None
        known = self._known(turn, call_id)
        call = None if exact is None else self._exact.get(exact)
        if call is None or call.intent is not None:
            call = _take_fitting(known.said, name, arguments)
        if call is None:
            call = self._new(turn, call_id, known)
            known.journalled.append(call)
        if exact is not None:
            self._exact.setdefault(exact, call)
        call.intent, call.name = event, name
        if arguments is not None:
            call.arguments = arguments
        call.key, call.supersedes = payload.get("key"), payload.get("supersedes")
        call.seqs["intended"] = event.seq
        known.intended = call

    def _journal_call(self, turn: str, call_id: str) -> CallAccount | None:
        """The call of the newest intent, or else the newest that was said."""
        known = self._of_name.get((turn, call_id))
        return None if known is None else known.intended or known.newest

    def _settled(self, event: Event) -> None:
        """What somebody said of a call behind its turn's end."""
        payload = event.payload
        named, word = payload.get("of"), payload.get("word")
        if not isinstance(named, dict) or not isinstance(named.get("call_id"), str):
            return
        call = self._journal_call(named.get("turn") or "", named["call_id"])
        if call is None:
            return
        if word in ("ran", "did_not_run"):
            call.settled = word
            if payload.get("result") is not None:
                call.given["settled"] = payload["result"]
        elif word == "granted":
            call.seqs["approved"] = event.seq
        elif word == "denied":
            call.seqs["denied"], call.denied_by = event.seq, ("The user", payload.get("note"))

    def _known(self, turn: str | None, call_id: str) -> _OfName:
        known = self._of_name.get((turn, call_id))
        if known is None:
            known = self._of_name[turn, call_id] = _OfName()
        return known

    def _new(self, turn: str | None, call_id: str, known: _OfName) -> CallAccount:
        call = known.newest = CallAccount(turn, call_id)
        call.is_promised = turn in self._promises
        self.calls.append(call)
        known.answerable.append(call)
        self._answerable.setdefault(call_id, []).append(call)
        self._of_id.setdefault(call_id, []).append(call)
        return call


_TAKES: Final[dict[str, Callable[[Calls, Event], None]]] = {
    **dict.fromkeys(TOOL_TYPES, Calls._journalled),
    "tool_intent": Calls._intend,
    "tool_settled": Calls._settled,
    "message": Calls._message,
    "message_edit": Calls._edited,
    "compaction": Calls._edited,
    "turn_submitted": Calls._submitted,
    "turn_completed": Calls._ended,
    "turn_interrupted": Calls._ended,
}


def calls_of_events(events: Sequence[Event]) -> Calls:
    """The calls of a session, of all its events."""
    found = Calls()
    for event in events:
        found.take(event)
    found.end()
    return found


def calls_in(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The calls that a message says: items of `tool_calls`, `tool_use` blocks; each has an id."""
    found, content = message.get("tool_calls"), message.get("content")
    if not isinstance(found, list):
        found = []
    if isinstance(content, list):
        found = found + [one for one in content if _is_block(one, "tool_use")]
    return [one for one in found if isinstance(one, dict) and isinstance(one.get("id"), str)]


def results_in(message: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Call ids with what holds their results: a `tool` message itself, or its blocks."""
    if message.get("role") == "tool":
        for name in ("tool_call_id", "tool_use_id", "call_id", "id"):
            if isinstance(given := message.get(name), str):
                yield given, message
                return
    content = message.get("content")
    if isinstance(content, list):
        for block in content:
            if _is_block(block, "tool_result") and isinstance(block.get("tool_use_id"), str):
                yield block["tool_use_id"], block


def _take_fitting(
    waiting: list[CallAccount], name: object, arguments: object
) -> CallAccount | None:
    """The oldest that fits; it waits no more, as those with a result, or that another found."""
    place = 0
    while place < len(waiting) and place < _COMPARED_MAX:
        call = waiting[place]
        is_joined = call.is_said and call.intent is not None
        if is_joined or (call.intent is None and call.has_result):
            del waiting[place]
        elif call._fits(name, arguments):
            del waiting[place]
            return call
        else:
            place += 1
    return None


def _supersede(calls: Sequence[CallAccount], turns: Mapping[str, str | None]) -> None:
    """Open calls that later ones took the place of, in a later turn of the same user message.

    By equal tools and arguments, by an equal key, or by name. One that may have run is closed by
    one that started, the others by an intent; one that was denied closes nothing.
    """
    first: dict[str, str] = {}
    of_turn: dict[str, list[CallAccount]] = {}
    for turn, retried in turns.items():
        first[turn] = turn if retried is None else first.get(retried, retried)
    for call in calls:
        if call.turn in first:
            of_turn.setdefault(call.turn, []).append(call)
    pending: dict[object, list[CallAccount]] = {}
    unknown: dict[object, list[CallAccount]] = {}
    for turn, chain in first.items():
        listed = of_turn.get(turn, ())
        for later in listed:
            if later.intent is None or later.is_denied:
                continue
            has_run = "started" in later.seqs or later.has_result
            for name in (*_found_by(later), ("named", later.supersedes)):
                for there in (pending, unknown) if has_run else (pending,):
                    for call in there.pop((chain, *name), ()):
                        call.superseded_by = call.superseded_by or later
        for call in listed:
            if (outcome := call.outcome) in _OPEN:
                there = unknown if outcome == "unknown" else pending
                for name in (*_found_by(call), ("named", call.call_id)):
                    there.setdefault((chain, *name), []).append(call)


def _found_by(call: CallAccount) -> Iterator[tuple[object, ...]]:
    yield "call", call.name, _same(call.arguments)
    if isinstance(call.key, str) and call.key:
        yield "key", call.key


def _turn_of(message: Mapping[str, Any]) -> str | None:
    turn = message.get("_turn")
    return turn if isinstance(turn, str) else None


def _speaks_of_calls(message: Mapping[str, Any]) -> bool:
    is_tool = message.get("role") == "tool" or bool(message.get("tool_calls"))
    return is_tool or isinstance(message.get("content"), list)


def _is_block(block: object, kind: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind


def _give(call: CallAccount, speaker: str, held: Mapping[str, Any]) -> None:
    call.given[speaker] = held.get("content")
    is_failed = held.get("is_error") is True or held.get("outcome") == "failed"
    call.word = call.word or ("failed" if is_failed else "done")


def _named(one: Mapping[str, Any]) -> tuple[object, object]:
    """The name and the arguments of a call that a message says."""
    function = one.get("function")
    told = function if isinstance(function, dict) else one
    return told.get("name"), told.get("input" if one.get("type") == "tool_use" else "arguments")


def _same(arguments: object) -> object:
    """Equal for arguments that are equal as JSON."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return arguments
    try:
        return _AS_JSON.encode(arguments)
    except (ValueError, OverflowError, RecursionError):
        pass  # half a character, a number beyond 64 bits
    try:
        return json.dumps(arguments, sort_keys=True)
    except (ValueError, RecursionError):
        return id(arguments)
