"""Items of a reply, as a test writes them, and what `fold` makes of them."""

from __future__ import annotations

from typing import Any

from walld_client.wire import messages as wire

from walld.replies.fold import fold
from walld.wal.records import Begin, Happened, Item, Owner, Text, Thought

__all__ = ["BEGIN", "REASONING", "TOKEN", "end", "folded", "happened", "result", "text", "tool"]

BEGIN = Begin(
    1000,
    b"p" * 16,
    1,
    "stream",
    "session",
    "turn",
    "parent",
    b"\x80",
    50,
    Owner("boot", 7, 8, 9),
)
TOKEN, REASONING = 3, 4


def text(first_seq: int, *tokens: str, kind: int = TOKEN, at_ms: int | None = None) -> Text:
    """A run; its time is 100 x its first seq unless given."""
    encoded = [token.encode("utf-8", "surrogatepass") for token in tokens]
    lengths = b"".join([_leb128(len(token)) for token in encoded])
    at_ms = 100 * first_seq if at_ms is None else at_ms
    said = Text if kind == TOKEN else Thought
    return said(first_seq, at_ms - BEGIN.at_ms, lengths, b"".join(encoded))


def _leb128(size: int) -> bytes:
    out = bytearray()
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((*out, size))


def happened(event: wire.Event) -> Happened:
    return Happened(100 * event.seq - BEGIN.at_ms, event)


def tool(seq: int, call_id: str, name: str, arguments: bytes | None = None) -> Happened:
    return happened(wire.Tool(1, seq, call_id, name, arguments))


def result(
    seq: int, call_id: str | None, name: str | None, value: bytes = b"ok", **more: Any
) -> Happened:
    return happened(wire.ToolResult(1, seq, call_id, name, value, **more))


def end(seq: int, clean: bool = True, **more: Any) -> Happened:
    return happened(wire.End(1, seq, clean, **more))


def folded(*items: Item, **more: Any) -> wire.Recovered:
    asked: dict[str, Any] = {"owner_alive": False, "live": False, "lost_reason": "process_gone"}
    return fold(BEGIN, items, **(asked | more))
