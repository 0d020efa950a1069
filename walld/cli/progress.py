"""A progress bar for long commands, on a terminal.

Owns: one line on stderr, drawn over itself and taken away at the end. Refuses: speaking where
stderr is no terminal, and where the work is small.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

__all__ = ["Progress"]

_WIDTH = 30
_WIDTH_MIN = 5
"""Of a bar that says more than the number behind it."""
_COLUMNS = 80
"""Of a terminal that does not say."""
_PERIOD_SECONDS = 0.1


class Progress:
    """A bar from 0 to `total`. Use as a context manager; `reached` is cheap enough for any loop."""

    def __init__(self, what: str, total: float, least: float = 0) -> None:
        """least: below this total nothing is drawn."""
        self._what = what
        self._total = total
        self._is_on = total > least and sys.stderr is not None and sys.stderr.isatty()
        self._drawn_at = 0.0
        self._length = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._length:
            sys.stderr.write(f"\r{' ' * min(self._length, _room())}\r")
            sys.stderr.flush()

    def reached(self, done: float, what: str | None = None) -> None:
        """So much of the total is done."""
        if not self._is_on:
            return
        now = time.monotonic()
        if what is None and now - self._drawn_at < _PERIOD_SECONDS:
            return
        self._drawn_at = now
        self._what = what or self._what
        room = _room()
        line = _line(self._what, min(done / self._total, 1.0), room)
        sys.stderr.write(f"\r{line:<{min(self._length, room)}}")
        sys.stderr.flush()
        self._length = len(line)


def _room() -> int:
    """Columns that a line may have now: a longer one wraps, and would not be drawn over."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return (columns or _COLUMNS) - 1


def _line(what: str, share: float, room: int) -> str:
    percent = f"{share:4.0%}"
    width = min(_WIDTH, room - len(f"{what} [] {percent}"))
    if width < _WIDTH_MIN:
        return f"{what[: max(0, room - len(percent) - 1)]} {percent}"[:room]
    bar = ("#" * round(share * width)).ljust(width, ".")
    return f"{what} [{bar}] {percent}"
