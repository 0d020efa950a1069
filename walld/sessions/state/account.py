"""One account of each tool call, whoever spoke of it.

Owns: which words are about the same call, what became of it, what it gave. Refuses: what a message
is and where it stands (`views/messages.py`), whether a call may run again (`gate/`), which words
of a journal may come (`tools.py`).

A call is said by the model (an item of `tool_calls`, a `tool_use` block) and journalled by its
program (`tool_intent` and what follows). One of the two suffices. Two speakers mean the same call
by the first rule that holds:

1. Both name the same stream and seq of the call's first event; but an intent that does not fit that
   one joins another of its turn and id that it fits: to a client the next step's may be the same.
2. In order, if it fits: an intent joins the oldest call of its turn and id that was said, that no
   intent has and that has no result, with the same tool and arguments that are equal as JSON; what
   the model says joins the oldest journalled call by the same test. What does not fit is another
   call: models and providers give `call_1` anew in each step.
3. Other words of the journal go to the call of the newest intent of their turn and id; where there
   is none, to the newest that was said.
4. A `tool` message or a `tool_result` block goes to the newest call of its id without a result,
   first of the same turn, then of any. Of several calls of one id and turn, said one behind the
   other, the newest have theirs in order. So have calls of a reply that is not released.
5. What is left of a reply that went (`model_call`) says its calls like a message, of their
   arguments the hash. By the same test they are one with a call that was said in words which name
   no reply. Of a reply without a turn also in any turn, where the arguments are known and the words
   are no older than the reply.

Between a reply that is not released and the ledger there is no order: what it says counts as said
when its turn began, and what it says that a call gave behind all that the journal says.

Invariants: pure, over all events by seq: what a call gave is known on every branch. A call that was
only said is unknown, since nothing says that it did not start, unless its program promised to
journal each call. A malformed word says nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from walld_client.recovered.provider import blocks_alone

from walld.sessions.state.artifacts import whole_text
from walld.sessions.state.call_account import OPEN, CallAccount, supersede
from walld.sessions.state.events import (
    CAME_FROM,
    FINER_EFFECTS,
    RESUME_POLICIES,
    SIDE_EFFECTS,
    UNKNOWN,
    Event,
    check_payload,
    link_of,
)
from walld.sessions.state.tools import TOOL_TYPES, ToolState, take_tool, tool_state_of

__all__ = ["UNDECLARED", "Calls", "Unreleased", "calls_in", "calls_of_events", "results_in"]

_RESULTS: Final = ("done", "failed", "timeout", "cancelled")
_CUT_OFF: Final = frozenset(("timeout", "cancelled"))
"""Results that say nothing where they have no text: what was done by then is not known."""
_WITH_WORD: Final = frozenset(("journal", "said"))
"""Speakers whose word of a result goes before that of its message."""
_LISTS: Final = ("messages", "replacement")
_TELLS_RESULT: Final = frozenset(("tool_finished", "observation"))
_GOES_ON: Final = frozenset(("asked", "approved", "started"))
_WORDS: Final = {"finished": "done", "failed": "failed"}
UNDECLARED: Final = "undeclared"
"""Side effect and policy of a call that was only said, where no word says more."""
_COMPARED_MAX: Final = 64
"""Calls of one id that an utterance, an intent or an edit is compared with."""


class Unreleased(NamedTuple):
    """A reply that is not in its session yet. Messages have those of turns alone.

    messages: of its last attempt, one a step, as their entries would have them. has_ended: its
    program or its provider said so; where it did not, it was cut, however its text ends. earlier:
    calls of the attempts before that, as items of messages, and whether the step that said each had
    ended. status: live | complete | cancelled | errored | crashed. unread: why some of it may not
    be known; None where all of it is. model_calls: payloads of the entries of that type which it
    would leave, without tool calls.
    """

    stream_id: str
    turn: str | None
    messages: list[dict[str, Any]]
    has_ended: bool = True
    earlier: tuple[tuple[dict[str, Any], bool], ...] = ()
    status: str = "crashed"
    owner_alive: bool = False
    unread: str | None = None
    facts: Mapping[str, Any] = {}
    model_calls: tuple[dict[str, Any], ...] = ()

    def told(self) -> dict[str, Any]:
        """As the gate lists it."""
        return {
            "stream_id": self.stream_id,
            "turn": self.turn,
            "status": self.status,
            "owner_alive": self.owner_alive,
        }


class _OfName:
    """The calls of one turn and id. intended: that of the newest intent.

    said: those without an intent and a result; journalled: those that nobody said; some of either
    may have found each other. answerable: those before the newest, the last of them last; some have
    a message of their result.
    """

    __slots__ = ("answerable", "intended", "journalled", "newest", "said")

    def __init__(self) -> None:
        self.newest: CallAccount | None = None
        self.intended: CallAccount | None = None
        self.said: list[CallAccount] | None = None
        self.journalled: list[CallAccount] | None = None
        self.answerable: list[CallAccount] | None = None


class Calls:
    """All of a session's. turns: turn id -> the one that it retries, None for the first.

    ended: turns that have. of_item: id() of an item of a message -> its call; the events that hold
    the items must be kept as long.

    What an event costs does not grow with the calls before it: an utterance and an intent are
    compared with so many that wait, the oldest, and are else a call of their own.
    """

    def __init__(self, unreleased: Sequence[Unreleased] = ()) -> None:
        self._unreleased: dict[str | None, list[Unreleased]] = {}
        """By turn, until it begins."""
        for reply in unreleased:
            self._unreleased.setdefault(reply.turn, []).append(reply)
        self._said_ahead: list[tuple[str, Event, Unreleased]] = []
        """Their results, and earlier attempts, count behind the journal."""
        self._brought_by: set[tuple[str, str]] = set()
        """Steps of replies with results of calls that they do not say."""
        self._turn_of: dict[str, str] = {}
        """Stream -> turn of its reply."""
        self._early: list[tuple[str | None, str, Mapping[str, Any], int]] = []
        """Results of calls that nobody said yet: of a reply that is released later."""
        self._parents: list[CallAccount] = []
        """Calls that are the work of sub-agents; one may stand there twice."""
        self._unsettled: list[Event] = []
        """What somebody said of calls that nobody said yet, in order."""
        self.calls: list[CallAccount] = []
        self.turns: dict[str, str | None] = {}
        self.ended: set[str] = set()
        self.has_recovered = False
        """A message is of a reply that was recovered."""
        self.of_item: dict[int, CallAccount] = {}
        self._promises: set[str] = set()
        self._of_name: dict[tuple[str | None, str], _OfName] = {}
        self._answerable: dict[str, list[CallAccount]] | None = None
        """Call id -> as of a name, of any turn; made when the first result asks for one."""
        self._of_id: dict[str, list[CallAccount]] | None = None
        """Call id -> all of any turn; made at the first edit that asks for one."""
        self._begun_by: dict[str, list[CallAccount]] | None = None
        """Id of an entry -> calls that it said first or intended; made at the first entry that
        names one so."""
        self._of_stream: dict[tuple[str, str], list[CallAccount]] = {}
        """Stream and call id -> those without a turn, the newest last."""
        self._exact: dict[tuple[object, ...], CallAccount] = {}
        """By turn, id, and the place in a stream where the model said it."""
        self._gone: dict[str, list[CallAccount]] = {}
        """Call id -> those that only what is left of a reply tells of."""
        self._gone_results: list[tuple[str | None, dict[str, Any]]] = []
        """What such a reply brought of calls that nobody said yet."""
        self._last_seq = 0
        self._hole = 0
        """Behind the newest place where lines are lost."""
        self._short_seqs: list[int] = []
        """Of imports that lack lines of their source."""
        self._coming: dict[str, None] = {}
        """Imports that have not ended, by the last entry that each is to bring."""
        self._ended_seqs: dict[str, int] = {}

    def take(self, event: Event) -> None:
        """The next event."""
        if event.seq != self._last_seq + 1:
            self._hole = event.seq
        self._last_seq = event.seq
        take = _TAKES.get(event.type)
        if take is not None:
            take(self, event)

    def _came_from(self, event: Event) -> None:
        """Elsewhere: what it says of the lines there."""
        payload = event.payload
        if check_payload(event.type, payload) is not None:
            return
        if event.type == "imported":
            if payload.get("missing"):
                self._hole = event.seq
                self._short_seqs.append(event.seq)
            if (begun := payload.get("begun")) is not None:
                self._coming[begun] = None
            self._coming.pop(payload.get("ended") or "", None)
        mixed, started = frozenset(payload.get("mixed", ())), frozenset(payload.get("started", ()))
        if mixed or started:
            self._index_begun()
        for name in started:
            assert self._begun_by is not None, "made above"
            for call in self._begun_by.get(name, ()):
                if call.begun.id == name:
                    call.told_seq = event.seq
        for name in mixed:
            assert self._begun_by is not None, "made above"
            for call in self._begun_by.get(name, ()):
                call.mixed |= call.begun.id == name

    @property
    def has_gone_replies(self) -> bool:
        """Of some calls nothing but what is left of their replies told when that came."""
        return bool(self._gone)

    def _index_begun(self) -> None:
        if self._begun_by is None:
            self._begun_by = {}
            for call in self.calls:
                for name in dict.fromkeys((call.said_in.id, call.begun.id)):
                    self._begun_by.setdefault(name, []).append(call)

    def _submitted(self, event: Event) -> None:
        if event.turn is not None and event.turn not in self.turns:
            retried = event.payload.get("retry_of")
            self.turns[event.turn] = retried if isinstance(retried, str) else None
            if event.payload.get("calls") == "journal":
                self._promises.add(event.turn)
            for reply in self._unreleased.pop(event.turn, ()):
                self._say_ahead(event, reply)

    def _replies(self, event: Event) -> None:
        """A recovered message names its stream: its application may not know the turn."""
        if event.turn is not None:
            self._turn_of[str(event.payload.get("stream_id"))] = event.turn

    def _ended(self, event: Event) -> None:
        self.ended.add(event.turn or "")
        self._ended_seqs.setdefault(event.turn or "", event.seq)

    def newest(self, turn: str, call_id: str) -> CallAccount | None:
        """The call of the newest intent of that turn and id, or start where that is lost."""
        known = self._of_name.get((turn, call_id))
        return None if known is None else known.intended

    def look(self, runs: Callable[[CallAccount], bool]) -> None:
        """runs: whether the process that a call's start named is there."""
        for call in self.calls:
            call.still_runs = call.outcome == "unknown" and runs(call)

    def end(self) -> None:
        """There are no more: which calls later ones of the same message took the place of."""
        for turn, begun, reply in self._said_ahead:
            self._end_ahead(turn, begun, reply)
        for of_turn, one in self._gone_results:
            self._bring(of_turn, one, self._last_seq + 1)
        unsettled, self._unsettled = self._unsettled, []
        for event in unsettled:
            _TAKES[event.type](self, event)
        for of_turn, call_id, held, seq in reversed(self._early):
            if (of_turn, call_id) in self._of_name:
                found = self._answerable_call(of_turn, call_id)
                if found is not None and found.turn == of_turn and not found.has_result:
                    _answer(found, held, seq)
        self._tell_short()
        for call in self._parents:
            _take_child(call)
        if any(self.turns.values()):
            supersede(self.calls, self.turns)

    def _tell_short(self) -> None:
        """What an import lacks, or has yet to bring, may tell of a start: of calls whose turn had
        not ended, and of which nothing was said before that proves what became of them.
        """
        seqs = [*self._short_seqs, *([self._last_seq + 1] if self._coming else [])]
        for call in self.calls if seqs else ():
            if (call.intent is None and not call.is_promised) or "observed" in call.seqs:
                continue
            at = bisect_right(seqs, max(call.begun.seq, call.settled_seq))
            ended_seq = self._ended_seqs.get(call.turn or "", seqs[-1])
            if at < len(seqs) and not call.again_seq and ended_seq >= seqs[at]:
                call.told_seq = max(call.told_seq, seqs[at])

    # --- what the model said ----------------------------------------------------------------------

    def _message(self, event: Event) -> None:
        payload = event.payload
        self.has_recovered |= "_wal_recovered" in payload
        if not _speaks_of_calls(payload) or check_payload(event.type, payload) is not None:
            return
        turn = event.turn or _turn_of(payload)
        if turn is None and payload.get("_wal_recovered"):
            turn = self._turn_of.get(str(payload.get("_wal_stream")))
        if payload["role"] == "assistant":
            self._say_all(turn, payload, event, is_new=True)
            if payload.get("tool_results"):
                self._brought(turn, payload["tool_results"], event.seq)
                self._brought_by.add(_step_of(payload))
            if not isinstance(payload.get("content"), list):
                return
        for call_id, held in results_in(payload):
            run = _run_of(self._of_name.get((turn, call_id)))
            for call, later in pairwise(run):
                _hand_over(call, later)
            answered = run[-1] if run else self._answerable_call(turn, call_id)
            if answered is None:
                self._early.append((turn, call_id, held, event.seq))
            else:
                _answer(answered, held, event.seq)

    def _say_ahead(self, begun: Event, reply: Unreleased) -> None:
        """What the last attempt of a reply says that is not in the session yet."""
        assert begun.turn is not None, "it begins one"
        self._said_ahead.append((begun.turn, begun, reply))
        for message in reply.messages:
            listed = calls_in(message)
            bare = [{**one, "outcome": None, "result": None} for one in listed]
            self._say_all(begun.turn, {**message, "tool_calls": bare}, begun, is_new=True)
            for one, told in zip(listed, bare, strict=True):
                call = self.of_item[id(one)] = self.of_item.pop(id(told))
                call.is_ahead = True

    def _end_ahead(self, turn: str, begun: Event, reply: Unreleased) -> None:
        for message in reply.messages:
            for one in calls_in(message):
                _take_result(self.of_item[id(one)], one, self._last_seq + 1)
            if _step_of(message) not in self._brought_by:  # else it is an entry, too
                self._brought(turn, message.get("tool_results"), self._last_seq + 1)
        for one, has_ended in reply.earlier:
            name, arguments = _named(one)
            known = self._known(turn, one["id"])
            exact = (turn, one["id"], reply.stream_id, one.get("seq"))
            call = self._exact.get(exact)
            if call is None and known.journalled:
                call = _take_fitting(known.journalled, name, arguments)
            if call is None:
                call = self._new(turn, one["id"], known, begun, _said_state(name, one))
                call.name, call.arguments = name if isinstance(name, str) else None, arguments
                call.is_withdrawn = not has_ended
                call.is_cut, call.is_served = _is_cut(one), one.get("server") is True
                self._exact[exact] = call
                if isinstance(one.get("seq"), int):
                    call.said_at = {"stream": reply.stream_id, "seq": one["seq"]}
            _take_result(call, one, self._last_seq + 1)

    def _brought(self, turn: str | None, results: object, seq: int) -> None:
        """By a reply whose adapter sees requests alone: of calls that it does not say."""
        for one in _dicts(results):
            call = self._answerable_call(turn, str(one.get("id")))
            word = _result_word(one)
            if call is not None and not call.has_result and word is not None:
                call.given["said"], call.word, call.own_seq = one.get("result"), word, seq

    # --- what is left of a reply that went --------------------------------------------------------

    def _model_called(self, event: Event) -> None:
        payload, turn = event.payload, event.turn
        if not isinstance(payload.get("stream"), str):
            return  # an application's own
        for one in _dicts(payload.get("calls")):
            if isinstance(one.get("call_id"), str):
                self._say_gone(turn, payload, one, event)
        for one in _dicts(payload.get("results")):
            if not self._bring(turn, one, event.seq):
                self._gone_results.append((turn, one))

    def _bring(self, turn: str | None, one: Mapping[str, Any], seq: int) -> bool:
        """The word of a result whose text went with its reply. False: nobody said that call."""
        call, outcome = self._answerable_call(turn, str(one.get("call_id"))), one.get("outcome")
        if call is not None and not call.has_result and str(outcome) in _RESULTS:
            call.word, call.own_seq = str(outcome), seq
        return call is not None

    def _say_gone(
        self, turn: str | None, reply: Mapping[str, Any], one: Mapping[str, Any], event: Event
    ) -> None:
        call_id, name, hashed = one["call_id"], one.get("name"), one.get("arguments_hash")
        hashed = hashed if isinstance(hashed, str) else None
        seq, outcome = one.get("seq"), str(one.get("outcome"))
        exact = (turn, call_id, reply["stream"], seq if isinstance(seq, int) else None)
        known, call = self._known(turn, call_id), self._exact.get(exact)
        if call is not None and call.model_call is not None:
            before = call.model_call.payload.get("started_at_ms")
            call = call if before == reply.get("started_at_ms") else None  # of another of that name
        if call is None:
            waiting = (known.journalled or ())[:_COMPARED_MAX]
            unsaid = (one for one in waiting if one.model_call is None and not one.is_said)
            call = next((one for one in unsaid if one.fits(name, None, hashed)), None)
        if call is None:
            call = self._said_without_reply(turn, call_id, name, hashed, reply.get("started_at_ms"))
        if call is None:
            call = self._new(turn, call_id, known, event, _said_state(name, one))
            known.said = known.said or []
            known.said.append(call)
            self._gone.setdefault(call_id, []).append(call)
            call.is_cut, call.is_served = outcome == "pending", one.get("server") is True
        call.model_call = event
        self._exact[exact] = call
        if isinstance(seq, int):
            call.said_at = call.said_at or {"stream": reply["stream"], "seq": seq}
        _know(call, one, name)
        if call.arguments is None:
            call.arguments_hash = hashed
        if call.word is None and outcome in _RESULTS:
            call.word, call.own_seq = outcome, event.seq

    def _said_without_reply(
        self, turn: str | None, call_id: str, name: object, hashed: str | None, since_ms: object
    ) -> CallAccount | None:
        """The oldest that fits of those whose words name no reply: of that turn; of a reply without
        one of any, where the words are no older than the reply.
        """
        if self._of_id is None:
            self._of_id = _by_id(self.calls)
        for call in self._of_id.get(call_id, ())[-_COMPARED_MAX:]:
            if call.model_call is not None or call.is_streamed or call.is_ahead:
                continue
            if turn is None:
                is_known = hashed is not None and call.hash_of_arguments() is not None
                if not is_known or not isinstance(since_ms, int) or call.begun.at_ms < since_ms:
                    continue
            elif call.turn != turn or not call.is_said:
                continue
            if call.fits(name, None, hashed):
                return call
        return None

    def _gone_call(
        self, turn: str | None, call_id: str, name: object, arguments: object
    ) -> CallAccount | None:
        """The oldest that fits of those that only what is left of a reply tells of; it is of that
        turn from now on.
        """
        waiting, place = self._gone.get(call_id, []), 0
        while place < len(waiting) and place < _COMPARED_MAX:
            call = waiting[place]
            is_known = call.arguments_hash is not None and arguments is not None
            if not call.is_of_gone_reply:
                del waiting[place]  # its words came
            elif (call.turn == turn or (call.turn is None and is_known)) and call.fits(
                name, arguments
            ):
                del waiting[place]
                if call.turn != turn:
                    call.turn = turn
                    self._known(turn, call_id).newest = call
                return call
            else:
                place += 1
        return None

    def _edited(self, event: Event) -> None:
        """An edit says the calls that its new form has; those happened already, where they did."""
        payload = event.payload
        if check_payload(event.type, payload) is not None:
            return
        listed = [one for name in _LISTS for one in _dicts(payload.get(name))]
        for message in (*listed, *_dicts([payload.get("message")])):
            if not _speaks_of_calls(message):
                continue
            turn = event.turn or _turn_of(message)
            if message.get("role") == "assistant":
                self._say_all(turn, message, event, is_new=False)
            for call_id, held in results_in(message):
                if (call := self._answerable_call(turn, call_id)) is not None:
                    call.own_seq = call.own_seq if call.has_result else event.seq
                    _give(call, "said", held)

    def _say_all(
        self, turn: str | None, message: Mapping[str, Any], event: Event, *, is_new: bool
    ) -> None:
        stream, step = message.get("_wal_stream"), message.get("_wal_seq")
        items, blocks = _forms(message)
        alone, twins = blocks_alone(items, blocks) if blocks else ([], [])
        for place, one in enumerate([*items, *alone]):
            exact: list[tuple[object, ...]] = []
            if isinstance(stream, str):
                # Said anew by a build that gives no seq: the same place of the same step.
                if isinstance(one.get("seq"), int):
                    exact.append((turn, one["id"], stream, one["seq"]))
                if isinstance(step, int):
                    exact.append((turn, one["id"], stream, step, place))
            call = self._say(turn, one, exact, event, is_new=is_new)
            if exact and call.said_at is None:
                told = {"seq": one.get("seq"), "step": step}
                ints = {name: seq for name, seq in told.items() if isinstance(seq, int)}
                call.said_at = {"stream": stream, **ints} | (
                    {"place": place} if "step" in ints else {}
                )
            call.is_cut = message.get("_partial") is True and _is_cut(one)
            call.is_of_attempt = "_attempt" in message
            call.is_served |= one.get("server") is True
            self.of_item[id(one)] = call
        for block, item in twins:
            self.of_item[id(block)] = self.of_item[id(item)]

    def _say(
        self,
        turn: str | None,
        one: Mapping[str, Any],
        exact: Sequence[tuple[object, ...]],
        event: Event,
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
        if call is None and self._gone and not exact:
            call = self._gone_call(turn, call_id, name, arguments)
        if call is None and not is_new:
            if self._of_id is None:
                self._of_id = _by_id(self.calls)
            newest = reversed(self._of_id.get(call_id, ())[-_COMPARED_MAX:])
            call = next((there for there in newest if there.fits(name, arguments)), None)
        if call is None:
            call = self._new(turn, call_id, known, event, _said_state(name, one))
        if not call.is_said:
            call.is_said = True
            if call.intent is None:
                known.said = known.said or []
                known.said.append(call)
        for told in exact:
            self._exact[told] = call
        call.is_streamed |= bool(exact)
        if call.arguments is None:
            call.arguments = arguments
        _know(call, one, name)
        is_old = not is_new and call.has_result
        _take_result(call, one, call.own_seq if is_old else event.seq)
        return call

    def _answerable_call(self, turn: str | None, call_id: str) -> CallAccount | None:
        """The newest of that id without a message of its result, of that turn before any other."""
        known = self._of_name.get((turn, call_id))
        if known is not None and known.newest is not None:
            if known.newest.is_ahead and known.answerable:
                waiting = (one for one in known.answerable if "message" not in one.given)
                return next(waiting, known.newest)
            if "message" not in known.newest.given:
                return known.newest
            if (call := _last_unanswered(known.answerable)) is not None:
                return call
        if self._answerable is None:
            self._answerable = _by_id(self.calls)
        return _last_unanswered(self._answerable.get(call_id))

    # --- what its program did ---------------------------------------------------------------------

    def _journalled(self, event: Event) -> None:
        kind, payload, turn = event.type, event.payload, event.turn
        if check_payload(kind, payload) is not None:
            return
        call_id = payload.get("call_id")
        if call_id is None and kind == "observation":
            turn, call_id = payload.get("of_turn"), payload.get("of_call")
        if call_id is None or not turn:
            return
        known = self._of_name.get((turn, call_id))
        call = None if known is None else known.intended or known.newest
        if kind == "tool_started" and (call is None or not call.state.may_start):
            call = self._lose_intent(turn, call_id, event)
        if call is None:
            return
        state = call.state
        take_tool(state, kind, event.seq, payload)
        stage = tool_state_of(kind, payload)
        if stage is not None and state.seqs.get(stage) != event.seq:
            return  # it goes back
        call.words.append(event)
        call.mixed |= stage in _GOES_ON and call.begun.seq < self._hole
        call.policy_allowed |= kind == "tool_decision" and stage == "approved"
        if kind in _TELLS_RESULT:
            call.own_seq = event.seq
        if kind == "tool_finished":
            if call.word is None:
                call.word = _result_word(payload) or _WORDS[str(stage)]
            result = payload.get("result")
            if result is not None or call.word not in _CUT_OFF:
                call.given["journal"] = result
        elif kind == "observation":
            call.given["observation"] = whole_text(payload, "text") or ""

    def _progressed(self, event: Event) -> None:
        """Of a call that is known: it changes nothing else of it."""
        known = self._of_name.get((event.turn, str(event.payload.get("call_id"))))
        call = None if known is None else known.intended or known.newest
        if call is not None:
            call.progress = event

    def _lose_intent(self, turn: str, call_id: str, event: Event) -> CallAccount:
        """A start without an intent: another call ran, and that is no safer for it."""
        known, lost = (
            self._known(turn, call_id),
            ToolState("started", UNKNOWN, UNKNOWN, UNKNOWN, {}),
        )
        call = known.newest
        if call is None or call.intent is not None or call.has_result:
            call = self._new(turn, call_id, known, event, lost)
        self._begin(call, known, event, lost)
        return call

    def _begin(self, call: CallAccount, known: _OfName, event: Event, state: ToolState) -> None:
        if self._begun_by is not None and event is not call.said_in:
            self._begun_by.setdefault(event.id, []).append(call)
        if known.intended is not None:
            known.intended.again_seq = event.seq
        call.intent, call.state = event, state
        known.intended = call

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
            call = _take_fitting(known.said, name, arguments) if known.said else None
        elif known.said and not call.fits(name, arguments):
            call = _take_fitting(known.said, name, arguments) or call
        if call is None and self._gone:
            call = self._gone_call(turn, call_id, name, arguments)
        names = (name, payload["side_effect"], payload["resume_policy"])
        state = ToolState("intended", *names, {"intended": event.seq})
        is_new = call is None
        if call is None:
            call = self._new(turn, call_id, known, event, state)
        if is_new or call.is_of_gone_reply:
            known.journalled = known.journalled or []
            known.journalled.append(call)
        if exact is not None:
            self._exact.setdefault(exact, call)
        self._begin(call, known, event, state)
        call.words.append(event)
        call.name = name
        if arguments is not None:
            call.arguments = arguments
        call.key, call.supersedes = payload.get("key"), payload.get("supersedes")
        call.idempotency, call.effect = payload.get("idempotency"), payload.get("effect")

    def _settled(self, event: Event) -> None:
        """What somebody said of a call behind its turn's end."""
        payload = event.payload
        if check_payload(event.type, payload) is not None:
            return
        word, call = payload["word"], self._call_of(payload["of"])
        if call is None:
            self._unsettled.append(event)  # of a reply that is not released: its words come last
            return
        call.settlements += (event,)
        if call.settled is not None and call.settled.seq > event.seq:
            return  # that one named it as the log does, this one by its place in the reply
        call.settled = event
        call.given.pop("settled", None)  # of an earlier word
        if word == "granted":
            call.seqs["approved"] = event.seq
            if "started" not in call.seqs:
                call.state.state = "approved"
        elif word == "denied":
            call.seqs["denied"] = event.seq
        elif word == "ran" and payload.get("result") is not None:
            call.given["settled"] = payload["result"]

    def _child(self, event: Event) -> None:
        """Which session is the work of a call."""
        link = link_of(event.payload)
        if link is None:
            return  # an application's own
        if (call := self._call_of(link.of)) is None:
            self._unsettled.append(event)
            return
        call.child = event
        self._parents.append(call)

    def _call_of(self, of: Mapping[str, Any]) -> CallAccount | None:
        """Whom a settlement names (`gate/settle_targets.py`)."""
        turn, call_id = of.get("turn"), of["call_id"]
        if "entry" in of:
            self._index_begun()
            assert self._begun_by is not None, "made above"
            there = [one for one in self._begun_by.get(of["entry"], ()) if one.call_id == call_id]
            n = of.get("n", 1)
            return there[n - 1] if n <= len(there) else None
        if "seq" in of or "step" in of:
            stream = of["stream"]
            places: list[tuple[int, ...]] = [(of["seq"],)] if "seq" in of else []
            places += [(of["step"], of["place"])] if "step" in of else []
            for place in places:
                for told in (turn, None):  # it may have been of none when it was said
                    call = self._exact.get((told, call_id, stream, *place))
                    if call is not None and call.turn == turn:
                        return call
            return None
        if "stream" in of:
            return self._said_by(of["stream"], call_id)
        known = self._of_name.get((turn, call_id))
        return None if known is None else known.intended or known.newest

    def _said_by(self, stream: str, call_id: str) -> CallAccount | None:
        """The newest of a reply without a turn."""
        found = self._of_stream.get((stream, call_id), [])
        while found and (found[-1].turn is not None or found[-1].stream != stream):
            found.pop()  # of a turn, since its intent came
        return found[-1] if found else None

    def _known(self, turn: str | None, call_id: str) -> _OfName:
        known = self._of_name.get((turn, call_id))
        if known is None:
            known = self._of_name[turn, call_id] = _OfName()
        return known

    def _new(
        self, turn: str | None, call_id: str, known: _OfName, begun: Event, state: ToolState
    ) -> CallAccount:
        if known.newest is not None:
            known.answerable = known.answerable or []
            known.answerable.append(known.newest)
        call = known.newest = CallAccount(turn, call_id, begun, state)
        call.is_promised = turn in self._promises
        self.calls.append(call)
        for found in (self._answerable, self._of_id):
            if found is not None:
                found.setdefault(call_id, []).append(call)
        if turn is None:
            stream = begun.payload.get("stream" if begun.type == "model_call" else "_wal_stream")
            if isinstance(stream, str):
                self._of_stream.setdefault((stream, call_id), []).append(call)
        if self._begun_by is not None:
            self._begun_by.setdefault(begun.id, []).append(call)
        return call


_TAKES: Final[dict[str, Callable[[Calls, Event], None]]] = {
    **dict.fromkeys(CAME_FROM, Calls._came_from),
    **dict.fromkeys(TOOL_TYPES, Calls._journalled),
    "tool_intent": Calls._intend,
    "tool_settled": Calls._settled,
    "child": Calls._child,
    "tool_progress": Calls._progressed,
    "model_call": Calls._model_called,
    "message": Calls._message,
    "message_edit": Calls._edited,
    "compaction": Calls._edited,
    "turn_submitted": Calls._submitted,
    "turn_assistant_started": Calls._replies,
    "turn_completed": Calls._ended,
    "turn_interrupted": Calls._ended,
}


def calls_of_events(events: Sequence[Event], unreleased: Sequence[Unreleased] = ()) -> Calls:
    """The calls of a session, of all its events, and of its turns' replies that are in none yet.

    The replies must be kept as long as the events.
    """
    found = Calls(unreleased)
    for event in events:
        found.take(event)
    found.end()
    return found


def calls_in(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The calls that a message says: items of `tool_calls`, and `tool_use` blocks that are none of
    those; each has an id.
    """
    items, blocks = _forms(message)
    return items + blocks_alone(items, blocks)[0] if blocks else items


def _forms(message: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Items of `tool_calls`, and `tool_use` blocks; each has an id."""
    listed, content = message.get("tool_calls"), message.get("content")
    items = [one for one in _dicts(listed) if isinstance(one.get("id"), str)]
    if not isinstance(content, list):
        return items, []
    return items, [
        one for one in content if _is_block(one, "tool_use") and isinstance(one.get("id"), str)
    ]


def results_in(message: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Call ids with what holds their results: a `tool` message itself, or blocks, also of tools
    that the provider runs itself (`web_search_tool_result`).
    """
    if message.get("role") == "tool":
        for name in ("tool_call_id", "tool_use_id", "call_id", "id"):
            if isinstance(given := message.get(name), str):
                yield given, message
                return
    content = message.get("content")
    if isinstance(content, list):
        for block in content:
            if not isinstance(block, dict) or not isinstance(block.get("tool_use_id"), str):
                continue
            if str(block.get("type")).endswith("tool_result"):
                yield block["tool_use_id"], block


def _by_id(calls: Sequence[CallAccount]) -> dict[str, list[CallAccount]]:
    found: dict[str, list[CallAccount]] = {}
    for call in calls:
        found.setdefault(call.call_id, []).append(call)
    return found


def _last_unanswered(waiting: list[CallAccount] | None) -> CallAccount | None:
    """The newest without a message of its result; those behind it wait no more."""
    while waiting:
        if "message" not in waiting[-1].given:
            return waiting[-1]
        waiting.pop()
    return None


def _run_of(known: _OfName | None) -> list[CallAccount]:
    """The newest call without a message of its result, and those behind it, which were all said
    before the first of theirs came; none where there is no such call, or it is the newest.
    """
    if known is None or known.newest is None or known.newest.is_ahead:
        return []
    run, said_seq = [known.newest], known.newest.said_in.seq
    for call in reversed((known.answerable or [])[-_COMPARED_MAX:]):
        if "message" not in run[-1].given or run[-1].answered_seq < said_seq:
            return []
        run.append(call)
        if "message" not in call.given:
            return run[::-1]
    return []


def _hand_over(call: CallAccount, later: CallAccount) -> None:
    """The message of a later call's result is of this one: there is one more of them."""
    assert later.message is not None, "it has one"
    _answer(call, later.message, later.answered_seq)
    if not later.given.keys() & _WITH_WORD:
        later.word = None


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
        elif call.fits(name, arguments):
            del waiting[place]
            return call
        else:
            place += 1
    return None


def _know(call: CallAccount, one: Mapping[str, Any], name: object) -> None:
    """What the item that says a call says of it."""
    if isinstance(name, str) and name:
        call.name = call.name or name
    call.key = call.key or one.get("key")
    call.idempotency = call.idempotency or one.get("idempotency")
    call.effect = call.effect or one.get("side_effect")


def _is_cut(one: Mapping[str, Any]) -> bool:
    arguments = one.get("arguments")
    is_begun = isinstance(arguments, str) and arguments.lstrip().startswith("{")
    return is_begun and one.get("arguments_complete") is False


def _said_state(name: object, one: Mapping[str, Any]) -> ToolState:
    """risk: of the item, where its program says so."""
    effect, policy = one.get("side_effect"), one.get("resume_policy")
    effect = "external-write" if effect in FINER_EFFECTS else effect
    return ToolState(
        "said",
        name if isinstance(name, str) else "",
        effect if effect in SIDE_EFFECTS else UNDECLARED,
        policy if policy in RESUME_POLICIES else UNDECLARED,
        {},
    )


def _turn_of(message: Mapping[str, Any]) -> str | None:
    turn = message.get("_turn")
    return turn if isinstance(turn, str) else None


def _step_of(message: Mapping[str, Any]) -> tuple[str, str]:
    return str(message.get("_wal_stream")), str(message.get("_wal_seq"))


def _speaks_of_calls(message: Mapping[str, Any]) -> bool:
    if message.get("role") == "tool" or message.get("tool_calls"):
        return True
    return isinstance(message.get("content"), list) or bool(message.get("tool_results"))


def _dicts(listed: object) -> list[dict[str, Any]]:
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _is_block(block: object, kind: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind


def _take_result(call: CallAccount, one: Mapping[str, Any], seq: int) -> None:
    """What the item that says a call says that it gave. seq: where it says so."""
    word = _result_word(one)
    if word is not None and "said" not in call.given:
        call.given["said"], call.own_seq = one.get("result"), seq
        call.word = call.word or word


def _result_word(one: Mapping[str, Any]) -> str | None:
    """Its outcome, where that is a result; what is no text says nothing."""
    word = one.get("outcome")
    return word if isinstance(word, str) and word in _RESULTS else None


def _take_child(call: CallAccount) -> None:
    """While nobody else says what it gave, it gave what its sub-agent said last."""
    assert call.child is not None, "it has one"
    became = call.child.child
    if became is not None and became.is_done and call.outcome in OPEN:
        call.given["child"], call.word = became.result, "done"


def _answer(call: CallAccount, held: Mapping[str, Any], seq: int) -> None:
    _give(call, "message", held)
    call.message, call.answered_seq = held, seq


def _give(call: CallAccount, speaker: str, held: Mapping[str, Any]) -> None:
    call.given[speaker] = held.get("content")
    is_failed = held.get("is_error") is True or held.get("outcome") == "failed"
    call.word = call.word or ("failed" if is_failed else "done")


def _named(one: Mapping[str, Any]) -> tuple[object, object]:
    """The name and the arguments of a call that a message says."""
    function = one.get("function")
    told = function if isinstance(function, dict) else one
    return told.get("name"), told.get("input" if one.get("type") == "tool_use" else "arguments")
