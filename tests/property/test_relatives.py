"""Laws of a family of sessions, forked from each other and imported into each other: a call that
ran in one, and of which nobody who knew it said what became of it, is doubted wherever it is known.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st
from session_log import Log
from walld_client.errors import Refused
from walld_client.steps import run as run_steps
from walld_client.wire import messages as wire

from walld.cli.session import import_file
from walld.daemon.session_store.fork_contents import forked_session
from walld.sessions.gate.resume import resume
from walld.sessions.gate.turn_history import calls_of
from walld.sessions.state.entries import entry_event, event_line, events_of
from walld.sessions.state.events import Event, as_dict
from walld.sessions.state.tools import named_call

STRICT = ("replay", "rerun_after_check", "ask_user", "never")
RISKS = {
    "pay": ("external-write", "never-rerun"),
    "send": ("external-write", "require-user-confirmation"),
    "look": ("read", "replay-from-event"),
}
LEAST = {"pay": "never", "send": "ask_user", "look": "replay"}
SETTLES = ("tool_finished", "observation")


class Run(msgspec.Struct, frozen=True):
    """A call that ran. call: id of its intent."""

    start: str
    call: str
    key: tuple[str, str]
    tool: str


class Member:
    """A session, and what is known in it. It answers an import as the daemon does."""

    def __init__(self, number: int) -> None:
        self.log = Log()
        self.number, self.said = number, 0
        self.open: set[Run] = set()
        self.settled: dict[Run, str] = {}
        """And the entry that says so; empty where an import brought it."""

    @property
    def events(self) -> list[Event]:
        return self.log.events

    @property
    def written(self) -> list[bytes]:
        return [
            event_line(one, json.dumps(one.payload).encode(), b"\0" * 16) for one in self.events
        ]

    def say(self, kind: str, payload: dict[str, Any], turn: str | None, **more: Any) -> bool:
        """Somebody says it here, where it may come; what it says of runs is known then."""
        self.said += 1
        named = f"m{self.number}-{self.said}"
        if self.log.offer(kind, payload, turn=turn, id=named, **more) is not None:
            return False
        key = named_call(self.events[-1])
        if kind == "tool_started":
            call = calls_of(self.events)[named]
            intent = next(event for event in self.events if event.id == call)
            assert key is not None
            self.open.add(Run(named, call, key, intent.payload["tool"]))
        elif kind in SETTLES:
            newest = calls_of(self.events).get(named)
            if "of_call" in payload:  # it is of all that are called so, also of what has ended
                by_name = {run: named for run in self.settled if run.key == key}
                self.settled |= by_name
            for run in [*self.open]:
                if run.key == key and ("of_call" in payload or run.call == newest):
                    self.open.remove(run)
                    self.settled[run] = named
        return True

    def fork(self, at: str | None, whole: bool, number: int) -> Member:
        child = Member(number)
        request = wire.Fork(1, "s", f"f{number}", at, whole)
        last_seq = self.events[-1].seq if self.events else 0
        for event in events_of(
            forked_session(events_of(self.written), request, 0, 5, last_seq).lines
        ):
            child.log.undos.append(child.log.state.apply(event))
            child.log.events.append(event)
        begun = calls_of(child.events)
        here = {*begun, *begun.values()}
        child.open = {run for run in self.open if whole or {run.start, run.call} & here}
        ids = {event.id for event in child.events}
        child.settled = {run: word for run, word in self.settled.items() if word in {"", *ids}}
        again = self.settled.keys() - child.settled.keys()
        child.open |= {run for run in again if {run.start, run.call} & here}
        return child

    def take(self, other: Member) -> None:
        """Import what the other exports."""
        # What the source knows to be settled may be so here; of all else it says nothing.
        self.open = (self.open - other.settled.keys()) | (other.open - self.settled.keys())
        news = other.settled.keys() - self.settled.keys() - self.open
        self.settled |= dict.fromkeys(news, "")
        more = {"chain": "", "crc": ""}
        lines = [json.dumps(as_dict(one) | {"at": one.at_ms} | more) for one in other.events]
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write("".join(line + "\n" for line in lines))
            file.flush()
            words = {"file": file.name, "format": "walld", "session": "x", "json": True}
            words |= {"follow": False}
            assert import_file.run(self, argparse.Namespace(**words)) == 0  # type: ignore[arg-type]

    def ask(self, make: Callable[[int], Any], *_: Any, **__: Any) -> bytes:
        request = make(1)
        state, placed, taken = self.log.state, [], 0
        for entry in request.entries:
            seq = state.ids.get(entry.id)
            if entry.once and seq is not None:
                placed.append(wire.Placed(seq, entry.id, is_new=False))
                continue
            event = entry_event(state, entry, None, 1000)
            if (problem := state.check(event)) is not None:
                for _ in range(taken):
                    state.revert(self.log.undos.pop())
                    self.log.events.pop()
                raise Refused(problem.code, problem.got, problem.limit, problem.message)
            self.log.undos.append(state.apply(event))
            self.log.events.append(event)
            taken += 1
            placed.append(wire.Placed(event.seq, entry.id))
        return msgspec.msgpack.encode(placed)

    def run(self, steps: Any) -> Any:
        return run_steps(self, steps)

    def lines(self, session_id: str, after: int = 0) -> Iterator[bytes] | None:
        assert session_id == "x"
        return iter(self.written[after:])


def assert_told(member: Member) -> None:
    """Of each run that is open here the gate says so, and what may be done at most."""
    gate = resume(member.events)
    for run in member.open:
        told = [
            tool["may"]
            for tool in gate["tools"]
            if ((tool["turn"], tool["call_id"]), tool["outcome"]) == (run.key, "unknown")
        ]
        assert told, run
        assert max(map(STRICT.index, told)) >= STRICT.index(LEAST[run.tool]), run


turns = st.just("t1")
calls = st.sampled_from(["c1", "c1", "c1", "c2"])
members = st.integers(0, 2)
intents = st.tuples(st.just("intent"), members, turns, calls, st.sampled_from([*RISKS]))
forks = st.tuples(st.sampled_from(["fork", "whole"]), members, st.none() | st.integers(0, 9))
steps = st.one_of(
    intents,
    intents,
    st.tuples(
        st.sampled_from(
            [
                *("tool_started", "tool_started", "tool_finished", "observation"),
                *("by_name", "denied", "granted"),
            ]
        ),
        members,
        turns,
        calls,
    ),
    st.tuples(st.sampled_from(["turn_interrupted", "turn_completed"]), members, turns),
    st.tuples(st.just("back"), members, st.integers(0, 9)),
    forks,
    st.tuples(st.just("import"), members, members),
)
places = st.none() | st.integers(0, 6)
words = st.sampled_from(["tool_finished", "observation", "by_name", "denied"])


def in_order(*steps: Any) -> st.SearchStrategy[list[Any]]:
    """Steps of one call id, what may vary in them drawn."""
    return st.tuples(*(st.tuples(*map(_drawn, step)) for step in steps)).map(list)


def _drawn(part: Any) -> st.SearchStrategy[Any]:
    return part if isinstance(part, st.SearchStrategy) else st.just(part)


tools = st.sampled_from([*RISKS])
intended = ("intent", 0, "t1", "c1", tools)
started = ("tool_started", 0, "t1", "c1")
harmless = ("intent", 0, "t1", "c1", "look")
parted = (st.sampled_from(["fork", "whole"]), 0, places)
beginnings = st.one_of(
    # A relative that does not know, or knows, of the start.
    in_order(intended, parted, started, (words, 1, "t1", "c1"), ("import", 0, 1)),
    in_order(intended, started, parted, (words, 1, "t1", "c1"), ("import", 0, 1)),
    in_order(intended, started, parted, (words, 1, "t1", "c1"), ("fork", 1, places)),
    # A call id that is given again, its calls on several branches.
    in_order(
        *(harmless, started, (words, 0, "t1", "c1"), ("back", 0, st.integers(1, 2))),
        *(("intent", 0, "t1", "c1", "pay"), started, (parted[0], 0, None)),
    ),
    in_order(
        *(intended, (words, 0, "t1", "c1"), intended, ("back", 0, places)),
        *(started, parted),
    ),
)


def play(family: list[Member], step: Any) -> None:
    """The step, where it may come."""
    name, place, *more = step
    one = family[place % len(family)]
    ids = [event.id for event in one.events]
    if name == "intent":
        turn, call, tool = more
        said = {"call_id": call, "tool": tool}
        risk = dict(zip(("side_effect", "resume_policy"), RISKS[tool], strict=True))
        one.say("turn_submitted", {"message_id": f"m-{turn}", "content": "q"}, turn)
        one.say("tool_intent", said | risk, turn)
    elif name == "by_name":
        one.say("observation", {"of_turn": more[0], "of_call": more[1]}, None)
    elif name in ("denied", "granted"):
        one.say("tool_approval", {"call_id": more[1], "state": name}, more[0])
    elif name.startswith("turn_"):
        one.say(name, {"reason": "why"}, more[0])
    elif name == "back":
        at = None if more[0] is None or not ids else ids[more[0] % len(ids)]
        one.say("leaf", {"target": at}, None)
    elif name == "import":
        other = family[more[0] % len(family)]
        if other is not one and other.events:
            one.take(other)
    elif name in ("fork", "whole"):
        at = None if more[0] is None or not ids else ids[more[0] % len(ids)]
        family.append(one.fork(at, name == "whole", len(family)))
    else:
        one.say(name, {"call_id": more[1]}, more[0])


FORK = ("fork", 0, None)
GIVEN_AGAIN = [
    *(("intent", 0, "t1", "c1", "look"), ("tool_started", 0, "t1", "c1")),
    *(("tool_finished", 0, "t1", "c1"), ("back", 0, 2), ("intent", 0, "t1", "c1", "pay")),
    *(("tool_started", 0, "t1", "c1"), FORK),
]
"""On a branch from before its result, which comes to the fork behind the start of the second."""


@settings(max_examples=150)
@example(GIVEN_AGAIN, [("import", 1, 0)])
@example([*GIVEN_AGAIN[:3], ("back", 0, 1), *GIVEN_AGAIN[4:]], [("by_name", 0, "t1", "c1"), FORK])
@given(beginnings, st.lists(steps, max_size=6))
def test_what_ran_is_doubted_wherever_it_is_known(begin: list[Any], steps: list[Any]) -> None:
    """Until somebody who knew says what became of it. A denial is such a word of a call that did
    not start here, so a run that is denied elsewhere may be told or not.
    """
    first = Member(0)
    first.say("turn_submitted", {"message_id": "m-t1", "content": "q"}, "t1")
    family = [first]
    for step in [*begin, *steps]:
        play(family, step)
        if step[0] == "denied":  # who was told of a start may deny it
            one = family[step[1] % len(family)]
            told = {
                (tool["turn"], tool["call_id"])
                for tool in resume(one.events)["tools"]
                if tool["outcome"] == "unknown"
            }
            gone = {run for run in one.open if run.key not in told}
            one.open -= gone
            one.settled |= dict.fromkeys(gone, "")
        for one in family:
            assert_told(one)
    for one in family:
        for tool in resume(one.events)["tools"]:
            said = {"of_turn": tool["turn"], "of_call": tool["call_id"]}
            assert one.say("observation", said, None)
        assert resume(one.events)["tools"] == [], "each is settled by its name"
