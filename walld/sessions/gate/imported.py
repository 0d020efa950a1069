"""What an import tells the gate of the session it went to.

Owns: the comparison of two gates, that of the lines as they came and that of what became of them.
Refuses: reading lines (`foreign/own.py`), appending (the command line).

A session takes no line that contradicts what stands in it: its turn may have been lost, or ended
there meanwhile. Such a line is kept as text, which no gate reads; a call that it says has run would
count as one that never did.

Nor does it take any word for what became of a call. A source that does not have the start, nor what
told of it, says nothing of it: it is another line of history, where that call did not run or ran on
its own. What alone its words have settled is told anew.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

from walld.sessions.gate.call_rules import WORDS
from walld.sessions.gate.foreign_results import settled_by_strangers
from walld.sessions.gate.possibly_run import (
    FROM_LAX,
    calls_elsewhere,
    observed_by_name,
    settled_elsewhere,
    settled_seq,
    started_elsewhere,
)
from walld.sessions.gate.resume import has_written, resume
from walld.sessions.gate.turn_history import history_of, named_as
from walld.sessions.gate.workspace import fingerprint_then
from walld.sessions.state.call_account import CallAccount
from walld.sessions.state.events import Event, check_payload

__all__ = ["settled_there", "untold", "untold_files"]

_MUST_ASK: Final = "require-user-confirmation"


def untold(source: Sequence[Event], last_seq: int, copy: Sequence[Event]) -> dict[str, list[Any]]:
    """The payload of an `imported` event that makes the gate of `copy` no laxer than that of the
    source: `started` and `calls`, each where there is one.

    What is settled in the copy stays settled, but for what a word of the source alone has settled
    that did not know of it. last_seq: the highest that the source gave.
    """
    there = {tool["intent"] or _key(tool): tool for tool in _open_calls(copy)}
    here = {one.begun.id: one for one in history_of(copy).tools}
    came = {event.id for event in source}
    own_words = {event.seq: event for event in copy if event.id not in came}
    told_before, settled = started_elsewhere([*own_words.values()]), settled_elsewhere(copy)
    said = observed_by_name(copy)
    started: list[str] = []
    calls: list[dict[str, Any]] = []
    for tool in _open_calls(source, last_seq):
        if tool["state"] == "said":
            continue  # its message comes too
        intent, is_unknown = tool["intent"], tool["outcome"] == "unknown"
        both = [one for one in (there.get(intent), there.get(_key(tool))) if one is not None]
        told = max(both, key=lambda one: WORDS.index(one["may"]), default=None)
        own = here.get(intent)
        if told is not None and _is_as_strict(told, tool):
            continue
        if own is not None and not is_unknown and "approved" in own.state.seqs:
            continue  # somebody approved it here
        known = _key(tool) in settled if own is None else _knows(own, said, told_before, own_words)
        if told is None and known:
            continue
        if is_unknown and own is not None and not (told and told["outcome"] == "unknown"):
            started.append(intent)
        elif is_unknown or tool["may"] == "ask_user":
            names = ("turn", "call_id", "tool", "side_effect", "resume_policy")
            call = {name: tool[name] for name in names} | {"as_of": source[-1].id}
            calls.append(call if is_unknown else call | {"resume_policy": _MUST_ASK})
    open_ = {_key(tool) for tool in _open_calls(copy) if tool["outcome"] == "unknown"}
    calls += [
        named_as(one)
        for one in settled_by_strangers(source, copy)
        if (one.turn, one.call_id) not in open_
    ]
    calls.sort(key=lambda call: FROM_LAX.index(call["resume_policy"]))
    return {name: one for name, one in (("started", started), ("calls", calls)) if one}


def settled_there(
    source: Sequence[Event], last_seq: int, copy: Sequence[Event]
) -> list[dict[str, Any]]:
    """Payloads of observations: of calls whose intents are not in the copy, and that the source
    knows to be done with by now.
    """
    came = {event.id for event in source}
    open_there = {_key(tool) for tool in _open_calls(source, last_seq)}
    outcomes = {
        (one.turn, one.call_id): one.outcome
        for one in history_of(source).tools
        if one.closed and (one.turn, one.call_id) not in open_there
    }
    return [
        {
            "of_turn": call.turn,
            "of_call": call.call_id,
            "text": f"where it came from: {outcomes[call.turn, call.call_id]}",
        }
        for call in calls_elsewhere(copy)
        if (call.turn, call.call_id) in outcomes
        if call.begun.payload.get("as_of") in came  # no older export, and no other line of history
    ]


def untold_files(source: Sequence[Event], copy: Sequence[Event]) -> dict[str, Any] | None:
    """A fingerprint for the copy that knows the files which tools of the source wrote, and that
    they wrote; None where it knows.
    """
    taken = {event.id for event in copy if event.type == "tool_finished"}
    wrote = {
        path
        for event in source
        if event.type == "tool_finished" and event.id not in taken
        if check_payload(event.type, event.payload) is None
        for path in event.payload.get("files") or ()
    }
    if not wrote and _has_written(copy) >= _has_written(source):
        return None
    then, now = fingerprint_then(source) or {}, fingerprint_then(copy) or {}
    known = now.get("files", {})
    files = {path: then["files"][path] for path in sorted(wrote & set(then.get("files", ())))}
    knows = all(path in known and known[path] == digest for path, digest in files.items())
    if knows and _has_written(copy):
        return None
    # Nobody looked at the workspace when this is said: what was written is not seen by it.
    return {**now, "files": known | files, "written": True}


def _open_calls(events: Sequence[Event], last_seq: int = 0) -> list[dict[str, Any]]:
    """Those without a result, as the gate judges them; their effects in the words of entries."""
    gate = resume(events, last_seq=last_seq)
    pairs = zip(gate["calls"], gate["tools"], strict=False)  # the open ones come first
    return [call | {"side_effect": tool["side_effect"]} for call, tool in pairs]


def _has_written(events: Sequence[Event]) -> bool:
    return has_written([*history_of(events).calls.calls, *calls_elsewhere(events)], events)


def _knows(
    own: CallAccount,
    said: Mapping[tuple[object, object], int],
    told: Mapping[str, int],
    own_words: Container[int],
) -> bool:
    """It is settled in the copy by who knew that it may have run: a start, or what told of one,
    stands before; or it has a result. A word that came from the source settles nothing there.

    said: observations by name. told: by intent, where an import told the copy. own_words: seqs of
    what was said here.
    """
    state = own.state
    if own.has_result:
        return True
    since = state.seqs.get("started") or told.get(own.begun.id)
    settled = settled_seq(own, said)
    return since is not None and settled > since and settled in own_words


def _key(tool: dict[str, Any]) -> tuple[str, str]:
    return tool["turn"], tool["call_id"]


def _is_as_strict(told: dict[str, Any], tool: dict[str, Any]) -> bool:
    if tool["outcome"] == "unknown" and told["outcome"] != "unknown":
        return False
    return WORDS.index(told["may"]) >= WORDS.index(tool["may"])
