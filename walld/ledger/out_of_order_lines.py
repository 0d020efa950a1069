"""Finds lines of a session's file that are out of order.

Owns: telling a line that stands too early, or that was there before, from one that is given out.
Refuses: finding whole lines (`line_scan.py`), and what is missing between two (`scan.py`).

A line that leaps, and was made for another line than the one before it, mostly stands behind a
hole: what was between is lost. Or it is a copy of a later line, one of another session, or part of
a block that the disk put in a wrong place, and what it leaps over stands behind it, whole. Lines
are given out in order, so to believe such a line hides all of that: what hides fewer is believed.

So it is with one that leaps over nothing, and was made for another line than the one before it,
where the line that follows that one stands behind it: of the two only one can be given.

A block has several lines, and those of another session follow one another as those of this one do.
To believe the first is to give all that follow it, so they are counted together.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from walld.ledger.line import chain_of, chain_text, line_chain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from walld.ledger.line_scan import FoundLine
    from walld.ledger.pending import Pending

__all__ = ["AHEAD_BYTES", "in_order"]

AHEAD_BYTES: Final = 256 * 1024
"""Behind one that does not follow, to be looked at: more than a block in a wrong place has."""
_LOOKS_MAX: Final = 100
"""At lines that hide others which stand behind them: a file of nothing else ends, too."""
_KNOWN_WEIGHT: Final = 1 << 40
"""Of a line that is the session's: no file has as many others."""


def in_order(
    lines: Iterator[FoundLine], last: int, previous: bytes, pending: Pending | None = None
) -> Iterator[tuple[FoundLine, bytes, bool]]:
    """All lines behind the one of seq `last`. previous: the chain of a line that follows that.

    Each with the chain of one that would follow what was given before it, and whether it is given.
    pending: the first that is given from elsewhere: those of the file from its seq on hide none,
    and the one that it was made for is the session's.
    """
    until = sys.maxsize if pending is None else pending.seq
    ahead = _Ahead(lines, until, b"" if pending is None else line_chain(pending.line))
    for found in ahead:
        is_given = last < found.seq < until and (
            line_chain(found.line) == previous or not ahead.is_astray(found, last, previous)
        )
        yield found, previous, is_given
        if is_given:
            last, previous = found.seq, chain_text(chain_of(found.line))


class _Run(NamedTuple):
    """Lines that stand behind one another and follow so: all of them are the session's, or none.

    lines: how many of them can still be given, of which first is the first.
    """

    first: int
    last: int
    lines: int


class _Ahead:
    """Lines in the order of the file, some of them looked at before they are given."""

    def __init__(self, lines: Iterator[FoundLine], until: int, known: bytes) -> None:
        """known: the chain of one that follows a line which is the session's; b"": of none."""
        self._lines = lines
        self._until = until
        self._known = known
        self._held: deque[FoundLine] = deque()
        self._falls = 0
        """Of two neighbours in what is held, how often the second has no higher seq."""
        self._looks = 0

    def __iter__(self) -> Iterator[FoundLine]:
        for found in self._lines:
            yield found
            while self._held:  # that line does not follow
                held = self._held.popleft()
                if self._held and self._held[0].seq <= held.seq:
                    self._falls -= 1
                yield held

    def _hold(self) -> bool:
        """One more. False where there is none."""
        found = next(self._lines, None)
        if found is not None:
            if self._held and found.seq <= self._held[-1].seq:
                self._falls += 1
            self._held.append(found)
        return found is not None

    def is_astray(self, doubted: FoundLine, last: int, previous: bytes) -> bool:
        """With the line that was given just now, and those that follow it, fewer can be given than
        without them.

        Where it is as many, one that follows what came before it is believed; what is doubted does
        not.
        """
        while not self._held or self._held[-1].end < doubted.end + AHEAD_BYTES:
            if not self._hold():
                break
        if not self._held or (not self._falls and doubted.seq < self._held[0].seq):
            return False  # it hides none

        def follows(one: FoundLine) -> bool:
            return one.seq == last + 1 and line_chain(one.line) == previous

        if follows(self._held[0]):
            return True  # no more than this one is out of place
        if self._looks == _LOOKS_MAX:
            return False
        self._looks += 1
        lines = (one for one in (doubted, *self._held) if one.seq < self._until)
        first, *runs = _runs(lines, last, self._known)
        with_it = first.lines + _most(run for run in runs if run.first > first.last)
        without = _most(runs)
        return without > with_it or (without == with_it and any(map(follows, self._held)))


def _runs(lines: Iterable[FoundLine], given: int, known: bytes) -> list[_Run]:
    """given: the seq of the line that was given last. known: see above."""
    runs: list[_Run] = []
    chain = b""
    for line in lines:
        run = _Run(line.seq, line.seq, 0)
        if runs and line_chain(line.line) == chain and line.seq > runs[-1].last:
            run = runs.pop()
        chain = chain_text(chain_of(line.line))
        # Counted one by one: behind a leap a line follows, and its seq does not.
        count = run.lines + (line.seq > given) + (_KNOWN_WEIGHT if chain == known else 0)
        runs.append(_Run(run.first if run.lines else line.seq, line.seq, count))
    return runs


def _most(runs: Iterable[_Run]) -> int:
    """How many lines can be given in order, of each run all or none (patience sorting)."""
    lasts, counts = [0], [0]
    """The most that end with a seq, where a lower one does not have as many."""
    for first, last, count in runs:
        most = count + counts[bisect_left(lasts, first) - 1]
        at = until = bisect_left(lasts, last)
        if most > counts[at - 1]:
            while until < len(lasts) and counts[until] <= most:
                until += 1
            lasts[at:until], counts[at:until] = [last], [most]
    return counts[-1]
