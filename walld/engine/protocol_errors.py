"""Protocol errors: why a frame cannot be taken, and the answer to it.

Owns: the error codes of `clients/PROTOCOL.md` and the one choice between refusing an event and
closing a connection. Refuses: I/O, framing (`wire/framing.py`), events that decode but break a rule
of their stream (they carry the same codes, given where the stream is known).

The choice. The length prefix was good, so the framing holds whatever the body is. Where the body
still shows that it is an event, and of which (stream, seq), that event alone is refused: one bad
event must not hurt the other streams of its process. Where it does not, nobody knows what was
meant, and going on could skip an event in silence: the connection closes. An Error with the id of a
request answers that request and closes nothing.

Invariants: `explain` never raises, never recurses, and builds nothing larger than its answer: it
looks at the array header and at most three integers, and never at what lies behind them. No text
of a payload gets into an answer.
"""

from __future__ import annotations

from typing import Final

import msgspec
from walld_client.wire import messages as wire
from walld_client.wire.framing import PROTOCOL_VERSION

from walld import __version__

__all__ = [
    "CLOSING_CODES",
    "LEDGER_CODES",
    "REFUSED_CODES",
    "REQUEST_CODES",
    "check_hello",
    "explain",
    "leading_integers",
]

CLOSING_CODES: Final = frozenset(
    {
        "bad_role",
        "foreign_uid",
        "frame_too_long",
        "malformed",
        "not_hello",
        "producer_shared",
        "slow_frame",
        "too_many_begun",
        "too_many_peers",
        "version",
    }
)
"""Codes of an Error with id 0: the connection closes."""

REFUSED_CODES: Final = frozenset(
    {
        "after_terminal",
        "bad_level",
        "bad_seq",
        "disk_full",
        "id_length",
        "malformed_event",
        "not_terminal",
        "stream_exists",
        "stream_owned",
        "text_length",
        "too_many_streams",
        "unknown_stream",
    }
)
"""Codes of a Refused: that event is not kept, everything else goes on."""

LEDGER_CODES: Final = frozenset(
    {
        "already_resumed",
        "artifact_changed",
        "artifact_hash",
        "artifact_missing",
        "artifact_offset",
        "artifact_size",
        "bad_argument",
        "bad_artifact",
        "bad_at",
        "bad_id",
        "bad_level",
        "bad_payload",
        "bad_type",
        "cycle",
        "disk_full",
        "duplicate_id",
        "entries_count",
        "id_length",
        "illegal_tool",
        "illegal_turn",
        "ledger_full",
        "message_id_taken",
        "not_on_path",
        "payload_length",
        "session_exists",
        "stale",
        "unknown_cause",
        "unknown_entry",
        "unknown_parent",
        "unknown_projection",
        "unknown_session",
        "unknown_target",
        "unknown_tool",
        "unknown_turn",
        "unreleased",
        "unwritable",
        "view_length",
    }
)
"""Of a request about a session: what it names, or its entries, cannot be."""

REQUEST_CODES: Final = LEDGER_CODES | {
    "bad_request",
    "behind",
    "foreign_uid",
    "internal",
    "recovering",
    "refused",
    "unreadable",
}
"""Codes of an Error with the id of a request: the request failed, the connection goes on."""

_ROLES: Final = ("agent", "query")
_REASON_CHARS_MAX: Final = 160
_PRODUCER_BYTES: Final = 16
_LOG_BYTES: Final = 16

# Every tag of these ranges has the layout that is stated here, also the ones not given yet, so a
# newer client loses one event or one request to an older daemon and not its connection.
_EVENT_TAGS: Final = frozenset({*range(2, 17), *range(19, 32)})
"""[tag, stream, seq, ...]"""
_REQUEST_TAGS: Final = frozenset({*range(48, 64), *range(80, 128)})
"""[tag, id, ...]"""

_MESSAGES: Final = {
    role: {message.__struct_config__.tag: message for message in union.__args__}
    for role, union in (("agent", wire.FromAgent), ("query", wire.FromQuery))
}

_NEWER: Final = sorted(int(tag) for tag in _MESSAGES["query"] if int(tag) >= 80)
_REQUESTS: Final = f"a request of tag 48 to 62, {', '.join(map(str, _NEWER))}"
"""By its first words a client knows that the tag is unknown, so they stay as they are."""


def explain(body: bytes, error: Exception, role: str = "agent") -> wire.Refused | wire.Error:
    """The answer to a body that did not decode as a message of `role`, with the error it gave.

    role: "agent" or "query", "" while the connection has not said Hello. A Refused, and an Error
    whose id is not 0, leave the connection open; an Error with id 0 closes it.
    """
    integers = leading_integers(body)
    if role == "":
        return _explain_first(body, integers, error)
    tag = integers[0] if integers else None
    if role == "agent" and tag in _EVENT_TAGS and len(integers) == 3:
        got, limit = _reason(tag, error), _layout(role, tag, "an event of tag 2 to 16")
        return wire.Refused(integers[1], integers[2], "malformed_event", got, limit)
    if role == "query" and tag in _REQUEST_TAGS and len(integers) >= 2 and integers[1] > 0:
        got, limit = _reason(tag, error), _layout(role, tag, _REQUESTS)
        message = "this request cannot be read"
        if limit is _REQUESTS:
            message = f"walld {__version__} does not know this request: update it, or ask another"
        return wire.Error("bad_request", message, got, limit, id=integers[1])
    got = _reason(tag, error) if integers else f"{len(body)} bytes: {_plain(error)}"
    limit = _layout(role, tag, "a msgpack array that starts with the tag of a message")
    return wire.Error("malformed", f"a frame is no message that role {role} sends", got, limit)


def check_hello(message: msgspec.Struct) -> wire.Error | None:
    """What is wrong with the first message of a connection, or None where it is a good Hello."""
    if not isinstance(message, wire.Hello):
        return wire.Error(
            "not_hello", "the first frame must be Hello", type(message).__name__, "Hello"
        )
    if message.version != PROTOCOL_VERSION:
        return _other_version(message.version)
    if message.role not in _ROLES:
        role = _plain(message.role)
        return wire.Error("bad_role", "no such role", role, " or ".join(_ROLES))
    if len(message.producer) != _PRODUCER_BYTES:
        got, limit = f"{len(message.producer)} bytes", f"{_PRODUCER_BYTES} bytes"
        return wire.Error("malformed", "Hello: producer has another length", got, limit)
    if len(message.log) not in (0, _LOG_BYTES):
        got, limit = f"{len(message.log)} bytes", f"0 or {_LOG_BYTES} bytes"
        return wire.Error("malformed", "Hello: log has another length", got, limit)
    return None


def leading_integers(body: bytes) -> list[int]:
    """Up to three integers at the start of the msgpack array in `body`, as far as they are there.

    Fewer where the array is shorter, the bytes end, or an element is no integer.
    """
    if not body:
        return []
    first = body[0]
    if first >> 4 == 9:
        count, position = first & 15, 1
    elif first in (0xDC, 0xDD):
        position = 3 if first == 0xDC else 5
        count = int.from_bytes(body[1:position], "big") if len(body) >= position else 0
    else:
        return []
    integers: list[int] = []
    while len(integers) < min(count, 3) and position < len(body):
        first = body[position]
        position += 1
        if first < 0x80 or first >= 0xE0:
            integers.append(first if first < 0x80 else first - 256)
            continue
        if not 0xCC <= first <= 0xD3:
            break
        width = 1 << (first & 3)
        if position + width > len(body):
            break
        piece = body[position : position + width]
        integers.append(int.from_bytes(piece, "big", signed=first >= 0xD0))
        position += width
    return integers


def _explain_first(body: bytes, integers: list[int], error: Exception) -> wire.Error:
    """No Hello was seen. Its version may stand in a Hello whose shape only a later one knows."""
    if integers[:1] != [0]:
        got = _reason(integers[0], error) if integers else f"{len(body)} bytes: {_plain(error)}"
        return wire.Error("not_hello", "the first frame must be Hello", got, "Hello")
    if len(integers) > 1 and integers[1] != PROTOCOL_VERSION:
        return _other_version(integers[1])
    got, limit = _reason(0, error), _layout("agent", 0, "Hello")
    return wire.Error("malformed", "this Hello cannot be read", got, limit)


def _other_version(got: int) -> wire.Error:
    message = "another protocol version: update the older of client and daemon"
    return wire.Error("version", message, str(got), str(PROTOCOL_VERSION))


def _layout(role: str, tag: int | None, otherwise: str) -> str:
    """The fields a message of that tag has, for whoever reads the error."""
    message = _MESSAGES[role].get(tag)
    if message is None:
        return otherwise
    return f"{message.__name__}({', '.join(message.__struct_fields__)})"


def _reason(tag: int | None, error: Exception) -> str:
    return f"tag {tag}: {_plain(error)}"


def _plain(error: object) -> str:
    """At most a line of printable ASCII, so that it can be encoded, logged and shown as it is."""
    try:
        text = str(error)[:_REASON_CHARS_MAX]
    except Exception:  # an exception whose text cannot be made must not end the daemon
        text = type(error).__name__
    line = text.encode("ascii", "backslashreplace").decode("ascii")
    return "".join(char if char.isprintable() else "?" for char in line)[:_REASON_CHARS_MAX]
