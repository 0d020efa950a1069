"""Keeps the fold of a reply that is not released, for who asks for it again and again.

Owns: whether a fold may go on with what is there now. Refuses: where that is read and how long it
is kept (`daemon/storage/kept_folds.py`).

Invariant: a kept fold tells what a fold of all there is tells, both with text or both without. What
has a place in the log keeps it, or the fold is not asked; what has none yet comes again, at its
place, and if it does not (a full disk dropped it), or anything else comes that the fold is already
behind of, it says so and is of no use any more.
"""

from __future__ import annotations

from collections.abc import Iterable

from walld.errors import FormatError
from walld.replies.fold import ReplyFold
from walld.replies.merge import seqs_of
from walld.wal.records import Begin, Item

__all__ = ["KeptFold"]


class KeptFold:
    """Of one reply. gap_word: what its gaps are put down to. with_text: as of `ReplyFold`."""

    __slots__ = ("_unplaced", "fold")

    def __init__(self, begin: Begin, gap_word: str, *, with_text: bool = False) -> None:
        self.fold = ReplyFold(begin, lambda _first, _last: gap_word, with_text=with_text)
        self._unplaced: list[tuple[int, int]] = []
        """Seqs of what had no place in the log when it was read."""

    def go_on(self, placed: list[Item], unplaced: list[Item]) -> bool:
        """Take what got a place since, and what has none yet. False: begin anew."""
        if _seqs((*placed, *unplaced), self.fold.last_seq) != self._unplaced:
            return False
        try:
            self.fold.take_all((*placed, *unplaced))
        except FormatError:
            return False
        self._unplaced = _seqs(unplaced, self.fold.last_seq)
        return True


def _seqs(items: Iterable[Item], until: int) -> list[tuple[int, int]]:
    """The seqs of items up to there, neighbours joined. Begin, and seq 0, count for nothing."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(map(seqs_of, items)):
        first, last = max(first, 1), min(last, until)
        if first > last:
            continue
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return found
