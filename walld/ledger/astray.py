"""Which lines of a session's file stand where they belong.

Owns: telling a line that stands too early, or that was there before, from one that is given out.
Refuses: finding whole lines, and what is missing between two (`scan.py`).

A line that leaps, and was made for another line than the one before it, mostly stands behind a
hole: what was between is lost. Or it is a copy of a later line, one of another session, or part of
a block that the disk put in a wrong place, and what it leaps over stands behind it, whole. Lines
are given out in order, so to believe such a line hides all of that: what hides fewer is believed.

So it is with one that leaps over nothing, and was made for another line than the one before it,
where the line that follows that one stands behind it: of the two only one can be given.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING, Final

from walld.ledger.line import chain_of, chain_text, line_chain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from walld.ledger.scan import Found

__all__ = ["in_order"]

_AHEAD_BYTES: Final = 256 * 1024
"""Behind one that does not follow, to be looked at: more than a block in a wrong place has."""
_LOOKS_MAX: Final = 100
"""At lines that hide others which stand behind them: a file of nothing else ends, too."""


def in_order(
    lines: Iterator[Found], last: int, previous: bytes
) -> Iterator[tuple[Found, bytes, bool]]:
    """All lines behind the one of seq `last`. previous: the chain of a line that follows that.

    Each with the chain of one that would follow what was given before it, and whether it is given.
    """
    ahead = _Ahead(lines)
    for found in ahead:
        is_given = found.seq > last and (
            line_chain(found.line) == previous or not ahead.is_astray(found, last, previous)
        )
        yield found, previous, is_given
        if is_given:
            last, previous = found.seq, chain_text(chain_of(found.line))


class _Ahead:
    """Lines in the order of the file, some of them looked at before they are given."""

    def __init__(self, lines: Iterator[Found]) -> None:
        self._lines = lines
        self._held: deque[Found] = deque()
        self._least: deque[int] = deque()
        """Of what is held: the lowest seq, the lowest behind that, and so on."""
        self._looks = 0

    def __iter__(self) -> Iterator[Found]:
        for found in self._lines:
            yield found
            while self._held:  # that line does not follow
                held = self._held.popleft()
                if self._least[0] == held.seq:
                    self._least.popleft()
                yield held

    def _hold(self) -> bool:
        """One more. False where there is none."""
        found = next(self._lines, None)
        if found is not None:
            self._held.append(found)
            while self._least and self._least[-1] > found.seq:
                self._least.pop()
            self._least.append(found.seq)
        return found is not None

    def is_astray(self, doubted: Found, last: int, previous: bytes) -> bool:
        """With the line that was given just now fewer can be given than without it.

        Where it is as many, one that follows what came before it is believed (what is doubted does
        not), or one that others follow where none does so behind what is doubted.
        """
        while not self._held or self._held[-1].end < doubted.end + _AHEAD_BYTES:
            if not self._hold():
                break
        if not self._least or self._least[0] > doubted.seq:
            return False

        def follows(one: Found) -> bool:
            return one.seq == last + 1 and line_chain(one.line) == previous

        if follows(self._held[0]):
            return True  # no more than this one is out of place
        until = max(doubted.seq, last + 1)
        hidden = [one for one in self._held if last < one.seq <= until]
        if not hidden or self._looks == _LOOKS_MAX:
            return False
        self._looks += 1
        with_it = 1 + _longest(one.seq for one in self._held if one.seq > doubted.seq)
        without = _longest(one.seq for one in self._held if one.seq > last)
        if without != with_it:
            return without > with_it
        if any(map(follows, hidden)):
            return True
        made_for = {line_chain(one.line) for one in self._held}

        def leads(one: Found) -> bool:
            return chain_text(chain_of(one.line)) in made_for

        return not leads(doubted) and any(map(leads, hidden))


def _longest(seqs: Iterable[int]) -> int:
    """How many of them can be given in order (patience sorting)."""
    ends: list[int] = []
    for seq in seqs:
        at = bisect_left(ends, seq)
        ends[at : at + 1] = [seq]
    return len(ends)
