"""Parts of a conversation that are in another file: which that is, and how far it belongs to it.

Owns: what the beginning of a file says of that, and which lines of the other file it means.
Refuses: finding files (the command line), what is said of a part that is missing (the modules of
the formats).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from walld.foreign.lines import parsed, text_or_none

__all__ = ["LINES_LOOKED_AT", "Part", "base_of", "before", "context_of", "is_source", "part_of"]

LINES_LOOKED_AT: Final = 8
"""Of a file's beginning, where it says what it is and what it goes on from."""


class Part(msgspec.Struct, frozen=True):
    """What another file holds. format: of both. of: the thread, or session, that the file is of.

    Codex: ends, the first ordinal that belongs to it no more, and bytes, where it ends there.
    Claude Code: until, the uuid of the last line that belongs to it, and messages, how many it has.
    """

    format: str
    of: str
    ends: int = 0
    bytes: int | None = None
    until: str | None = None
    messages: int | None = None


def part_of(first_lines: Sequence[bytes]) -> Part | None:
    """What a file that begins so goes on from."""
    for line in parsed(first_lines):
        if line.value is None:
            continue
        found = context_of(line.value)
        if found is None and line.value.get("type") == "session_meta":
            found = base_of(line.value.get("payload"))
        if found is not None:
            return found
    return None


def base_of(meta: object) -> Part | None:
    """The base of a Codex thread, by its session_meta."""
    base = meta.get("history_base") if isinstance(meta, dict) else None
    if not isinstance(base, dict):
        return None
    of, ends = text_or_none(base.get("thread_id")), _count(base.get("end_ordinal_exclusive"))
    if of is None or not ends:
        return None
    return Part("codex", of, ends, bytes=_count(base.get("end_byte_offset")))


def context_of(value: dict[str, Any]) -> Part | None:
    """What an agent of Claude Code was given of its session, where the line says so."""
    if value.get("type") != "fork-context-ref":
        return None
    of, until = (
        text_or_none(value.get("parentSessionId")),
        text_or_none(value.get("parentLastUuid")),
    )
    if of is None or until is None:
        return None
    return Part("claude", of, until=until, messages=_count(value.get("contextLength")))


def is_source(first_lines: Sequence[bytes], part: Part) -> bool:
    """Whether a file that begins so is the one that the part is in."""
    for line in parsed(first_lines):
        value = line.value or {}
        if part.format == "codex":
            meta = value.get("payload")
            if value.get("type") == "session_meta" and isinstance(meta, dict):
                return bool(meta.get("id") == part.of)
        elif value.get("sessionId") == part.of and value.get("isSidechain") is not True:
            return True
    return False


def before(lines: Iterable[bytes], part: Part, ordinal: int = 0) -> Iterator[bytes]:
    """The lines of the other file that belong to it. ordinal: of its first line, unless that says
    so itself.
    """
    for line in lines:
        value = _value(line)
        if part.format == "codex":
            said = _count(value.get("ordinal"))
            ordinal = ordinal if said is None else said
            if ordinal >= part.ends:
                return
            ordinal += bool(line.strip())
        yield line
        if part.until is not None and value.get("uuid") == part.until:
            return


def _value(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_count and isinstance(value, int) else None
