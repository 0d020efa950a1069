"""Which format a file is, by its lines; and reading one, by its name.

Owns: what tells the formats apart, and that a file of which nothing is understood is an error.
Refuses: opening files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final

from walld.errors import FormatError, NotUnderstood
from walld.foreign import claude, codex, gptme, own, pi
from walld.foreign.containers import HEAD_BYTES, Bytes, array_of, kind_of, other_kind
from walld.foreign.entries import Imported
from walld.foreign.lines import each_line, parsed
from walld.foreign.record_shapes import is_record

__all__ = ["FORMATS", "detect", "read"]

FORMATS: Final[dict[str, Callable[[Iterable[str | bytes]], Imported]]] = {
    "pi": pi.read,
    "gptme": gptme.read,
    "claude": claude.read,
    "codex": codex.read,
    "walld": own.read,
}
_LINES_LOOKED_AT: Final = 32
_PI_TYPES: Final = frozenset(("thinking_level_change", "model_change", "branch_summary", "label"))

_CLAUDE_TYPES: Final = frozenset(("file-history-snapshot", "queue-operation", "last-prompt"))


def read(lines: Iterable[str | bytes], format: str = "auto") -> Imported:  # noqa: A002
    """A foreign file as entries.

    Raises FormatError for a format that is none of FORMATS or "auto", and for a version that is
    too new; NotUnderstood where no line is of the format, or of any, with what the bytes are.
    """
    if format != "auto" and format not in FORMATS:
        raise FormatError(f"format: got {format!r}, limit {', '.join(FORMATS)} or auto")
    lines = lines if isinstance(lines, Sequence) else list(lines)
    head = _head(lines)
    if (told := kind_of(head)) is not None or (told := _array(head, lines)) is not None:
        raise NotUnderstood(f"it is {told}")
    imported = FORMATS[detect(lines) if format == "auto" else format](lines)
    if not _is_understood(imported):
        raise _not_understood(lines, format)
    return imported


def _array(head: bytes, lines: Sequence[str | bytes]) -> Bytes | None:
    """A JSON array over the whole file: a reader of lines would find some of what is in it."""
    if (told := array_of(head)) is None:
        return None
    (first,) = parsed(islice((one for one in lines if one.strip()), 1))
    return told if first.problem == "malformed" or len(lines) == 1 else None


def detect(lines: Sequence[str | bytes]) -> str:
    """A name of FORMATS. NotUnderstood where no line tells."""
    if (found := _detected(lines)) is None:
        raise _not_understood(lines, "auto")
    return found


def _detected(lines: Sequence[str | bytes]) -> str | None:
    for looked_at in (lines[:_LINES_LOOKED_AT], lines):
        for line in each_line(looked_at):
            if line.value is not None and (found := _told_by(line.value)) is not None:
                return found
    # No line is whole: records may stand behind damage, or over several lines.
    for name in FORMATS:
        if any(line.is_found for line in each_line(lines, name)):
            return name
    return None


def _is_understood(imported: Imported) -> bool:
    """Something in it is of its format: a header, say, with nothing behind it."""
    if imported.format == "walld":
        return imported.event_count > 0 or imported.version is not None
    return len(imported.entries) > imported.not_understood


def _not_understood(lines: Sequence[str | bytes], format: str) -> NotUnderstood:  # noqa: A002
    count, is_empty, first = 0, True, None
    for line in each_line(lines):
        count += 1
        is_empty &= not line.text.strip("\ufeff")
        first = line.value if first is None else first
    if is_empty:
        return NotUnderstood("there is no line in it: nothing to import")
    of = f"one of {', '.join(FORMATS)}" if format == "auto" else f"one of {format}"
    told = f"none of its {count} lines is {of}"
    if format != "auto" and (other := _detected(lines)) not in (None, format):
        return NotUnderstood(f"{told}: they look like {other}")
    return NotUnderstood(f"{told}: it is {other_kind(_head(lines), count, first)}")


def _head(lines: Sequence[str | bytes]) -> bytes:
    head = b""
    for line in lines:
        if len(head) >= HEAD_BYTES:
            break
        head += line if isinstance(line, bytes) else line.encode("utf-8", "surrogatepass")
    return head[:HEAD_BYTES]


def _told_by(value: dict[str, Any]) -> str | None:
    """What one line tells. The order matters: the most particular shapes first."""
    kind = value.get("type")
    if not isinstance(kind, str):
        kind = None
    if "walld" in value or ("crc" in value and "chain" in value):
        return "walld"
    if "payload" in value:
        if kind in codex.LINE_TYPES:
            return "codex"
        if "seq" in value and "ts" in value:
            return "gptme"
        return "walld" if is_record("walld", value) else None
    if kind == "session" and "id" in value:
        return "pi"
    if ("uuid" in value and "parentUuid" in value) or "leafUuid" in value:
        return "claude"
    if kind in _CLAUDE_TYPES or (kind in claude.OTHERS and "sessionId" in value):
        return "claude"
    if kind in _PI_TYPES or (kind == "message" and isinstance(value.get("message"), dict)):
        return "pi"
    if kind in codex.ITEM_TYPES or "record_type" in value:
        return "codex"
    if kind is None and "instructions" in value and "id" in value:
        return "codex"
    if kind is None and isinstance(value.get("role"), str) and "content" in value:
        return "gptme"
    return None
