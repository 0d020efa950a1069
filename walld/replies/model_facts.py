"""What a recovered reply says of the model's calls that it is made of: one a step.

Owns: the record of each step. Refuses: tool calls (`daemon/session_store/released_calls.py`), the
words (`encoding/model_words.py` of the client), the records of a session
(`sessions/gate/model_calls.py`).

A program says them as often as it likes: a later word adds to those of its step, field by field,
and number by number of `usage`.

Invariants: no text of a reply and no arguments are in a record, only names, numbers and hashes. A
step has one where something is known of its model: a word says so, or its reply failed before the
provider's finish.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any, Final

from walld_client.encoding import value_encoding, wtf8
from walld_client.encoding.model_words import (
    MODEL_CALL,
    NUMBERS_MAX,
    OF_REPLY,
    TOLD_IN,
    USAGE,
    error_class_of,
    facts_in,
    may_tell,
)

from walld.replies.verdict import asks_for_the_rest

if TYPE_CHECKING:
    from walld_client.recovered.partial import PartialReply
    from walld_client.recovered.segments import Segment
    from walld_client.wire.messages import RecoveredSegment

__all__ = ["TEXT_BYTES_MAX", "short_text", "step_records", "tells"]

TEXT_BYTES_MAX: Final = 1024
"""Of a word that a record repeats as its program said it."""


def tells(segment: RecoveredSegment) -> bool:
    """It may say something of its model."""
    if segment.kind == "custom":
        return segment.name in TOLD_IN
    return segment.kind == "text" and may_tell(segment.info)


def step_records(reply: PartialReply, ended: Set[int]) -> dict[int, dict[str, Any]]:
    """First seq of each step of which something is known -> what.

    ended: first seqs of what earlier attempts said in steps that had ended. Each has status, at_ms
    (of the step's first event), and what is known of model, provider, request_id, usage,
    tools_hash, error_class, error_kind (as the program said it), ended_at_ms (of its usage or
    status) and finish_reason (of the reply's last step). Of these two the first TEXT_BYTES_MAX
    bytes: a client may have sent more, and an entry that is too long could never be made.
    """
    steps: dict[tuple[int, int], list[Segment]] = {}
    for one in reply.segments:
        steps.setdefault((one.attempt, one.step), []).append(one)
    last = reply.attempts - 1
    if reply.error is not None and not any(attempt == last for attempt, _ in steps):
        steps[last, 0] = []  # it failed before it said anything
    last_step = dict(sorted(steps))
    meta = reply.meta if isinstance(reply.meta, Mapping) else {}
    begun = facts_in({name: meta.get(name) for name in OF_REPLY})
    found: dict[int, dict[str, Any]] = {}
    for (attempt, step), segments in steps.items():
        said, is_followed = begun | _said(segments), step != last_step[attempt]
        is_last = attempt == last and not is_followed
        ending = _ending(reply) if is_last else dict[str, Any]()
        if not said and (reply.error is None or ending.get("status") != "error"):
            continue
        if not is_last:
            has_ended = is_followed or any(one.first_seq in ended for one in segments)
            ending["status"] = "complete" if has_ended else "partial"
        if said.get("status", ending["status"]) == "cancelled":
            ending.setdefault("error_class", "cancelled")
        elif said.get("status") == "complete":
            ending.pop("error_class", None)
            said.pop("error_class", None)  # of an answer that was cut, and has gone on since
        at = segments[0].at if segments else reply.last_event_at
        first_seq = segments[0].first_seq if segments else reply.last_seq
        found[first_seq] = {"at_ms": round(at * 1000), **ending, **said}
    return found


def _said(segments: list[Segment]) -> dict[str, Any]:
    """By its events, and when it was over."""
    told: dict[str, Any] = {}
    for one in segments:
        if facts := _facts_of(one):
            usage = told.get("usage", {}) | facts.get("usage", {})
            told |= facts
            if usage:
                told["usage"] = dict(list(usage.items())[:NUMBERS_MAX])
            if facts.keys() & {"usage", "status"}:
                told["ended_at_ms"] = round(one.at * 1000)
    return told


def _facts_of(segment: Segment) -> dict[str, Any]:
    if segment.kind == "custom" and segment.name == MODEL_CALL:
        return facts_in(segment.result)
    if segment.kind == "custom" and segment.name == USAGE:
        return facts_in({USAGE: segment.result})
    if segment.kind == "text" and isinstance(segment.info, dict):
        return facts_in({USAGE: segment.info.get(USAGE)})
    return {}


def _ending(reply: PartialReply) -> dict[str, Any]:
    """Of the last step, by how the reply ended."""
    reason = reply.finish_reason
    return _end(reply) | ({} if reason is None else {"finish_reason": short_text(reason)})


def _end(reply: PartialReply) -> dict[str, Any]:
    if reply.partial_reason == "provider_filter":
        return {"status": "partial", "error_class": "content_filter"}
    if reply.partial_reason == "provider_error":
        return {"status": "error", "error_class": "provider"}
    if reply.partial_reason == "provider_length":
        return {"status": "partial"}
    if reply.partial_reason == "provider_paused" and asks_for_the_rest(reply.finish_reason):
        return {"status": "partial"}
    if reply.status == "complete" or reply.finish_reason is not None:
        return {"status": "complete"}
    if reply.status == "cancelled":
        return {"status": "cancelled"}
    if reply.error is None:
        return {"status": "partial"}
    detail = reply.error.detail if isinstance(reply.error.detail, Mapping) else {}
    kind = reply.error.kind
    kinds = kind, detail.get("code"), detail.get("type")
    word = error_class_of(*kinds, message=reply.error.message)
    told = {"status": "error", "error_class": word}
    return told if kind is None else told | {"error_kind": short_text(kind)}


def short_text(text: str) -> str:
    """The beginning of it, of TEXT_BYTES_MAX bytes as UTF-8 at most."""
    return wtf8.decode(value_encoding.cut(text.encode("utf-8", "surrogatepass"), TEXT_BYTES_MAX))
