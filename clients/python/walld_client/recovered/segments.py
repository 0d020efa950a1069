"""One segment of a recovered reply, as plain objects.

Owns: `Segment` and how it is read from the wire. Refuses: what a reply is (`partial.py`), what
becomes of segments in a message (`projections.py`).
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

import msgspec
from walld_client.encoding import wtf8
from walld_client.wire import messages as wire
from walld_client.wire.nesting import nests_deeper

__all__ = ["Segment", "json_or_none", "opaque", "segment_from_wire"]


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """kind: text | reasoning | tool | tool_result (of no known call) | custom | gap.

    step, attempt: from 0. at: wall clock of its first event, seconds since the epoch. last_seq: of
    the last event that touched it; a tool's result may lie beyond later segments.

    text, reasoning: `text`. tool: `call_id`, `name`, `arguments` (JSON text so far),
    `arguments_complete` (they are whole JSON), `outcome` (done | failed | unknown: without a result
    never taken as done), `result` (text, or decoded JSON). custom: `name` is the application's
    kind, `result` its payload. gap: `verdict` (dropped | torn | corrupt | unknown).
    truncated: true length in bytes where the client cut arguments, result or payload, else 0.
    info: what the application said beside it; of a tool that was told none, beside its result.
    result_info: of a tool, what was said beside its result.
    """

    kind: str
    step: int
    attempt: int
    first_seq: int
    last_seq: int
    at: float
    text: str = ""
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    arguments_complete: bool = False
    result: Any = None
    outcome: str | None = None
    truncated: int = 0
    info: Any = None
    verdict: str | None = None
    result_info: Any = None

    def to_dict(self) -> dict[str, Any]:
        """What this kind has, safe for JSON."""
        names = (
            "kind",
            "step",
            "attempt",
            "first_seq",
            "last_seq",
            "at",
            *_FIELDS.get(self.kind, ()),
        )
        fields = {name: wtf8.jsonable(getattr(self, name)) for name in names}
        for name in ("info", "result_info"):
            if (said := getattr(self, name)) is not None:
                fields[name] = wtf8.jsonable(said)
        return fields


_DEPTH_MAX = 128
_FIELDS: dict[str, tuple[str, ...]] = {
    "text": ("text",),
    "reasoning": ("text",),
    "tool": (
        "call_id",
        "name",
        "arguments",
        "arguments_complete",
        "result",
        "outcome",
        "truncated",
    ),
    "tool_result": ("call_id", "name", "result", "outcome", "truncated"),
    "custom": ("name", "result", "truncated"),
    "gap": ("verdict",),
}


def segment_from_wire(segment: wire.RecoveredSegment) -> Segment:
    """Bytes to text, times to seconds, opaque msgpack to objects. Never raises."""
    arguments = segment.arguments
    return Segment(
        kind=segment.kind,
        step=segment.step,
        attempt=segment.attempt,
        first_seq=segment.first_seq,
        last_seq=segment.last_seq,
        at=segment.at_ms / 1000,
        text=wtf8.decode(segment.text),
        call_id=segment.call_id,
        name=segment.name,
        arguments=None if arguments is None else wtf8.decode(arguments),
        arguments_complete=segment.arguments_complete,
        result=_result(segment),
        outcome=segment.outcome,
        truncated=segment.truncated_from,
        info=opaque(segment.info),
        verdict=segment.verdict,
        result_info=opaque(segment.result_info),
    )


def _result(segment: wire.RecoveredSegment) -> Any:
    if segment.result is None:
        return None
    if segment.kind == "custom":
        return opaque(segment.result)
    text = wtf8.decode(segment.result)
    if not segment.result_json:
        return text
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text  # cut by the client: what is there, as text


def opaque(packed: bytes | None) -> Any:
    """What the application packed; the bytes themselves where they are no msgpack (cut ones).

    Also where they nest deeper than 128: another program of the same user may have sent them, and
    this thread's stack may be small (`nesting.py`).
    """
    if packed is None or nests_deeper(packed, _DEPTH_MAX):
        return packed
    try:
        return msgspec.msgpack.decode(packed)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return packed


def json_or_none(text: str) -> Any:
    """The JSON value, None where it is none."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
