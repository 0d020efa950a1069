"""What happened, what is open, what may be done: a session explained after a crash.

Owns: the shape of the answer, and how much of long texts it tells. Refuses: judging calls and turns
(`gate/`), what may be typed (`gate/next_steps.py`), drawing.

Everything told is of one set of events and replies, so no part of it contradicts another.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

from walld_client.limits import PREVIEW_CHARS_MAX
from walld_client.recovered.provider import set_apart

from walld.sessions.gate.model_calls import model_calls, total_usage
from walld.sessions.gate.next_steps import next_steps
from walld.sessions.gate.possibly_run import calls_elsewhere
from walld.sessions.gate.processes import NamedProcess
from walld.sessions.gate.resume import resume
from walld.sessions.gate.settle_targets import names_of
from walld.sessions.gate.standing import standing
from walld.sessions.gate.turn_history import History, TurnHistory, history_of
from walld.sessions.gate.unreleased import said_before, said_in
from walld.sessions.gate.workers import Worker
from walld.sessions.state.account import Unreleased, calls_in
from walld.sessions.state.budget import is_exhausted
from walld.sessions.state.call_account import OPEN, CallAccount
from walld.sessions.state.events import Event, check_payload
from walld.sessions.state.path import path, path_events, places
from walld.sessions.views.messages import Fate, fates, submitted_message, undone
from walld.sessions.views.session_facts import lifecycle, queue
from walld.sessions.views.transcript import tool_view

__all__ = ["explain"]

_WORKED_ON: Final = frozenset(("at_work", "still_runs"))
_OF_GATE: Final = (
    *("turn", "stream", "call_id", "n", "tool", "arguments", "arguments_cut", "side_effect"),
    *("resume_policy", "state", "since_ms", "may", "why", "settled", "child"),
)
_OF_FAILED: Final = (
    *("turn", "stream", "at_ms", "model", "provider", "request_id", "error_class", "error_kind"),
)
_CALLS: Final = ("tool_use", "tool_result", "thinking")
"""Blocks that are told elsewhere, or not meant for the user."""
_CAME: Final = {"forked": "fork", "imported": "import"}


def explain(
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
) -> dict[str, Any]:
    """The four questions: what was done, what was being said, what is unknown, what may I do.

    Arguments are those of `resume()`. state: live | waits | blocked | cut | done (`standing`).
    asked: messages of the user in order, each with what was answered; said: what the model said
    last where that is no answer, since it says a call, or more is to come. done: calls of which it
    is known what became of them. refused: those that were denied before they could run;
    denied_...: by whom and why, also of one that is unknown. replaced: those that a later call of
    the same message took the place of. unknown: those that may have run; running: the same, at
    which a living process is. verified: the last entry of each name. spent: budget, tokens.
    model_failed: calls of the model that failed, in order. saying:
    replies that are not released; said_elsewhere: those of turns that went, and that no message of
    the session has. queued: input that waits. lifecycle: as the session's state has
    it. may: `next_steps`, and asked_because: why a person is asked of the call. notes: what is not
    there any more, and why.
    Long texts are cut: `..._cut` is their whole length in characters (of an artifact, in bytes),
    None where nothing is cut; what a reply was saying is whole. Times are ms since 1970. Raises
    BadArgument.
    """
    gate = resume(
        events,
        workspace,
        missing_artifacts,
        budget,
        breaks,
        last_seq,
        replies,
        workers,
        now_ms,
        policy,
        processes,
        session,
        undone(events),
    )
    account = history_of(events, [*said_in(replies, events), *said_before(replies, events)])
    calls = [*account.calls.calls, *(elsewhere := calls_elsewhere(events))]
    names = {id_: name[0] for id_, name in names_of(account.calls.calls, elsewhere).items()}
    is_open = {(one["call_id"], one["n"]) for one in gate["calls"] if one["may"] != "read_result"}
    closed = [
        one for one in calls if not one.is_served and (one.call_id, names[id(one)]) not in is_open
    ]
    refusals = {
        (one.turn, one.call_id, names[id(one)]): _refusal(one)
        for one in account.calls.calls
        if one.is_denied_late
    }
    unknown = [
        _open_call(one) | refusals.get((one["turn"], one["call_id"], one["n"]), _NO_REFUSAL)
        for one in gate["calls"]
        if one["outcome"] == "unknown"
        if one["may"] != "read_result"
    ]
    because = {
        (one.turn, one.call_id, names[id(one)]): one.asked_because()
        for one in account.calls.calls
        if one.outcome in OPEN
    }
    spent = gate["budget"]
    return {
        "session": session,
        "as_of": gate["as_of"],
        "state": standing(gate),
        "gate": {name: gate[name] for name in ("status", "boundary", "turn", "reasons")},
        "workspace": {name: gate["workspace"][name] for name in ("verdict", "changed")},
        "owner": gate["owner"],
        "asked": _asked(events, account, _going_on(gate, replies)),
        "done": [
            _closed_call(one, names[id(one)])
            for one in closed
            if one.superseded_by is None and one.outcome not in (*OPEN, "denied", "withdrawn")
        ],
        "refused": [
            _closed_call(one, names[id(one)]) | _refusal(one)
            for one in closed
            if one.outcome == "denied"
        ],
        "replaced": [
            _closed_call(one, names[id(one)]) | {"replaced_by": one.superseded_by.call_id}
            for one in closed
            if one.superseded_by is not None and one.outcome in OPEN
        ],
        "verified": _verified(events),
        "spent": {
            "budget": spent,
            "exhausted": spent is not None and is_exhausted(spent),
            **_usage(records := model_calls(events, replies)),
        },
        "model_failed": [
            {name: one[name] for name in _OF_FAILED} for one in records if one["error_class"]
        ],
        "saying": [_saying(one, account) for one in replies],
        "said_elsewhere": _said_elsewhere(events, account, replies),
        "unknown": [one for one in unknown if one["why"] not in _WORKED_ON],
        "running": [one for one in unknown if one["why"] in _WORKED_ON],
        "queued": [_waiting(one) for one in queue(events)],
        "lifecycle": lifecycle(events),
        "may": [
            one | {"asked_because": because.get((one["turn"], one["call_id"], one["n"]))}
            for one in next_steps(session, gate, replies, _stopped(gate, account))
        ],
        "notes": _notes(events, breaks),
    }


def _stopped(gate: Mapping[str, Any], account: History) -> str | None:
    """The turn that somebody may go on with: the newest, neither completed nor answered."""
    turn = account.turns.get(gate["turn"] or "")
    if turn is None or turn is not list(account.turns.values())[-1]:
        return None
    if turn.state.state == "completed" or gate["boundary"] == "answered":
        return None
    return turn.state.turn_id


# --- what was asked -------------------------------------------------------------------------------


def _waiting(one: Mapping[str, Any]) -> dict[str, Any]:
    content, cut = _words(one)
    row = {name: one[name] for name in ("id", "kind", "message_id", "at_ms")}
    return row | {"content": content, "content_cut": cut}


def _going_on(gate: Mapping[str, Any], replies: Sequence[Unreleased]) -> set[str | None]:
    """Turns in which more is to come than the messages of the session have."""
    is_open = {one["turn"] for one in gate["calls"] if one["may"] != "read_result"}
    return is_open | {one.turn for one in replies if one.messages}


def _asked(
    events: Sequence[Event], account: History, going_on: Container[str | None]
) -> list[dict[str, Any]]:
    found = places(events)
    on_path = {events[place].id for place in path(found)}
    became = fates(events)
    rows = [
        (turn.submitted.seq, _turn(turn, on_path, became, going_on))
        for turn in account.turns.values()
    ]
    loose: list[tuple[int, dict[str, Any]]] = []
    of_turns = {id(event) for turn in account.turns.values() for event in turn.spoken}
    for event in account.loose:
        role = event.payload.get("role")
        if role == "user":
            loose.append((event.seq, _row(event, event.payload, on_path, became)))
        elif role == "assistant" and loose and id(event) not in of_turns:
            _answer(loose[-1][1], event, became.get(event.id))
    return [row for _, row in sorted((*rows, *loose), key=lambda one: one[0])]


def _turn(
    turn: TurnHistory,
    on_path: set[str],
    became: Mapping[str, Fate],
    going_on: Container[str | None],
) -> dict[str, Any]:
    state = turn.state
    row = _row(turn.submitted, submitted_message(turn.submitted), on_path, became)
    row |= {
        "turn": state.turn_id,
        "message_id": state.message_id,
        "state": state.state,
        "reason": state.reason,
        "retry_of": state.retry_of,
        "ended_at_ms": None if turn.ended is None else turn.ended.at_ms,
    }
    last_seq = 0
    for event in turn.spoken:
        if event.type == "message" and event.payload.get("role") == "assistant":
            _answer(row, event, became.get(event.id))
            last_seq = event.seq
    if state.state != "completed":
        journalled = (seq for call in turn.tools for seq in call.seqs.values())
        if state.turn_id in going_on or max(journalled, default=0) > last_seq:
            _no_answer(row)
    return row


def _row(
    event: Event, message: Mapping[str, Any], on_path: set[str], became: Mapping[str, Fate]
) -> dict[str, Any]:
    content, cut = _words(message)
    return {
        "turn": None,
        "message_id": event.id,
        "content": content,
        "content_cut": cut,
        "state": None,
        "reason": None,
        "retry_of": None,
        "at_ms": event.at_ms,
        "ended_at_ms": None,
        "on_path": event.id in on_path,
        "gone": became[event.id].gone if event.id in became else "",
        "answer": None,
        "answer_cut": None,
        "answer_partial": False,
        "answer_edited": False,
        "answer_gone": "",
        "said": None,
        "said_cut": None,
    }


def _answer(row: dict[str, Any], event: Event, fate: Fate | None) -> None:
    """The last words of the model count, as they are now; of what was undone, that it was. What
    stands before its call is said, and no answer.
    """
    gone, edited = fate or ("", None)
    message = event.payload if edited is None else edited
    text, cut = _words(message)
    if gone == "undone":
        row["answer_gone"] = gone
    elif text:
        row |= {"answer": text, "answer_cut": cut, "answer_gone": gone}
        row |= {"said": None, "said_cut": None}
        row["answer_partial"] = bool(message.get("_partial"))
        row["answer_edited"] = edited is not None
    if gone != "undone" and any(not one.get("server") for one in calls_in(message)):
        _no_answer(row)


def _no_answer(row: dict[str, Any]) -> None:
    if row["answer"] is not None:
        row |= {"said": row["answer"], "said_cut": row["answer_cut"]}
        row |= {"answer": None, "answer_cut": None}


def _words(message: Mapping[str, Any]) -> tuple[str, int | None]:
    """Of a message, blocks without a text by their type."""
    content = message.get("content")
    blocks = content if isinstance(content, list) else [content]
    text = "\n".join(filter(None, map(_block, blocks)))
    named = message.get("_artifact")
    return _cut(text, named)


def _block(block: object) -> str:
    if isinstance(block, str):
        return block
    if not isinstance(block, dict):
        return "" if block is None else _json(block)
    text = block.get("text")
    if isinstance(text, str):
        return text
    return "" if block.get("type") in _CALLS else f"[{block.get('type')}]"


# --- calls ----------------------------------------------------------------------------------------


def _open_call(told: Mapping[str, Any]) -> dict[str, Any]:
    """Of the gate."""
    return {name: told[name] for name in _OF_GATE}


def _closed_call(call: CallAccount, n: int) -> dict[str, Any]:
    view = tool_view(call)
    arguments, arguments_cut = _value(view["arguments"])
    has_result, result = call.result()
    result, result_cut = _value(view.get("result", result if has_result else None))
    settled = call.settled
    return {
        "turn": call.turn,
        "stream": call.stream if call.turn is None else None,
        "call_id": call.call_id,
        "n": n,
        "tool": call.state.tool,
        "arguments": arguments,
        "arguments_cut": arguments_cut,
        "side_effect": call.risk[0],
        "resume_policy": call.risk[1],
        "outcome": call.outcome,
        "at_ms": call.at_ms.get("started", call.begun_ms),
        "duration_ms": call.duration_ms,
        "result": result,
        "result_cut": result_cut,
        "files": sorted(view.get("files") or ()),
        "observations": [_value(one)[0] for one in view["observations"]],
        "settled": None if settled is None else settled.payload["word"],
        "settled_by": None if settled is None else settled.payload.get("by"),
        "note": None if settled is None else settled.payload.get("note"),
    }


_NO_REFUSAL: Final = dict.fromkeys(("denied_by", "denied_by_name", "denied_because"))


def _refusal(call: CallAccount) -> dict[str, Any]:
    who, why = call.denied_by()
    by = "policy" if who == "A policy" else "user"
    return {"denied_by": by, "denied_by_name": call.denier(), "denied_because": why}


# --- what else is known ---------------------------------------------------------------------------


def _verified(events: Sequence[Event]) -> list[dict[str, Any]]:
    """before: how many of the same name came before it. One without a name stands for itself."""
    last: dict[object, Event] = {}
    count = Counter[object]()
    for event in events:
        if event.type == "verification":
            name = event.payload.get("name")
            key = name if isinstance(name, str) else event.seq
            count[key] += 1
            last.pop(key, None)
            last[key] = event
    return [
        {"at_ms": one.at_ms, "turn": one.turn, "said": one.payload, "before": count[key] - 1}
        for key, one in last.items()
    ]


def _usage(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of the model's calls: how many are known, of which models, the sum of each number."""
    models = dict.fromkeys(one["model"] for one in records if one["model"] is not None)
    usage = total_usage(records)
    return {"model_calls": len(records), "models": list(models), "usage": usage}


def _saying(reply: Unreleased, account: History) -> dict[str, Any]:
    """With what became of its calls, whoever said that."""
    facts, of_item = reply.facts, account.calls.of_item
    said = [set_apart(one) for one in reply.messages]
    calls = [
        {
            "call_id": one.get("id"),
            "tool": one.get("name"),
            "arguments": _value(one.get("arguments"))[0],
            "arguments_cut": _value(one.get("arguments"))[1],
            "outcome": one.get("outcome") if (of := of_item.get(id(one))) is None else of.outcome,
        }
        for message in reply.messages
        for one in message.get("tool_calls") or ()
    ]
    return {
        "stream_id": reply.stream_id,
        "turn": reply.turn,
        "status": reply.status,
        "owner_alive": reply.owner_alive,
        "lost_reason": facts.get("lost_reason"),
        "partial": facts.get("partial", not reply.has_ended),
        "partial_reason": facts.get("partial_reason"),
        "ended": reply.has_ended,
        "doubt": reply.unread,
        "error": facts.get("error"),
        "attempts": facts.get("attempts", 1),
        "started_at_ms": facts.get("started_at_ms"),
        "last_event_at_ms": facts.get("last_event_at_ms"),
        "last_seq": facts.get("last_seq"),
        "text": _in_a_row(said, "content"),
        "reasoning": _in_a_row(said, "reasoning"),
        "calls": calls,
    }


def _in_a_row(messages: Sequence[Mapping[str, Any]], name: str) -> str:
    """Their texts, a blank line between two where neither has white space there."""
    told = ""
    for text in filter(None, (str(one.get(name) or "") for one in messages)):
        is_glued = told and not (told[-1].isspace() or text[0].isspace())
        told += f"\n\n{text}" if is_glued else text
    return told


def _said_elsewhere(
    events: Sequence[Event], account: History, replies: Sequence[Unreleased]
) -> list[dict[str, Any]]:
    """how: expired, it went for its age and nobody had it; answered, it was an answer, and its
    program has it; taken, it was released or resolved, and may have said nothing.

    None of a turn that came with a fork or an import: its reply is where that came from.
    """
    said = (one.payload.get("_wal_stream") for one in events if one.type == "message")
    here = {one for one in said if isinstance(one, str)} | {one.stream_id for one in replies}
    came = max((one.seq for one in events if one.type in _CAME), default=0)
    begun: dict[str, str | None] = {
        stream: turn.state.turn_id
        for turn in account.turns.values()
        if turn.submitted.seq > came
        for stream in turn.state.stream_ids
    }
    how = dict.fromkeys(begun, "taken")
    for event in events:
        stream = event.payload.get("stream")
        if not isinstance(stream, str):
            continue
        if event.type == "reply_expired":
            begun.setdefault(stream, event.turn)
            how[stream] = "expired"
        elif event.type == "model_call" and event.payload.get("answer") is True:
            how[stream] = "answered"
    return [
        {"stream_id": stream, "turn": turn, "how": how[stream]}
        for stream, turn in begun.items()
        if stream not in here
    ]


def _notes(events: Sequence[Event], breaks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """kind: fork | import | expired | compaction | damage; at_ms: when that was written down."""
    found: list[dict[str, Any]] = []
    once = set[tuple[str, ...]]()
    for event in events:
        if event.type in _CAME and check_payload(event.type, event.payload) is None:
            kept = ("session", "at", "missing", "ended")
            told = {name: value for name, value in event.payload.items() if name in kept}
            said = (
                _CAME[event.type],
                *(_json(told.get(name)) for name in ("session", "at", "missing")),
            )
            if told.keys() == {"ended"} or said in once:
                continue  # a fork, or an import, that has much to tell has several entries
            once.add(said)
            found.append({"kind": _CAME[event.type], "at_ms": event.at_ms} | told)
        elif event.type == "reply_expired" and isinstance(event.payload.get("stream"), str):
            found.append(
                {"kind": "expired", "at_ms": event.at_ms, "turn": event.turn, **_lost(event)}
            )
    if (compaction := _compaction(events)) is not None:
        found.append(compaction)
    return found + [
        {"kind": "damage", "at_ms": None, "why": one["why"]}
        | {name: one[name] for name in ("first_seq", "last_seq")}
        for one in breaks
    ]


def _lost(event: Event) -> dict[str, Any]:
    return {name: value for name, value in event.payload.items() if name not in ("kind", "at_ms")}


def _compaction(events: Sequence[Event]) -> dict[str, Any] | None:
    """The one in force."""
    on_path = path_events(events) if events else []
    newest = next((one for one in reversed(on_path) if one.type == "compaction"), None)
    if newest is None or check_payload("compaction", newest.payload) is not None:
        return None
    summary, cut = _cut(newest.payload.get("summary") or "", newest.payload.get("_artifact"))
    first = newest.payload.get("first_kept")
    told = {"kind": "compaction", "at_ms": newest.at_ms, "entry": newest.id, "first_kept": first}
    return told | {"summary": summary, "summary_cut": cut}


# --- long texts -----------------------------------------------------------------------------------


def _value(value: object) -> tuple[object, int | None]:
    """As it is, or the beginning of it as text; and its length then."""
    if isinstance(value, dict) and isinstance(named := value.get("_artifact"), dict):
        return _cut(str(named.get("preview") or ""), named)
    if isinstance(value, str):
        return _cut(value)
    text = _json(value)
    return (value, None) if len(text) <= PREVIEW_CHARS_MAX else _cut(text)


def _cut(text: str, whole: object = None) -> tuple[str, int | None]:
    """whole: names the artifact of which the text is the beginning."""
    size = whole.get("size") if isinstance(whole, dict) else None
    if len(text) > PREVIEW_CHARS_MAX:
        return text[:PREVIEW_CHARS_MAX], size if isinstance(size, int) else len(text)
    return text, size if isinstance(size, int) else None


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
