"""A partial reply, as a test writes what the daemon recovered."""

from __future__ import annotations

from typing import Any

from walld_client.recovered.partial import PartialReply, from_recovered
from walld_client.wire import messages as wire

__all__ = ["call", "open_call", "piece", "recovered", "reply"]


def piece(kind: str, first_seq: int, value: str = "", **more: Any) -> wire.RecoveredSegment:
    fields: dict[str, Any] = {
        "step": 0,
        "attempt": 0,
        "last_seq": first_seq,
        "at_ms": 1000 * first_seq + 500,
    }
    return wire.RecoveredSegment(
        kind=kind,
        first_seq=first_seq,
        text=value.encode("utf-8", "surrogatepass"),
        **(fields | more),
    )


def call(first_seq: int, call_id: str = "c1", name: str | None = "search", **more: Any) -> Any:
    fields: dict[str, Any] = {
        "call_id": call_id,
        "name": name,
        "arguments": b'{"q": "x"}',
        "arguments_complete": True,
        "result": b"found",
        "outcome": "done",
    }
    return piece("tool", first_seq, **(fields | more))


def open_call(first_seq: int, **more: Any) -> Any:
    return call(first_seq, **({"result": None, "outcome": "unknown"} | more))


def recovered(*segments: wire.RecoveredSegment, **more: Any) -> wire.Recovered:
    fields: dict[str, Any] = {
        "stream_id": "st",
        "session_id": "se",
        "uid": 1000,
        "turn_id": None,
        "parent": None,
        "meta": None,
        "status": "crashed",
        "owner_alive": False,
        "lost_reason": "process_gone",
        "error": None,
        "finish_reason": None,
        "started_at_ms": 500,
        "last_event_at_ms": 9500,
        "last_seq": max([one.last_seq for one in segments], default=0),
        "gaps": [],
        "attempts": 1,
        "events": len(segments),
        "partial": True,
        "partial_reason": "mid_sentence",
    }
    return wire.Recovered(segments=list(segments), **(fields | more))


def reply(*segments: wire.RecoveredSegment, **more: Any) -> PartialReply:
    return from_recovered(recovered(*segments, **more))
