"""Lines of a foreign file as JSON objects, or as what is wrong with them.

Owns: decoding and parsing one line, and which damage is a torn end. Refuses: whole records in what
is no line (`damage.py`), what an object means (the modules of the formats).

Invariant: never raises, whatever the bytes. What `value` holds can be written as JSON again: no
NaN, no infinity, nothing nested deeper than DEPTH_MAX.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from walld.errors import FormatError
from walld.foreign.damage import Piece, found_in

__all__ = [
    "Line",
    "Lines",
    "as_text",
    "at_ms",
    "each_line",
    "json_of",
    "json_text",
    "line_of",
    "parsed",
    "rest",
    "text_or_none",
]

DEPTH_MAX: Final = 200
_BLANK: Final = " \t\r\n"
_MARK: Final = "\ufeff"
_LATEST_MS: Final = 253402300799999  # the year 9999 ends


class Line(msgspec.Struct, frozen=True):
    """One line that is not blank. number: from 1. raw: as it stands in the file, but for its mark.
    value: the object, None where there is none.

    problem: torn (the file ends in the middle of it) | malformed | not_an_object | too_deep.
    is_found: it is no line, but a whole record that stood behind damage, or over several lines.
    """

    number: int
    raw: str | bytes
    value: dict[str, Any] | None = None
    problem: str | None = None
    is_found: bool = False

    @property
    def text(self) -> str:
        """Without white space at its ends; bytes that are no UTF-8 as lone surrogates."""
        return _text(self.raw).strip(_BLANK)

    @property
    def encoded(self) -> bytes:
        """The text as bytes."""
        if isinstance(self.raw, bytes) and self.raw.isascii():
            return self.raw.strip(_BLANK.encode())
        return self.text.encode("utf-8", "surrogatepass")


def parsed(lines: Iterable[str | bytes], format: str | None = None) -> list[Line]:  # noqa: A002
    """All of `each_line`: of few, for objects take several times what their text does."""
    return list(each_line(lines, format))


def each_line(lines: Iterable[str | bytes], format: str | None = None) -> Iterator[Line]:  # noqa: A002
    """Every line that is not blank, with or without its newline, one at a time.

    format: whose whole records are looked for in what is no line; what is left of it comes in its
    place.
    """
    lines = lines if isinstance(lines, Sequence) else list(lines)
    is_flat = cache(lambda: _is_flat(lines))
    damaged: _Damaged | None = None
    is_ended = True
    for number, raw in enumerate(lines, 1):
        line = line_of(raw, number)
        if line is not None:
            is_ended = raw.endswith(b"\n" if isinstance(raw, bytes) else "\n")
            if line.problem is None and not line.raw[:1].isspace():
                if damaged is not None:
                    yield from _mended(damaged, format, is_flat)
                    damaged = None
                yield line
                continue
            if line.problem is not None and damaged is None:
                damaged = _Damaged(number, [], [])
        if damaged is None:
            if line is not None:
                yield line
            continue
        damaged.raws.append(raw if line is None else line.raw)
        if line is not None:
            damaged.lines.append(line)
    if damaged is not None:
        *mended, last = _mended(damaged, format, is_flat)
        yield from mended
        is_torn = last.problem == "malformed" and not is_ended
        yield Line(last.number, last.raw, problem="torn") if is_torn else last


class Lines:
    """Lines of a file that is gone through twice, read again where they are asked for by place.

    look: is shown each line once, in the order of the file.
    """

    def __init__(
        self,
        lines: Iterable[str | bytes],
        format: str,  # noqa: A002
        look: Callable[[Line], None],
    ) -> None:
        self._lines = lines if isinstance(lines, Sequence) else list(lines)
        self._numbers = array("Q")
        self._kept: dict[int, Line] = {}
        """By place, what is no whole line of the file."""
        for place, line in enumerate(each_line(self._lines, format)):
            look(line)
            self._numbers.append(line.number)
            if line.is_found or line.problem is not None:
                self._kept[place] = line

    def __getitem__(self, place: int) -> Line:
        """FormatError where it is no object any more."""
        if (kept := self._kept.get(place)) is not None:
            return kept
        line = line_of(self._lines[self._numbers[place] - 1], number := self._numbers[place])
        if line is None or line.value is None:
            raise FormatError(
                f"line {number} is another than before: the file changed while it was read; import"
                " it again"
            )
        return line


class _Damaged(NamedTuple):
    """Lines in a row of which the first is none, blank ones too; and what they are one by one.

    An indented line among them belongs to them: no agent indents its lines.
    """

    number: int
    raws: list[str | bytes]
    lines: list[Line]


def _mended(
    damaged: _Damaged,
    format: str | None,  # noqa: A002
    is_flat: Callable[[], bool],
) -> list[Line]:
    if format is None:
        return damaged.lines
    text = "".join(map(_text, damaged.raws))
    pieces = found_in(text, format, _decode, is_flat=is_flat())
    return _lines_of(text, pieces, damaged.number) or damaged.lines


def _is_flat(lines: Sequence[str | bytes]) -> bool:
    """No record of the file has others within it."""
    values = (line.value for number, raw in enumerate(lines, 1) if (line := line_of(raw, number)))
    payloads = [isinstance(one.get("payload"), dict) for one in values if one is not None]
    return bool(payloads) and not any(payloads)


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
            if (line := line_of(one, number + below)) is not None:
                made.append(line)
    return made


def _unmarked(line: str | bytes) -> str | bytes:
    if isinstance(line, bytes):
        return line.removeprefix(_MARK.encode())
    return line.removeprefix(_MARK)


def _text(line: str | bytes) -> str:
    return line.decode("utf-8", "surrogateescape") if isinstance(line, bytes) else line


def line_of(raw: str | bytes, number: int) -> Line | None:
    """A line of a file as what it is, None for a blank one."""
    if number == 1:
        raw = _unmarked(raw)
    if not raw or raw.isspace():
        return None
    if _is_deep(raw):
        return Line(number, raw, problem="too_deep")
    try:
        value = _decoded(raw)
    except (ValueError, RecursionError):
        return Line(number, raw, problem="malformed")
    if not isinstance(value, dict):
        return Line(number, raw, problem="not_an_object")
    return Line(number, raw, value)


_decode_fast: Final = msgspec.json.Decoder().decode


def _decoded(line: str | bytes) -> Any:
    """The JSON in it. Few lines are what the fast reader refuses, and Python's takes."""
    try:
        return _decode_fast(line)
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


def json_text(value: object, *, is_sorted: bool = False) -> bytes:
    """What a line held, or what was made of it, as JSON in one line; a lone surrogate as its
    escape. is_sorted: its fields, by their names.
    """
    try:
        return msgspec.json.encode(value, order="deterministic" if is_sorted else None)
    except (ValueError, OverflowError, RecursionError):  # a lone surrogate, a number of 20 digits
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=is_sorted)
        return text.encode("utf-8", "backslashreplace")


def json_of(text: bytes) -> Any:
    """The reverse."""
    return _decoded(text)


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
