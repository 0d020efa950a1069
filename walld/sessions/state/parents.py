"""The parent of each entry, by seq.

Owns: the parents, and whether one entry stands above another. Refuses: ids, which of them may be
named (`session_state.py`, `references.py`).

Most entries hang on the one before: the seqs of the others are listed, and a way up goes from one
of those to the next. Step by step an edit of an old message cost as much as the session is long.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING

from walld.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Parents"]


class Parents:
    """See the top. A parent is earlier; 0 for none."""

    __slots__ = ("_by_seq", "_odd")

    def __init__(self) -> None:
        self._by_seq = array("I", [0])
        self._odd = array("I")
        """Seqs whose parent is not the one before, in order."""

    def __len__(self) -> int:
        return len(self._by_seq)

    def __getitem__(self, seq: int) -> int:
        return self._by_seq[seq]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Parents) and self._by_seq == other._by_seq

    __hash__ = None  # type: ignore[assignment]

    def add(self, parents: Sequence[int]) -> None:
        """Of the next seqs. Where it raises nothing has changed."""
        first = len(self._by_seq)
        odd = [seq for seq, parent in enumerate(parents, first) if parent != seq - 1]
        self._by_seq.extend(array("I", parents))
        self._odd.extend(odd)

    def add_one(self, parent: int) -> None:
        """The same of the next seq."""
        seq = len(self._by_seq)
        self._by_seq.append(parent)
        if parent != seq - 1:
            self._odd.append(seq)

    def go_on(self, last_seq: int, odd: Sequence[int]) -> None:
        """Up to a seq, each on the one before but for `odd`: seq, parent seq, seq, parent seq ...

        FormatError where that cannot be.
        """
        first = len(self._by_seq)
        seqs = odd[::2]
        self._by_seq.extend(range(first - 1, last_seq))
        try:
            for seq, parent in zip(seqs, odd[1::2], strict=True):
                self._by_seq[seq] = parent
            self._odd.extend(seqs)
        except (IndexError, ValueError, OverflowError) as error:
            raise FormatError(f"snapshot has parents of no entry: {error}") from None
        if any(one >= other for one, other in zip((first - 1, *seqs), seqs, strict=False)):
            raise FormatError("snapshot has parents of no entry: out of order")

    def cut(self, last_seq: int) -> None:
        """Forget those behind that seq."""
        del self._by_seq[last_seq + 1 :]
        del self._odd[bisect_right(self._odd, last_seq) :]

    def odd_behind(self, after: int) -> list[int]:
        """What `go_on` takes, of all behind that seq."""
        seqs = self._odd[bisect_right(self._odd, after) :]
        return [one for seq in seqs for one in (seq, self._by_seq[seq])]

    def is_above(self, seq: int, place: int) -> bool:
        """Whether the entry `seq` stands on the way from the entry `place` up, or is that one."""
        at = bisect_right(self._odd, place) - 1
        while place > seq:
            begin = self._odd[at] if at >= 0 else 0
            if seq >= begin:
                return True
            place = self._by_seq[begin]
            while at >= 0 and self._odd[at] > place:
                at -= 1
        return place == seq
