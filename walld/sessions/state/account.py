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
3. Other words of the journal go to the newest call of their turn and id that has an intent; where
   none has, to the newest.
4. A `tool` message or a `tool_result` block goes to the newest call of its id without a result,
   first of the same turn, then of any.

Invariants: pure, over all events by seq: what a call gave is known on every branch. A call that was
only said is unknown, since nothing says that it did not start, unless its program promised to
journal each call. A malformed word says nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from walld.sessions.state.artifacts import whole_text
from walld.sessions.state.events import Event, check_payload
from walld.sessions.state.tools import TOOL_TYPES, tool_state_of

__all__ = ["CallAccount", "Calls", "calls_in", "calls_of_events", "results_in"]

_RESULTS: Final = frozenset(("done", "failed", "timeout", "cancelled"))
_OPEN: Final = frozenset(("pending", "unknown"))
_LISTS: Final = ("messages", "replacement")


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
        "name",
        "names",
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
        self.names: set[tuple[object, object]] = set()
        """(stream, seq) of its first event, as speakers gave them."""
        self.is_said = False
        self.intent: Event | None = None
        self.is_promised = False
        """Its turn promised an intent before each run."""
        self.seqs: dict[str, int] = {}
        self.word: str | None = None
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
        if self.arguments is None or arguments is None:
            return True
        return _same(self.arguments) == _same(arguments)


class Calls:
    """All of a session's. turns: turn id -> the one that it retries, None for the first.

    ended: turns that have. of_item: id() of an item of a message -> its call; the events that hold
    the items must be kept as long.
    """

    def __init__(self) -> None:
        self.calls: list[CallAccount] = []
        self.turns: dict[str, str | None] = {}
        self.ended: set[str] = set()
        self.of_item: dict[int, CallAccount] = {}
        self._promises: set[str] = set()
        self._by_name: dict[tuple[str | None, str], list[CallAccount]] = {}
        self._by_id: dict[str, list[CallAccount]] = {}

    def take(self, event: Event) -> None:
        """The next event."""
        kind = event.type
        if kind == "message":
            if _speaks_of_calls(event.payload) and check_payload(kind, event.payload) is None:
                self._said(event.turn, event.payload, event.seq)
        elif kind in TOOL_TYPES:
            if check_payload(kind, event.payload) is None:
                self._journalled(event)
        elif kind == "turn_submitted":
            if event.turn is not None and event.turn not in self.turns:
                retried = event.payload.get("retry_of")
                self.turns[event.turn] = retried if isinstance(retried, str) else None
                if event.payload.get("calls") == "journal":
                    self._promises.add(event.turn)
        elif kind in ("turn_completed", "turn_interrupted"):
            self.ended.add(event.turn or "")
        elif kind == "tool_settled":
            self._settled(event)
        elif kind in ("message_edit", "compaction"):
            self._edited(event)

    def end(self) -> None:
        """There are no more: which calls later ones of the same message took the place of."""
        open_: dict[tuple[object, object], list[CallAccount]] = {}
        for call in self.calls:
            if call.outcome in _OPEN and call.turn in self.turns:
                for name in self._found_by(call):
                    open_.setdefault(name, []).append(call)
        if not open_:
            return
        for later in self.calls:
            if later.intent is None or later.turn is None or later.is_denied:
                continue
            for name in self._found_by(later):
                for call in open_.get(name, ()):
                    self._supersede(call, later)
            named = later.supersedes
            for call in self._by_id.get(named, ()) if isinstance(named, str) else ():
                if call.outcome in _OPEN:
                    self._supersede(call, later)

    def _supersede(self, call: CallAccount, later: CallAccount) -> None:
        may_have_run = call.outcome == "unknown"
        if may_have_run and "started" not in later.seqs and not later.has_result:
            return
        if call.superseded_by is None and self._is_earlier(call.turn, later.turn):
            call.superseded_by = later

    @staticmethod
    def _found_by(call: CallAccount) -> Iterator[tuple[object, object]]:
        yield call.name, _same(call.arguments)
        if isinstance(call.key, str) and call.key:
            yield "\0key", call.key

    def _is_earlier(self, turn: str | None, later: str | None) -> bool:
        """The one is retried by the other, at once or by way of others."""
        seen = set[str]()
        at = self.turns.get(later or "")
        while at is not None and at not in seen:
            if at == turn:
                return True
            seen.add(at)
            at = self.turns.get(at)
        return False

    # --- what the model said ----------------------------------------------------------------------

    def _said(self, turn: str | None, message: Mapping[str, Any], seq: int) -> None:
        told = message.get("_turn")
        turn = turn or (told if isinstance(told, str) else None)
        stream = message.get("_wal_stream")
        if message.get("role") == "assistant":
            for one in calls_in(message):
                self.of_item[id(one)] = self._say(turn, one, stream, is_new=True)
        for call_id, held in results_in(message):
            self._answer(turn, call_id, held, seq)

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
            told = message.get("_turn")
            turn = event.turn or (told if isinstance(told, str) else None)
            if message.get("role") == "assistant":
                for one in calls_in(message):
                    stream = message.get("_wal_stream")
                    self.of_item[id(one)] = self._say(turn, one, stream, is_new=False)
            for call_id, held in results_in(message):
                if (call := self._open_call(turn, call_id)) is not None:
                    _give(call, "said", held)

    def _say(
        self, turn: str | None, one: Mapping[str, Any], stream: object, *, is_new: bool
    ) -> CallAccount:
        call_id, (name, arguments) = str(one["id"]), _named(one)
        exact = (stream, one["seq"]) if isinstance(one.get("seq"), int) and stream else None
        call = self._meant(turn, call_id, name, arguments, exact, is_new=is_new)
        call.is_said = True
        if exact is not None:
            call.names.add(exact)
        if isinstance(name, str) and name:
            call.name = call.name or name
        if call.arguments is None:
            call.arguments = arguments
        if one.get("outcome") in _RESULTS and "said" not in call.given:
            call.given["said"] = one.get("result")
            call.word = call.word or one["outcome"]
        return call

    def _meant(
        self,
        turn: str | None,
        call_id: str,
        name: object,
        arguments: object,
        exact: tuple[object, object] | None,
        *,
        is_new: bool,
    ) -> CallAccount:
        known = self._by_name.get((turn, call_id), [])
        if exact is not None:
            for call in known:
                if exact in call.names:
                    return call
        for call in known:
            if not call.is_said and call._fits(name, arguments):
                return call
        if not is_new:
            anywhere: list[CallAccount] = [*self._by_id.get(call_id, ()), *known]
            for call in reversed(anywhere):
                if call._fits(name, arguments):
                    return call
        return self._new(turn, call_id)

    def _answer(self, turn: str | None, call_id: str, held: Mapping[str, Any], seq: int) -> None:
        """The application's own words for what a call gave."""
        call = self._open_call(turn, call_id)
        if call is not None:
            _give(call, "message", held)
            call.seqs["ended"] = seq

    def _open_call(self, turn: str | None, call_id: str) -> CallAccount | None:
        """The newest of that id without a message of its result, of that turn before any other."""
        for known in (self._by_name.get((turn, call_id), ()), self._by_id.get(call_id, ())):
            for call in reversed(known):
                if "message" not in call.given:
                    return call
        return None

    # --- what its program did ---------------------------------------------------------------------

    def _journalled(self, event: Event) -> None:
        payload, turn = event.payload, event.turn
        call_id = payload.get("call_id")
        if call_id is None and event.type == "observation":
            turn, call_id = payload.get("of_turn"), payload.get("of_call")
        if not isinstance(call_id, str) or not isinstance(turn, str):
            return
        if event.type == "tool_intent":
            self._intend(event, turn, call_id)
            return
        call = self._journal_call(turn, call_id)
        if call is None:
            return
        stage = tool_state_of(event.type, payload)
        if stage is None:
            return
        if stage in ("finished", "failed"):
            stage = "ended"
            told = payload.get("outcome")
            word = told if told in _RESULTS else None
            call.word = call.word or word or ("failed" if payload.get("failed") else "done")
            call.given["journal"] = payload.get("result")
        elif stage == "observed":
            call.given["observation"] = whole_text(payload, "text") or ""
        elif stage == "denied":
            who = "A policy" if event.type == "tool_decision" else "The user"
            call.denied_by = who, payload.get("reason") or payload.get("note")
        call.seqs[stage] = event.seq

    def _intend(self, event: Event, turn: str, call_id: str) -> None:
        payload = event.payload
        name, arguments, said = payload["tool"], payload.get("arguments"), payload.get("said")
        known = self._by_name.get((turn, call_id), [])
        exact = None
        if isinstance(said, str) and ":" in said:
            stream, _, seq = said.rpartition(":")
            exact = (stream, int(seq)) if seq.isdecimal() else None
        free = [one for one in known if one.intent is None]
        call = next((one for one in free if exact is not None and exact in one.names), None)
        if call is None:
            fitting = (one for one in free if not one.has_result and one._fits(name, arguments))
            call = next(fitting, None) or self._new(turn, call_id)
        if exact is not None:
            call.names.add(exact)
        call.intent, call.name = event, name
        if arguments is not None:
            call.arguments = arguments
        call.key, call.supersedes = payload.get("key"), payload.get("supersedes")
        call.seqs["intended"] = event.seq

    def _journal_call(self, turn: str, call_id: str) -> CallAccount | None:
        known = self._by_name.get((turn, call_id), [])
        newest = known[-1] if known else None
        return next((one for one in reversed(known) if one.intent is not None), newest)

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

    def _new(self, turn: str | None, call_id: str) -> CallAccount:
        call = CallAccount(turn, call_id)
        call.is_promised = turn in self._promises
        self.calls.append(call)
        self._by_name.setdefault((turn, call_id), []).append(call)
        self._by_id.setdefault(call_id, []).append(call)
        return call


def calls_of_events(events: Sequence[Event]) -> Calls:
    """The calls of a session, of all its events."""
    found = Calls()
    for event in events:
        found.take(event)
    found.end()
    return found


def calls_in(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The calls that a message says: items of `tool_calls`, `tool_use` blocks; each has an id."""
    listed, content = message.get("tool_calls"), message.get("content")
    found = list(listed) if isinstance(listed, list) else []
    if isinstance(content, list):
        found += [one for one in content if _is_block(one, "tool_use")]
    return [one for one in found if isinstance(one, dict) and isinstance(one.get("id"), str)]


def results_in(message: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Call ids with what holds their results: a `tool` message itself, or its blocks."""
    if message.get("role") == "tool":
        for name in ("tool_call_id", "tool_use_id", "call_id", "id"):
            if isinstance(given := message.get(name), str):
                yield given, message
                return
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        if _is_block(block, "tool_result") and isinstance(block.get("tool_use_id"), str):
            yield block["tool_use_id"], block


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
        return json.dumps(arguments, sort_keys=True)
    except (ValueError, RecursionError):
        return id(arguments)
