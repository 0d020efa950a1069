"""Where a session can be read from, so that its last messages come out as of all of it.

Owns: which names each entry shares with the entries before it. Refuses: what the messages are
(`messages.py`), whether those behind a place are enough (`message_page.py`), lines and files.

Entries act on each other by names: of a call, a step of a reply, a message, an entry; of a turn
where it is retried, or a reply of it was recovered, or went. A place is independent where no such
name stands on both sides of it: what is folded from there on is then what a fold of everything has
there. Of a turn that goes on there it is told that it was submitted, and whether it has ended
(`opening`). What acts by order alone (an undo, a compaction, a branch) is met as the entries behind
the place are folded.

Invariants: no content, and a hash for a name: two that share one make a place look dependent, never
independent. One pass, what an entry costs does not grow with those before it. Entries on every
branch count, since a call's result is known on each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from sys import getsizeof
from typing import Any, Final

from walld.sessions.state.account import calls_in, results_in
from walld.sessions.state.events import Event, check_payload, declared_message
from walld.sessions.state.tools import TOOL_TYPES

__all__ = ["TailIndex"]

_OF_MESSAGES: Final = frozenset(("message", "turn_submitted", "branch_summary"))
_WORDS: Final = frozenset(("role", "content"))
_NUMBER_BYTES: Final = 32
_ANSWERED: Final = 1
_OPEN: Final = 2
_UNSURE: Final = 3
"""Nobody counts here which results the calls of that name have."""


class TailIndex:
    """Of one session, up to `last_seq`."""

    def __init__(self) -> None:
        self.last_seq = 0
        self._first: dict[int, int] = {}
        """Hash of a name -> the first entry that it stands in."""
        self._calls: dict[int, int] = {}
        """Hash of a turn and a call's id -> whether a message said one that has no result yet."""
        self._gone: set[int] = set()
        """Hashes of ids of calls of replies that went: one may be any call of that id."""
        self._turn_of: dict[int, str] = {}
        """Hash of a stream -> the turn that it is a reply of."""
        self._turn_bytes = 0
        """Of those."""
        self._starts: list[int] = []
        """Independent places, by the seq behind them."""
        self._counts: list[int] = []
        """Messages that entries before each of those said."""
        self._count = 0
        self._reach = 0
        self._last_turn = ""
        self._submitted_at: dict[int, tuple[int, bool]] = {}
        """Hash of a turn -> by which entry, and whether it promised to journal its calls."""
        self._ended: set[int] = set()
        """Hashes of turns."""
        self._tied: set[int] = set()
        """Hashes of turns whose entries act on each other in other ways than by their calls: those
        that are retried, and their retries, and those with recovered replies."""

    def start_for(self, messages: int, before_seq: int | None = None) -> int:
        """The last independent place with about so many messages behind it, up to the entry
        `before_seq` where one is named; 1: read it all.
        """
        stop = self._count
        if before_seq is not None:
            at = bisect_right(self._starts, before_seq) - 1
            stop = self._counts[at] if at >= 0 else 0
        at = bisect_right(self._counts, stop - messages) - 1
        return self._starts[at] if at >= 0 else 1

    def end_for(self, before_seq: int | None) -> int | None:
        """The first independent place behind the entry `before_seq`; None where there is none, or
        all is wanted. No word of an entry from there on is in a page that ends before that entry.
        """
        if before_seq is None:
            return None
        at = bisect_right(self._starts, before_seq)
        return self._starts[at] if at < len(self._starts) else None

    def is_independent(self, start: int) -> bool:
        """No name stands on both sides of that place."""
        at = bisect_right(self._starts, start) - 1
        return at >= 0 and self._starts[at] == start

    def first_of(self, replies: Iterable[tuple[str | None, str]]) -> int | None:
        """The first entry that has the turn or the stream of a reply; None where none has."""
        found = [
            self._first.get(hash(name))
            for turn, stream in replies
            for name in (("turn", turn), ("stream", stream))
        ]
        return min((seq for seq in found if seq is not None), default=None)

    @property
    def held_bytes(self) -> int:
        """About so much memory."""
        tables = (
            *(self._first, self._calls, self._starts, self._counts),
            *(self._turn_of, self._submitted_at, self._ended, self._tied, self._gone),
        )
        numbers = 2 * (len(self._first) + len(self._starts)) + len(self._calls) + len(self._gone)
        numbers += 4 * (len(self._turn_of) + len(self._submitted_at)) + len(self._ended)
        return sum(map(getsizeof, tables)) + _NUMBER_BYTES * numbers + self._turn_bytes

    def take(self, event: Event) -> None:
        """The next entry, in order of seq."""
        kind, seq, turn = event.type, event.seq, event.turn
        assert seq > self.last_seq, f"{seq} after {self.last_seq}"
        self.last_seq = self._reach = seq
        if turn is not None:
            if turn != self._last_turn:
                self._first.setdefault(hash(("turn", turn)), seq)
                self._last_turn = turn
            if self._tied and hash(turn) in self._tied:
                self._name("turn", turn)
        if (take := _TAKES.get(kind)) is not None:
            take(self, event)
        is_message = kind in _OF_MESSAGES
        if "_message" in event.payload and declared_message(event) is not None:
            is_message = True
            self._name("entry", event.id)
        if self._reach < seq:
            self._cut()
        if is_message:
            if self._reach == seq:
                self._starts.append(seq)
                self._counts.append(self._count)
            self._count += 1

    def opening(self, start: int, events: Iterable[Event]) -> list[Event]:
        """What is said of turns that these events, from `start` on, go on with: that they were
        submitted, and that they have ended.
        """
        told: list[Event] = []
        for turn in dict.fromkeys(turn for event in events for turn in _turns(event)):
            submitted, is_promised = self._submitted_at.get(hash(turn), (start, False))
            if submitted < start:
                payload = {"calls": "journal"} if is_promised else {}
                told.append(_said(0, "turn_submitted", turn, payload))
                if hash(turn) in self._ended:
                    told.append(_said(0, "turn_completed", turn, {}))
        return told

    def _cut(self) -> None:
        """Places before which the newest entry's names stand, too, are independent no more."""
        starts, reach = self._starts, self._reach
        while starts and starts[-1] > reach:
            starts.pop()
            self._counts.pop()

    # --- within ---------------------------------------------------------------------------------

    def _name(self, kind: str, name: object) -> None:
        """It acts on whatever has that name."""
        if isinstance(name, str):
            self._mark(hash((kind, name)))

    def _mark(self, name: int) -> None:
        first = self._first.setdefault(name, self.last_seq)
        if first < self._reach:
            self._reach = first

    def _called(self, turn: object, call_id: object) -> None:
        """It acts on the calls of that turn and id."""
        if isinstance(call_id, str):
            self._mark(hash(("called", turn if isinstance(turn, str) else None, call_id)))

    def _tie(self, turn: str) -> None:
        self._tied.add(hash(turn))
        self._name("turn", turn)

    def _submitted(self, event: Event) -> None:
        payload = event.payload
        self._name("entry", event.id)
        self._name("message", payload.get("message_id"))
        if event.turn is None:
            return
        is_promised = payload.get("calls") == "journal"
        self._submitted_at.setdefault(hash(event.turn), (event.seq, is_promised))
        if isinstance(retried := payload.get("retry_of"), str):
            self._tie(event.turn)
            self._tie(retried)

    def _ends(self, event: Event) -> None:
        self._ended.add(hash(event.turn))

    def _replies(self, event: Event) -> None:
        stream = str(event.payload.get("stream_id"))
        self._name("stream", stream)
        if event.turn is not None:
            before = self._turn_of.get(hash(stream))
            self._turn_bytes += getsizeof(event.turn) - (getsizeof(before) if before else 0)
            self._turn_of[hash(stream)] = event.turn

    def _begins(self, event: Event) -> None:
        """Of a call that its program began: such a one takes a result from any turn."""
        call_id = event.payload.get("call_id")
        if event.turn and isinstance(call_id, str):
            self._spoken_of(call_id)
            self._calls[hash((event.turn, call_id))] = _UNSURE
            self._called(event.turn, call_id)

    def _goes_on(self, event: Event) -> None:
        payload = event.payload
        self._called(event.turn, payload.get("call_id"))
        if event.type == "observation":
            self._called(payload.get("of_turn"), payload.get("of_call"))

    def _settled(self, event: Event) -> None:
        of = event.payload.get("of")
        if isinstance(of, dict):
            self._called(of.get("turn"), of.get("call_id"))
            if "stream" in of:
                self._called(None, of.get("call_id"))

    def _summary(self, event: Event) -> None:
        self._name("entry", event.id)

    def _message(self, event: Event) -> None:
        payload = event.payload
        self._name("entry", event.id)
        if payload.keys() <= _WORDS and isinstance(payload.get("content"), str):
            return  # it says no call, no result and no other name: most do
        stream, step = payload.get("_wal_stream"), payload.get("_wal_seq")
        if isinstance(stream, str):
            self._first.setdefault(hash(("stream", stream)), event.seq)
            if isinstance(step, int):
                self._mark(hash(("step", stream, step)))
        self._name("message", payload.get("_message_id"))
        if "_wal_recovered" in payload:
            self._name("stream", str(stream))
            for turn in (event.turn, payload.get("_turn"), self._turn_of.get(hash(str(stream)))):
                if isinstance(turn, str):
                    self._tie(turn)
        if check_payload(event.type, payload) is not None:
            return
        turn = self._turn(event, payload)
        if turn is not None and hash(turn) in self._tied:
            self._name("turn", turn)
        is_new = not isinstance(payload.get("_wal_stream"), str)
        if payload.get("role") == "assistant":
            for one in calls_in(payload):
                self._say(turn, one["id"], is_new=is_new)
            self._brought(turn, payload)
        for call_id, _ in results_in(payload):
            self._answer(turn, call_id)

    def _edited(self, event: Event) -> None:
        payload = event.payload
        self._name("entry", event.id)
        for name in ("target", "message_id"):
            self._name("message", payload.get(name))
        self._name("entry", payload.get("target"))
        one = payload.get("message")
        listed = [one] if isinstance(one, dict) else []
        for name in ("messages", "replacement"):
            if isinstance(given := payload.get(name), list):
                listed += [one for one in given if isinstance(one, dict)]
        for message in listed:
            self._names_of(message)
            turn = self._turn(event, message)
            for call in calls_in(message):  # of any turn, where one fits
                self._name("call", call["id"])
                self._calls[hash((turn, call["id"]))] = _UNSURE
                self._called(turn, call["id"])
            for call_id, _ in results_in(message):
                self._answer(turn, call_id)

    def _names_of(self, message: Mapping[str, Any]) -> None:
        self._name("turn", message.get("_turn"))
        self._name("stream", message.get("_wal_stream"))
        self._name("message", message.get("_message_id"))

    def _turn(self, event: Event, message: Mapping[str, Any]) -> str | None:
        turn = event.turn or message.get("_turn")
        if not isinstance(turn, str) and message.get("_wal_recovered"):
            turn = self._turn_of.get(hash(str(message.get("_wal_stream"))))
        return turn if isinstance(turn, str) else None

    def _say(self, turn: str | None, call_id: str, *, is_new: bool) -> None:
        """is_new: it can be no other call's words said once more."""
        self._spoken_of(call_id)
        name = hash((turn, call_id))
        known = self._calls.get(name)
        if known is None or (known == _ANSWERED and is_new):
            self._calls[name] = _OPEN
        self._called(turn, call_id)

    def _spoken_of(self, call_id: str) -> None:
        name = hash(("call", call_id))
        self._first.setdefault(name, self.last_seq)
        if name in self._gone:
            self._mark(name)

    def _left(self, event: Event) -> None:
        """What is left of a reply that went: a message of its turn, which stands before it; its
        calls may be those that other words of their ids are about. Of one that tells of the model
        alone no message is made.
        """
        if not (event.payload.get("calls") or event.payload.get("results")):
            return
        if event.turn is not None:
            self._tie(event.turn)
        self._name("stream", event.payload.get("stream"))
        for listed in (event.payload.get("calls"), event.payload.get("results")):
            for one in listed if isinstance(listed, list) else ():
                if isinstance(one, dict) and isinstance(call_id := one.get("call_id"), str):
                    self._name("call", call_id)
                    self._called(event.turn, call_id)
                    self._gone.add(hash(("call", call_id)))
                    self._calls[hash((event.turn, call_id))] = _UNSURE

    def _answer(self, turn: str | None, call_id: str) -> None:
        """A result goes to the call of its turn, or else to the newest of any."""
        name = hash((turn, call_id))
        if self._calls.get(name) == _OPEN:
            self._calls[name] = _ANSWERED
        else:
            self._name("call", call_id)
        self._called(turn, call_id)

    def _brought(self, turn: str | None, message: Mapping[str, Any]) -> None:
        results = message.get("tool_results")
        for one in results if isinstance(results, list) else ():
            if isinstance(one, dict):
                self._answer(turn, str(one.get("id")))


def _turns(event: Event) -> Iterator[str]:
    """That an entry is of."""
    if event.turn is not None:
        yield event.turn
    if event.type == "message" and isinstance(turn := event.payload.get("_turn"), str):
        yield turn


def _said(seq: int, kind: str, turn: str, payload: dict[str, Any]) -> Event:
    return Event(seq=seq, id="", type=kind, turn=turn, payload=payload)


_TAKES: Final = {
    "turn_submitted": TailIndex._submitted,
    "turn_assistant_started": TailIndex._replies,
    "turn_completed": TailIndex._ends,
    "turn_interrupted": TailIndex._ends,
    **dict.fromkeys(TOOL_TYPES, TailIndex._goes_on),
    "tool_intent": TailIndex._begins,
    "tool_started": TailIndex._begins,
    **dict.fromkeys(("tool_settled", "child"), TailIndex._settled),
    "model_call": TailIndex._left,
    "branch_summary": TailIndex._summary,
    "message": TailIndex._message,
    "message_edit": TailIndex._edited,
    "compaction": TailIndex._edited,
}
