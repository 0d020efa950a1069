"""Lines of a foreign file as JSON objects, or as what is wrong with them.

Owns: decoding and parsing one line, and which damage is a torn end. Refuses: what an object means
(the modules of the formats).

Invariant: never raises, whatever the bytes. What `value` holds can be written as JSON again: no
NaN, no infinity, nothing nested deeper than DEPTH_MAX.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

import msgspec

__all__ = ["Line", "as_text", "at_ms", "parsed", "rest", "text_or_none"]

DEPTH_MAX: Final = 200
_LATEST_MS: Final = 253402300799999  # the year 9999 ends


class Line(msgspec.Struct, frozen=True):
    """One line that is not blank. number: from 1. value: the object, None where there is none.

    problem: torn (the file ends in the middle of it) | malformed | not_an_object | too_deep.
    """

    number: int
    text: str
    value: dict[str, Any] | None = None
    problem: str | None = None


def parsed(lines: Iterable[str | bytes]) -> list[Line]:
    """Every line that is not blank, with or without its newline."""
    found: list[Line] = []
    whole = True
    for number, line in enumerate(lines, 1):
        text = line.decode("utf-8", "surrogateescape") if isinstance(line, bytes) else line
        if number == 1:
            text = text.removeprefix("\ufeff")
        if stripped := text.strip(" \t\r\n"):
            found.append(_parse(number, stripped))
            whole = text.endswith("\n")
    if found and found[-1].problem == "malformed" and not whole:
        found[-1] = msgspec.structs.replace(found[-1], problem="torn")
    return found


def _parse(number: int, text: str) -> Line:
    if text.count("{") + text.count("[") > DEPTH_MAX and _deep(text):
        return Line(number, text, problem="too_deep")
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return Line(number, text, problem="malformed")
    if not isinstance(value, dict):
        return Line(number, text, problem="not_an_object")
    return Line(number, text, value)


def _deep(text: str) -> bool:
    """Deeper than DEPTH_MAX, brackets inside strings left out."""
    depth = 0
    quoted = escaped = False
    for character in text:
        if quoted:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                quoted = False
        elif character == '"':
            quoted = True
        elif character in "{[":
            depth += 1
            if depth > DEPTH_MAX:
                return True
        elif character in "}]":
            depth -= 1
    return False


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is larger than a float")
    return value


def at_ms(value: object) -> int:
    """A time as milliseconds since the epoch: ISO 8601 text (UTC where it names no zone), or
    milliseconds. 0 where it is neither.
    """
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
            if at.tzinfo is None:
                at = at.replace(tzinfo=UTC)
            milliseconds = int(at.timestamp() * 1000)
        except (ValueError, OverflowError):
            return 0
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        milliseconds = int(value)
    else:
        return 0
    return milliseconds if 0 <= milliseconds <= _LATEST_MS else 0


def rest(fields: dict[str, Any], *used: str) -> dict[str, Any]:
    """What else is there."""
    return {name: value for name, value in fields.items() if name not in used}


def text_or_none(value: object) -> str | None:
    """`value` where it is text and not empty."""
    return value if isinstance(value, str) and value else None


def as_text(value: object) -> str:
    """Text as it is, anything else as JSON: what the arguments of a call are in messages."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
