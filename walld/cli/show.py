"""Prints recovered replies, as lines and as JSON.

Owns: the two forms that `ls` and `recover` share. Refuses: getting replies, projecting them to
messages (`walld_client.recovered.partial` does, for programs and for us alike).

Invariant: what an agent or a model said never reaches the terminal unescaped; JSON is ASCII.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from walld_client.recovered.entry_messages import has_ended
from walld_client.recovered.partial import PartialReply, Segment

from walld.cli.page import columns
from walld.escape import escaped, escaped_line

__all__ = [
    "CUT_OFF",
    "as_json",
    "details",
    "has_colour",
    "needs_somebody",
    "state_of",
    "table",
    "time",
]

CUT_OFF: Final = "cut off, though its text reads as whole"
_NEEDS: Final = ("cut", "blocked", "waits")
_ENDED_EARLY: Final = ("cancelled", "errored")


def as_json(value: object) -> str:
    """Indented, ASCII only, no control character as itself."""
    return json.dumps(value, indent=2).replace("\x7f", "\\u007f")


def has_colour() -> bool:
    """A person looks on, and did not ask for none."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def state_of(reply: PartialReply) -> str:
    """Live while its owner lives, and speaks or has yet to save it whole. Else cut."""
    is_cut = not reply.owner_alive or reply.status in _ENDED_EARLY
    return "cut" if is_cut else "live"


def needs_somebody(state: str | None) -> bool:
    """One that is not known may."""
    return state is None or state in _NEEDS


def time(seconds: float) -> str:
    """UTC, to the second."""
    try:
        at = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):  # an agent's clock can say anything
        return f"{seconds:.0f}"
    return at.isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")


def table(replies: Sequence[tuple[int, PartialReply]]) -> str:
    """One line a reply, (uid, reply) given."""
    rows = [("STARTED", "UID", "STATE", "STATUS", "OWNER", "EVENTS", "APP", "SESSION", "STREAM")]
    for uid, reply in replies:
        rows.append(
            (
                time(reply.started_at),
                str(uid),
                state_of(reply),
                reply.status,
                "alive" if reply.owner_alive else "gone",
                str(reply.events),
                "-" if reply.app is None else escaped_line(reply.app),
                escaped_line(reply.session_id),
                escaped_line(reply.stream_id),
            )
        )
    widths = [max(map(columns, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(_padded, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - columns(text))


def _partial(reply: PartialReply) -> str:
    if reply.partial:
        return f"yes ({escaped_line(reply.partial_reason or '')})"
    speaks = reply.status == "live" and reply.owner_alive
    return "no" if speaks or has_ended(reply) else f"no ({CUT_OFF})"


def details(reply: PartialReply) -> str:
    """Head, verdict and segments, for a person."""
    head = [
        ("stream", escaped_line(reply.stream_id)),
        ("session", escaped_line(reply.session_id)),
        ("turn", escaped_line(reply.turn_id or "")),
        ("app", escaped_line(reply.app or "")),
        ("status", _status(reply)),
        ("partial", _partial(reply)),
        ("started", time(reply.started_at)),
        ("last event", time(reply.last_event_at)),
        ("last seq", f"{reply.last_seq} ({reply.events} events, {len(reply.gaps)} gaps)"),
    ]
    if reply.error is not None:
        kind = f" ({escaped_line(reply.error.kind)})" if reply.error.kind else ""
        head.append(("error", escaped_line(reply.error.message) + kind))
    lines = [f"{name:<12}{value}" for name, value in head if value]
    last_place = (0, 0)
    for segment in reply.segments:
        place = (segment.attempt, segment.step)
        if place != last_place:
            lines.append(f"\n--- attempt {segment.attempt + 1}, step {segment.step + 1}")
            last_place = place
        lines.append("\n" + _segment(segment, is_open=segment.last_seq == reply.last_seq))
    return "\n".join(lines)


def _status(reply: PartialReply) -> str:
    words = [reply.status]
    if reply.lost_reason:
        words.append(f"({escaped_line(reply.lost_reason)})")
    words.append("owner alive" if reply.owner_alive else "owner gone")
    return " ".join(words)


def _segment(segment: Segment, *, is_open: bool) -> str:
    """is_open: nothing of the reply stands behind it, so a gap tells the least that is missing."""
    if segment.kind == "text":
        return escaped(segment.text)
    if segment.kind == "reasoning":
        return "(reasoning) " + escaped(segment.text)
    if segment.kind == "gap":
        seqs = f"{segment.first_seq} to {segment.last_seq}"
        more = ", or more," if is_open else ""
        return f"[gap: events {seqs}{more} are missing ({segment.verdict})]"
    name = escaped_line(segment.name or "?")
    if segment.kind == "custom":
        return f"[{name}]"
    arguments = escaped_line(segment.arguments or "")
    result = "" if segment.result is None else f" -> {escaped_line(str(segment.result))}"
    return f"[tool {name}({arguments}): {segment.outcome or 'unknown'}]{result}"
