"""The resume gate: whether a session may go on, and what to do with each open call.

Owns: the boundary the work stopped at, the rules of what may run again, the comparison of the
workspace then and now. Refuses: running anything, computing a fingerprint (the client), looking for
artifacts (the daemon says which are missing).

What may be done with a call is by the rules of `call_rules.py`. One that the model said, and that
no journal has, is as one that started: nothing says that it did not. `tools` has the open calls in
the words of clients that know of no `calls`, and is no laxer than those were told.

What may have started, though no event here says so (`possibly_run.py`):

- A call behind whose intent events are lost, unless what is left proves that it did not start; also
  once a repair has written the loss down. Until then a damaged file shuts the gate, and so does a
  log in which lines of the session may stand unread.
- A call of a session that was forked, if it had started behind the entry of the fork: the `forked`
  entry names it.
- A call that an `imported` entry names: the imported file lacks lines, or has some that the session
  could not take. And while an import has not ended any call that is open, for nobody knows what it
  has yet to bring: the gate is shut.

Neither the end of its turn nor an earlier denial settles such a call, only a word of what became of
it. A call is never to run again where a start stands without its intent (what it was allowed,
nobody knows), or where lines between intent and start are lost (they may have held the intent of
another call of that id). Any of them is settled by an observation that names it (`of_turn`,
`of_call`), and one whose intent is not here, or whose call id was given again, by nothing else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, Final

from walld_client.limits import PREVIEW_CHARS_MAX

from walld.sessions.gate.approvals import is_stale, takes_over, was_granted_again
from walld.sessions.gate.call_rules import CallFacts, rule_of
from walld.sessions.gate.children import child_reasons, child_word
from walld.sessions.gate.pending import is_answered, open_tools
from walld.sessions.gate.policy_now import words_of
from walld.sessions.gate.possibly_run import calls_elsewhere, may_have_started, unfinished_imports
from walld.sessions.gate.processes import NamedProcess, seen
from walld.sessions.gate.settle_targets import SETTLE_FLAGS, names_of, settle_command
from walld.sessions.gate.turn_history import History, history_of
from walld.sessions.gate.unreleased import said_at_ms, said_before, said_in
from walld.sessions.gate.workers import Worker, work_reasons
from walld.sessions.gate.workspace import (
    Compared,
    compare,
    fingerprint_of,
    fingerprint_then,
    seen_now,
)
from walld.sessions.state.account import Unreleased
from walld.sessions.state.budget import is_exhausted, last_budget
from walld.sessions.state.call_account import OPEN, CallAccount
from walld.sessions.state.errors import BadArgument
from walld.sessions.state.events import (
    CAME_FROM,
    FINER_EFFECTS,
    UNKNOWN,
    Event,
    check_payload,
)
from walld.sessions.state.path import path_events

__all__ = ["has_written", "resume"]

_BOUNDARIES: Final = {
    "intended": "intended",
    "asked": "intended",
    "denied": "intended",
    "approved": "approved",
    "started": "started",
    "finished": "finished",
    "failed": "finished",
    "observed": "observed",
}
_NEWER: Final = frozenset(
    (
        *("why", "stream", "settled", "n", "of", "child"),
        *("arguments", "arguments_cut", "since_ms", "settle"),
    )
)
"""What clients of 0.1.0 were not told of a call."""
_OWN_CODES: Final = frozenset(("still_runs", "policy_denies", "approval_stale"))
"""Why a call must not run, for causes that 0.1.0 did not know."""
_MAY_HAVE_WRITTEN: Final = frozenset(("unknown", "done", "failed", "timeout", "cancelled"))
"""Outcomes of a call that no journal has."""
_WORKSPACES: Final = {"same": "same", "changed": "changed"}
_OLDER_WORDS: Final = {
    "run": "replay",
    "check_then_run": "rerun_after_check",
    "ask_user": "ask_user",
    "never": "never",
}
_ASKS: Final = {
    "check_then_run": ("check", "it may have run: look whether it took effect, and say so"),
    "ask_user": ("blocked", "the user must say whether it may run"),
    "never": ("blocked", "it may have run and must not run again: record what became of it"),
}
"""Word -> the verdict it leads to, and what is to be done: `walld session settle` says it."""
_BECAUSE: Final = {
    "policy_denies": "the policy that was given denies it",
    "approval_stale": (
        "what allowed it has expired, was for something else, or the policy that was given asks"
        " anew: ask the user"
    ),
    "still_runs": "the process that it started still runs: wait for its end, or end it",
    "cannot_see": (
        "it may have run, and its process cannot be seen from here: the user must say whether it"
        " may run"
    ),
}
_COMPARE: Final = (
    "walld resume-check SESSION --workspace DIR, or resume_check(workspace=DIR), compares them"
)
_NOT_COMPARED: Final = (
    f"what the workspace was is known, and nobody looked at what it is now: {_COMPARE}"
)
_NOT_SEEN: Final = (
    "not all of the workspace could be compared with what it was: look at it, then take what is"
    " there with checkpoint_workspace(root)"
)
_UNREAD: Final = (
    "of reply {} some may not be known ({}), and that may hold a call: see what its program saved"
)
_COMPACTED: Final = (
    "call {} stands before what the compaction {} kept: the model does not see it any more"
)
_CUT_OFF: Final = (
    "compaction {} keeps what begins with {}, which is not on the path: the model sees the summary"
    " alone; edit(), or another compact(), says what it is to see"
)
_UNFINISHED: Final = (
    "an import has not ended: repeat it, or, where its file is gone, append an entry of type"
    " imported with ended: {}"
)
_MAY_BE: Final = (
    "events from {} on may stand in what cannot be read of the log: see `walld fsck`; once that can"
    " be read, or was looked at and moved away, a restart knows"
)
_ARTIFACTS: Final = {
    "artifact_missing": "artifact {} is missing: artifact(data) puts the same bytes again",
    "artifact_changed": "artifact {} is changed: artifact(data) puts the same bytes again",
    "artifact_unreadable": "artifact {} cannot be read now ({})",
}
_OF_MISSING: Final = ("sha256", "why")
_SAID: Final = (
    " (the model said it, no journal has it: a tool message, or an observation with of_turn and"
    " of_call)"
)
_BY: Final = " (no result here is of it: an observation with of_turn and of_call)"


def resume(
    events: Sequence[Event],
    workspace: Mapping[str, Any] | None = None,
    missing_artifacts: Sequence[str | Mapping[str, Any]] = (),
    budget: Mapping[str, Any] | None = None,
    breaks: Sequence[Mapping[str, Any]] = (),
    last_seq: int = 0,
    replies: Sequence[Unreleased] = (),
    workers: Sequence[Worker] = (),
    now_ms: int | None = None,
    policy: Mapping[str, Any] | None = None,
    processes: Mapping[NamedProcess, str] | None = None,
    session: str = "SESSION",
    gone: Container[str] = (),
) -> dict[str, Any]:
    """The gate. status: blocked where a reason's `verdict` is that, else check where there is a
    reason, else ok.

    workspace: {"head", "dirty", "changes", "kinds", "files"} as it is now (`workspace.py`; changes
    and files are {path: sha256}), None where nobody looked; with `as_of` without the files that are
    as they were.
    boundary: before_intent | intended | approved | started | finished | observed | idle | answered:
    of a turn that was not completed, and in which the model spoke last, to its end.
    calls: those without a result, each with `may`: run | check_then_run | ask_user | never, and
    `why`; those of the turn that have one may read_result. intent: the id of the entry, since call
    ids may be counted anew; None where it is not here, or where the model said it and no journal
    has it (state: said). n: how often its id came by then in the session; of: what names it in a
    `tool_settled`. arguments: as they are known; where they are long, the beginning of their JSON
    text, and arguments_cut, how long that is. since_ms: when it came to its state. settle: words of
    a settlement that would change what may be done with it.
    child: the session of the sub-agent whose work a call is; while that is not done the reasons are
    those of its gate, each with this call's name, its `session`, and as that told it in `of_child`.
    tools: those without a result, with `may` in other words: replay | rerun_after_check | ask_user
    | never.
    as_of: the newest entry that it is about; None where there is none.
    budget: instead of that of the last budget event. breaks: where the file is damaged.
    last_seq: the highest that was given, as far as is known. missing_artifacts: their hashes, or
    {sha256, why} each: missing | changed | what kept it from being read. replies: those that are
    not released; their calls are judged like any other. Of an id that has nothing else there is
    no turn, and the boundary is how far their calls got. workers: who lives and works on it, and
    who asks. owner: the first of those who does not ask; own_turns: of who asks. now_ms: since
    1970; without it no grant is too old. policy: of who asks (`policy_now.py`). processes: of those
    that starts name, running or gone; any other is unseen. session: its id, for the commands that
    reasons name. gone: ids of entries whose messages were undone. Raises BadArgument.
    """
    said = said_in(replies, events)
    account = history_of(events, [*said, *said_before(replies, events)], gone=gone)
    elsewhere = calls_elsewhere(events)
    written = has_written([*account.calls.calls, *elsewhere], events, said)
    compared = compare(fingerprint_then(events), seen_now(events, workspace), written)
    doubtful = may_have_started(account, events, last_seq)
    open_calls = [*open_tools(account, doubtful), *elsewhere]
    workers = _of_open_turns(workers, account)
    is_worked_on, word_of = _worked_on(workers, said), words_of(policy)
    facts = [
        _facts_of(call, compared, call.begun.id in doubtful, is_worked_on(call), now_ms)._replace(
            policy_now=word_of(call),
            process=seen(call, processes or {}),
            child=child_word(call),
        )
        for call in open_calls
    ]
    facts = [
        one._replace(stage="approved")
        if one.stage == "intended" and takes_over(call, doubtful, now_ms)
        else one
        for call, one in zip(open_calls, facts, strict=True)
    ]
    # Who allowed a call allowed one run: where its retry has the grant, of both that alone may run.
    # What must not run, as its process is still there, say, stays in the way of both.
    handed_on = {id(one.grant_of) for one in open_calls if takes_over(one, doubtful, now_ms)}
    left = [
        (call, one)
        for call, one in zip(open_calls, facts, strict=True)
        if id(call) not in handed_on or rule_of(one).may != "run"
    ]
    open_calls, facts = [call for call, _ in left], [one for _, one in left]
    names = names_of(account.calls.calls, elsewhere)
    judged = [
        _judged(call, one, names[id(call)]) for call, one in zip(open_calls, facts, strict=True)
    ]
    for told in judged[len(judged) - len(elsewhere) :]:
        told["intent"] = None
    spent = dict(budget) if budget is not None else last_budget(events)
    turn, boundary = _stopped_at(account, judged)
    settled = [] if turn is None else _settled_in(account, turn, open_calls)
    rows = [*judged, *(_judged(one, _facts_of(one, compared), names[id(one)]) for one in settled)]
    for call, told, one in zip(open_calls, judged, facts, strict=True):
        told["since_ms"] = said_at_ms(call, replies) or told["since_ms"]
        told["settle"] = _words_for(one, is_known=_is_known(call, doubtful))
    commands = [_settles(session, told, rows) for told in judged]
    reasons = _of_calls(open_calls, judged, account, commands)
    reasons += child_reasons(open_calls)
    reasons += work_reasons(workers)
    reasons += _of_workspace(events, compared)
    reasons += _of_artifacts(missing_artifacts)
    reasons += _of_file(events, breaks)
    reasons += _of_replies(replies)
    reasons += _of_compaction(events, open_calls)
    if spent is not None and is_exhausted(spent):
        reasons.append(
            _reason(
                "budget_exhausted", 'the budget is used up: append("budget", ...) says what is left'
            )
        )
    stopped = account.turns.get(turn or "")
    if stopped is not None and is_answered(stopped, open_calls, said):
        boundary = "answered"
    if not events and replies and boundary == "idle":
        boundary = _boundary_of_said(account.calls.calls)
    return {
        "status": _status(reasons),
        "boundary": boundary,
        "turn": turn,
        "reasons": reasons,
        "calls": rows,
        "tools": [_in_older_words(told, one) for told, one in zip(judged, facts, strict=True)],
        "workspace": compared._asdict(),
        "budget": spent,
        "owner": next((one.told() for one in workers if one.is_other), None),
        "own_turns": [one.turn for one in workers if one.is_asker and one.stream_id is None],
        "replies": [one.told() for one in replies],
        "as_of": events[-1].id if events else None,
    }


def _status(reasons: Sequence[Mapping[str, Any]]) -> str:
    verdicts = {one["verdict"] for one in reasons}
    return "blocked" if "blocked" in verdicts else "check" if verdicts else "ok"


def _of_calls(
    calls: Sequence[CallAccount],
    judged: Sequence[Mapping[str, Any]],
    account: History,
    commands: Sequence[str],
) -> list[dict[str, Any]]:
    """Reasons that are calls: those that must not simply run. judged: what was said of each.
    commands: which of them settles it, empty where none does.
    """
    within_reach = {
        id(call)
        for call in calls
        if call.turn in account.turns and account.calls.newest(call.turn, call.call_id) is call
    }
    reasons = []
    for told, call, command in zip(judged, calls, commands, strict=True):
        if told["may"] not in _ASKS or told["why"] in ("at_work", "child"):
            continue  # of one that somebody is at, its worker is the reason
        verdict, asks = _ASKS[told["may"]]
        asks = _BECAUSE.get(told["why"], asks)
        how = _SAID if _is_only_said(call) else "" if id(call) in within_reach else _BY
        how += command and f": {command}"
        reasons.append(
            _reason(
                _code(told),
                f"tool {told['tool']} (call {told['call_id']}): {asks}{how}",
                verdict,
                turn=told["turn"],
                call_id=told["call_id"],
                why=told["why"],
            )
        )
    return reasons


def _of_workspace(events: Sequence[Event], compared: Compared) -> list[dict[str, Any]]:
    if compared.changed:
        text = f"since the work stopped changed: {compared.named()}"
        return [_reason("workspace_changed", text, paths=compared.changed)]
    if compared.verdict == "unknown":
        return [_reason("workspace_unknown", _NOT_SEEN, "check")]
    looked = any(fingerprint_of(event) is not None for event in events)
    if compared.now is None and looked:
        return [_reason("workspace_not_compared", _NOT_COMPARED, "check")]
    return []


def _of_artifacts(missing: Sequence[str | Mapping[str, Any]]) -> list[dict[str, Any]]:
    reasons = []
    for one in missing:
        if not (isinstance(one, str) or _is_missing(one)):
            raise BadArgument("missing_artifacts", ascii(one)[:80], "sha256 | {sha256, why}")
        sha256, why = (one, "missing") if isinstance(one, str) else (one["sha256"], one["why"])
        code = f"artifact_{why}" if why in ("missing", "changed") else "artifact_unreadable"
        verdict = "check" if code == "artifact_unreadable" else "blocked"
        reasons.append(_reason(code, _ARTIFACTS[code].format(sha256, why), verdict, sha256=sha256))
    return reasons


def _is_missing(one: object) -> bool:
    return isinstance(one, dict) and all(isinstance(one.get(name), str) for name in _OF_MISSING)


def _of_file(events: Sequence[Event], breaks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    reasons = [
        _reason("log_unreadable", _MAY_BE.format(one["first_seq"]))
        if one["why"] == "log"
        else _reason("session_damaged", f"the session's file is damaged: {_cost(one)}")
        for one in breaks
    ]
    reasons += [
        _reason("import_unfinished", _UNFINISHED.format(last), entry=last)
        for last in unfinished_imports(events)
    ]
    return reasons


def _of_replies(replies: Sequence[Unreleased]) -> list[dict[str, Any]]:
    return [
        _reason(
            "reply_unreadable",
            _UNREAD.format(one.stream_id, one.unread),
            "check",
            stream_id=one.stream_id,
        )
        for one in replies
        if one.unread is not None
    ]


def _of_compaction(
    events: Sequence[Event], open_calls: Sequence[CallAccount]
) -> list[dict[str, Any]]:
    """The newest on the path: it says what the model sees."""
    on_path = path_events(events) if events else []
    found = [one for one in on_path if one.type == "compaction"]
    if not found or check_payload("compaction", found[-1].payload) is not None:
        return []
    compaction = found[-1]
    first = compaction.payload.get("first_kept")
    if "replacement" in compaction.payload:
        kept_seq = compaction.seq
    else:
        kept = [one.seq for one in on_path if first in (one.id, *_message_ids(one))]
        if not kept:
            text = _CUT_OFF.format(compaction.id, first)
            return [_reason("compaction_cut_off", text, entry=compaction.id)]
        kept_seq = kept[0]
    return [
        _reason(
            "call_compacted",
            _COMPACTED.format(call.call_id, compaction.id),
            "check",
            turn=call.turn,
            call_id=call.call_id,
        )
        for call in open_calls
        if call.begun.seq < kept_seq
    ]


def _message_ids(event: Event) -> tuple[object, ...]:
    return event.payload.get("message_id"), event.payload.get("_message_id")


def _of_open_turns(workers: Sequence[Worker], account: History) -> list[Worker]:
    """Those of turns with the time of the submission, unless that ended meanwhile."""
    found = []
    for one in workers:
        turn = account.turns.get(one.turn or "") if one.stream_id is None else None
        if turn is not None and turn.state.ended:
            continue
        found.append(one if turn is None else one._replace(since_ms=turn.submitted.at_ms))
    return found


def _worked_on(workers: Sequence[Worker], said: Sequence[Event]) -> Callable[[CallAccount], bool]:
    """Whether a process that does not ask is at a call: it lives, and has its turn or its reply."""
    others = [one for one in workers if one.is_other]
    turns = {one.turn for one in others if one.stream_id is None}
    streams = {one.stream_id for one in others} - {None}
    messages = {id(one) for one in said if one.payload.get("_wal_stream") in streams}
    return lambda call: call.turn in turns or id(call.said_in) in messages


def _facts_of(
    call: CallAccount,
    compared: Compared,
    may_have_started: bool = False,
    is_worked_on: bool = False,
    now_ms: int | None = None,
) -> CallFacts:
    """may_have_started: what it says of itself is not all that was said of it."""
    effect, policy = call.risk
    if call.is_denied_late and policy != UNKNOWN:
        policy = "never-rerun"  # whatever its program allowed, a person said no since
    safety = call.idempotency if call.idempotency in ("safe", "conditional") else "unsafe"
    return CallFacts(
        _stage_of(call, may_have_started, now_ms),
        effect,
        policy,
        idempotency=str(safety),
        workspace=_WORKSPACES.get(compared.verdict, "unseen"),
        worker="other" if is_worked_on else "nobody",
    )


def _is_known(call: CallAccount, doubtful: Container[str]) -> bool:
    """It is of this session, and nothing that may be of it is lost."""
    is_here = call.intent is not None or _is_only_said(call)
    return is_here and call.begun.id not in doubtful


def _is_only_said(call: CallAccount) -> bool:
    """In this session, and no journal has it."""
    return call.intent is None and call.begun.type not in CAME_FROM


def _words_for(call: CallFacts, *, is_known: bool) -> list[str]:
    """The words of a settlement that change what may be done with an open call.

    is_known: all that it was allowed and whether it started; else no grant lets it run.
    """
    rule = rule_of(call)
    if rule.why in ("still_runs", "at_work"):
        return []
    if not call.may_have_started:
        return ["denied"] if rule.why == "policy_denies" else ["granted", "denied"]
    is_granted = is_known and call.stage != "intent_lost" and rule.why != "policy_denies"
    return ["ran", "did_not_run"] + ["granted"] * is_granted


def _settles(session: str, told: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """The command for the first word, to be typed as it stands, and what else may be said."""
    if not told["settle"]:
        return ""
    first, *others = told["settle"]
    more = ", ".join(SETTLE_FLAGS[word] for word in others)
    command = settle_command(session, told, rows, first)
    return f"`{command}`" + (f" (or {more})" if more else "")


def _stage_of(call: CallAccount, may_have_started: bool, now_ms: int | None) -> str:
    if call.outcome == "unknown" or may_have_started:
        if call.superseded_by is not None and not may_have_started:
            return "superseded"
        if call.risk[1] == UNKNOWN:
            return "intent_lost"
        again = not may_have_started and was_granted_again(call) and not is_stale(call, now_ms)
        return "unknown_granted" if again else "unknown"
    if call.outcome != "pending":
        return "denied" if call.outcome == "denied" else "result"
    if call.superseded_by is not None:
        return "superseded"
    stage = call.stage
    if call.is_undecided and stage != "asked":
        return "undecided"
    if stage == "approved":
        return "approved_stale" if is_stale(call, now_ms) else "approved"
    return "asked" if stage == "asked" else "intended"


def _settled_in(
    account: History, turn: str, open_calls: Sequence[CallAccount]
) -> list[CallAccount]:
    """The calls of a turn of which it is known what became of them."""
    waiting = {id(call) for call in open_calls}
    return [
        call
        for call in account.calls.calls
        if call.turn == turn and id(call) not in waiting and not call.is_served
        if call.superseded_by is not None or call.outcome not in OPEN
    ]


def _in_older_words(told: Mapping[str, Any], facts: CallFacts) -> dict[str, Any]:
    """As clients of 0.1.0 read it, and no laxer than they were told: nothing was safe to repeat,
    and what has no effect was looked at first, unless its policy was to replay it.
    """
    older = {name: value for name, value in told.items() if name not in _NEWER}
    rule = rule_of(facts._replace(idempotency="unsafe"))
    is_checked = facts.may_have_started and facts.resume_policy != "replay-from-event"
    older["side_effect"] = facts.side_effect
    older["may"] = _OLDER_WORDS["check_then_run" if rule.may == "run" and is_checked else rule.may]
    return older


def _code(told: Mapping[str, Any]) -> str:
    if told["why"] in _OWN_CODES:
        return str(told["why"])
    waits = told["state"] == "asked" and told["outcome"] != "unknown"
    return "approval_pending" if waits else "tool_" + str(told["outcome"])


def _cost(one: Mapping[str, Any]) -> str:
    if one["first_seq"] > one["last_seq"]:
        return f"{one['why']} before event {one['first_seq']}, none is missing"
    return f"events {one['first_seq']} to {one['last_seq']} cannot be read"


def _judged(
    tool: CallAccount, facts: CallFacts, name: tuple[int, dict[str, Any]]
) -> dict[str, Any]:
    """name: as `names_of` has it."""
    rule = rule_of(facts)
    return {
        "turn": tool.turn,
        "call_id": tool.call_id,
        "intent": None if tool.intent is None else tool.intent.id,
        "tool": tool.state.tool,
        "state": tool.stage,
        "outcome": "unknown" if facts.may_have_started else tool.outcome,
        "side_effect": _effect_of(tool),
        "resume_policy": tool.risk[1],
        "may": rule.may,
        "why": rule.why,
        "stream": tool.stream if tool.turn is None else None,
        "settled": None if (settled := tool.settled_last) is None else settled.payload["word"],
        "child": tool.child_session,
        "n": name[0],
        "since_ms": tool.since_ms,
        "settle": [],
        **_arguments_of(tool),
        "of": name[1],
    }


def _arguments_of(call: CallAccount) -> dict[str, Any]:
    """Whole, or the beginning of their JSON text."""
    given = call.arguments
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    if len(text) <= PREVIEW_CHARS_MAX:
        return {"arguments": given, "arguments_cut": None}
    return {"arguments": text[:PREVIEW_CHARS_MAX], "arguments_cut": len(text)}


def _effect_of(call: CallAccount) -> str:
    """To the rules `network` and `process` are external writes."""
    effect = call.risk[0]
    is_finer = effect == "external-write" and call.effect in FINER_EFFECTS
    return str(call.effect) if is_finer else effect


def _reason(code: str, message: str, verdict: str = "blocked", **more: Any) -> dict[str, Any]:
    return {"code": code, "message": message, "verdict": verdict, **more}


def has_written(
    tools: Sequence[CallAccount], events: Sequence[Event], said: Sequence[Event] = ()
) -> bool:
    """Whether one of the calls may have written to the workspace since the last fingerprint.

    said: messages of replies that are not released: what they say happened before the end of their
    turn.
    """
    since, already = 0, False
    loose, ends = {id(one) for one in said}, dict[str | None, int]()
    for event in events:
        if (taken := fingerprint_of(event)) is not None:
            since, already = event.seq, taken.get("written") is True
        elif event.type in ("turn_completed", "turn_interrupted"):
            ends.setdefault(event.turn, event.seq)

    def written_at(tool: CallAccount) -> float:
        seqs = [tool.state.seqs.get(name, 0) for name in ("started", "finished", "failed")]
        if tool.intent is not None or tool.outcome not in _MAY_HAVE_WRITTEN:
            return max(seqs)
        is_loose = id(tool.said_in) in loose
        return ends.get(tool.turn, math.inf) if is_loose else max(*seqs, tool.said_in.seq)

    return already or any(
        tool.risk[0] in ("workspace-write", UNKNOWN) and written_at(tool) > since for tool in tools
    )


def _stopped_at(account: History, tools: Sequence[Mapping[str, Any]]) -> tuple[str | None, str]:
    """The newest turn that was not completed, and how far its calls got. tools: as judged."""
    turns = list(account.turns.values())
    unknown = [tool["turn"] for tool in tools if tool["outcome"] == "unknown"]
    if not turns or turns[-1].state.state == "completed":
        return (unknown[-1], "started") if unknown else (None, "idle")
    turn = turns[-1]
    if turn.state.turn_id in unknown:
        return turn.state.turn_id, "started"
    newest = max(turn.tools, key=lambda tool: max(tool.state.seqs.values()), default=None)
    if newest is not None:
        return turn.state.turn_id, _BOUNDARIES[newest.stage]
    said = (one for one in account.calls.calls if one.turn == turn.state.turn_id)
    return turn.state.turn_id, _boundary_of_said(said)


def _boundary_of_said(calls: Iterable[CallAccount]) -> str:
    """Where no journal has any of them, and none may have started."""
    has_run = any(one.has_result and not one.is_served for one in calls)
    return "observed" if has_run else "before_intent"
