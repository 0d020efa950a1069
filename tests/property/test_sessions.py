"""Laws of sessions: views of any prefix, branches, undos, compactions, snapshots, forks."""

from __future__ import annotations

import copy
import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from session_log import INTENT, Log

from walld.sessions.gate.fork import forked
from walld.sessions.state.events import KNOWN, Event
from walld.sessions.state.path import path_events
from walld.sessions.state.session_state import SessionState
from walld.sessions.views.audit import audit
from walld.sessions.views.messages import messages
from walld.sessions.views.projections import PROJECTIONS, project

law = settings(max_examples=60)

turns = st.sampled_from(["t1", "t2", "t3"])
calls = st.sampled_from(["c1", "c2"])
roles = st.sampled_from(["user", "assistant", "system", "tool"])
texts = st.sampled_from(["", " ", "a", "b\n", "\ud83d"])
SHA = "a" * 64


@st.composite
def actions(draw: st.DrawFn) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Type, payload, the rest; entries named by how far back they stand."""
    entry = draw(st.integers(1, 12))
    turn, call = draw(turns), draw(calls)
    tool_calls = [{"id": call, "name": "bash", "arguments": draw(st.sampled_from(["{}", "1", ""]))}]
    message: dict[str, Any] = {"role": draw(roles), "content": draw(texts)}
    if message["role"] == "assistant" and draw(st.booleans()):
        message |= {"tool_calls": tool_calls, "reasoning": "secret"}
        message |= draw(st.sampled_from([{}, {"_wal_stream": "s", "_wal_seq": 1}]))
    elif message["role"] == "tool":
        message["tool_call_id"] = call
    kind = draw(
        st.sampled_from(
            [
                ("message", message),
                ("message", message),
                ("message_edit", {"target": entry, "message": message}),
                ("message_edit", {"target": f"m-{turn}", "message": message}),
                ("message_edit", {"messages": [message]}),
                ("undo", {"n": draw(st.integers(1, 3))}),
                ("label", {"target": entry, "text": draw(st.sampled_from(["x", None]))}),
                ("branch_summary", {"target": entry, "text": "s"}),
                ("setting", {"key": "k", "value": entry}),
                ("model_change", {"model": "m"}),
                ("compaction", {"summary": "sum", "first_kept": entry}),
                ("compaction", {"replacement": [message]}),
                ("leaf", {"target": draw(st.sampled_from([entry, None]))}),
                ("turn_submitted", {"message_id": f"m-{turn}", "content": "q"}),
                ("turn_submitted", {"retry_of": "t1", "content": "q"}),
                ("turn_worker_started", {}),
                ("turn_assistant_started", {"stream_id": "s"}),
                ("turn_completed", {}),
                ("turn_interrupted", {"reason": "agent_lost"}),
                ("tool_intent", {"call_id": call, **INTENT}),
                ("tool_approval", {"call_id": call, "state": draw(st.sampled_from(
                    ["asked", "granted", "denied"]))}),
                ("tool_started", {"call_id": call}),
                ("tool_finished", {"call_id": call, "files": {"a": SHA}}),
                ("observation", {"call_id": call, "text": "t"}),
                ("artifact", {"sha256": SHA, "size": 1, "media_type": "a/b"}),
                ("lifecycle", {"fingerprint": {"head": "h", "dirty": False, "files": {}}}),
                ("budget", {"used": 1, "limit": 2}),
                ("app.own", {"anything": [1]}),
            ]
        )
    )  # fmt: skip
    more: dict[str, Any] = {"turn": turn} if kind[0].startswith(("turn", "tool", "obs")) else {}
    if draw(st.integers(0, 9)) == 0:
        more["leaf"] = False
    if draw(st.integers(0, 6)) == 0:
        more["parent"] = draw(st.integers(1, 12))
    if draw(st.integers(0, 4)) == 0:
        more["key"] = draw(st.sampled_from(["k1", "k2"]))
    return *kind, more


def offered(log: Log, action: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
    kind, payload, more = copy.deepcopy(action)
    for fields, name in ((payload, "target"), (payload, "first_kept"), (more, "parent")):
        if isinstance(fields.get(name), int):
            fields[name] = f"e{max(log.state.last_seq + 1 - fields[name], 1)}"
    log.offer(kind, payload, **more)


@st.composite
def logs(draw: st.DrawFn, length: int = 30) -> Log:
    """A ledger of whatever was accepted."""
    log = Log()
    for action in draw(st.lists(actions(), max_size=length)):
        offered(log, action)
    return log


def folded(events: list[Event]) -> SessionState:
    state = SessionState()
    for event in events:
        state.apply(event)
    return state


@law
@given(logs(), st.data())
def test_any_prefix_projects_to_json(log: Log, data: st.DataObject) -> None:
    events = log.events[: data.draw(st.integers(0, len(log.events)))]
    before = copy.deepcopy(events)
    for name in PROJECTIONS:
        view = project(name, events, {})
        assert json.loads(json.dumps(view)) == view, name
    assert events == before, "a view changed what it looked at"
    assert audit(events)["malformed"] == []


@law
@given(logs(), st.sets(st.integers(0, 30)))
def test_a_ledger_with_lines_lost_projects_as_well(log: Log, lost: set[int]) -> None:
    events = [event for place, event in enumerate(log.events) if place not in lost]
    for name in PROJECTIONS:
        json.dumps(project(name, events, {}))
    state = folded(events)
    assert SessionState.from_base(state.to_base()).to_base() == state.to_base()


@law
@given(logs())
def test_what_a_provider_is_sent(log: Log) -> None:
    for format in ("openai", "anthropic"):  # noqa: A001
        sent = messages(log.events, format)
        if sent is None:
            continue
        roles = [message["role"] for message in sent if message["role"] != "tool"]
        for one, two in pairwise(sent):
            assert one["role"] != two["role"] or one["role"] == "tool", sent
        assert not roles or "secret" not in json.dumps(sent)
        assert_no_orphans(format, sent)


def assert_no_orphans(format: str, sent: list[dict[str, Any]]) -> None:  # noqa: A002
    waiting: list[str] = []
    seen: set[str] = set()
    for message in sent:
        asked, given = said_and_answered(format, message)
        if waiting:
            assert given == waiting[: len(given)], sent
            waiting = waiting[len(given) :]
        else:
            assert not given, sent
        if asked:
            assert not waiting, sent
            assert not seen & set(asked), "an id twice"
            seen |= set(asked)
            waiting = asked
    assert not waiting, sent


def said_and_answered(format: str, message: dict[str, Any]) -> tuple[list[str], list[str]]:  # noqa: A002
    if format == "openai":
        asked = [call["id"] for call in message.get("tool_calls", ())]
        return asked, [message["tool_call_id"]] if message["role"] == "tool" else []
    blocks = message["content"]
    assert blocks
    return (
        [block["id"] for block in blocks if block["type"] == "tool_use"],
        [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"],
    )


@law
@given(logs(), st.integers(1, 5))
def test_undo_takes_off_what_was_seen(log: Log, count: int) -> None:
    seen = messages(log.events) or []
    log.add("undo", {"n": count})
    assert messages(log.events) == seen[: max(len(seen) - count, 0)]


@law
@given(logs())
def test_a_branch_shows_what_its_entry_saw(log: Log) -> None:
    """What stands on a side branch changes nothing, and the old branch stays readable."""
    if log.state.leaf is None:
        return
    at, seen = log.state.leaf, messages(log.events)
    log.say("user", "more")
    log.add("undo", {"n": 9})
    log.add("compaction", {"replacement": []})
    aside = log.state.leaf
    assert messages(log.events, branch=at) == seen
    log.add("leaf", {"target": at})
    assert messages(log.events) == seen
    assert messages(log.events, branch=aside) == []
    log.add("leaf", {"target": None})
    assert messages(log.events) == []


@law
@given(logs())
def test_a_compaction_changes_only_what_is_seen(log: Log) -> None:
    whole, seen = messages(log.events, compacted=False), messages(log.events) or []
    said = [{"role": "user", "content": "short"}]
    log.add("compaction", {"replacement": said})
    assert messages(log.events) == said
    if whole is not None:
        assert messages(log.events, compacted=False) == whole
    log.say("assistant", "on")
    assert messages(log.events) == [*said, {"role": "assistant", "content": "on"}]
    log.add("undo", {"n": 2 + len(seen)})
    assert messages(log.events) == messages(log.events, compacted=False) == []


@law
@given(logs(), st.lists(st.integers(0, 30), max_size=4), st.integers(0, 30))
def test_base_deltas_and_events_are_the_fold(log: Log, cuts: list[int], based: int) -> None:
    state = SessionState()
    base, deltas = state.to_base(), []
    for place, event in enumerate(log.events):
        if place == based:
            base, deltas = state.to_base(), []
        elif place in cuts:
            deltas.append(state.take_delta())
        state.apply(event)
    taken = max([one for one in (*cuts, based) if one < len(log.events)], default=0)
    loaded = SessionState.from_base(base)
    for delta in deltas:
        loaded.apply_delta(delta)
    assert loaded.last_seq == (log.events[taken - 1].seq if taken else 0)
    for event in log.events[taken:]:
        assert loaded.check(event) is None
        loaded.apply(event)
    whole = folded(log.events)
    assert (loaded.leaf, loaded.parents) == (whole.leaf, whole.parents)
    assert loaded.to_base() == whole.to_base() == state.to_base()


@law
@given(logs())
def test_the_first_delta_is_all_of_a_session(log: Log) -> None:
    """A base is made of it where there is none yet: the lines are not read again."""
    whole = folded(log.events)
    first = SessionState()
    first.apply_delta(folded(log.events).take_delta())
    assert (first.leaf, first.last_seq, first.parents) == (
        whole.leaf,
        whole.last_seq,
        whole.parents,
    )
    assert first.to_base() == whole.to_base()


FACTS = (
    "message_id", "retry_of", "stream_id", "reason", "call_id", "tool", "side_effect",
    "resume_policy", "state", "verdict", "failed",
)  # fmt: skip
odd_texts = st.sampled_from(["a", "r\udce9sum\udce9.txt", "\ud83d", "\0", "granted", "t1", "c1"])
odd_values = st.recursive(
    st.none() | st.booleans() | odd_texts | st.sampled_from([0, 2**64, -(2**64), 10**300, 0.5]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(odd_texts, inner, max_size=2),
    max_leaves=4,
)


@st.composite
def odd_events(draw: st.DrawFn) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """What turns and tools are told, with any JSON in what the fold remembers."""
    kind = draw(st.sampled_from([one for one in KNOWN if one.startswith(("turn", "tool", "obs"))]))
    payload: dict[str, Any] = {
        "turn_submitted": {"message_id": draw(odd_texts), "content": draw(odd_values)},
        "turn_assistant_started": {"stream_id": draw(odd_texts)},
        "turn_interrupted": {"reason": draw(odd_texts)},
        "tool_intent": INTENT | {"tool": draw(odd_texts)},
        "tool_decision": {"verdict": draw(odd_texts)},
        "tool_approval": {"state": "granted"},
    }.get(kind, {})
    if not kind.startswith("turn"):
        payload["call_id"] = draw(st.sampled_from(["c1", "\ud83d"]))
    payload |= draw(st.dictionaries(st.sampled_from(FACTS), odd_values, max_size=2))
    more = {"turn": draw(st.sampled_from(["t1", "\udce9"])), "key": draw(st.none() | odd_texts)}
    owner = {"boot": draw(odd_texts), "pid": draw(st.sampled_from([1, 2**70]))}
    return kind, payload, more | {"owner": draw(st.none() | st.just(owner))}


@law
@given(st.lists(odd_events(), max_size=25), st.data())
def test_a_snapshot_holds_whatever_a_session_may_hold(odd: list[Any], data: st.DataObject) -> None:
    """What was checked, and what stands in a file anyway."""
    log, taken = Log(), data.draw(st.booleans())
    for kind, payload, more in odd:
        if taken:
            log.offer(kind, payload, **more)
        else:
            log.stand(kind, payload, **more)
    cuts = data.draw(st.sets(st.integers(0, len(log.events))))
    state, base, deltas = SessionState(), SessionState().to_base(), list[bytes]()
    for place, event in enumerate(log.events):
        if place in cuts and data.draw(st.booleans()):
            base, deltas = state.to_base(), []
        elif place in cuts:
            deltas.append(state.take_delta())
        state.apply(event)
    deltas.append(state.take_delta())
    loaded = SessionState.from_base(base)
    for delta in deltas:
        loaded.apply_delta(delta)
    whole = folded(log.events)
    again = SessionState.from_base(loaded.to_base())
    assert again.to_base() == loaded.to_base()
    if taken:  # a line that may not come can wake a turn at rest, whose record stays in its block
        assert loaded.to_base() == whole.to_base()
    for one in (loaded, again):
        assert told(one) == told(whole)


def told(state: SessionState) -> list[Any]:
    """What a fold answers about every turn, call, message and reply of `odd_events`."""
    journal, turns = state.journal, ("t1", "\udce9")
    names = ("a", "r\udce9sum\udce9.txt", "\ud83d", "\0", "granted", "t1", "c1")
    return [
        (state.leaf, state.last_seq, journal.open_turns()),
        [journal.turn(turn) for turn in turns],
        [journal.tool(turn, call) for turn in turns for call in ("c1", "\ud83d")],
        [(journal.turn_id_of(name), journal.turn_of_stream(name)) for name in names],
    ]


@law
@given(logs(), st.lists(actions(), max_size=8))
def test_revert_is_as_if_it_had_not_come(log: Log, more: list[Any]) -> None:
    before = folded(log.events).to_base()
    kept = len(log.undos)
    for action in more:
        offered(log, action)
    for undo in reversed(log.undos[kept:]):
        log.state.revert(undo)
    assert log.state.to_base() == before


@law
@given(logs(), st.data())
def test_a_fork_tells_the_same_and_could_have_been_appended(log: Log, data: st.DataObject) -> None:
    ids = [event.id for event in log.events]
    at = data.draw(st.sampled_from([None, *ids]))
    source = copy.deepcopy(log.events)
    copies = forked(log.events, at)
    assert log.events == source
    assert len({event.id for event in copies}) == len(copies)
    assert [event.seq for event in copies] == list(range(1, len(copies) + 1))
    assert audit(copies)["malformed"] == []
    on_path = {event.id for event in path_events(log.events, at)}
    assert {event.id for event in copies if event.type != "label"} <= on_path
    expected = messages(log.events, branch=at) if on_path else None
    assert (messages(copies) or []) == (expected or [])
    whole = forked(log.events, whole=True)
    assert [msgspec.structs.replace(event, owner=None) for event in log.events] == whole


class Sessions(RuleBasedStateMachine):
    """SessionState against dicts and lists that say the same plainly."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.kept = 0
        self.ids: list[str] = []
        self.turns: dict[str, tuple[str, int]] = {}

    RANKS = ("submitted", "worker_started", "assistant_started")

    @rule(turn=turns, step=st.sampled_from([*RANKS, "completed", "interrupted"]))
    def advance(self, turn: str, step: str) -> None:
        stream_id = f"s{len(self.ids)}"
        payload = {
            "submitted": {"message_id": turn, "content": "c"},
            "assistant_started": {"stream_id": stream_id},
            "interrupted": {"reason": "why"},
        }.get(step, {})
        problem = self.log.offer(f"turn_{step}", payload, turn=turn)
        state, collisions = self.turns.get(turn, (None, 0))
        ends = ("completed", "interrupted")
        if step == "submitted":
            expected = None if state is None else "illegal_turn"
        elif state is None:
            expected = "unknown_turn"
        elif step in ends or (step == state == "assistant_started"):
            expected = None
        elif state in ends or self.RANKS.index(step) <= self.RANKS.index(state):
            expected = "illegal_turn"
        else:
            expected = None
        assert (problem and problem.code) == expected
        if expected is None:
            self.ids.append(self.log.events[-1].id)
            self.turns[turn] = (state, collisions + 1) if state in ends else (step, collisions)

    @rule(back=st.integers(-1, 6), leaf=st.booleans())
    def hang(self, back: int, leaf: bool) -> None:
        parent = f"e{len(self.ids) - back}" if back <= len(self.ids) else "nowhere"
        problem = self.log.offer("note", {}, parent=parent, leaf=leaf)
        if parent in self.ids:
            assert problem is None
            self.ids.append(self.log.events[-1].id)
            assert self.log.state.parents[-1] == self.ids.index(parent) + 1
            if leaf:
                assert self.log.state.leaf == self.ids[-1]
        else:
            assert problem is not None
            assert problem.code == ("cycle" if back == -1 else "unknown_parent")

    @precondition(lambda self: self.ids)
    @rule(back=st.integers(1, 6))
    def again(self, back: int) -> None:
        problem = self.log.offer("note", {}, id=self.ids[-min(back, len(self.ids))])
        assert problem is not None
        assert problem.code == "duplicate_id"

    @rule()
    def reload(self) -> None:
        self.log.state = SessionState.from_base(self.log.state.to_base())

    @invariant()
    def agree(self) -> None:
        state = self.log.state
        assert state.last_seq == len(self.ids) == len(state.ids)
        assert all(state.ids.get(one) == seq for seq, one in enumerate(self.ids, 1))
        for turn_id, (name, collisions) in self.turns.items():
            turn = state.journal.turn(turn_id)
            assert turn is not None
            assert (turn.state, len(turn.collisions)) == (name, collisions)
        ended = ("completed", "interrupted")
        still = {turn_id for turn_id, (name, _) in self.turns.items() if name not in ended}
        assert {turn.turn_id for turn in state.journal.open_turns()} == still


Sessions.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
TestSessions = Sessions.TestCase


def test_the_laws_meet_every_type() -> None:
    """The logs above are no empty ones: a plain list of all actions is accepted in some order."""
    log = Log()
    log.submit("t1")
    log.tool("t1", "c1", "approval:asked", "approval:granted", "started", "finished", "observation")
    log.add("turn_completed", {}, turn="t1")
    assert len(log.events) == 8
    with pytest.raises(AssertionError):
        log.add("turn_worker_started", {}, turn="t1")
