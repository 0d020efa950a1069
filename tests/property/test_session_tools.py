"""Laws of tools and of the gate: what may come next, what is told, what may run again."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from session_log import Log
from walld_client.session.fingerprint import differing
from walld_client.wire import messages as wire

from walld.daemon.session_store.fork_contents import forked_session
from walld.sessions.gate.pending import pending
from walld.sessions.gate.resume import resume
from walld.sessions.gate.workspace import compare
from walld.sessions.state.account import calls_of_events
from walld.sessions.state.entries import event_line, events_of
from walld.sessions.state.events import Event
from walld.sessions.state.path import path_events
from walld.sessions.state.session_state import SessionState
from walld.sessions.state.tools import named_call
from walld.sessions.views.audit import audit
from walld.sessions.views.transcript import transcript

A, B = "a" * 64, "b" * 64
THEN = {"head": "h", "dirty": False, "files": {"x": A}}
NOWS: list[dict[str, Any] | None] = [
    None,
    THEN,
    THEN | {"files": {"x": B}},
    THEN | {"head": "other"},
    THEN | {"dirty": None},
]
EFFECTS = ("none", "read", "workspace-write", "external-write")
POLICIES = (
    *("replay-from-event", "rerun-after-check"),
    *("require-user-confirmation", "never-rerun"),
)
STEPS = {
    "ask": ("tool_approval", {"state": "asked"}),
    "grant": ("tool_approval", {"state": "granted"}),
    "deny": ("tool_approval", {"state": "denied"}),
    "decide": ("tool_decision", {"verdict": "deny"}),
    "allow": ("tool_decision", {"verdict": "allow"}),
    "start": ("tool_started", {}),
    "finish": ("tool_finished", {}),
    "fail": ("tool_finished", {"failed": True}),
    "observe": ("observation", {"text": "so it went"}),
}
LEADS = {
    "ask": "asked",
    "grant": "approved",
    "deny": "denied",
    "decide": "denied",
    "allow": "approved",
    "start": "started",
    "finish": "finished",
    "fail": "failed",
    "observe": "observed",
}
DECISIONS = {"ask", "grant", "deny", "decide", "allow"}
BY_PERSON = {"ask", "grant", "deny"}
RESULTS = {"finish", "fail", "observe"}
ONWARD = {
    "intended": DECISIONS | RESULTS | {"start"},
    "asked": DECISIONS | RESULTS | {"start"},
    "approved": DECISIONS | RESULTS | {"start"},
    "denied": DECISIONS | RESULTS,
    "started": RESULTS,
    "finished": {"observe"},
    "failed": {"observe"},
    "observed": {"observe"},
}
STRICT = ("replay", "rerun_after_check", "ask_user", "never")
TURNS = ("t1", "t1", "t1", "t2")
CALL_IDS = ("c1", "c1", "c1", "c2")
RISKS = (
    *(("external-write", "never-rerun"), ("external-write", "require-user-confirmation")),
    ("read", "replay-from-event"),
)
RAN = ("tool_started", "tool_finished", "observation")
CLOSED = {"denied", "finished", "failed", "observed"}


class Call:
    """A call as plainly as it goes."""

    def __init__(self, effect: str, policy: str) -> None:
        self.effect, self.policy = effect, policy
        self.state = "intended"
        self.been: list[str] = []
        self.decided: list[str] = []

    def may(self, step: str, ended: bool) -> bool:
        """Whether the step may come."""
        if not ended:
            return step in ONWARD[self.state]
        ran = "started" in self.been or self.state in CLOSED
        return step in ONWARD[self.state] & (RESULTS | (set() if ran else {"deny", "decide"}))

    @property
    def outcome(self) -> str:
        for state, outcome in (("finished", "done"), ("failed", "failed"), ("started", "unknown")):
            if state in self.been:
                return outcome
        decided = [state for state in self.been if state in ("asked", "approved", "denied")]
        if decided[-1:] == ["denied"]:
            return "denied"
        return "done" if "observed" in self.been else "pending"

    @property
    def stands(self) -> str | None:
        """What was decided of it, where a policy's yes is no person's."""
        person = stands = None
        for step in self.decided:
            if step in BY_PERSON:
                stands = person = LEADS[step]
            elif step == "decide":
                stands = "denied"
            else:
                alone = None if self.policy == "require-user-confirmation" else "approved"
                stands = person or alone
        return stands

    @property
    def stage(self) -> str:
        """As the account has it."""
        is_decided = self.state in ("asked", "approved", "denied")
        return self.stands or "intended" if is_decided else self.state

    @property
    def told(self) -> str:
        """Its outcome as the account has it."""
        if self.stands == "denied" and not {"finished", "failed", "started"} & {*self.been}:
            return "denied"
        if self.outcome in ("unknown", "denied"):
            return "done" if "observed" in self.been else self.outcome.replace("denied", "pending")
        return self.outcome


class Tools(RuleBasedStateMachine):
    """Two turns with two calls each, against a table that says who follows whom."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.log.add("lifecycle", {"fingerprint": THEN})
        self.ends: dict[str, str] = {}
        self.calls: dict[tuple[str, str], Call] = {}
        self.earlier: list[Call] = []
        for turn in ("t1", "t2"):
            self.log.submit(turn)

    @initialize(
        effects=st.lists(st.sampled_from(EFFECTS), min_size=2, max_size=2),
        policies=st.lists(st.sampled_from(POLICIES), min_size=2, max_size=2),
        steps=st.lists(st.sampled_from(list(STEPS)), max_size=2),
    )
    def begin(self, effects: list[str], policies: list[str], steps: list[str]) -> None:
        for call, effect, policy in zip(("c1", "c2"), effects, policies, strict=True):
            self.intend("t1", call, effect, policy)
        self.go_on("t1", "c1", [*steps, "start"])

    turns = st.sampled_from(["t1", "t1", "t2"])
    ids = st.sampled_from(["c1", "c1", "c2"])

    @rule(turn=turns, call=ids, effect=st.sampled_from(EFFECTS), policy=st.sampled_from(POLICIES))
    def intend(self, turn: str, call: str, effect: str, policy: str) -> None:
        payload = {"call_id": call, "tool": "x", "side_effect": effect, "resume_policy": policy}
        problem = self.log.offer("tool_intent", payload, turn=turn)
        known = self.calls.get((turn, call))
        if turn in self.ends or (known is not None and known.state not in CLOSED):
            assert problem is not None
            assert problem.code == "illegal_tool"
            return
        assert problem is None
        if known is not None:
            self.earlier.append(known)
        self.calls[turn, call] = Call(effect, policy)

    @rule(
        turn=turns, call=ids, steps=st.lists(st.sampled_from(list(STEPS)), min_size=1, max_size=3)
    )
    def go_on(self, turn: str, call: str, steps: list[str]) -> None:
        for step in steps:
            self.step(turn, call, step)

    def step(self, turn: str, call: str, step: str) -> None:
        kind, payload = STEPS[step]
        problem = self.log.offer(kind, {"call_id": call} | payload, turn=turn)
        known = self.calls.get((turn, call))
        if known is None or not known.may(step, turn in self.ends):
            assert problem is not None, (step, known and known.state)
            assert problem.code == ("unknown_tool" if known is None else "illegal_tool")
            return
        assert problem is None, (step, known.state, problem)
        known.state = LEADS[step]
        known.been.append(known.state)
        known.decided += [step] if step in DECISIONS else []

    @rule(turn=turns, call=ids)
    def observe_by_name(self, turn: str, call: str) -> None:
        """Also where its turn has ended; of a call that nobody knows it says nothing."""
        self.log.add("observation", {"of_turn": turn, "of_call": call})
        if (known := self.calls.get((turn, call))) is not None:
            known.state = "observed"
            known.been.append("observed")

    @rule(turn=turns, end=st.sampled_from(["completed", "interrupted", None, None, None]))
    def end(self, turn: str, end: str | None) -> None:
        if end is None:  # not so often: little may come behind it
            return
        self.log.add(f"turn_{end}", {"reason": "why"}, turn=turn)
        self.ends.setdefault(turn, end)

    @rule()
    def reload(self) -> None:
        self.log.state = SessionState.from_base(self.log.state.to_base())

    @invariant()
    def the_fold_and_every_view_say_the_same(self) -> None:
        found = calls_of_events(self.log.events)
        for (turn, call), known in self.calls.items():
            tool = self.log.state.journal.tool(turn, call)
            assert tool is not None
            assert (tool.state, tool.outcome) == (known.state, known.outcome)
            assert tool.closed == (known.state in CLOSED)
            own = found.newest(turn, call)
            assert own is not None
            assert own.state == tool, "the account follows the journal"
            assert own.stage == known.stage
            assert own.closed == (known.stage in CLOSED)
        told = [tool["outcome"] for part in transcript(self.log.events) for tool in part["tools"]]
        every = [*self.earlier, *self.calls.values()]
        assert sorted(told) == sorted(call.told for call in every)
        facts = audit(self.log.events)
        unanswered = sum(len(turn["unanswered"]) for turn in facts["turns"])
        assert unanswered == sum(
            call.stage not in CLOSED and call.outcome == "unknown" for call in self.calls.values()
        )
        assert facts["malformed"] == []

    @invariant()
    def what_is_open_is_told_and_what_is_unsafe_asks(self) -> None:
        left = {
            name: call
            for name, call in self.calls.items()
            if call.state == "started"
            or (call.stage not in CLOSED and self.ends.get(name[0]) != "completed")
        }
        waits = pending(self.log.events)
        is_resumed = any(one["action"] == "answer_turn" for one in waits)
        waiting = [one for one in waits if "call_id" in one]
        open_ = [one for one in waiting if one["action"] != "observe_tool"]
        needed = {name for name, call in left.items() if is_resumed or is_due(call)}
        assert {(one["turn"], one["call_id"]) for one in open_} == needed
        for now in NOWS:
            gate = resume(self.log.events, now)
            told = {(tool["turn"], tool["call_id"]): tool["may"] for tool in gate["tools"]}
            assert set(told) == set(left)
            asking = {one["call_id"] for one in gate["reasons"] if "call_id" in one}
            for name, may in told.items():
                assert_safe(left[name], may, gate["workspace"]["verdict"])
                assert (name[1] in asking) >= (may in ("ask_user", "never"))
            assert (gate["status"] != "ok") == bool(gate["reasons"])


def is_due(call: Call) -> bool:
    """Also where no turn is left to run it."""
    asks = call.state == "intended" and call.policy == "require-user-confirmation"
    return call.state in ("started", "asked") or asks


def assert_safe(call: Call, may: str, verdict: str) -> None:
    """What the gate may never say, and what it says for certain."""
    if call.state != "started":
        asks = call.stage == "asked"
        asks = asks or (call.stage == "intended" and call.policy == "require-user-confirmation")
        assert may == ("ask_user" if asks else "replay")
        return
    assert (may == "never") == (call.policy == "never-rerun")
    if call.policy == "require-user-confirmation":
        assert may == "ask_user"
    if may == "replay":
        assert call.policy == "replay-from-event"
        assert call.effect in ("none", "read"), "it may have taken effect"
    if may == "rerun_after_check":
        assert call.effect != "workspace-write" or verdict == "same", "nobody has looked"
        assert call.effect != "external-write" or call.policy == "rerun-after-check"


Tools.TestCase.settings = settings(max_examples=50, stateful_step_count=20)
TestTools = Tools.TestCase

paths = st.sampled_from(["a", "b", "c"])
trees = st.dictionaries(paths, st.sampled_from(["1", "2"]))


def fingerprint(committed: dict[str, str], tree: dict[str, str], seen: str) -> dict[str, Any]:
    """Of a tree beside its commit. seen: all, or dirty alone, or what git does not say."""
    changes = {path: tree.get(path) for path in {*committed, *tree}}
    changes = {path: held for path, held in changes.items() if held != committed.get(path)}
    return {
        "head": "h",
        "root": "/w",
        "dirty": None if seen == "nothing" else bool(changes),
        "changes": changes if changes and seen == "all" else None,
    }


@settings(max_examples=100)
@given(trees, trees | st.none(), st.sets(paths), st.booleans(), st.booleans(), st.booleans())
def test_the_same_is_the_same_without_git(
    then: dict[str, str],
    now: dict[str, str] | None,
    named: set[str],
    has_written: bool,
    is_listed: bool,
    is_listed_now: bool,
) -> None:
    now = then if now is None else now

    def seen(tree: dict[str, str], is_all: bool) -> dict[str, Any]:
        found = {"root": None, "head": None, "dirty": None, "changes": tree if is_all else None}
        return found | {"files": {path: tree.get(path) for path in named}}

    compared = compare(seen(then, is_listed), seen(now, is_listed_now), has_written)
    if compared.verdict == "same":
        assert then == now
        assert (is_listed, is_listed_now) == (True, True)
    differing = {f"file {path}" for path in named if then.get(path) != now.get(path)}
    assert set(compared.changed) == differing, "of what nobody named nobody knows who changed it"
    if then == now and is_listed and is_listed_now and named <= then.keys():
        assert compared.verdict == "same"


@settings(max_examples=120)
@given(trees, trees, trees | st.none(), st.sets(paths), st.booleans(), st.data())
def test_the_same_is_the_same(
    committed: dict[str, str],
    then: dict[str, str],
    now: dict[str, str] | None,
    named: set[str],
    has_written: bool,
    data: st.DataObject,
) -> None:
    """Whatever was not looked at: a workspace that is called the same is the same."""
    seen = st.sampled_from(["all", "all", "dirty", "nothing"])
    now = then if now is None else now
    before, after = data.draw(seen), data.draw(seen)
    files = {path: then.get(path) for path in named}
    compared = compare(
        fingerprint(committed, then, before) | {"files": files},
        fingerprint(committed, now, after) | {"files": {path: now.get(path) for path in named}},
        has_written,
    )
    if compared.verdict == "same":
        assert then == now
    if then == now:
        assert compared.verdict != "changed"
        was_seen = before == after == "all" and None not in files.values()
        assert compared.verdict == "same" or not was_seen
    elif not has_written and before == after == "all":
        differing = {path for path in {*then, *now} if then.get(path) != now.get(path)}
        assert set(compared.changed) == {f"file {path}" for path in differing}


@given(trees, trees, st.sets(paths))
def test_what_is_left_out_of_a_workspace_changes_no_verdict(
    then: dict[str, str], now: dict[str, str], named: set[str]
) -> None:
    log = Log()
    log.add("lifecycle", {"fingerprint": {"head": "h", "files": {p: then.get(p) for p in named}}})
    seen: dict[str, Any] = {"head": "h", "files": {p: now.get(p) for p in named}}
    gate = resume(log.events, seen)
    told = differing(seen, gate["workspace"]["then"]["files"], gate["as_of"])
    assert len(told["files"]) == len(gate["workspace"]["changed"])
    assert resume(log.events, told) == gate


@st.composite
def worked(draw: st.DrawFn) -> Log:
    """Turns with calls on branches, some of them started; call ids come again, of other calls."""
    log = Log()
    log.submit("t1")
    for _ in range(draw(st.integers(3, 20))):
        turn, call = draw(st.sampled_from(TURNS)), draw(st.sampled_from(CALL_IDS))
        risk = draw(st.sampled_from(RISKS))
        intent = {"tool": "x", "side_effect": risk[0], "resume_policy": risk[1]}
        kind, payload = draw(
            st.sampled_from(
                [
                    ("turn_submitted", {"message_id": f"m-{turn}", "content": "q"}),
                    ("turn_submitted", {"message_id": f"m-{turn}", "content": "q"}),
                    ("tool_intent", intent | {"call_id": call}),
                    ("tool_intent", intent | {"call_id": call}),
                    *((kind, {"call_id": call} | more) for kind, more in STEPS.values()),
                    ("tool_started", {"call_id": call}),
                    ("observation", {"of_turn": turn, "of_call": call}),
                    ("turn_completed", {}),
                    ("turn_interrupted", {"reason": "why"}),
                    ("message", {"role": "user", "content": "x"}),
                    ("leaf", {"target": f"e{draw(st.integers(1, 20))}"}),
                ]
            )
        )
        is_of_turn = kind not in ("message", "leaf") and "of_call" not in payload
        more: dict[str, Any] = {"turn": turn} if is_of_turn else {}
        if draw(st.integers(0, 5)) == 0:
            more["leaf"] = False
        log.offer(kind, payload, **more)
    return log


def ran(events: list[Event]) -> dict[str, str]:
    """Ids of the events that began a call of which nothing says what became of it, each with the
    policy of that call.
    """
    open_: dict[tuple[str | None, str], list[str]] = {}
    policy: dict[str, str] = {}
    for event in events:
        said = event.payload
        key = (event.turn, str(said.get("call_id")))
        if event.type == "tool_intent":
            open_[key] = [event.id]
            policy[event.id] = said["resume_policy"]
        elif event.type == "tool_started":
            policy[event.id] = policy[open_[key][0]]
            open_[key].append(event.id)
        elif event.type in ("tool_finished", "observation"):
            open_.pop((said["of_turn"], said["of_call"]) if "of_call" in said else key, None)
    return {name: policy[name] for names in open_.values() if len(names) > 1 for name in names}


def assert_not_again(gate: dict[str, Any], begun: dict[str, str], left: list[Event]) -> None:
    """Of each call that ran and has a trace of it left, the gate says so, and what it may do."""
    for event in left:
        if event.id not in begun:
            continue
        key = event.turn, event.payload["call_id"]
        told = [
            tool["may"]
            for tool in gate["tools"]
            if (tool["turn"], tool["call_id"], tool["outcome"]) == (*key, "unknown")
        ]
        assert told, event
        least = {"never-rerun": "never", "require-user-confirmation": "ask_user"}
        assert max(map(STRICT.index, told)) >= STRICT.index(least.get(begun[event.id], "replay"))
        assert gate["status"] == "blocked" or begun[event.id] not in least


@settings(max_examples=120)
@given(worked(), st.data())
def test_what_ran_is_not_run_again_whatever_is_lost(log: Log, data: st.DataObject) -> None:
    """Also once a repair has written down what is lost, and where the turn was completed."""
    begun = ran(log.events)
    lost = data.draw(st.sets(st.sampled_from([event.seq for event in log.events] or [0])))
    left = [event for event in log.events if event.seq not in lost]
    assert_not_again(resume(log.events), begun, log.events)
    assert_not_again(resume(left, last_seq=log.state.last_seq), begun, left)
    assert_can_be_settled(left)


def assert_can_be_settled(events: list[Event]) -> None:
    """By an observation of its name, whatever is known of the call."""
    for tool in resume(events)["tools"]:
        named = {"of_turn": tool["turn"], "of_call": tool["call_id"]}
        seq = events[-1].seq + 1
        said = Event(seq=seq, id=f"said-{seq}", type="observation", leaf=False, payload=named)
        events = [*events, said]
    assert resume(events)["tools"] == []


@settings(max_examples=120)
@given(worked(), st.data())
def test_what_ran_is_not_run_again_in_a_fork(log: Log, data: st.DataObject) -> None:
    """Wherever it was forked, of a whole session or of a damaged one; in a fork of it too, and
    where a line of the fork is lost.
    """
    begun = ran(log.events)
    lost = data.draw(
        st.sets(st.sampled_from([event.seq for event in log.events] or [0]), max_size=3)
    )
    events = [event for event in log.events if event.seq not in lost]
    last_seq = log.state.last_seq
    for _ in range(2):
        at = data.draw(st.sampled_from([None, *(event.id for event in events)]))
        whole = data.draw(st.booleans())
        source = events
        events = fork_of(events, at, whole, last_seq)
        traces = source if whole else path_events(source, at)
        assert_not_again(resume(events), begun, traces)
        assert_can_be_settled(events)
        last_seq = events[-1].seq
        torn = data.draw(st.sampled_from(events))
        rest = [event for event in events if event is not torn]
        here = {event.id for event in rest}
        traces = [event for event in traces if event.id in here]
        assert_not_again(resume(rest, last_seq=last_seq), begun, traces)


def fork_of(events: list[Event], at: str | None, whole: bool, last_seq: int) -> list[Event]:
    """What the daemon makes of them."""
    lines = [event_line(one, json.dumps(one.payload).encode(), b"\0" * 16) for one in events]
    request = wire.Fork(1, "s", f"f{last_seq}", at, whole)
    return events_of(forked_session(events_of(lines), request, 0, 5, last_seq).lines)


@settings(max_examples=100)
@given(worked(), st.data())
def test_what_never_started_is_not_said_to_have(log: Log, data: st.DataObject) -> None:
    """In forks of what is whole, and of forks."""
    events = log.events
    ran = {call for event in events if event.type in RAN and (call := named_call(event))}
    for _ in range(2):
        at = data.draw(st.sampled_from([None, *(event.id for event in events)]))
        if not events:
            return
        events = fork_of(events, at, data.draw(st.booleans()), events[-1].seq)
        for tool in resume(events)["tools"]:
            assert tool["outcome"] == "pending" or (tool["turn"], tool["call_id"]) in ran
