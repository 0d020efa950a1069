"""One account of each call: which words are of the same call, and what became of it."""

from __future__ import annotations

from typing import Any

import pytest
from session_log import Log

from walld.sessions.gate.pending import pending
from walld.sessions.gate.resume import resume
from walld.sessions.state.account import CallAccount, calls_of_events
from walld.sessions.state.events import Event
from walld.sessions.views.audit import audit
from walld.sessions.views.evaluation import evaluation
from walld.sessions.views.messages import messages
from walld.sessions.views.transcript import transcript


@pytest.fixture
def log() -> Log:
    """A session with a turn."""
    log = Log()
    log.submit("t1")
    return log


def say(log: Log, turn: str | None, *calls: dict[str, Any], **more: Any) -> None:
    told = {"role": "assistant", "content": "", "tool_calls": list(calls)} | more
    log.add("message", told, turn=turn)


def call(call_id: str = "c1", name: str | None = "edit", **more: Any) -> dict[str, Any]:
    return {"id": call_id, "name": name, "outcome": "unknown"} | more


def outcomes(log: Log) -> list[str]:
    return [one.outcome for one in calls_of_events(log.events).calls]


def test_an_utterance_and_an_intent_are_one_call_if_they_fit(log: Log) -> None:
    say(log, "t1", call(arguments='{"a": 1, "b": 2}'))
    log.tool("t1", "c1", tool="edit", arguments={"b": 2, "a": 1})
    (one,) = calls_of_events(log.events).calls
    assert one.is_said
    assert one.intent is not None
    assert one.outcome == "pending"


def test_an_intent_may_name_the_first_call_of_an_id_where_a_later_one_fits(log: Log) -> None:
    """Of clients for which an id that comes again in the next step was the same call."""
    step = {"_wal_stream": "s1", "_wal_seq": 1}
    say(log, "t1", call(arguments={"n": 1}, seq=1), **step)
    say(log, "t1", call(arguments={"n": 2}, seq=5), **step | {"_wal_seq": 4})
    log.tool("t1", "c1", "started", "finished", tool="edit", arguments={"n": 2}, said="s1:1")
    assert outcomes(log) == ["unknown", "done"]
    edited = Log()
    edited.submit("t1")
    say(edited, "t1", call(arguments={"n": 1}, seq=1), **step)
    edited.tool("t1", "c1", "started", tool="edit", arguments={"n": 3}, said="s1:1")
    assert len(calls_of_events(edited.events).calls) == 1, "the same, its arguments changed"


@pytest.mark.parametrize("intent", [{"tool": "look"}, {"tool": "edit", "arguments": {"k": True}}])
def test_what_does_not_fit_is_a_call_of_its_own(log: Log, intent: dict[str, Any]) -> None:
    say(log, "t1", call(arguments={"k": 1}))
    log.tool("t1", "c1", **intent)
    assert outcomes(log) == ["unknown", "pending"]


def test_ids_that_are_given_anew_are_joined_in_order(log: Log) -> None:
    for _ in range(2):
        say(log, "t1", call(arguments={}))
    log.tool("t1", "c1", "started", "finished", tool="edit", arguments={})
    assert outcomes(log) == ["done", "unknown"]


def test_what_follows_is_of_the_newest_intent(log: Log) -> None:
    """Also where its call was said before another one, whose intent was first."""
    say(log, "t1", call(arguments={"n": 1}))
    say(log, "t1", call(arguments={"n": 2}))
    log.tool("t1", "c1", "started", "finished", tool="edit", arguments={"n": 2})
    log.tool("t1", "c1", "started", tool="edit", arguments={"n": 1})
    assert outcomes(log) == ["unknown", "done"]


@pytest.mark.parametrize("names", [{}, {"seq": 7}])
def test_a_reply_that_is_said_anew_says_the_same_calls(log: Log, names: dict[str, int]) -> None:
    """Also by a build that gives a seq, where one that gave none said it first."""
    for more in ({}, names):
        say(log, "t1", call() | more, call("c2"), _wal_stream="s1", _wal_seq=3)
    assert outcomes(log) == ["unknown"] * 2


def test_an_intent_names_where_the_model_said_it(log: Log) -> None:
    say(log, "t1", call(seq=4), _wal_stream="s1", _wal_seq=1)
    say(log, "t1", call(seq=9), _wal_stream="s1", _wal_seq=8)
    log.tool("t1", "c1", tool="edit", said="s1:9")
    assert outcomes(log) == ["unknown", "pending"]


ELSEWHERE = {
    "a fork": ("forked", {"session": "source", "at": "e2", "started": ["e2"]}),
    "a short import": ("imported", {"session": "source", "missing": [[5, 6]]}),
    "an import that goes on": ("imported", {"session": "source", "begun": "e9"}),
}


@pytest.mark.parametrize("told", ELSEWHERE.values(), ids=ELSEWHERE)
@pytest.mark.parametrize("said", [True, False])
def test_what_came_from_elsewhere_may_have_run_to_every_view(
    told: tuple[str, dict[str, Any]], said: bool
) -> None:
    log = Log()
    log.submit("t1")
    log.tool("t1", "c1", tool="edit", arguments={})
    if said:
        say(log, "t1", call(arguments={}))
    log.add(*told, leaf=False)
    (judged,) = resume(log.events)["calls"]
    (one,) = calls_of_events(log.events).calls
    assert judged["outcome"] == one.outcome == "unknown"
    assert pending(log.events)[-1]["action"] == "settle_tool"
    (item,) = messages(log.events)[-1]["tool_calls"]
    assert (item["outcome"], item["synthetic"]) == ("unknown", "unknown")
    assert "may have taken effect" in messages(log.events, "openai")[-1]["content"]
    assert transcript(log.events)[0]["tools"][0]["outcome"] == "unknown"
    log.add("observation", {"of_turn": "t1", "of_call": "c1", "text": "it ran"})
    if "begun" not in told[1]:
        assert outcomes(log) == ["done"]


def test_a_call_that_ended_before_an_import_did_not_run_in_what_it_lacks() -> None:
    log = Log()
    log.submit("t1")
    log.tool("t1", "c1", tool="edit", arguments={})
    log.add("turn_interrupted", {"reason": "x"}, turn="t1")
    log.add("imported", {"session": "source", "missing": [[5, 6]]}, leaf=False)
    assert outcomes(log) == ["pending"]
    assert resume(log.events)["calls"][0]["outcome"] == "pending"


def test_a_turn_may_promise_a_journal_of_each_call() -> None:
    log = Log()
    log.submit("t1", calls="journal")
    say(log, "t1", call())
    assert outcomes(log) == ["pending"], "it never started"


def test_a_tool_message_is_of_the_newest_call_without_one(log: Log) -> None:
    say(log, "t1", call())
    log.submit("t2")
    say(log, "t2", call())
    for _ in range(3):
        told = {"role": "tool", "tool_call_id": "c1", "content": "r"}
        log.add("message", told, turn="t2")
    assert outcomes(log) == ["done", "done"]


def test_a_result_stands_once_in_plain(log: Log) -> None:
    """In the application's own message where that is in the list, else within its call."""
    say(log, "t1", call())
    log.add("message", {"role": "tool", "tool_call_id": "c1", "content": "r"}, turn="t1")
    _, said, told = messages(log.events) or []
    assert "result" not in said["tool_calls"][0]
    assert said["tool_calls"][0]["outcome"] == "done"
    assert told["content"] == "r"
    log.add("undo", {"n": 1})
    _, said = messages(log.events) or []
    assert said["tool_calls"][0]["result"] == "r"


def retried(log: Log, number: int) -> str:
    log.add("turn_interrupted", {"reason": "x"}, turn=f"t{number}")
    turn = f"t{number + 1}"
    log.add("turn_submitted", {"content": "hello", "retry_of": f"t{number}"}, turn=turn)
    return turn


def test_a_later_call_of_the_message_takes_the_place_of_an_open_one(log: Log) -> None:
    log.tool("t1", "c1", "started", arguments={"a": 1})
    turn = retried(log, 1)
    log.tool(turn, "k9", arguments={"a": 1})
    first, _ = calls_of_events(log.events).calls
    assert first.superseded_by is None, "an intent alone closes none that may have run"
    log.add("tool_started", {"call_id": "k9"}, turn=turn)
    first, second = calls_of_events(log.events).calls
    assert first.superseded_by is second
    log.submit("t9")
    log.tool("t9", "c1", "started", "finished", arguments={"a": 1})
    *_, second, _ = calls_of_events(log.events).calls
    assert second.superseded_by is None, "an equal call of another message is another wish"


@pytest.mark.parametrize("words", [("approval:denied",), ()])
def test_a_call_that_was_denied_takes_no_place(log: Log, words: tuple[str, ...]) -> None:
    log.tool("t1", "c1", tool="edit", arguments={})
    log.tool(retried(log, 1), "k9", *words, tool="edit", arguments={})
    first, second = calls_of_events(log.events).calls
    assert (first.superseded_by is second) is (not words)


def test_a_call_that_was_denied_when_it_may_have_run_takes_its_place(log: Log) -> None:
    """Else the first one, which never started, was to run beside it."""
    log.tool("t1", "c1", "approval:granted", tool="edit", arguments={"k": 1})
    turn = retried(log, 1)
    log.tool(turn, "c1", "started", tool="edit", arguments={"k": 1})
    for word in ("denied", "ran"):
        log.add("tool_settled", {"of": {"turn": turn, "call_id": "c1"}, "word": word}, leaf=False)
        first, second = calls_of_events(log.events).calls
        assert first.superseded_by is second, word


@pytest.mark.parametrize("name", [{"key": "k"}, {"supersedes": "c1"}])
def test_a_key_or_a_name_takes_the_place(log: Log, name: dict[str, str]) -> None:
    log.tool("t1", "c1", "started", arguments={"a": 1}, key="k")
    log.tool(retried(log, 1), "k9", "started", arguments={"a": 2}, **name)
    first, second = calls_of_events(log.events).calls
    assert first.superseded_by is second


@pytest.mark.parametrize("given", [{}, {"arguments": None}])
def test_arguments_that_nobody_gave_equal_no_others(log: Log, given: dict[str, None]) -> None:
    """Null was given: the tool takes none."""
    risk = {"tool": "deploy", "side_effect": "external-write", "resume_policy": "never-rerun"}
    log.tool("t1", "c1", "started", **risk, **given)
    log.tool(retried(log, 1), "k9", "started", "finished", **risk, **given)
    first, second = calls_of_events(log.events).calls
    assert (first.superseded_by is second) is bool(given)
    assert resume(log.events)["status"] == ("ok" if given else "blocked")


def test_a_start_without_its_intent_takes_the_place_of_none(log: Log) -> None:
    """Nobody knows what ran, either time."""
    log.stand("tool_started", {"call_id": "c1"}, turn="t1")
    log.stand("tool_started", {"call_id": "c1"}, turn=retried(log, 1))
    assert [one.superseded_by for one in calls_of_events(log.events).calls] == [None, None]


def journalled(events: int) -> list[Event]:
    """Intents and utterances of one id that do not fit, edits, and retries that repeat a call."""
    log = Log()
    log.submit("t1")
    for number in range(events):
        say(log, "t1", call(arguments={"said": number}))
        log.stand("tool_intent", log_intent(number), turn="t1")
        item = call(name="none", arguments={"edit": number})
        told = {"role": "assistant", "content": "", "tool_calls": [item]}
        log.add("message_edit", {"target": "m-t1", "message": told})
    for number in range(events):
        turn = retried(log, number + 1)
        log.tool(turn, "c1", "started", arguments={"same": 1})
    return log.events


def log_intent(number: int) -> dict[str, Any]:
    risk = {"side_effect": "read", "resume_policy": "never-rerun"}
    return {"call_id": "c1", "tool": "edit", "arguments": {"journal": number}} | risk


def test_an_event_costs_no_more_where_many_calls_have_its_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = 0
    fits = CallAccount.fits

    def counted(self: CallAccount, name: object, arguments: object) -> bool:
        nonlocal compared
        compared += 1
        return fits(self, name, arguments)

    monkeypatch.setattr(CallAccount, "fits", counted)
    counts = []
    for events in (200, 400, 800):
        log, compared = journalled(events), 0
        found = calls_of_events(log)
        assert len(found.calls) == 4 * events, "each is a call of its own"
        assert sum(one.superseded_by is not None for one in found.calls) == events - 1
        counts.append(compared)
    assert counts[2] - counts[1] <= 2.2 * (counts[1] - counts[0]), counts


def settled(events: int) -> tuple[list[Event], list[str]]:
    """Calls of replies without a turn, and what somebody said of each; what that comes to."""
    log = Log()
    for number in range(events):
        say(log, None, call(), _wal_stream=f"s{number}")
    for number in range(events):
        of = {"stream": f"s{number}", "call_id": "c1"}
        log.add("tool_settled", {"of": of, "word": "ran"}, leaf=False)
    return log.events, ["done"] * events


def brought(events: int) -> tuple[list[Event], list[str]]:
    """Calls, and for each what a file that was imported may have of it, too; their risk."""
    log = Log()
    log.submit("t1")
    for number in range(events):
        log.tool("t1", f"c{number}", "started")
        mixed = [log.events[-2].id, log.events[-1].id]
        log.stand("imported", {"ended": "file", "mixed": mixed})
    return log.events, ["unknown"] * events


@pytest.mark.parametrize(
    ("made", "looked_at", "told"),
    [(settled, "stream", lambda one: one.outcome), (brought, "begun", lambda one: one.risk[0])],
)
def test_what_names_a_call_looks_at_no_others(
    monkeypatch: pytest.MonkeyPatch, made: Any, looked_at: str, told: Any
) -> None:
    looks = 0
    looked = getattr(CallAccount, looked_at)

    def counted(self: CallAccount) -> Any:
        nonlocal looks
        looks += 1
        return looked.fget(self)

    monkeypatch.setattr(CallAccount, looked_at, property(counted))
    for events in (100, 400):
        log, ends = made(events)
        looks = 0
        found = calls_of_events(log).calls
        assert looks <= 4 * events
        assert [told(one) for one in found] == ends


@pytest.mark.parametrize("is_one_message", [True, False])
def test_tool_messages_go_to_calls_of_one_id_in_order(is_one_message: bool) -> None:
    """The older's was `null`, and the newer one had the older's."""
    log = Log()
    log.submit("t", "q")
    calls = [{"id": "c", "name": "look", "arguments": {"k": number}} for number in range(3)]
    for said in [calls] if is_one_message else [[one] for one in calls]:
        payload = {"role": "assistant", "content": "", "tool_calls": said}
        log.add("message", payload, turn="t")
    for number in range(3):
        told = {"role": "tool", "tool_call_id": "c", "content": str(number)}
        log.add("message", told | {"is_error": number == 1}, turn="t")
        found = calls_of_events(log.events).calls
        assert [one.given.get("message") for one in found] == [
            *[None] * (2 - number),
            *[str(at) for at in range(number + 1)],
        ]
    assert [one.outcome for one in found] == ["done", "failed", "done"]
    sent = messages(log.events, "openai") or []
    assert [one["content"] for one in sent if one["role"] == "tool"] == ["0", "1", "2"]


def unanswered(log: Log) -> list[tuple[str, str]]:
    facts = audit(log.events)
    listed = [one for turn in facts["turns"] for one in turn["unanswered"]]
    return [(one["call_id"], one["outcome"]) for one in [*listed, *facts["unanswered"]]]


def test_an_audit_names_each_call_that_nobody_answered(log: Log) -> None:
    say(log, "t1", call("c1"), call("c2"))
    say(log, "t1", call("c1"), call("c3"))
    assert unanswered(log) == [(name, "unknown") for name in ("c1", "c2", "c1", "c3")]
    turn = retried(log, 1)
    for name in ("c2", "c3"):
        log.add("message", {"role": "tool", "tool_call_id": name, "content": "r"}, turn=turn)
    assert unanswered(log) == [("c1", "unknown")] * 2, "a later turn told of the others"


def test_an_audit_leaves_out_what_a_retry_took_the_place_of(log: Log) -> None:
    log.tool("t1", "c1", "started", arguments={})
    log.tool(retried(log, 1), "k9", "started", arguments={})
    assert unanswered(log) == [("k9", "unknown")]


def test_a_call_that_nobody_answered_is_no_answer_of_a_sample(log: Log) -> None:
    log.tool("t1", "c1", "started")
    sample = evaluation(log.events)
    assert sample["output"] is None
    assert sample["input"][-1]["tool_calls"][0]["synthetic"] == "running"
