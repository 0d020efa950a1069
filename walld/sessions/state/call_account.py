"""One tool call: what is known of it, and which later call took its place.

Owns: what became of a call and what it gave, from the words that are about it; which open calls
later ones of the same user message took the place of; what is one call's name for another. Refuses:
which words those are (`account.py`).

Invariants: who took a call's place is computed over all calls, never stored: one that is denied
after all closes nothing. An equal call of another user message is another wish. One pass over the
turns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import msgspec

from walld.sessions.state.events import UNKNOWN
from walld.sessions.state.tools import tool_state_of

if TYPE_CHECKING:
    from walld.sessions.state.events import Event
    from walld.sessions.state.tools import ToolState

__all__ = ["OPEN", "CallAccount", "arguments_hash", "json_key", "supersede"]

OPEN: Final = frozenset(("pending", "unknown"))
"""Outcomes of calls that nobody said the end of."""
_DECIDES: Final = frozenset(("tool_decision", "tool_approval"))
_DECIDED: Final = frozenset(("asked", "approved", "denied"))
_SETTLED: Final = {"ran": "done", "did_not_run": "not_run"}
_SETTLED_TO: Final = {"granted": "approved", "denied": "denied"}
_AS_JSON: Final = msgspec.json.Encoder(order="deterministic")


class CallAccount:
    """One call. intent: its journal's entry, or, where that is lost, its start; None where it was
    only said. said_in: the entry that said it first. state: how far its journal tells that it got.

    is_said: a message names it. word: how its result was called. words: what its journal says of
    it, in order. again_seq: where its id was intended again, 0 where it was not. mixed: lines
    behind its intent are lost, and what is said behind those may be of another call of its id.
    """

    __slots__ = (
        "again_seq",
        "answered_seq",
        "arguments",
        "arguments_hash",
        "call_id",
        "child",
        "effect",
        "given",
        "grant_of",
        "idempotency",
        "intent",
        "is_ahead",
        "is_cut",
        "is_of_attempt",
        "is_promised",
        "is_said",
        "is_served",
        "is_streamed",
        "is_withdrawn",
        "key",
        "message",
        "mixed",
        "model_call",
        "name",
        "own_seq",
        "policy_allowed",
        "progress",
        "said_at",
        "said_in",
        "settled",
        "settlements",
        "state",
        "still_runs",
        "superseded_by",
        "supersedes",
        "told_seq",
        "turn",
        "used_seq",
        "word",
        "words",
    )

    def __init__(self, turn: str | None, call_id: str, begun: Event, state: ToolState) -> None:
        self.turn = turn
        self.call_id = call_id
        self.state = state
        self.name: str | None = None
        self.arguments: object = None
        self.arguments_hash: str | None = None
        """Of a call whose reply went: all that is known of them."""
        self.model_call: Event | None = None
        """What tells of it since its reply went."""
        self.said_in = begun
        self.said_at: dict[str, Any] | None = None
        """Its place in the reply that said it: stream, and what is known of seq (of its first
        event), step (the first seq of that) and place (among the calls of the step)."""
        self.is_said = False
        self.intent: Event | None = None
        self.words: list[Event] = []
        self.is_promised = False
        """Its turn promised an intent before each run."""
        self.is_cut = False
        """What said it ended within its arguments: nobody can have run it."""
        self.is_ahead = False
        """What said it is not in the session yet: nobody knows which results stand behind it."""
        self.is_of_attempt = False
        """Said in an answer of which its writer says that it failed: it never ran."""
        self.is_withdrawn = False
        """Said in an attempt of a reply that was begun anew before the step had ended."""
        self.is_served = False
        """The provider ran it itself."""
        self.is_streamed = False
        """What said it names the reply."""
        self.word: str | None = None
        self.message: Mapping[str, Any] | None = None
        """The application's own words for what it gave: a `tool` message, or a block of one."""
        self.answered_seq = 0
        """Of the entry with those."""
        self.policy_allowed = False
        """A decision said yes: that is not always one."""
        self.own_seq = 0
        """Where its journal, or its reply, last said what it gave."""
        self.given: dict[str, object] = {}
        """Speaker -> what it says the call gave."""
        self.settled: Event | None = None
        """The last that somebody said of it in so many words: it counts."""
        self.settlements: tuple[Event, ...] = ()
        """All of those."""
        self.child: Event | None = None
        """Names the session of the sub-agent whose work it is: the newest such entry."""
        self.progress: Event | None = None
        """What its program said last of how far it is."""
        self.again_seq = 0
        self.mixed = False
        self.told_seq = 0
        """Of what says that it may have run where this session came from."""
        self.still_runs = False
        """The process that its start named is there."""
        self.key: object = None
        self.idempotency: object = None
        self.effect: object = None
        """A finer word for its side effect, where its program has one."""
        self.supersedes: object = None
        self.superseded_by: CallAccount | None = None
        self.grant_of: CallAccount | None = None
        """An equal call of an earlier turn, which a person allowed and which did not run since:
        that word is for this one now."""
        self.used_seq = 0
        """Where a call that took its grant over was started."""

    @property
    def child_session(self) -> str | None:
        """The session of the sub-agent whose work it is."""
        return None if self.child is None else str(self.child.payload["session"])

    @property
    def begun(self) -> Event:
        """The first that is known of it: its intent before what said it."""
        return self.said_in if self.intent is None else self.intent

    @property
    def is_of_gone_reply(self) -> bool:
        """Nothing that is left names it but what was kept of its reply."""
        return self.model_call is not None and not self.is_said and self.intent is None

    @property
    def stream(self) -> str | None:
        """Of the reply that said it first."""
        name = "stream" if self.said_in is self.model_call else "_wal_stream"
        stream = self.said_in.payload.get(name)
        return stream if isinstance(stream, str) else None

    @property
    def seqs(self) -> dict[str, int]:
        """State -> seq of the newest word of its journal that led there."""
        return self.state.seqs

    @property
    def settled_seq(self) -> int:
        """Where somebody last said what became of it, but for a result; 0 where nobody did."""
        settled = self.settled
        is_end = settled is not None and settled.payload["word"] in _SETTLED
        in_words = settled.seq if settled is not None and is_end else 0
        return max(self.seqs.get("denied", 0), self.seqs.get("observed", 0), in_words)

    @property
    def is_told(self) -> bool:
        """It may have run elsewhere, and nothing since says what became of it."""
        return self.word is None and self.told_seq > self.settled_seq

    @property
    def has_result(self) -> bool:
        """A speaker said what it gave, and did not only observe it."""
        return self.word is not None

    @property
    def settled_last(self) -> Event | None:
        """What somebody settled, where nothing of what it gave was said since: a tool that speaks
        of its run knows what nobody else can. None of a grant that a start used up.
        """
        settled = self.settled
        if settled is None or settled.seq < max(self.own_seq, self.answered_seq):
            return None
        used_seq = max(self.seqs.get("started", 0), self.used_seq)
        return None if settled.payload["word"] == "granted" and settled.seq < used_seq else settled

    @property
    def has_not_run(self) -> bool:
        """It was denied before it could, or somebody said so and no word of its own came since."""
        settled = self.settled
        is_settled = settled is not None and settled.payload["word"] == "did_not_run"
        if settled is not None and is_settled and settled.seq > self.own_seq:
            return True
        return self.is_denied and not self.is_denied_late

    @property
    def outcome(self) -> str:
        """The first that holds: it may have run elsewhere; what somebody settled behind all that is
        said of what it gave; a result's word; denied, and it cannot have started; observed;
        started, or what closed it is lost: unknown; said in an answer that failed: not run; said in
        a step that was begun anew before it ended: withdrawn; intended, or cut within its
        arguments: pending; only said: unknown.
        """
        if self.is_told:
            return "unknown"
        settled = self.settled_last
        if settled is not None and (said := _SETTLED.get(settled.payload["word"])):
            return said
        if self.word is not None:
            return self.word
        seqs = self.state.seqs
        if self.is_denied and not self.is_denied_late:
            return "denied"
        if "observed" in seqs:
            return "done"
        if "started" in seqs or self.again_seq:
            return "unknown"
        if self.is_of_attempt and self.intent is None:
            return "not_run"
        if self.is_withdrawn and self.intent is None:
            return "withdrawn"
        return "pending" if self._has_journal else "unknown"

    @property
    def _has_journal(self) -> bool:
        """It would be known of it that it started."""
        return self.intent is not None or self.is_promised or self.is_cut

    @property
    def stage(self) -> str:
        """Its state; of one that did not start what the words that count make of it."""
        state = self.state.state
        if state not in _DECIDED or not self.policy_allowed:
            return state
        return self._verdict or ("said" if self.intent is None else "intended")

    @property
    def _verdict(self) -> str | None:
        """What was decided last: asked | approved | denied, None where nobody decided.

        A policy's yes takes back what the policy said before. It is no person's: it counts where no
        person was asked or said more, and the call's own policy does not want one.
        """
        said = [(one, tool_state_of(one.type, one.payload)) for one in self.words]
        said += [(one, _SETTLED_TO.get(one.payload["word"])) for one in self.settlements]
        wants_person = self.state.resume_policy == "require-user-confirmation"
        by_person: str | None = None
        verdict: str | None = None
        for one, state in sorted(said, key=lambda one: one[0].seq):
            if state not in _DECIDED:
                continue
            if one.type != "tool_decision":
                by_person = state
            elif state == "approved" and (by_person is not None or wants_person):
                state = by_person
            verdict = state
        return verdict

    @property
    def is_denied(self) -> bool:
        """The newest of what was decided, asked and approved is a no that stands."""
        if self.policy_allowed:
            return self._verdict == "denied"
        seqs = self.state.seqs
        return seqs.get("denied", 0) > max(seqs.get("approved", 0), seqs.get("asked", 0))

    @property
    def is_denied_late(self) -> bool:
        """The no came when it may have run: that it did not nobody says, only that it must not."""
        if not self.is_denied or "started" in self.state.seqs:
            return self.is_denied
        is_settled = self.settled is not None and self.settled.payload["word"] == "denied"
        return is_settled and not self._has_journal

    @property
    def is_undecided(self) -> bool:
        """The last word of a policy is none that is known: it may be a no."""
        decided = [one for one in self.words if one.type in _DECIDES]
        return bool(decided) and tool_state_of(decided[-1].type, decided[-1].payload) is None

    @property
    def closed(self) -> bool:
        """Somebody said what became of it, or its id was given again, which nobody does before."""
        return self.again_seq > 0 or self.outcome not in OPEN

    @property
    def risk(self) -> tuple[str, str]:
        """Side effect and resume policy of what may have run as it."""
        if self.mixed:
            return UNKNOWN, UNKNOWN
        return self.state.side_effect, self.state.resume_policy

    @property
    def at_ms(self) -> dict[str, int]:
        """State -> when its journal last told of it."""
        told = ((tool_state_of(one.type, one.payload), one.at_ms) for one in self.words)
        return {state: at_ms for state, at_ms in told if state is not None}

    @property
    def since_ms(self) -> int:
        """When it came to its state; that a model said it is known where its reply told when."""
        return self.at_ms.get(self.stage, self.begun_ms)

    @property
    def begun_ms(self) -> int:
        """When it was intended, else said: entries of a reply are made when that goes."""
        if self.intent is not None:
            return self.intent.at_ms
        said, told = self.said_in, self.said_in.payload
        if said.type != "model_call":
            seconds = told.get("_wal_started_at")
            if isinstance(seconds, (int, float)) and seconds > 1:  # True is none
                return round(seconds * 1000)
            return said.at_ms
        seq = None if self.said_at is None else self.said_at.get("seq")
        listed = told.get("calls")
        items = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        name = self.call_id, seq
        named = [one for one in items if (one.get("call_id"), one.get("seq")) == name]
        times = [one.get("at_ms") for one in (*named, told)]
        found = (one for one in (*times, told.get("started_at_ms")) if type(one) is int)
        return next(found, said.at_ms)

    @property
    def finished(self) -> Event | None:
        """The journal's last entry with its result."""
        found = (one for one in reversed(self.words) if one.type == "tool_finished")
        return next(found, None)

    @property
    def duration_ms(self) -> int | None:
        """From its start, or intent, to its result; None without one."""
        if (finished := self.finished) is None:
            return None
        return max(finished.at_ms - self.at_ms.get("started", self.begun.at_ms), 0)

    def result(self) -> tuple[bool, object]:
        """Whether somebody said what it gave, and the words that go before the others; of one that
        did not run nobody did, whatever was kept.
        """
        if self.outcome == "not_run":
            return False, None
        for speaker in ("message", "observation", "journal", "said", "settled", "child"):
            if speaker in self.given:
                return True, self.given[speaker]
        return False, None

    @property
    def is_observed(self) -> bool:
        """The words that go before the others are an observation: chosen for the model."""
        return "message" not in self.given and "observation" in self.given

    @property
    def grant(self) -> Event | None:
        """The newest word of a person that allowed it; without one, of a policy."""
        said = [one for one in self.words if tool_state_of(one.type, one.payload) == "approved"]
        if self.settled is not None and self.settled.payload["word"] == "granted":
            said.append(self.settled)
        return max(said, key=lambda one: (one.type != "tool_decision", one.seq), default=None)

    def denied_by(self) -> tuple[str, object]:
        """Who denied it, and why."""
        said = self._last_word("denied")
        if said is None:
            return "A policy", None
        who = "A policy" if said.type == "tool_decision" else "The user"
        return who, _why(said)

    def denier(self) -> object:
        """The name that the denial gives: of a person, or of a policy. None where it gives none."""
        said = self._last_word("denied")
        return None if said is None else said.payload.get("by") or said.payload.get("policy")

    def asked_because(self) -> object:
        """Why a person is asked, as it was said last; None where nobody said."""
        asked = [one for one in self.words if tool_state_of(one.type, one.payload) == "asked"]
        return next((why for one in reversed(asked) if (why := _why(one)) is not None), None)

    def _last_word(self, state: str) -> Event | None:
        """What made the call that, if anything did."""
        if self.settled is not None and self.settled.payload["word"] == state:
            return self.settled
        said = (one for one in self.words if tool_state_of(one.type, one.payload) == state)
        return max(said, key=lambda one: one.seq, default=None)

    def fits(self, name: object, arguments: object, hashed: str | None = None) -> bool:
        """Of that tool, with arguments that are equal as JSON; what is not known fits.

        hashed: of arguments that are not here.
        """
        if self.name and isinstance(name, str) and name and self.name != name:
            return False
        own = self.arguments
        if hashed is not None or (own is None and self.arguments_hash is not None):
            there = self.hash_of_arguments()
            given = hashed if arguments is None else arguments_hash(arguments)
            return there is None or given is None or there == given
        if own is None or arguments is None or own is arguments:
            return True
        return json_key(own) == json_key(arguments)

    def hash_of_arguments(self) -> str | None:
        """None where they are not known."""
        if self.arguments is None:
            return self.arguments_hash
        return arguments_hash(self.arguments)


def supersede(calls: Sequence[CallAccount], turns: Mapping[str, str | None]) -> None:
    """Open calls that later ones took the place of, in a later turn of the same user message.

    By equal tools and arguments, by an equal key, or by name. The first that is equal takes over
    what a person has allowed of the call and what did not run since: a key or a name may be of a
    call with other arguments, which nobody allowed. Arguments that nobody gave are equal to no
    others; null in an intent is given. One that may have run is closed by one that started, the
    others by an intent; one that did not run closes nothing.
    """
    first: dict[str, str] = {}
    of_turn: dict[str, list[CallAccount]] = {}
    for turn, retried in turns.items():
        first[turn] = turn if retried is None else first.get(retried, retried)
    for call in calls:
        if call.turn in first:
            of_turn.setdefault(call.turn, []).append(call)
    pending: dict[object, list[CallAccount]] = {}
    granted: dict[tuple[object, ...], CallAccount] = {}
    unknown: dict[object, list[CallAccount]] = {}
    is_hashed = any(call.arguments_hash is not None for call in calls)
    for turn, chain in first.items():
        listed = of_turn.get(turn, ())
        for later in listed:
            if later.intent is None:
                continue
            has_run = "started" in later.seqs or later.has_result
            for name in _found_by(later, is_hashed, is_equal=True):
                allowed = granted.get((chain, *name))
                if allowed is None or (later.has_not_run and not _uses_up(later, allowed)):
                    continue
                later.grant_of, allowed.used_seq = allowed, later.seqs.get("started", 0)
                for other in _found_by(allowed, is_hashed, is_equal=True):
                    granted.pop((chain, *other), None)
            if later.has_not_run:
                continue
            for name in (*_found_by(later, is_hashed), ("named", later.supersedes)):
                for there in (pending, unknown) if has_run else (pending,):
                    for call in there.pop((chain, *name), ()):
                        call.superseded_by = call.superseded_by or later
        for call in listed:
            if (outcome := call.outcome) in OPEN:
                there = unknown if outcome == "unknown" else pending
                for name in (*_found_by(call, is_hashed), ("named", call.call_id)):
                    there.setdefault((chain, *name), []).append(call)
                if (allowed := _unused_grant(call)) is not None:
                    for name in _found_by(call, is_hashed, is_equal=True):
                        granted[chain, *name] = allowed


def _uses_up(later: CallAccount, allowed: CallAccount) -> bool:
    """It was started behind what a person allowed."""
    return allowed.grant is not None and allowed.grant.seq < later.seqs.get("started", 0)


def _unused_grant(call: CallAccount) -> CallAccount | None:
    """The call that a person allowed, be it this one or one whose grant it took over: behind any
    start, and nothing was asked or denied since.
    """
    seqs, grant = call.seqs, call.grant
    if grant is None or grant.type == "tool_decision":
        is_open = seqs.keys().isdisjoint(("started", "denied", "asked"))
        return call.grant_of if is_open else None
    since = max(seqs.get(one, 0) for one in ("started", "denied", "asked"))
    return call if grant.seq > since else None


def _found_by(
    call: CallAccount, is_hashed: bool, *, is_equal: bool = False
) -> Iterator[tuple[object, ...]]:
    """is_hashed: of some call the arguments are known by their hash alone. is_equal: only by tool
    and arguments.
    """
    hashed = call.hash_of_arguments() if is_hashed else None
    if hashed is not None:
        yield "hash", call.name, hashed
    if call.arguments is not None or (call.arguments_hash is None and _takes_none(call)):
        yield "call", call.name, json_key(call.arguments)
    if not is_equal and isinstance(call.key, str) and call.key:
        yield "key", call.key


def _takes_none(call: CallAccount) -> bool:
    """Its intent says null."""
    intent = call.intent
    return intent is not None and intent.type == "tool_intent" and "arguments" in intent.payload


def arguments_hash(arguments: object) -> str | None:
    """SHA-256 of them as JSON, without spaces and with keys in order; None of what is no JSON, and
    where there are none.
    """
    key = None if arguments is None else json_key(arguments)
    if isinstance(key, str):
        key = key.encode("utf-8", "surrogatepass")
    return sha256(key).hexdigest() if isinstance(key, bytes) else None


def json_key(arguments: object) -> object:
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


def _why(said: Event) -> object:
    return said.payload.get("reason") or said.payload.get("note")
