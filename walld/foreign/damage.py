"""Whole records in lines that are none: behind garbage, beside another, or over several lines.

Owns: where they begin and end, and what between them is lost. Refuses: what a record is
(`record_shapes.py`), what its line becomes (`lines.py`).

Invariant: work is bounded by the length of the text, not by its square.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from walld.foreign.record_shapes import is_record, may_be_held

__all__ = ["Piece", "found_in"]

_OPENS: Final = re.compile(r'\{(?=\s*")')
_GOES_ON: Final = re.compile(r"\s*[,\]}]")
_BETWEEN: Final = " \t\r\n\ufeff\x1e,"
"""Alone between records it is no loss: white space, marks, and separators of other JSON texts."""
_WORK_PER_CHAR: Final = 64
_WINDOW_CHARS: Final = 64 * 1024
_COUNTED: Final = 32
"""So many characters that are counted cost as much as one that is read."""
_ATTEMPT: Final = 256
"""What an attempt costs beside what it reads, in characters."""
_TOO_DEEP: Final = 64 * 1024
"""What one costs that nests deeper than Python follows."""


class Piece(NamedTuple):
    """Of a damaged text: a record, or (value None) what is none. at: where it begins."""

    at: int
    text: str
    value: dict[str, Any] | None = None


def found_in(
    text: str,
    format: str,  # noqa: A002
    decode: Callable[[str, int], Any],
    *,
    is_flat: bool = False,
) -> list[Piece]:
    """The text in pieces, in its order; [] where no record is in it.

    decode: of JSON from a place on, as JSONDecoder.raw_decode. is_flat: no record of the file has
    others within it.
    """
    records = _records(text, format, decode, is_flat)
    if not records:
        return []
    pieces: list[Piece] = []
    end = 0
    for one in [*records, Piece(len(text), "")]:
        if (lost := text[end : one.at]).strip(_BETWEEN):
            pieces.append(Piece(end, lost))
        if one.value is not None:
            pieces.append(one)
        end = one.at + len(one.text)
    return _rejoined(pieces, format, decode)


def _records(
    text: str,
    format: str,  # noqa: A002
    decode: Callable[[str, int], Any],
    is_flat: bool,
) -> list[Piece]:
    found: list[Piece] = []
    work = _WORK_PER_CHAR * len(text)
    window = max(_WINDOW_CHARS, len(text) // 256)
    begin = at = 0
    gone, rest = 0, text
    while work > 0 and (opens := _OPENS.search(text, at)) is not None:
        at = opens.start()
        if at - gone > window:  # an error counts the lines before it
            gone, rest = at, text[at:]
        try:
            value, end = decode(rest, at - gone)
        except json.JSONDecodeError as error:
            is_open = error.msg.startswith("Unterminated")  # it went on to the end of the text
            read = (len(rest) if is_open else error.pos) - (at - gone)
            work -= read + error.pos // _COUNTED + _ATTEMPT
            at += 1
        except (ValueError, RecursionError):
            work -= _TOO_DEEP
            at += 1
        else:
            end += gone
            work -= end - at
            is_alone = is_flat or not may_be_held(format, value)
            if _is_whole(text, at, end, value, format) and (
                is_alone or _is_apart(text, begin, at, end)
            ):
                found.append(Piece(at, text[at:end], value))
                begin = end
            at = end
    return found


def _is_whole(text: str, at: int, end: int, value: Any, format: str) -> bool:  # noqa: A002
    """A record. Zeros in it are no words: what stood there is lost."""
    return is_record(format, value) and text.find("\0", at, end) == -1


def _is_apart(text: str, begin: int, at: int, end: int) -> bool:
    """It stands in no other: one that was cut, from `begin` on, may have some within it."""
    return _GOES_ON.match(text, end) is None and text.find('"payload"', begin, at) == -1


def _rejoined(pieces: list[Piece], format: str, decode: Callable[[str, int], Any]) -> list[Piece]:  # noqa: A002
    """Two programs that append to one file may have parted a record of one of them."""
    made: list[Piece] = []
    for piece in pieces:
        made.append(piece)
        if len(made) < 3 or piece.value is not None or made[-3].value is not None:
            continue
        first, within = made[-3], made[-2]
        if within.value is None:
            continue
        text = first.text.lstrip() + piece.text.removeprefix("\r").removeprefix("\n").rstrip()
        try:
            value, end = decode(text, 0)
        except (ValueError, RecursionError):
            continue
        if end == len(text) and is_record(format, value):
            made[-3:] = [Piece(first.at, text, value), within]
    return made
