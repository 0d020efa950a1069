"""What an import has to tell the gate of the session it went to.

Owns: the comparison of two gates, that of the lines as they came and that of what became of them.
Refuses: reading lines (`foreign/own.py`), appending (the command line).

A session takes no line that contradicts what stands in it: its turn may have been lost, or ended
there meanwhile. Such a line is kept as text, which no gate reads; a call that it says has run would
count as one that never did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from walld.sessions.account import account_of
from walld.sessions.events import Event, check_payload
from walld.sessions.losses import settled_elsewhere
from walld.sessions.resume import resume
from walld.sessions.workspace import fingerprint_then

__all__ = ["untold", "untold_files"]

_MAY: Final = ("replay", "rerun_after_check", "ask_user", "never")
"""From what may be done at once to what may not."""
_MUST_ASK: Final = "require-user-confirmation"


def untold(source: Sequence[Event], last_seq: int, copy: Sequence[Event]) -> dict[str, list[Any]]:
    """The payload of an `imported` event that makes the gate of `copy` no laxer than that of the
    source: `started` and `calls`, each where there is one.

    What is settled in the copy stays settled. last_seq: the highest that the source gave.
    """
    there = {_key(tool): tool for tool in resume(copy)["tools"]}
    settled, intents = set[str](), {}
    for account in account_of(copy).tools:
        intents[account.turn, account.call_id] = account.intent.id
        if account.state.closed:
            settled.add(account.intent.id)
    elsewhere = settled_elsewhere(copy)
    came = {(one.turn, one.call_id): one.intent.id for one in account_of(source).tools}
    started: list[str] = []
    calls: list[dict[str, Any]] = []
    for tool in resume(source, last_seq=last_seq)["tools"]:
        key, is_unknown = _key(tool), tool["outcome"] == "unknown"
        told = there.get(key)
        if told is None and (came.get(key) in settled or key in elsewhere):
            continue
        if told is not None and _is_as_strict(told, tool):
            continue
        if is_unknown and told is not None and told["outcome"] != "unknown":
            started.append(intents[key])
        elif is_unknown or tool["may"] == "ask_user":
            names = ("turn", "call_id", "tool", "side_effect", "resume_policy")
            call = {name: tool[name] for name in names}
            calls.append(call if is_unknown else call | {"resume_policy": _MUST_ASK})
    return {name: one for name, one in (("started", started), ("calls", calls)) if one}


def untold_files(source: Sequence[Event], copy: Sequence[Event]) -> dict[str, Any] | None:
    """A fingerprint for the copy that knows the files which tools of the source wrote; None where
    it knows them.
    """
    taken = {event.id for event in copy if event.type == "tool_finished"}
    wrote = {
        path
        for event in source
        if event.type == "tool_finished" and event.id not in taken
        if check_payload(event.type, event.payload) is None
        for path in event.payload.get("files") or ()
    }
    if not wrote:
        return None
    then, now = fingerprint_then(source) or {}, fingerprint_then(copy) or {}
    known = now.get("files", {})
    files = {path: then["files"][path] for path in sorted(wrote & set(then.get("files", ())))}
    if all(path in known and known[path] == digest for path, digest in files.items()):
        return None
    return {**now, "files": known | files}


def _key(tool: dict[str, Any]) -> tuple[str, str]:
    return tool["turn"], tool["call_id"]


def _is_as_strict(told: dict[str, Any], tool: dict[str, Any]) -> bool:
    if tool["outcome"] == "unknown" and told["outcome"] != "unknown":
        return False
    return _MAY.index(told["may"]) >= _MAY.index(tool["may"])
