"""Lines of a foreign file as JSON objects, or as what is wrong with them.

Owns: decoding and parsing one line, and which damage is a torn end. Refuses: whole records in what
is no line (`damage.py`), what an object means (the modules of the formats).

Invariant: never raises, whatever the bytes. What `value` holds can be written as JSON again: no
NaN, no infinity, nothing nested deeper than DEPTH_MAX.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, NamedTuple, NoReturn

import msgspec

from walld.errors import FormatError
from walld.foreign.damage import Piece, found_in

__all__ = ["Line", "as_text", "at_ms", "parsed", "rest", "text_or_none"]

DEPTH_MAX: Final = 200
_BLANK: Final = " \t\r\n"
_MARK: Final = "\ufeff"
_LATEST_MS: Final = 253402300799999  # the year 9999 ends


class Line:
    """One line that is not blank. number: from 1. value: the object, None where there is none.

    problem: torn (the file ends in the middle of it) | malformed | not_an_object | too_deep.
    is_found: it is no line, but a whole record that stood behind damage, or over several lines.

    One of a sequence of bytes is read there where it is asked for: objects take several times what
    their text does, and a file may have many.
    """

    __slots__ = ("_held", "_value", "is_found", "number", "problem")
    _newest: ClassVar[tuple[Line | None, str | bytes]] = None, ""
    """The last one that was read again, and what it is: who asks once asks again."""
    _known: ClassVar[tuple[Line | None, dict[str, Any] | None]] = None, None
    """The last one whose value was read again, and that."""

    def __init__(
        self,
        number: int,
        held: str | Sequence[str | bytes],
        value: dict[str, Any] | None = None,
        problem: str | None = None,
        is_found: bool = False,
    ) -> None:
        self.number, self._held, self._value = number, held, value
        self.problem, self.is_found = problem, is_found

    @property
    def text(self) -> str:
        """Without white space at its ends; bytes that are no UTF-8 as lone surrogates."""
        held = self._held
        return held if isinstance(held, str) else _text(self._line(held)).strip(_BLANK)

    @property
    def value(self) -> dict[str, Any] | None:
        """None where there is none."""
        held = self._held
        if self._value is not None or self.problem is not None or isinstance(held, str):
            return self._value
        if Line._known[0] is not self:
            try:
                Line._known = self, _decoded(self._line(held))
            except ValueError as error:
                raise FormatError(
                    f"line {self.number} is another than before: the file changed while it was"
                    f" read ({error}); import it again"
                ) from None
        return Line._known[1]

    @property
    def encoded(self) -> bytes:
        """The text as bytes."""
        if not isinstance(self._held, str):
            line = self._line(self._held)
            if isinstance(line, bytes) and line.isascii():
                return line.strip(_BLANK.encode())
        return self.text.encode("utf-8", "surrogatepass")

    def _line(self, held: Sequence[str | bytes]) -> str | bytes:
        if Line._newest[0] is not self:
            line = held[self.number - 1]
            Line._newest = self, _unmarked(line) if self.number == 1 else line
        return Line._newest[1]

    def with_value(self, value: dict[str, Any] | None) -> Line:
        """The line with another object in the place of its own."""
        if value is self.value:
            return self
        return Line(self.number, self._held, value, self.problem, self.is_found)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Line):
            return NotImplemented
        return self._told() == other._told()

    def __hash__(self) -> int:
        return hash((self.number, self.text))

    def _told(self) -> tuple[object, ...]:
        return self.number, self.text, self.value, self.problem, self.is_found

    def __repr__(self) -> str:
        return f"Line({self.number}, {self.text!r}, problem={self.problem!r})"


def parsed(lines: Iterable[str | bytes], format: str | None = None) -> list[Line]:  # noqa: A002
    """Every line that is not blank, with or without its newline.

    format: whose whole records are looked for in what is no line; what is left of it comes in its
    place.
    """
    found: list[Line | _Damaged] = []
    damaged: _Damaged | None = None
    is_ended = True
    held = lines if isinstance(lines, Sequence) else None
    for number, line in enumerate(lines, 1):
        if number == 1:
            line = _unmarked(line)
        made = _parse(number, line, held)
        if made is not None:
            is_ended = _text(line[-1:]) == "\n"
        if made is not None and made.problem is None and _text(line[:1]) not in _BLANK:
            damaged = None
        elif damaged is None and made is not None and made.problem is not None and format:
            damaged = _Damaged(number, [], [])
            found.append(damaged)
        if damaged is not None:
            damaged.texts.append(_text(line))
        if made is not None:
            (found if damaged is None else damaged.lines).append(made)
    mended = _mended(found, format or "")
    if mended and mended[-1].problem == "malformed" and not is_ended:
        mended[-1] = Line(mended[-1].number, mended[-1].text, problem="torn")
    return mended


class _Damaged(NamedTuple):
    """Lines in a row of which the first is none, blank ones too; and what they are one by one.

    An indented line among them belongs to them: no agent indents its lines.
    """

    number: int
    texts: list[str]
    lines: list[Line]


def _mended(found: list[Line | _Damaged], format: str) -> list[Line]:  # noqa: A002
    if not any(isinstance(one, _Damaged) for one in found):
        return [one for one in found if isinstance(one, Line)]
    values = (one.value for one in found if isinstance(one, Line))
    payloads = [isinstance(one.get("payload"), dict) for one in values if one is not None]
    is_flat = bool(payloads) and not any(payloads)
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
            if (line := _parse(number + below, one)) is not None:
                made.append(line)
    return made


def _unmarked(line: str | bytes) -> str | bytes:
    if isinstance(line, bytes):
        return line.removeprefix(_MARK.encode())
    return line.removeprefix(_MARK)


def _text(line: str | bytes) -> str:
    return line.decode("utf-8", "surrogateescape") if isinstance(line, bytes) else line


def _parse(
    number: int, line: str | bytes, lines: Sequence[str | bytes] | None = None
) -> Line | None:
    """None for a blank line. lines: where it can be read again."""
    if not line.strip():
        return None
    problem, value = None, None
    if _is_deep(line):
        problem = "too_deep"
    else:
        try:
            value = _decoded(line)
            problem = None if isinstance(value, dict) else "not_an_object"
        except (ValueError, RecursionError):
            problem = "malformed"
    if lines is not None and isinstance(line, bytes):
        return Line(number, lines, problem=problem)
    text = _text(line).strip(_BLANK)
    return Line(number, text, None if problem else value, problem) if text else None


def _decoded(line: str | bytes) -> Any:
    """The JSON in it. Few lines are what the fast reader refuses, and Python's takes."""
    try:
        return msgspec.json.decode(line)
    except (ValueError, RecursionError):
        text = _text(line).strip(_BLANK)
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)


def _is_deep(line: str | bytes) -> bool:
    if isinstance(line, bytes):
        return line.count(b"{") + line.count(b"[") > DEPTH_MAX and _deep(_text(line))
    return line.count("{") + line.count("[") > DEPTH_MAX and _deep(line)


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
