"""Lines of a foreign file as JSON objects, or as what is wrong with them.

Owns: decoding and parsing one line, and which damage is a torn end. Refuses: whole records in what
is no line (`damage.py`), what an object means (the modules of the formats).

Invariant: never raises, whatever the bytes. What `value` holds can be written as JSON again: no
NaN, no infinity, nothing nested deeper than DEPTH_MAX.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from walld.foreign.damage import Piece, found_in

__all__ = ["Line", "as_text", "at_ms", "parsed", "rest", "text_or_none"]

DEPTH_MAX: Final = 200
_BLANK: Final = " \t\r\n"
_LATEST_MS: Final = 253402300799999  # the year 9999 ends


class Line(msgspec.Struct, frozen=True):
    """One line that is not blank. number: from 1. value: the object, None where there is none.

    problem: torn (the file ends in the middle of it) | malformed | not_an_object | too_deep.
    is_found: it is no line, but a whole record that stood behind damage, or over several lines.
    """

    number: int
    text: str
    value: dict[str, Any] | None = None
    problem: str | None = None
    is_found: bool = False


def parsed(lines: Iterable[str | bytes], format: str | None = None) -> list[Line]:  # noqa: A002
    """Every line that is not blank, with or without its newline.

    format: whose whole records are looked for in what is no line; what is left of it comes in its
    place.
    """
    found: list[Line | _Damaged] = []
    damaged: _Damaged | None = None
    whole = True
    for number, line in enumerate(lines, 1):
        text = line.decode("utf-8", "surrogateescape") if isinstance(line, bytes) else line
        if number == 1:
            text = text.removeprefix("\ufeff")
        stripped = text.strip(_BLANK)
        made = _parse(number, stripped) if stripped else None
        if made is not None:
            whole = text.endswith("\n")
        if made is not None and made.problem is None and text[0] not in _BLANK:
            damaged = None
        elif damaged is None and made is not None and made.problem is not None and format:
            damaged = _Damaged(number, [], [])
            found.append(damaged)
        if damaged is not None:
            damaged.texts.append(text)
        if made is not None:
            (found if damaged is None else damaged.lines).append(made)
    mended = _mended(found, format or "")
    if mended and mended[-1].problem == "malformed" and not whole:
        mended[-1] = msgspec.structs.replace(mended[-1], problem="torn")
    return mended


class _Damaged(NamedTuple):
    """Lines in a row of which the first is none, blank ones too; and what they are one by one.

    An indented line among them belongs to them: no agent indents its lines.
    """

    number: int
    texts: list[str]
    lines: list[Line]


def _mended(found: list[Line | _Damaged], format: str) -> list[Line]:  # noqa: A002
    values = [one.value for one in found if isinstance(one, Line) and one.value is not None]
    is_flat = bool(values) and not any(isinstance(one.get("payload"), dict) for one in values)
    mended: list[Line] = []
    for one in found:
        if isinstance(one, Line):
            mended.append(one)
        else:
            text = "".join(one.texts)
            pieces = found_in(text, format, _decode, is_flat=is_flat)
            mended += _lines_of(text, pieces, one.number) or one.lines
    return mended


def _lines_of(text: str, pieces: list[Piece], number: int) -> list[Line]:
    """Records, and the lines of what is none. number: of the line that the text begins with."""
    made: list[Line] = []
    counted = 0
    for piece in pieces:
        number += text.count("\n", counted, piece.at) if piece.at > counted else 0
        counted = max(counted, piece.at)
        if piece.value is not None and not _is_deep(piece.text):
            made.append(Line(number, piece.text, piece.value, is_found=True))
            continue
        for below, one in enumerate(piece.text.split("\n")):
            if stripped := one.strip(_BLANK):
                made.append(_parse(number + below, stripped))
    return made


def _parse(number: int, text: str) -> Line:
    if _is_deep(text):
        return Line(number, text, problem="too_deep")
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return Line(number, text, problem="malformed")
    if not isinstance(value, dict):
        return Line(number, text, problem="not_an_object")
    return Line(number, text, value)


def _is_deep(text: str) -> bool:
    return text.count("{") + text.count("[") > DEPTH_MAX and _deep(text)


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


_decode: Final = json.JSONDecoder(
    strict=False, parse_constant=_refuse, parse_float=_finite
).raw_decode
"""Newlines that nobody escaped stand in strings as they are."""


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
