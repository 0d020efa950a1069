"""What a reply says of the model's calls that it is made of: one a step.

Owns: the words, the checks of what a program says, the record of each step. Refuses: tool calls
(the daemon's `released_calls.py`), sending (`reply.py`), the records of a session (the daemon's
`sessions/gate/model_calls.py`).

A program says them in events of kind `model_call`, as often as it likes: a later one adds to those
of its step, field by field, and number by number of `usage`. So does an event of kind `usage`, or
`usage` beside a text; `model` and `provider` with which the reply was begun are those of each step
that says no other. What an application had there before is read for what fits, and kept as it is.

Invariants: no text of a reply and no arguments are in a record, only names, numbers and hashes. A
step has one where something is known of its model: one of these says so, or its reply failed before
the provider's finish.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from hashlib import sha256
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from walld_client.argument_checks import checked_word, wrong
from walld_client.encoding.value_encoding import brief

if TYPE_CHECKING:
    from walld_client.recovered.partial import PartialReply
    from walld_client.recovered.segments import Segment
    from walld_client.wire.messages import RecoveredSegment

__all__ = [
    "ERROR_CLASSES",
    "MODEL_CALL",
    "STATUSES",
    "TOLD_IN",
    "checked_facts",
    "error_class_of",
    "facts_in",
    "may_tell",
    "step_records",
    "tells",
    "tools_hash",
]

MODEL_CALL: Final = "model_call"
"""Kind of the events, and type of the entries."""
ERROR_CLASSES: Final = (
    "provider",
    "rate_limit",
    "context_length",
    "content_filter",
    "timeout",
    "cancelled",
    "invalid_output",
    "other",
)
STATUSES: Final = ("complete", "partial", "cancelled", "error")
"""partial: its end was not seen, or a limit or a filter of the provider cut it."""

_USAGE: Final = "usage"
"""Kind of events with numbers alone."""
TOLD_IN: Final = (MODEL_CALL, _USAGE)
"""Kinds of events."""
_OF_REPLY: Final = ("model", "provider")
"""Read of what a reply was begun with."""
_PACKED: Final = tuple(name.encode() for name in (*_OF_REPLY, _USAGE))
_NAMES: Final = ("model", "provider", "request_id", "tools_hash")
_CHARS_MAX: Final = 256
_NUMBERS_MAX: Final = 32
"""Of one usage."""
_WORDS: Final = {"status": STATUSES, "error_class": ERROR_CLASSES}

_LOOKED_AT_CHARS: Final = 1024
_CONTEXT_LENGTH: Final = (
    "context_length",
    ("contextlength", "contextwindow", "promptistoolong", "prompttoolong", "maximumcontext"),
)
_CLASS_BY_PART: Final = (
    ("rate_limit", ("ratelimit", "toomanyrequest", "quota", "throttl", "resourceexhausted")),
    _CONTEXT_LENGTH,
    ("content_filter", ("contentfilter", "contentpolicy", "refusal", "safety", "guardrail")),
    ("timeout", ("timeout", "timedout", "deadline")),
    ("cancelled", ("cancel", "abort", "keyboardinterrupt")),
    (
        "invalid_output",
        ("invalidoutput", "outputpars", "modelbehavior", "malformed", "jsondecode", "notjson"),
    ),
    (
        "provider",
        (
            *("provider", "overloaded", "servererror", "serverdisconnected", "unavailable"),
            *("badgateway", "connect", "network", "readerror", "incompleteread", "remoteprotocol"),
            *("apierror", "apistatus", "noterminalevent", "finishreasonerror", "responsefailed"),
        ),
    ),
)
"""In this order: a part of a kind of error, in small letters without signs, says its class."""


def checked_facts(given: Mapping[str, Any]) -> dict[str, Any]:
    """What of these a program has given, as an event says it. ValueError or TypeError names the
    argument and what it got. A program that gives nothing has said nothing: ValueError.
    """
    told = {name: value for name, value in given.items() if value is not None}
    if not told:
        raise ValueError(f"model_call needs one of {', '.join(given)}, got none")
    for name in _NAMES & told.keys():
        if not isinstance(told[name], str):
            raise wrong(name, "a str or None", told[name])
        if not _is_name(told[name]):
            limit = f"1 to {_CHARS_MAX} characters"
            raise ValueError(f"{name} must be {limit}, got {brief(told[name])}")
    for name, allowed in _WORDS.items():
        if name in told:
            checked_word(name, told[name], allowed)
    if "usage" in told:
        told["usage"] = _checked_usage(told["usage"])
    return told


def _checked_usage(usage: object) -> dict[str, Any]:
    if not isinstance(usage, Mapping):
        raise wrong("usage", "a dict of numbers or None", usage)
    if len(usage) > _NUMBERS_MAX:
        raise ValueError(f"usage must have at most {_NUMBERS_MAX} numbers, got {len(usage)}")
    for name, number in usage.items():
        if not isinstance(name, str) or not _is_name(name):
            limit = f"texts of 1 to {_CHARS_MAX} characters"
            raise ValueError(f"usage must have {limit} as names, got {brief(name)}")
        if not _is_number(number):
            raise ValueError(f"usage[{name!r}] must be a number from 0, got {brief(number)}")
    return dict(usage)


def facts_in(payload: object) -> dict[str, Any]:
    """What of a payload fits, whoever wrote it. Never raises."""
    if not isinstance(payload, Mapping):
        return {}
    told = {name: payload.get(name) for name in (*_NAMES, *_WORDS)}
    facts = {
        name: value
        for name, value in told.items()
        if (value in _WORDS[name] if name in _WORDS else _is_name(value))
    }
    usage = payload.get("usage")
    if isinstance(usage, Mapping):
        numbers = {name: one for name, one in usage.items() if _is_name(name) and _is_number(one)}
        if numbers:
            facts["usage"] = dict(list(numbers.items())[:_NUMBERS_MAX])
    return facts


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _CHARS_MAX


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return isfinite(value) and 0 <= value < 2**53


def tools_hash(tools: object) -> str:
    """SHA-256, in hex digits, of the tools as a request has them: as JSON without spaces, keys in
    order, UTF-8. The order of the tools counts. Raises TypeError or ValueError for what is no JSON.
    """
    said = json.dumps(
        tools, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    )
    return sha256(said.encode("utf-8", "surrogatepass")).hexdigest()


def error_class_of(*kinds: object, message: str = "") -> str:
    """The class of an error, by its kinds and codes, the first that tells; `other` for none.

    message: providers say there alone that a prompt was too long.
    """
    words = [_letters(one) for one in kinds if isinstance(one, str)]
    for word in words:
        for name, parts in _CLASS_BY_PART:
            if any(part in word for part in parts):
                return name
    _, parts = _CONTEXT_LENGTH
    return "context_length" if any(part in _letters(message) for part in parts) else "other"


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text[:_LOOKED_AT_CHARS].lower()))


def tells(segment: RecoveredSegment) -> bool:
    """It may say something of its model."""
    if segment.kind == "custom":
        return segment.name in TOLD_IN
    return segment.kind == "text" and may_tell(segment.info)


def may_tell(packed: bytes | None) -> bool:
    """What was said beside a text or a reply's beginning may say something of its model."""
    return packed is not None and any(name in packed for name in _PACKED)


def step_records(reply: PartialReply, ended: Set[int]) -> dict[int, dict[str, Any]]:
    """First seq of each step of which something is known -> what.

    ended: first seqs of what earlier attempts said in steps that had ended. Each has status, at_ms
    (of the step's first event), and what is known of model, provider, request_id, usage,
    tools_hash, error_class, error_kind (as the program said it), ended_at_ms (of its usage or
    status) and finish_reason (of the reply's last step).
    """
    steps: dict[tuple[int, int], list[Segment]] = {}
    for one in reply.segments:
        steps.setdefault((one.attempt, one.step), []).append(one)
    last = reply.attempts - 1
    if reply.error is not None and not any(attempt == last for attempt, _ in steps):
        steps[last, 0] = []  # it failed before it said anything
    last_step = dict(sorted(steps))
    meta = reply.meta if isinstance(reply.meta, Mapping) else {}
    begun = facts_in({name: meta.get(name) for name in _OF_REPLY})
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
                told["usage"] = dict(list(usage.items())[:_NUMBERS_MAX])
            if facts.keys() & {"usage", "status"}:
                told["ended_at_ms"] = round(one.at * 1000)
    return told


def _facts_of(segment: Segment) -> dict[str, Any]:
    if segment.kind == "custom" and segment.name == MODEL_CALL:
        return facts_in(segment.result)
    if segment.kind == "custom" and segment.name == _USAGE:
        return facts_in({_USAGE: segment.result})
    if segment.kind == "text" and isinstance(segment.info, dict):
        return facts_in({_USAGE: segment.info.get(_USAGE)})
    return {}


def _ending(reply: PartialReply) -> dict[str, Any]:
    """Of the last step, by how the reply ended."""
    reason = reply.finish_reason
    return _end(reply) | ({} if reason is None else {"finish_reason": reason})


def _end(reply: PartialReply) -> dict[str, Any]:
    if reply.partial_reason == "provider_filter":
        return {"status": "partial", "error_class": "content_filter"}
    if reply.partial_reason == "provider_error":
        return {"status": "error", "error_class": "provider"}
    if reply.partial_reason == "provider_length":
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
    return told if kind is None else told | {"error_kind": kind}
