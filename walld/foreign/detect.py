"""Which format a file is, by its first lines; and reading one, by its name.

Owns: what tells the formats apart. Refuses: opening files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Any, Final

from walld.errors import FormatError
from walld.foreign import claude, codex, gptme, own, pi
from walld.foreign.entries import Imported
from walld.foreign.lines import parsed

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

    Raises FormatError for a format that is none of FORMATS or "auto", for a file that looks like
    none of them, and for a version that is too new.
    """
    if format == "auto":
        rest = iter(lines)
        first = list(islice(rest, _LINES_LOOKED_AT))
        format = detect(first)  # noqa: A001
        lines = chain(first, rest)
    reader = FORMATS.get(format)
    if reader is None:
        raise FormatError(f"format: got {format!r}, limit {', '.join(FORMATS)} or auto")
    return reader(lines)


def detect(first_lines: Iterable[str | bytes]) -> str:
    """A name of FORMATS. Raises FormatError where no line tells."""
    looked_at = 0
    for line in parsed(first_lines):
        looked_at += 1
        if line.value is not None and (found := _told_by(line.value)) is not None:
            return found
    if not looked_at:
        raise FormatError("there is no line in it: nothing to import")
    raise FormatError(
        f"none of the first {looked_at} lines is one of {', '.join(FORMATS)}:"
        " name the format if you know it"
    )


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
        return "gptme" if "seq" in value and "ts" in value else None
    if kind == "session" and "id" in value:
        return "pi"
    if ("uuid" in value and "parentUuid" in value) or "leafUuid" in value or kind in _CLAUDE_TYPES:
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
