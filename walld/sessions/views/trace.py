"""What a session did as spans: turns, their replies, the model's calls, tool calls.

Owns: the shape of spans. Refuses: gathering (`turn_history.py`), any exporter's format.

Invariants: the same events give the same spans; a span's id is that of the event it begins with
(and behind it the call's, where one entry tells of several).
A clock that went back gives a span of no length, never a negative one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from walld.sessions.gate.model_calls import model_calls
from walld.sessions.gate.turn_history import TurnHistory, history_of
from walld.sessions.gate.unreleased import reply_of, said_before, said_in
from walld.sessions.state.account import Unreleased
from walld.sessions.state.call_account import CallAccount
from walld.sessions.state.events import Event

__all__ = ["trace"]

_TOOL_STATUS: Final = {"done": "ok", "failed": "error", "denied": "error"}
_MODEL_STATUS: Final = {"complete": "ok", "error": "error"}
_OF_MODEL: Final = (
    *("stream", "step", "turn", "model", "provider", "request_id", "tools_hash"),
    *("error_class", "error_kind", "finish_reason"),
)
_TURN_STATUS: Final = {"completed": "ok", "interrupted": "error"}


def trace(events: Sequence[Event], unreleased: Sequence[Unreleased] = ()) -> list[dict[str, Any]]:
    """Spans in order of their beginning. status: ok | error | unset (it has no end, or unknown).

    A span of kind `model` is a call of the model: its attributes say which, what it took and how it
    ended (`call_status`). unreleased: replies whose calls are told too, where nothing else has
    them; also (withdrawn) those of steps that were begun anew before they had ended. They begin
    with their turn.
    """
    said = [*said_in(unreleased, events), *said_before(unreleased, events)]
    withdrawn = said_before(unreleased, events, in_ended_steps=False)
    account = history_of(events, said, withdrawn)
    spans: list[dict[str, Any]] = []
    for turn in account.turns.values():
        spans.append(_turn_span(turn))
        spans += [_tool_span(tool, turn.submitted.id) for tool in turn.tools]
    for tool in account.of_replies:
        turn_of = account.turns.get(tool.turn or "")
        span = _tool_span(tool, None if turn_of is None else turn_of.submitted.id)
        span["span_id"] += f":{tool.call_id}"  # several begin with one entry
        if (reply := reply_of(tool, unreleased)) is not None:
            span["attributes"]["unreleased"] = reply.stream_id
        spans.append(span)
    at_ms = {event.seq: event.at_ms for event in events}
    for tool in account.of_messages:
        turn_of = account.turns.get(tool.turn or "")
        span = _tool_span(tool, None if turn_of is None else turn_of.submitted.id)
        span["span_id"] += f":{tool.call_id}"
        if (answered_ms := at_ms.get(tool.answered_seq)) is not None:
            span["end_ms"] = max(answered_ms, span["start_ms"])
        spans.append(span)
    replies = _reply_spans(events, account.turns)
    spans += replies
    spans += _model_spans(events, unreleased, replies, account.turns)
    return sorted(spans, key=lambda span: span["seq"])


def _span(
    kind: str, name: str, begun: Event, end_ms: int | None, status: str, parent: str | None
) -> dict[str, Any]:
    attributes = {
        field: value
        for field in ("turn", "cause", "correlation")
        if (value := getattr(begun, field)) is not None
    }
    return {
        "span_id": begun.id,
        "parent_id": parent,
        "kind": kind,
        "name": name,
        "seq": begun.seq,
        "start_ms": begun.at_ms,
        "end_ms": None if end_ms is None else max(end_ms, begun.at_ms),
        "status": status,
        "attributes": attributes,
    }


def _turn_span(turn: TurnHistory) -> dict[str, Any]:
    state = turn.state
    status = _TURN_STATUS.get(state.state, "unset")
    end_ms = None if turn.ended is None else turn.ended.at_ms
    span = _span("turn", f"turn {state.turn_id}", turn.submitted, end_ms, status, None)
    span["attributes"] |= {"state": state.state, "message_id": state.message_id}
    for name, value in (
        ("reason", state.reason),
        ("retry_of", state.retry_of),
        ("model", turn.submitted.payload.get("model")),
    ):
        if value is not None:
            span["attributes"][name] = value
    return span


def _tool_span(tool: CallAccount, parent: str | None) -> dict[str, Any]:
    outcome = tool.outcome
    status = _TOOL_STATUS.get(outcome, "unset")
    end_ms = None if tool.finished is None else tool.finished.at_ms
    span = _span("tool", tool.state.tool, tool.begun, end_ms, status, parent)
    span["attributes"] |= {
        "call_id": tool.call_id,
        "state": tool.stage,
        "outcome": outcome,
        "side_effect": tool.state.side_effect,
        "resume_policy": tool.state.resume_policy,
    }
    if tool.child is not None:
        span["attributes"]["child"] = tool.child_session
    if "started" in tool.at_ms:
        span["attributes"]["started_ms"] = tool.at_ms["started"]
    return span


def _reply_spans(events: Sequence[Event], turns: dict[str, TurnHistory]) -> list[dict[str, Any]]:
    """From assistant_started to the reply's last message, or the end of its turn.

    A stream id that two turns have is two replies. How one ended that has no message here, no event
    says: its turn may have been completed by another one.
    """
    begun: dict[tuple[str | None, str], Event] = {}
    last_said: dict[tuple[str | None, object], int] = {}
    for event in events:
        stream_id = event.payload.get("stream_id")
        if event.type == "turn_assistant_started" and isinstance(stream_id, str):
            begun.setdefault((event.turn, stream_id), event)
        elif event.type == "message" and isinstance(event.payload.get("_wal_stream"), str):
            last_said[event.turn, event.payload["_wal_stream"]] = event.at_ms
    spans = []
    for (turn_id, stream_id), event in begun.items():
        turn = turns.get(turn_id or "")
        if turn is None:
            continue
        end_ms = last_said.get((turn_id, stream_id), last_said.get((None, stream_id)))
        status = "unset" if end_ms is None else "ok"
        if end_ms is None and turn.ended is not None:
            end_ms = turn.ended.at_ms
            status = "error" if turn.state.state == "interrupted" else "unset"
        span = _span("reply", f"reply {stream_id}", event, end_ms, status, turn.submitted.id)
        span["attributes"]["stream_id"] = stream_id
        spans.append(span)
    return spans


def _model_spans(
    events: Sequence[Event],
    unreleased: Sequence[Unreleased],
    replies: Sequence[dict[str, Any]],
    turns: dict[str, TurnHistory],
) -> list[dict[str, Any]]:
    """Below their replies, where those are of a turn; an end only where one was told."""
    of_reply = {
        (one["attributes"].get("turn"), one["attributes"]["stream_id"]): one["span_id"]
        for one in replies
    }
    spans = []
    for call in model_calls(events, unreleased):
        turn = turns.get(call["turn"] or "")
        parent = None if turn is None else turn.submitted.id
        begun_ms, ended_ms = call["at_ms"] or call["started_at_ms"], call["ended_at_ms"]
        attributes = {name: call[name] for name in _OF_MODEL if call[name] is not None}
        attributes |= {"call_status": call["status"], "usage": call["usage"]}
        if call["unreleased"]:
            attributes["unreleased"] = call["stream"]
        span = {
            "span_id": call["id"],
            "parent_id": of_reply.get((call["turn"], call["stream"]), parent),
            "kind": "model",
            "name": f"model {call['model'] or 'unknown'}",
            "seq": call["seq"],
            "start_ms": begun_ms,
            "end_ms": None if None in (begun_ms, ended_ms) else max(begun_ms, ended_ms),
            "status": _MODEL_STATUS.get(call["status"], "unset"),
            "attributes": attributes,
        }
        spans.append(span)
    return spans
