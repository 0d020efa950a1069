"""Laws of an import of walld's own lines: the gate there is no laxer than where they came from."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
import pytest
from engine_world import UID, World
from hypothesis import given, settings
from hypothesis import strategies as st
from session_log import Log
from walld_client.errors import Refused
from walld_client.steps import run as run_steps
from walld_client.wire import messages as wire

from walld.cli.session import import_file
from walld.engine.session_log import SessionLog
from walld.errors import Refusal
from walld.sessions.gate.resume import resume
from walld.sessions.gate.turn_history import history_of
from walld.sessions.state.entries import events_of
from walld.sessions.state.events import Event, as_dict
from walld.sessions.state.session_state import SessionState

STRICTNESS = ("replay", "rerun_after_check", "ask_user", "never")
EFFECTS = ("none", "read", "workspace-write", "external-write")
POLICIES = (
    *("replay-from-event", "rerun-after-check"),
    *("require-user-confirmation", "never-rerun"),
)
FILES = {"x": "a" * 64}
NOWS: list[dict[str, Any] | None] = [None, {"files": FILES}, {"files": {"x": "b" * 64}}]


class Killed(Exception):
    """The command ends here."""


class Here:
    """What the command asks a daemon, answered by an engine. process: of the command.

    requests_left: it is killed when it sends more; below 0: never.
    """

    def __init__(self) -> None:
        self.world = World()
        self.requests_left = -1
        self.process = self.world.process()
        self.ledger = SessionLog(UID, "copy", SessionState(), SessionLog.first_chain(UID, "copy"))
        self.world.engine.session_logs.open[UID, "copy"] = self.ledger

    def ask(self, make: Callable[[int], Any], *_: Any, **__: Any) -> bytes:
        request = make(1)
        assert isinstance(request, wire.Append), "content here is short"
        if self.requests_left == 0:
            raise Killed
        self.requests_left -= 1
        try:
            placed = self.world.engine.session_logs.append(
                self.ledger, request.entries, None, self.process, 5, 0.0, unowned=request.unowned
            )
        except Refusal as refused:
            got, limit = str(refused.got), str(refused.limit)
            raise Refused(refused.code, got, limit, str(refused)) from None
        return msgspec.msgpack.encode(placed)

    def run(self, steps: Any) -> Any:
        return run_steps(self, steps)

    def lines(self, session_id: str, after: int = 0) -> Iterator[bytes] | None:
        assert session_id == "copy"
        return iter([one.line for one in self.ledger.pending if one.seq > after])

    @property
    def events(self) -> list[Event]:
        return events_of(one.line for one in self.ledger.pending)

    def say(self, kind: str, payload: dict[str, Any], turn: str, number: int) -> None:
        """Somebody's word in the copy, where it may come."""
        entry = wire.NewEntry(kind, json.dumps(payload).encode(), f"here-{number}", turn=turn)
        try:
            self.world.engine.session_logs.append(self.ledger, [entry], None, None, 5, 0.0)
        except Refusal:
            return

    def take(self, events: list[Event], last_seq: int) -> None:
        """`walld session import` of an export of them."""
        more = {"chain": "", "crc": ""}
        lines = [json.dumps(as_dict(one) | {"at": one.at_ms} | more) for one in events]
        if last_seq > (events[-1].seq if events else 0):
            lines.append(json.dumps({"walld": 1, "last_seq": last_seq}))
        if not lines:
            return  # an empty file is refused
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write("".join(line + "\n" for line in lines))
            file.flush()
            words = {"file": file.name, "format": "walld", "session": "copy", "json": True}
            words |= {"follow": False}
            assert import_file.run(self, argparse.Namespace(**words)) == 0  # type: ignore[arg-type]


ENDS = ("turn_interrupted", "turn_completed")
WORDS = (*ENDS, "denied", "granted", "observation", "tool_finished")
turns = st.sampled_from(["t1", "t2"])
calls = st.sampled_from(["c1", "c2"])
steps = st.one_of(
    st.tuples(st.just("submit"), turns),
    st.tuples(st.just("intent"), turns, calls, st.sampled_from(EFFECTS), st.sampled_from(POLICIES)),
    st.tuples(
        st.sampled_from(["tool_started", "tool_started", "tool_finished", "observation"]),
        turns,
        calls,
    ),
    st.tuples(st.sampled_from(["asked", "granted", "denied", "by_name"]), turns, calls),
    st.tuples(
        st.sampled_from(["turn_worker_started", "turn_completed", "turn_interrupted"]), turns
    ),
    st.tuples(st.sampled_from(["message", "label", "back", "root", "lifecycle", "forked"])),
)
logs = st.lists(steps, max_size=14).map(
    lambda found: [("submit", "t1"), ("intent", "t1", "c1", EFFECTS[3], POLICIES[3]), *found]
)


def play(log: Log, step: Any) -> None:
    """The step, where it may come."""
    name, *more = step
    if name == "submit":
        log.offer("turn_submitted", {"message_id": f"m-{more[0]}", "content": "x"}, turn=more[0])
    elif name == "intent":
        turn, call, effect, policy = more
        payload = {"call_id": call, "tool": "x", "side_effect": effect, "resume_policy": policy}
        log.offer("tool_intent", payload, turn=turn)
    elif name in ("asked", "granted", "denied"):
        log.offer("tool_approval", {"call_id": more[1], "state": name}, turn=more[0])
    elif name == "by_name":
        log.offer("observation", {"of_turn": more[0], "of_call": more[1]})
    elif name.startswith("turn_"):
        log.offer(name, {"reason": "why"}, turn=more[0])
    elif len(more) == 2:
        files = {"files": FILES} if name == "tool_finished" else {}
        log.offer(name, {"call_id": more[1]} | files, turn=more[0])
    elif name == "message":
        log.offer("message", {"role": "user", "content": "x"})
    elif name == "label":
        log.offer("label", {"target": "e1", "text": "x"})
    elif name == "lifecycle":
        log.offer("lifecycle", {"fingerprint": {"files": {"x": "a" * 64}}})
    elif name == "forked":
        said = {"session": "s", "missing": [[1, 1]], "started": ["e2"]}
        log.offer("forked", said, leaf=False)
    else:
        log.offer("leaf", {"target": "e1" if name == "back" else None})


Call = tuple[str, str]


def doubted(events: list[Event]) -> set[Call]:
    """Calls that the gate says may have run."""
    tools = resume(events)["tools"]
    return {(one["turn"], one["call_id"]) for one in tools if one["outcome"] == "unknown"}


def assert_no_laxer(
    source: list[Event], last_seq: int, copy: list[Event], knew: AbstractSet[Call] = frozenset()
) -> None:
    """Of each call that the source's gate names, and of its workspace.

    knew: what the copy's gate doubted when something was said there. What was denied, or observed,
    before that says nothing of a start elsewhere.
    """
    settled = {
        one.intent.id
        for one in history_of(copy).tools
        if one.state.closed
        if (one.turn, one.call_id) in knew or one.state.seqs.keys() & {"finished", "failed"}
    }
    approved = {one.intent.id for one in history_of(copy).tools if "approved" in one.state.seqs}
    for now in NOWS:
        theirs, ours = resume(source, now, last_seq=last_seq), resume(copy, now)
        told = {one["intent"] or (one["turn"], one["call_id"]): one for one in ours["tools"]}
        for tool in theirs["tools"]:
            key = tool["turn"], tool["call_id"]
            both = [one for one in (told.get(tool["intent"]), told.get(key)) if one is not None]
            here = max(both, key=lambda one: STRICTNESS.index(one["may"]), default=None)
            if here is None:
                harmless = tool["outcome"] == "pending"
                harmless &= tool["may"] == "replay" or tool["intent"] in approved
                assert harmless or tool["intent"] in settled, f"{key} is not told"
                continue
            if (tool["outcome"], here["state"]) == ("pending", "approved"):
                continue  # here, by somebody
            assert STRICTNESS.index(here["may"]) >= STRICTNESS.index(tool["may"]), key
            assert tool["outcome"] != "unknown" or here["outcome"] == "unknown", key
        theirs_changed = set(theirs["workspace"]["changed"])
        assert theirs_changed <= set(ours["workspace"]["changed"])
        asks = any(one["may"] in STRICTNESS[2:] for one in ours["tools"])
        assert (ours["status"] == "blocked") >= asks


@settings(max_examples=100)
@given(
    logs,
    logs,
    st.sets(st.integers(1, 12), max_size=4),
    st.lists(st.tuples(st.sampled_from(WORDS), turns, calls), max_size=2),
    st.booleans(),
)
def test_the_gate_of_an_import_is_no_laxer(
    first: list[Any],
    second: list[Any],
    lost: set[int],
    meanwhile: list[tuple[str, str, str]],
    is_told: bool,
) -> None:
    """Lines taken out, repeated behind what the source did since, whatever was said in the copy."""
    log, here, knew = Log(), Here(), set[Call]()
    for number, steps in enumerate((first, second)):
        for step in steps:
            play(log, step)
        left = [one for one in log.events if one.seq not in lost]
        last_seq = log.state.last_seq if is_told else max((one.seq for one in left), default=0)
        here.take(left, last_seq)
        assert_no_laxer(left, last_seq, here.events, knew)
        count = len(here.events)
        here.take(left, last_seq)
        assert len(here.events) == count, "again adds nothing"
        assert not here.process.turns, "nobody's"
        assert not any(one.owner for one in here.events)
        if number == 0:
            knew = doubted(here.events)
            for place, (word, turn, call) in enumerate(meanwhile):
                payload = {"reason": "operator"} if word in ENDS else {"call_id": call}
                if word in ("granted", "denied"):
                    here.say("tool_approval", payload | {"state": word}, turn, place)
                else:
                    here.say(word, payload, turn, place)


def without_new_ids(gate: dict[str, Any]) -> dict[str, Any]:
    """Without those that each import draws for entries of its own."""
    calls = [one | {"of": one["of"] | {"entry": None}} for one in gate["calls"]]
    return gate | {"as_of": None, "calls": calls}


@settings(max_examples=100)
@given(logs, st.sets(st.integers(1, 12), max_size=2), st.integers(0, 8))
def test_an_import_that_is_killed_lets_nothing_run(
    steps: list[Any], lost: set[int], requests: int
) -> None:
    """Repeated it is as if it had not been; where it cannot be, somebody says that it has ended."""
    log, here, whole = Log(), Here(), Here()
    for step in steps:
        play(log, step)
    left = [one for one in log.events if one.seq not in lost]
    if not left:
        return
    whole.take(left, log.state.last_seq)
    here.requests_left = requests
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_file, "_ENTRIES_MAX", 2)
        try:
            here.take(left, log.state.last_seq)
            return
        except Killed:
            here.requests_left = -1
    if here.events:
        told = resume(here.events)
        assert "import_unfinished" in [one["code"] for one in told["reasons"]]
        assert all(one["outcome"] == "unknown" for one in told["tools"])
        named = {one["intent"] for one in told["tools"]}
        for tool in history_of(here.events).tools:
            is_settled = tool.state.seqs.keys() & {"finished", "failed", "observed"}
            ended = tool.turn and history_of(here.events).turns[tool.turn].state.terminal_seq
            assert tool.intent.id in named or is_settled or ended
    here.take(left, log.state.last_seq)
    assert without_new_ids(resume(here.events)) == without_new_ids(resume(whole.events))


@settings(max_examples=100)
@given(logs)
def test_what_is_whole_comes_as_it_was(steps: list[Any]) -> None:
    log, here = Log(), Here()
    for step in steps:
        play(log, step)
    here.take(log.events, log.state.last_seq)
    begun, *copies, ended = [as_dict(one) for one in here.events]
    assert copies == [as_dict(one) | {"seq": one.seq + 1} for one in log.events]
    last = log.events[-1].id
    assert (begun["payload"], ended["payload"]) == ({"begun": last}, {"ended": last})
