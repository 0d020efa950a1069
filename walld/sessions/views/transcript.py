"""Who said and did what, turn by turn.

Owns: the shape of the transcript. Refuses: what a provider is sent (`messages.py`), gathering
(`turn_history.py`), drawing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from walld_client.recovered.provider import set_apart

from walld.sessions.gate.model_calls import calls_by_turn, model_calls
from walld.sessions.gate.turn_history import History, TurnHistory, history_of
from walld.sessions.gate.unreleased import reply_of, said_before, said_in
from walld.sessions.state.account import Unreleased
from walld.sessions.state.artifacts import whole_text
from walld.sessions.state.call_account import CallAccount
from walld.sessions.state.events import Event, check_payload
from walld.sessions.state.path import path, places
from walld.sessions.views.messages import Fate, fates, submitted_message

__all__ = ["tool_view", "transcript", "turn_view"]

_DECIDES: Final = ("tool_decision", "tool_approval", "tool_settled")
_CHANGES: Final = ("message_edit", "undo", "compaction")


def transcript(
    events: Sequence[Event], unreleased: Sequence[Unreleased] = ()
) -> list[dict[str, Any]]:
    """Turns in the order they were submitted, on every branch; messages of no turn between them.

    A message that was said anew (of the same step of the same reply) is shown once, as it was last.
    One that does not stand as it was said has `gone` ("undone", "replaced") or `edited`, what it is
    now; what changed them is `changes` of a part of its own. Of replies that are not released a
    turn has the calls that nothing else names, each with its reply as `unreleased`. model_calls:
    of a turn, what is known of the model's.
    """
    said = said_in(unreleased, events)
    account = history_of(events, [*said, *said_before(unreleased, events)])
    found = places(events)
    on_path = {events[place].id for place in path(found)}
    became = fates(events)
    views = {name: turn_view(turn, on_path, became) for name, turn in account.turns.items()}
    told = [(turn.submitted.seq, views[name]) for name, turn in account.turns.items()]
    for call in account.of_replies:
        view = tool_view(call, reply_of(call, unreleased))
        if call.turn in views:
            views[call.turn]["tools"].append(view)
        else:
            told.append((call.begun.seq, {"turn_id": None, "messages": [], "tools": [view]}))
    models = calls_by_turn(model_calls(events, unreleased))
    for name, view in views.items():
        view["model_calls"] = models.pop(name, [])
    for left in models.values():  # of no turn
        part = {"turn_id": None, "messages": [], "tools": [], "model_calls": left}
        told.append((left[0]["seq"], part))
    told += _loose(account, on_path, became) + _changes(events, on_path)
    return [one for _, one in sorted(told, key=lambda one: one[0])]


def turn_view(turn: TurnHistory, on_path: set[str], became: Mapping[str, Fate]) -> dict[str, Any]:
    """A turn with its messages and tools."""
    state = turn.state
    view: dict[str, Any] = {
        "turn_id": state.turn_id,
        "message_id": state.message_id,
        "state": state.state,
        "reason": state.reason,
        "retry_of": state.retry_of,
        "stream_ids": list(state.stream_ids),
        "collisions": state.collisions.copy(),
        "id": turn.submitted.id,
        "seq": turn.submitted.seq,
        "submitted_at_ms": turn.submitted.at_ms,
        "ended_at_ms": None if turn.ended is None else turn.ended.at_ms,
        "duration_ms": turn.duration_ms,
        "on_path": turn.submitted.id in on_path,
        "messages": _messages(turn.said, on_path, became),
        "tools": [tool_view(tool) for tool in turn.tools],
    }
    return view


def tool_view(tool: CallAccount, reply: Unreleased | None = None) -> dict[str, Any]:
    """A call with its outcome and how long it took. reply: that alone says it."""
    has_journal = tool.intent is not None
    view: dict[str, Any] = {
        "id": tool.begun.id,
        "seq": tool.begun.seq,
        "call_id": tool.call_id,
        "tool": tool.state.tool,
        "arguments": tool.begun.payload.get("arguments") if has_journal else tool.arguments,
        "side_effect": tool.state.side_effect,
        "resume_policy": tool.state.resume_policy,
        "state": tool.state.state,
        "outcome": tool.outcome,
        "at_ms": tool.at_ms,
        "duration_ms": tool.duration_ms,
        "decisions": [
            {"type": one.type, "at_ms": one.at_ms, **_said_of(one)}
            for one in sorted((*tool.words, *tool.settlements), key=lambda one: one.seq)
            if one.type in _DECIDES
        ],
        "observations": [
            whole_text(one.payload, "text") for one in tool.words if one.type == "observation"
        ],
    }
    if (finished := tool.finished) is not None:
        view["result"] = finished.payload.get("result")
        if finished.payload.get("files"):
            view["files"] = finished.payload["files"]
    has_result, result = tool.result()
    if has_result and not has_journal:
        view["result"] = result
    if reply is not None:
        view["unreleased"] = reply.told()
    return view


def _said_of(event: Event) -> dict[str, Any]:
    """What was decided of a call; of a settlement without the call's name and what it gave."""
    payload = event.payload
    if event.type != "tool_settled":
        return payload
    return {name: value for name, value in payload.items() if name not in ("of", "result")}


def _messages(
    said: Sequence[Event], on_path: set[str], became: Mapping[str, Fate]
) -> list[dict[str, Any]]:
    """Messages with their places; one that was said anew stands where it first stood."""
    shown: dict[object, dict[str, Any]] = {}
    for event in said:
        message = event.payload
        if event.type == "turn_submitted":
            if event.payload.get("retry_of") is not None:
                continue
            message = submitted_message(event)
        reply = (message.get("_wal_stream"), message.get("_wal_seq"))
        name = reply if isinstance(reply[0], str) and isinstance(reply[1], int) else event.id
        first = shown.get(name, {"first_id": event.id, "first_seq": event.seq})
        shown[name] = {
            "id": event.id,
            "seq": event.seq,
            "first_id": first["first_id"],
            "first_seq": first["first_seq"],
            "at_ms": event.at_ms,
            "on_path": event.id in on_path,
            "message": set_apart(message),
        }
        gone, edited = became.get(event.id, ("", None))
        if gone:
            shown[name]["gone"] = gone
        if edited is not None:
            shown[name]["edited"] = set_apart(edited)
    return list(shown.values())


def _changes(events: Sequence[Event], on_path: set[str]) -> list[tuple[int, dict[str, Any]]]:
    """What changed the messages. count: of those that an undo takes off, or that a list has."""
    found: list[tuple[int, dict[str, Any]]] = []
    lists: dict[tuple[str, bool], dict[str, Any]] = {}
    """The last list of each type, on the path and off it: a long one comes in several entries."""
    for event in events:
        payload = event.payload
        if event.type not in _CHANGES or check_payload(event.type, payload) is not None:
            continue
        listed = payload.get("messages", payload.get("replacement"))
        of = event.type, event.id in on_path
        if payload.get("append") and listed is not None and of in lists:
            lists[of]["count"] += len(listed)
            continue
        view = {"id": event.id, "seq": event.seq, "at_ms": event.at_ms, "type": event.type}
        view |= {"on_path": event.id in on_path, "of": payload.get("target")}
        if event.type == "undo":
            view["count"] = payload["n"]
        elif listed is not None:
            view["count"] = len(listed)
            lists[of] = view
        elif event.type == "compaction":
            view |= {"of": payload["first_kept"], "summary": whole_text(payload, "summary")}
        part = {"turn_id": None, "messages": [], "tools": [], "changes": [view]}
        found.append((event.seq, part))
    return found


def _loose(
    account: History, on_path: set[str], became: Mapping[str, Fate]
) -> list[tuple[int, dict[str, Any]]]:
    """Messages of no turn, those between the same two turns together."""
    starts = sorted(turn.submitted.seq for turn in account.turns.values())
    groups: list[list[Event]] = []
    passed, before = 0, -1
    for event in account.loose:
        while passed < len(starts) and starts[passed] < event.seq:
            passed += 1
        if passed != before:
            groups.append([])
            before = passed
        groups[-1].append(event)
    return [
        (
            group[0].seq,
            {"turn_id": None, "messages": _messages(group, on_path, became), "tools": []},
        )
        for group in groups
    ]
