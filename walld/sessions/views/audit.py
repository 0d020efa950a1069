"""The facts an audit needs of the ledger; it judges them where the application's store is seen.

Owns: facts of each turn, who is at work on it, calls without an answer, events that are malformed,
artifacts named. Refuses: what is present elsewhere and what that means (the client), who lives, the
chain and the artifacts' bytes (the daemon adds them).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

from walld.sessions.gate.pending import is_answered, open_tools
from walld.sessions.gate.possibly_run import calls_elsewhere, may_have_started
from walld.sessions.gate.turn_history import History, TurnHistory, history_of
from walld.sessions.gate.unreleased import reply_of, said_before, said_in
from walld.sessions.gate.workers import Worker
from walld.sessions.state.account import Unreleased
from walld.sessions.state.artifacts import artifacts_of
from walld.sessions.state.call_account import CallAccount
from walld.sessions.state.events import Event, check_payload
from walld.sessions.state.path import path_events
from walld.sessions.views.messages import fates, messages, undone

__all__ = ["audit", "named_artifacts"]


def audit(
    events: Sequence[Event],
    replies: Sequence[Unreleased] = (),
    workers: Sequence[Worker] = (),
    last_seq: int = 0,
) -> dict[str, Any]:
    """turns, in order; unanswered calls of messages outside turns; malformed events; artifacts.

    Of a turn: owner, the process at work on it that does not ask; last_owner, the one that the log
    names, alive (seen) or not; answered, the model spoke last in it, to its end. replies: those
    that are not released: they answer, too, and what they called is unanswered where their owner is
    gone. workers: who is at work. last_seq: the highest that was given, as far as is known.
    """
    gone = undone(events)
    account = history_of(events, gone=gone)
    said = said_in(replies, events)
    told = account  # what replies said is no entry: the facts are of entries alone
    if replies:
        told = history_of(events, [*said, *said_before(replies, events)], gone=gone)
    answered, owners = _answered(told, said), _owners(account, workers)
    last_owners = _last_owners(account, events, workers)
    edited, taken_back = _edited(events, account), _taken_back(events, account.turns.values())
    entry_of = {one.state.message_id: one.submitted.id for one in reversed(account.turns.values())}
    unanswered = _unanswered(told, events, replies, last_seq)
    return {
        "last_seq": events[-1].seq if events else 0,
        "turns": [
            {
                "turn_id": turn.state.turn_id,
                "message_id": turn.state.message_id,
                "state": turn.state.state,
                "reason": turn.state.reason,
                "interrupted_by": _interrupted_by(turn),
                "content": turn.submitted.payload.get("content"),
                "attachments": turn.submitted.payload.get("attachments") or [],
                "edited": edited.get(turn.submitted.id),
                "retry_of": turn.state.retry_of,
                "collisions": turn.state.collisions.copy(),
                "stream_ids": list(turn.state.stream_ids),
                "content_hash": turn.state.content_hash.hex(),
                "submitted_seq": turn.submitted.seq,
                "taken_back": entry_of[turn.state.message_id] in taken_back,
                "submission_lost": turn.submitted.type != "turn_submitted",
                "submitted_at_ms": turn.submitted.at_ms,
                "terminal_seq": turn.state.terminal_seq,
                "unanswered": unanswered.pop(turn_id, []),
                "answered": turn_id in answered,
                "owner": owners.get(turn_id),
                "last_owner": last_owners.get(turn_id),
            }
            for turn_id, turn in account.turns.items()
        ],
        "unanswered": [one for calls in unanswered.values() for one in calls],
        "malformed": [
            {
                "seq": event.seq,
                "id": event.id,
                "type": event.type,
                "turn": event.turn,
                **problem._asdict(),
            }
            for event, problem in account.malformed
            if problem.code != "unknown_parent" or not _is_behind_a_loss(event, events)
        ],
        "artifacts": named_artifacts(events),
    }


def _answered(account: History, said: Sequence[Event]) -> set[str]:
    """Turns in which the model spoke last, to its end, and asked for nothing."""
    waiting = open_tools(account)
    return {name for name, turn in account.turns.items() if is_answered(turn, waiting, said)}


def _owners(account: History, workers: Sequence[Worker]) -> dict[str, dict[str, Any]]:
    """Of turns that have not ended, and of those with a reply that has not."""
    found: dict[str, dict[str, Any]] = {}
    for one in workers:
        turn = account.turns.get(one.turn or "")
        if turn is None or one.is_asker or (one.stream_id is None and turn.state.ended):
            continue
        told = one._replace(since_ms=one.since_ms or turn.submitted.at_ms).told()
        found.setdefault(turn.state.turn_id, told)
    return found


def _last_owners(
    account: History, events: Sequence[Event], workers: Sequence[Worker]
) -> dict[str, dict[str, Any]]:
    """Of each turn who last advanced it, as the gate tells owners, and with the boot."""
    named = {one.turn: one.owner for one in events if one.turn is not None and one.owner}
    alive = {one.turn for one in workers if one.is_seen and one.stream_id is None}
    return {
        turn_id: {
            "turn": turn_id,
            "stream_id": None,
            "pid": owner.get("pid"),
            "boot": owner.get("boot"),
            "since_ms": turn.submitted.at_ms,
            "seen": turn_id in alive and not turn.state.ended,
        }
        for turn_id, turn in account.turns.items()
        if (owner := named.get(turn_id)) is not None
    }


def _taken_back(events: Sequence[Event], turns: Iterable[TurnHistory]) -> set[str]:
    """Submissions whose messages were undone, or left out of a list that took the place of all.

    A list that has a message of the user's without its id may have any of them: words prove
    nothing. A retry has its message of the turn that it is of.
    """
    told = {_message_id(one) for one in messages(events, compacted=False) or ()}
    tells = all(_message_id(one) for one in _listed(events) if one.get("role") == "user")
    became = fates(events)
    return {
        turn.submitted.id
        for turn in turns
        if (fate := became.get(turn.submitted.id))
        if fate.gone == "undone" or (fate.gone == "replaced" and tells)
        if turn.state.message_id not in told
    }


def _listed(events: Sequence[Event]) -> list[dict[str, Any]]:
    """The last list that took the place of all, on the way to the leaf."""
    listed: list[dict[str, Any]] = []
    for event in path_events(events) if events else ():
        payload = event.payload
        if event.type != "message_edit" or check_payload(event.type, payload) is not None:
            continue
        if not payload.get("append") and "messages" in payload:
            listed = []
        listed += payload.get("messages", ())
    return listed


def _message_id(message: dict[str, Any]) -> str | None:
    found = message.get("_message_id")
    return found if isinstance(found, str) else None


def _is_behind_a_loss(event: Event, events: Sequence[Event]) -> bool:
    """Some entry before it is lost: it may be the one that it hangs on."""
    return bisect_left(events, event.seq, key=lambda one: one.seq) < event.seq - 1


def _edited(events: Sequence[Event], account: History) -> dict[str, dict[str, Any]]:
    """Entry id -> the message that took its place, on the way to the leaf."""
    entry_of: dict[str | None, str] = {}
    for turn in account.turns.values():
        entry_of.setdefault(turn.state.message_id, turn.submitted.id)
    ids = {event.id for event in events}
    edits: dict[str, dict[str, Any]] = {}
    for event in path_events(events, None) if events else ():
        payload = event.payload
        if event.type != "message_edit" or check_payload(event.type, payload) is not None:
            continue
        if "messages" not in payload:  # a list says nothing of one message, whatever stands beside
            target, meant = payload["target"], payload.get("message_id")
            if isinstance(meant, str) or target not in ids:  # an entry's id goes first
                target = entry_of.get(meant if isinstance(meant, str) else target, target)
            edits[target] = payload["message"]
    return edits


def _interrupted_by(turn: TurnHistory) -> str | None:
    """The daemon or the application; None where the turn was not interrupted."""
    if turn.state.state != "interrupted":
        return None
    by_daemon = turn.ended is not None and turn.ended.payload.get("by") == "daemon"
    return "daemon" if by_daemon else "app"


def _unanswered(
    history: History, events: Sequence[Event], replies: Sequence[Unreleased], last_seq: int
) -> dict[str | None, list[dict[str, Any]]]:
    """Turn -> its calls that may have run and have no result, whoever spoke of them, as the gate
    has them; and those of what this session came from, whose intents are not here. What only a
    reply says that is not released counts where its owner is gone: else that may be running it.
    """
    doubtful = may_have_started(history, events, last_seq)
    found: dict[str | None, list[dict[str, Any]]] = {}
    reply_by_call = {id(call): reply_of(call, replies) for call in history.of_replies}
    for call in [*history.calls.calls, *calls_elsewhere(events)]:
        if call.closed or call.superseded_by is not None or call.is_served:
            continue
        if call.outcome == "pending" and call.begun.id not in doubtful:
            continue  # it never started: nothing is unknown of it
        facts = _facts(call)
        if (reply := reply_by_call.get(id(call))) is not None:
            if reply.owner_alive:
                continue
            facts["unreleased"] = reply.told()
        found.setdefault(call.turn, []).append(facts)
    return found


def _facts(call: CallAccount) -> dict[str, Any]:
    return {
        "call_id": call.call_id,
        "tool": call.state.tool or None,
        "state": call.stage,
        "outcome": call.outcome,
        "seq": call.begun.seq,
        "id": call.begun.id,
    }


def named_artifacts(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Artifacts that events name, each once, by the event that first did."""
    found: dict[str, dict[str, Any]] = {}
    for event in events:
        for sha256, size in artifacts_of(event.type, event.payload):
            named = {"sha256": sha256, "size": size, "seq": event.seq, "id": event.id}
            found.setdefault(sha256, named)
    return list(found.values())
