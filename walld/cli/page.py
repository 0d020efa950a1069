"""Lays out text as lines for a terminal of a given width.

Owns: wrapping by columns, cutting with a sign of it, colours, what stands left of a branch.
Refuses: what is said on the lines (`show.py`, `view.py`), printing them.

Invariant: what an application or a model said never reaches the terminal unescaped.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final

from walld.escape import escaped, escaped_line

__all__ = ["WIDTH_MIN", "Page", "Word", "cell", "columns", "cut", "maps", "plain"]

WIDTH_MIN: Final = 30
_COLOURS: Final = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}

Word = tuple[str | None, str]
"""(colour, text); no text is no word."""


class Page:
    """Lines so far, and how wide and colourful they may be. margin: stands left of each line."""

    def __init__(self, width: int, colour: bool) -> None:
        self._width = max(width, WIDTH_MIN)
        self.colour = colour
        self.margin = ""
        self.lines: list[str] = []

    @property
    def width(self) -> int:
        """What is left of a line beside the margin."""
        return max(self._width - len(self.margin), WIDTH_MIN)

    def line(self, text: str = "") -> None:
        """A line; the caller has wrapped it."""
        self.lines.append((self.margin + text).rstrip())

    def paint(self, colour: str | None, text: str) -> str:
        """In that colour, where there are colours."""
        if not self.colour or colour is None or not text:
            return text
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"

    def words(self, first: list[Word], more: list[Word], indent: str = "") -> None:
        """Words two spaces apart; `more` in a line of its own where the terminal is too narrow.

        What is still too wide goes on in the next line, two columns further in, and a word that is
        wider than a line is cut.
        """
        whole = "  ".join(text for _, text in (*first, *more) if text)
        if columns(indent + whole) <= self.width:
            self._filled([*first, *more], indent)
        else:
            self._filled(first, indent)
            self._filled(more, indent + "  ")

    def _filled(self, words: list[Word], indent: str) -> None:
        line, left, further = indent, self.width - columns(indent), indent + "  "
        for colour, text in words:
            if not text:
                continue
            if line != indent and columns(text) + 2 > left:
                self.line(line)
                line = indent = further
                left = self.width - columns(indent)
            gap = "" if line == indent else "  "
            shown = cut(text, max(left - len(gap), 1))
            line += gap + self.paint(colour, shown)
            left -= len(gap) + columns(shown)
        if line != indent:
            self.line(line)

    def block(self, text: str, indent: str, most: int, colour: str | None = None) -> None:
        """Text of a stranger, wrapped; what is longer than `most` lines is cut and says so."""
        if not text:
            return
        lines = [
            piece
            for line in escaped(text).expandtabs(4).split("\n")
            for piece in _wrapped(line, self.width - len(indent))
        ]
        for line in lines[:most]:
            self.line(indent + self.paint(colour, line))
        if len(lines) > most:
            self.line(indent + self.paint("dim", f"... {len(lines) - most} more lines"))


def columns(text: str) -> int:
    """Of a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )


def cut(text: str, width: int) -> str:
    """At most so many columns, with a sign that there was more."""
    if columns(text) <= width:
        return text
    return next(_wrapped(text, max(width - 4, 1))) + " ..."


def cell(value: object) -> str:
    """A value of a stranger in one line; nothing for None."""
    if value is None:
        return ""
    return escaped_line(value if isinstance(value, str) else plain(value))


def plain(value: object) -> str:
    """As JSON, with the characters it holds; whoever prints it escapes those that could act."""
    return json.dumps(value, ensure_ascii=False)


def maps(value: object) -> list[Mapping[str, Any]]:
    """The objects of a list, whatever else it may be."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _wrapped(line: str, width: int) -> Iterator[str]:
    """Cut at spaces where there are any, by columns of a terminal."""
    start = 0
    while (fit := _fitting(line, start, width)) < len(line):
        space = line.rfind(" ", start, fit + 1)
        end = space if space - start > (fit - start) // 2 else max(fit, start + 1)
        yield line[start:end].rstrip()
        start = end
        while line.startswith(" ", start):
            start += 1
    yield line[start:]


def _fitting(line: str, start: int, width: int) -> int:
    """Where what fits into so many columns ends. Looks no further: a line may be a megabyte."""
    if line.isascii():
        return min(start + width, len(line))
    wide = 0
    for at in range(start, len(line)):
        wide += columns(line[at])
        if wide > width:
            return at
    return len(line)
