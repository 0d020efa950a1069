"""Shortens payloads that are too long, and marks what was cut.

Owns: which field that is, the description of an artifact in its place, and reading one. Refuses:
sending the bytes (`artifacts.py`).

A payload above the limit gives up its longest field to an artifact until it fits; the field then
holds {"_artifact": {sha256, size, media_type, preview}}. A field that is a text to whoever reads
the event (what was observed, a summary, a reason) stays one, its beginning, and `_artifact` stands
beside it. Ids and names give nothing up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from walld_client.encoding import value_encoding, wtf8
from walld_client.limits import (
    APPEND_BYTES_MAX,
    CONTENT_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    PREVIEW_CHARS_MAX,
)
from walld_client.session.entries import json_text

__all__ = ["CALLS", "JSON", "OF_A_CALL", "fit", "held_of", "named_in", "preview_of", "shares"]

JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"


def fit(
    payload: dict[str, Any],
    type: str = "",  # noqa: A002
    bytes_max: int = PAYLOAD_BYTES_MAX,
    own: str | None = None,
    kept: str | None = None,
) -> tuple[bytes, list[bytes]]:
    """The payload as JSON text that fits an entry, and what is to be put beside the session for it.

    own: a field that gives way by its own length: first where that is too long, else last. kept:
    one that stays as it is. ValueError where nothing of a payload that is too long is long itself
    and may give way.
    """
    text, beside = json_text(payload), list[bytes]()
    is_due = own is not None and len(text) > CONTENT_BYTES_MAX and _is_due(payload.get(own))
    if len(text) <= bytes_max and not is_due:
        return text, beside
    payload = _loose(payload)
    while len(text) > bytes_max or is_due:
        holder, name = (payload, own) if own and is_due else _longest(payload, type, own, kept)
        is_due = False
        value = holder[name]
        is_text = holder is payload and _TEXTS.get(type) == name and isinstance(value, str)
        held, kind = held_of(value)
        is_done = "_artifact" in payload if is_text else named_in(value) is not None
        if len(held) < _LONG or is_done:
            raise ValueError(_too_long(payload, type, len(text), name, len(held)))
        digest = sha256(held).hexdigest()
        described = {"sha256": digest, "size": len(held), "media_type": kind}
        described["preview"] = preview_of(held)
        named = {"_artifact": described}
        holder |= {name: described["preview"], **named} if is_text else {name: named}
        beside.append(held)
        text = json_text(payload)
    return text, beside


def _is_due(value: object) -> bool:
    return len(json_text(value)) > CONTENT_BYTES_MAX and named_in(value) is None


def shares(payloads: list[dict[str, Any]], type: str) -> int:  # noqa: A002
    """How long each of these may be, that all fit one request: shorter than an entry may be where
    that alone makes them fit, by what can give way.
    """
    if sum(len(json_text(payload)) for payload in payloads) <= APPEND_BYTES_MAX:
        return PAYLOAD_BYTES_MAX
    share = min(PAYLOAD_BYTES_MAX, APPEND_BYTES_MAX // len(payloads))
    try:
        for payload in payloads:
            fit(payload, type, share)
    except ValueError:
        return PAYLOAD_BYTES_MAX
    return share


_MESSAGES = frozenset(("messages", "replacement"))
CALLS = ("tool_calls", "tool_results")
OF_A_CALL = ("arguments", "result")
_TEXTS = {
    "observation": "text",
    "branch_summary": "text",
    "compaction": "summary",
    "turn_interrupted": "reason",
}
_KEPT = {
    "message": ("role",),
    "message_edit": ("target",),
    "label": ("target", "text"),
    "branch_summary": ("target",),
    "setting": ("key",),
    "model_change": ("model",),
    "compaction": ("first_kept",),
    "leaf": ("target", "name"),
    "turn_submitted": ("message_id", "attachments", "model", "retry_of", "stream_id", "calls"),
    "turn_assistant_started": ("stream_id",),
    "tool_intent": ("call_id", "tool"),
    "tool_decision": ("call_id", "verdict"),
    "tool_finished": ("call_id", "files"),
    "observation": ("call_id",),
    "artifact": ("sha256", "media_type"),
    "lifecycle": ("fingerprint",),
}
"""What is of no use but as it is: who reads it compares it, or looks into it."""
_LONG = 4 * PREVIEW_CHARS_MAX
"""Shorter than that, what would stand for a field is no shorter."""


def _loose(payload: dict[str, Any]) -> dict[str, Any]:
    """A copy whose `_places` may be changed."""
    copy = dict(payload)
    for name, value in payload.items():
        if name == "message" and isinstance(value, dict):
            copy[name] = dict(value)
        elif name in (*_MESSAGES, *CALLS) and isinstance(value, list):
            copy[name] = [dict(one) if isinstance(one, dict) else one for one in value]
    return copy


def _too_long(payload: dict[str, Any], type: str, size: int, name: str, length: int) -> str:  # noqa: A002
    """Why it does not fit: a field that is kept as it is, or none that is long."""
    said = f"the payload is {size} bytes, limit {PAYLOAD_BYTES_MAX}, and "
    kept = {one: len(json_text(payload[one])) for one in _KEPT.get(type, ()) if one in payload}
    longest = max(kept, key=kept.__getitem__, default=None)
    if longest is not None and kept[longest] > length:
        return f"{said}{longest} of {type}, which no artifact can stand for, is {kept[longest]}"
    return f"{said}no field of it is long ({name!r} is {length}): put it into an artifact"


def _longest(
    payload: dict[str, Any],
    type: str,  # noqa: A002
    own: str | None,
    kept: str | None,
) -> tuple[dict[str, Any], str]:
    """The place that is to give way: within a call rather than all calls, which folds look at."""

    def length(place: tuple[dict[str, Any], str]) -> int:
        return len(json_text(place[0][place[1]]))

    fixed = (kept, *_KEPT.get(type, ()), *(("_artifact",) if type in _TEXTS else ()))
    found = _places(payload)
    places = [(one, name) for one, name in found if one is not payload or name not in fixed]
    others = [(one, name) for one, name in places if name != own or one is not payload]
    if any(length(place) >= _LONG and named_in(place[0][place[1]]) is None for place in others):
        places = others
    # Nothing at all may give way: then nothing is long.
    holder, name = max(places, key=length, default=({"payload": None}, "payload"))
    calls = holder[name] if name in CALLS and holder is payload else None
    if isinstance(calls, list):
        within = [
            (call, field)
            for call in calls
            if isinstance(call, dict)
            for field in OF_A_CALL
            if field in call and named_in(call[field]) is None
        ]
        inner = max(within, key=length, default=None)
        if inner is not None and length(inner) >= _LONG:
            return inner
    return holder, name


def _places(payload: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Where an artifact may stand: fields, and those of messages, which folds look into."""
    for name, value in payload.items():
        if name == "message" and isinstance(value, dict):
            yield from ((value, inner) for inner in value)
        elif name in _MESSAGES and isinstance(value, list):
            for one in value:
                if isinstance(one, dict):
                    yield from ((one, inner) for inner in one)
        else:
            yield payload, name


def named_in(value: object) -> Mapping[str, Any] | None:
    """What names the artifact that stands for a value, or None."""
    if isinstance(value, dict) and len(value) == 1:
        named = value.get("_artifact")
        return named if isinstance(named, dict) else None
    return None


def held_of(value: object) -> tuple[bytes, str]:
    """What an artifact holds for a value, and its media type."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass"), _TEXT
    return json_text(value), JSON


def preview_of(start: bytes) -> str:
    """How it begins, as text."""
    text = wtf8.decode(value_encoding.cut(start, 4 * PREVIEW_CHARS_MAX))
    return wtf8.scrub(text)[:PREVIEW_CHARS_MAX]
