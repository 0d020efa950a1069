"""What an application says of its session beside the conversation, as it stands now.

Owns: which entry counts where several speak of one thing. Refuses: turns and calls
(`turn_history.py`), the conversation (`messages.py`), why a session failed (`failure_layers.py`).

An entry that has not what its type wants is an application's own and counts nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from walld.sessions.gate.turn_history import History
from walld.sessions.state.call_account import CallAccount
from walld.sessions.state.events import LIFECYCLE, QUEUED, Event, check_payload
from walld.sessions.views.event_memory import beginning

__all__ = [
    "ended_at",
    "last_results",
    "lifecycle",
    "modified_files",
    "queue",
    "session_info",
    "verifications",
]

_FILES_MAX: Final = 1000
_RESULTS_MAX: Final = 5
_RESULT_CHARS: Final = 255
"""Fewer than events are shortened to for this view: so it is known that there was more."""
_OF_TURNS: Final = {
    "turn_submitted": "running",
    "turn_completed": "done",
    "turn_interrupted": "paused",
}


def session_info(events: Iterable[Event]) -> dict[str, Any]:
    """cwd, version and what else was said of it; of each field the newest."""
    found: dict[str, Any] = {}
    for event in events:
        if event.type == "session_info":
            found |= event.payload
    return found


def queue(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Input that waits: neither taken off nor said as a message of that id since, in order."""
    waiting: dict[str, Event] = {}
    for event in events:
        payload, named = event.payload, None
        if event.type == "queued":
            if payload.get("kind") in QUEUED and "content" in payload:
                waiting[event.id] = event
            continue
        if event.type == "dequeued":
            waiting.pop(str(payload.get("target")), None)
            continue
        if event.type == "turn_submitted":
            named = payload.get("message_id")
        elif event.type == "message":
            named = payload.get("_message_id")
        if isinstance(named, str) and waiting:
            for name, one in list(waiting.items()):
                if one.payload.get("message_id") == named:
                    del waiting[name]
    return [
        {"message_id": None, **one.payload, "id": one.id, "seq": one.seq, "at_ms": one.at_ms}
        for one in waiting.values()
    ]


def lifecycle(events: Sequence[Event]) -> dict[str, Any] | None:
    """state: running | paused | failed | done, as the newest says of a `lifecycle` entry, and of a
    turn that began (running), was completed (done) or interrupted (paused). None of no turn.
    """
    for event in reversed(events):
        state = _OF_TURNS.get(event.type)
        if event.type == "lifecycle" and event.payload.get("state") in LIFECYCLE:
            state = event.payload["state"]
        if state is not None:
            reason = event.payload.get("reason")
            told = {"state": state, "reason": reason, "is_said": event.type == "lifecycle"}
            return told | {"seq": event.seq, "at_ms": event.at_ms}
    return None


def verifications(events: Iterable[Event], turn: str | None = None) -> list[dict[str, Any]]:
    """name, passed, seq, turn of each: of those of one name the newest. turn: of that turn alone.

    passed: None where it does not say so. One without a name takes nobody's place.
    """
    found: dict[object, dict[str, Any]] = {}
    for event in events:
        if event.type != "verification" or (turn is not None and event.turn != turn):
            continue
        name, passed = event.payload.get("name"), event.payload.get("passed")
        name = name if isinstance(name, str) else None
        key: object = event.seq if name is None else name
        found.pop(key, None)
        told = {"name": name, "passed": passed if isinstance(passed, bool) else None}
        found[key] = told | {"seq": event.seq, "turn": event.turn}
    return list(found.values())


def modified_files(events: Iterable[Event]) -> tuple[dict[str, Any], int]:
    """Of the files that calls wrote path -> SHA-256, or None of one that could not be read, the
    last written last; and how many more there are than are told.
    """
    found: dict[str, Any] = {}
    for event in events:
        files: object = None
        if event.type == "tool_finished" and check_payload(event.type, event.payload) is None:
            files = event.payload.get("files")
        elif event.type == "lifecycle" and event.payload.get("kind") == "files_written":
            taken = event.payload.get("fingerprint")
            files = taken.get("files") if isinstance(taken, dict) else None
        for path, digest in files.items() if isinstance(files, dict) else ():
            found.pop(path, None)
            found[path] = digest
    left = max(len(found) - _FILES_MAX, 0)
    return dict(list(found.items())[left:]), left


def last_results(account: History) -> list[dict[str, Any]]:
    """Of the calls that have a result, the last to end, the newest last; result: the beginnings of
    its texts, result_cut: of one there was more.
    """
    ended = [(ended_at(call), call) for call in account.calls.calls if call.has_result]
    ended.sort(key=lambda one: one[0])
    found = []
    for seq, call in ended[-_RESULTS_MAX:]:
        result = call.result()[1]
        kept = beginning(result, _RESULT_CHARS)
        found.append(
            {
                "turn": call.turn,
                "call_id": call.call_id,
                "tool": call.state.tool,
                "outcome": call.outcome,
                "result": kept,
                "result_cut": kept != result,
                "seq": seq,
            }
        )
    return found


def ended_at(call: CallAccount) -> int:
    """The seq of the newest that is known of it."""
    return max(call.begun.seq, call.answered_seq, *call.seqs.values(), 0)
