"""Who said and did what, turn by turn.

Owns: the shape of the transcript. Refuses: what a provider is sent (`messages.py`), gathering
(`turn_history.py`), drawing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from walld_client.limits import PREVIEW_CHARS_MAX
from walld_client.recovered.provider import set_apart

from walld.sessions.gate.model_calls import calls_by_turn, model_calls
from walld.sessions.gate.turn_history import History, TurnHistory, history_of
from walld.sessions.gate.unreleased import reply_of, said_before, said_in
from walld.sessions.state.account import Unreleased
from walld.sessions.state.artifacts import whole_text
from walld.sessions.state.call_account import CallAccount
from walld.sessions.state.events import KNOWN, Event, check_payload
from walld.sessions.state.path import path, places
from walld.sessions.views.messages import Fate, fates, submitted_message

__all__ = ["tool_view", "transcript", "turn_view"]

_DECIDES: Final = ("tool_decision", "tool_approval", "tool_settled")
_CHANGES: Final = ("message_edit", "undo", "compaction")
_TOLD_ELSEWHERE: Final = frozenset(
    (
        *("message", "label", "leaf", "branch_summary", "observation", "model_call", "child"),
        *_CHANGES,
        *(name for name in KNOWN if name.startswith(("turn_", "tool_"))),
    )
)
"""Types that messages, turns, calls, changes and the tree tell."""


def transcript(
    events: Sequence[Event], unreleased: Sequence[Unreleased] = ()
) -> list[dict[str, Any]]:
    """Turns in the order they were submitted, on every branch; messages of no turn between them.

    A message that was said anew (of the same step of the same reply) is shown once, as it was last.
    One that does not stand as it was said has `gone` ("undone", "replaced") or `edited`, what it is
    now; what changed them is `changes` of a part of its own. Of replies that are not released a
    turn has the calls that nothing else names, each with its reply as `unreleased`, and in
    `replies` what each says and whether it is whole. entries: all other events of the turn, or of a
    part of their own: budgets, verifications, what is the application's own. model_calls: of a
    turn, what is known of the model's.
    """
    said = said_in(unreleased, events)
    account = history_of(events, [*said, *said_before(unreleased, events)])
    found = places(events)
    on_path = {events[place].id for place in path(found)}
    became = fates(events)
    views = {name: turn_view(turn, on_path, became) for name, turn in account.turns.items()}
    told = [(turn.submitted.seq, views[name]) for name, turn in account.turns.items()]
    last_seq = events[-1].seq if events else 0
    known = _known_steps(events) if unreleased else {}
    apart = {one.stream_id: _part(replies=[_reply(one, known)]) for one in unreleased}
    for reply in unreleased:
        if reply.turn in views:
            views[reply.turn]["replies"] += apart.pop(reply.stream_id)["replies"]
    told += [(last_seq, part) for part in apart.values()]
    for call in account.of_replies:
        of_it = reply_of(call, unreleased)
        view = tool_view(call, of_it)
        if call.turn in views:
            views[call.turn]["tools"].append(view)
        elif of_it is not None and of_it.stream_id in apart:
            apart[of_it.stream_id]["tools"].append(view)
        else:
            told.append((call.begun.seq, _part(tools=[view])))
    for event in events:
        if event.type in _TOLD_ELSEWHERE and not _is_loose_observation(event):
            continue
        if event.turn in views:
            views[event.turn]["entries"].append(_entry(event, on_path))
        else:
            told.append((event.seq, _part(entries=[_entry(event, on_path)])))
    models = calls_by_turn(model_calls(events, unreleased))
    for name, view in views.items():
        view["model_calls"] = models.pop(name, [])
    for one in (one for left in models.values() for one in left):  # of no turn
        if one["unreleased"]:
            apart[one["stream"]].setdefault("model_calls", []).append(one)
        else:
            told.append((one["seq"], _part(model_calls=[one])))
    told += _loose(account, on_path, became) + _changes(events, on_path)
    return [one for _, one in sorted(told, key=lambda one: one[0])]


def _part(**told: list[dict[str, Any]]) -> dict[str, Any]:
    """What is of no turn."""
    return {"turn_id": None, "messages": [], "tools": []} | told


def _is_loose_observation(event: Event) -> bool:
    """Of no call: else it stands among those of its call."""
    names = ("call_id", "of_call")
    return event.type == "observation" and not any(event.payload.get(one) for one in names)


def _known_steps(events: Sequence[Event]) -> dict[tuple[object, object], list[Event]]:
    """Messages of replies that stand in the session, by stream and first seq. Of more than one
    reply: a stream id is free again once its reply is released.
    """
    known: dict[tuple[object, object], list[Event]] = {}
    for one in events:
        stream, seq = one.payload.get("_wal_stream"), one.payload.get("_wal_seq")
        if one.type == "message" and isinstance(stream, str) and isinstance(seq, int):
            known.setdefault((stream, seq), []).append(one)
    return known


def _reply(reply: Unreleased, known: Mapping[tuple[object, object], list[Event]]) -> dict[str, Any]:
    """What a reply that is not released says and the session does not; adopted: so many messages of
    it stand there. partial_reason: None of one that is whole. ended: its program or its provider
    said so. unread: why some of it may not be known.
    """
    told = [one for one in reply.messages if not _is_known(one, reply.turn, known)]
    return reply.told() | {
        "partial": bool(reply.facts.get("partial")),
        "partial_reason": reply.facts.get("partial_reason"),
        "ended": reply.has_ended,
        "unread": reply.unread,
        "messages": [set_apart(one) for one in told],
        "adopted": len(reply.messages) - len(told),
    }


def _is_known(
    message: Mapping[str, Any],
    turn: str | None,
    known: Mapping[tuple[object, object], list[Event]],
) -> bool:
    """An entry of that turn, or of none, says as much of that step of that reply."""
    started_at = message.get("_wal_started_at")
    for one in known.get((message.get("_wal_stream"), message.get("_wal_seq")), ()):
        last = one.payload.get("_wal_last_seq")
        is_of_it = (one.turn or one.payload.get("_turn")) in (None, turn)
        is_of_it &= one.payload.get("_wal_started_at", started_at) == started_at
        if is_of_it and isinstance(last, int) and last >= message.get("_wal_last_seq", 0):
            return True
    return False


def _entry(event: Event, on_path: set[str]) -> dict[str, Any]:
    """stands_at: itself, or, where it did not become the leaf, what it hangs on. payload: where it
    is long, the beginning of its JSON text, and payload_cut, how long that is.
    """
    stands_at = event.id if event.leaf else event.parent
    text = json.dumps(event.payload, ensure_ascii=False)
    is_long = len(text) > PREVIEW_CHARS_MAX
    return {
        "id": event.id,
        "seq": event.seq,
        "at_ms": event.at_ms,
        "type": event.type,
        "stands_at": stands_at,
        "on_path": stands_at is None or stands_at in on_path,
        "payload": text[:PREVIEW_CHARS_MAX] if is_long else event.payload,
        "payload_cut": len(text) if is_long else None,
    }


def turn_view(turn: TurnHistory, on_path: set[str], became: Mapping[str, Fate]) -> dict[str, Any]:
    """A turn with its messages and tools."""
    state = turn.state
    view: dict[str, Any] = {
        "turn_id": state.turn_id,
        "message_id": state.message_id,
        "state": state.state,
        "reason": state.reason,
        "retry_of": state.retry_of,
        "model": turn.submitted.payload.get("model"),
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
        "replies": [],
        "entries": [],
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
        "state": tool.stage,
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
    if (progress := tool.progress) is not None:
        view["progress"] = {**progress.payload, "at_ms": progress.at_ms}
    if tool.child is not None:
        view["child"] = tool.child_session
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
        found.append((event.seq, _part(changes=[view])))
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
            _part(messages=_messages(group, on_path, became)),
        )
        for group in groups
    ]
