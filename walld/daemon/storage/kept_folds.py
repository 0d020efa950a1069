"""Holds the folds of unreleased replies that were asked for, to go on with at the next ask.

Owns: which fold is of what the log has of a stream now, and how much of them is kept. Refuses:
reading (`reply_reader.py`), what a fold is (`replies/kept_fold.py`).

Invariant: a fold is of the very records that a stream has, in their places, and of none that was
damaged; where some of them moved, or are gone, it is made anew. All of them hold
KEPT_FOLDS_BYTES_MAX bytes at most, and those of replies that went are let go at the next ask.

A stream has one with text and one without: whose text takes more than is kept at all is still gone
on with for who asks for its calls alone.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from walld import limits
from walld.replies.kept_fold import KeptFold

if TYPE_CHECKING:
    from walld.engine.stream import Stream

__all__ = ["Kept", "KeptFolds"]


class Kept:
    """The fold of a stream. where: of the records it has. made: what was made of its steps."""

    __slots__ = ("fold", "gap_word", "made", "stream", "where")

    def __init__(self, stream: Stream, gap_word: str, *, with_text: bool = False) -> None:
        self.stream = stream
        self.gap_word = gap_word
        self.where = array("Q")
        self.fold = KeptFold(stream.begin, gap_word, with_text=with_text)
        self.made: dict[int, Any] = {}

    @property
    def key(self) -> tuple[int, bool]:
        """The number of its stream, and whether it has text."""
        return self.stream.no, self.fold.fold.with_text

    @property
    def held_bytes(self) -> int:
        """About what it takes of memory."""
        return self.fold.fold.held_bytes + 8 * len(self.where)


class KeptFolds:
    """Of one daemon. On the loop alone."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, bool], tuple[Kept, int]] = {}
        """By key, with its size; the one that was asked last stands last. One that is in
        use is not there."""
        self._held_bytes = 0

    def take(self, stream: Stream, gap_word: str, *, with_text: bool = False) -> Kept:
        """The fold that may go on with what the stream has behind its records; else a new one. Give
        it back by `keep`.
        """
        kept = self._drop((stream.no, with_text))
        is_of_it = (
            kept is not None
            and kept.stream is stream
            and kept.gap_word == gap_word
            and stream.where[: len(kept.where)] == kept.where
        )
        if kept is not None and is_of_it:
            return kept
        return Kept(stream, gap_word, with_text=with_text)

    def keep(self, kept: Kept) -> None:
        """For the next ask."""
        for key in [key for key, (one, _) in self._kept.items() if one.stream.gone]:
            self._drop(key)
        self._drop(kept.key)  # of two who asked at once
        size = kept.held_bytes
        if kept.stream.gone or kept.stream.damaged or size > limits.KEPT_FOLDS_BYTES_MAX:
            return
        self._kept[kept.key] = kept, size
        self._held_bytes += size
        while self._held_bytes > limits.KEPT_FOLDS_BYTES_MAX:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: tuple[int, bool]) -> Kept | None:
        kept, size = self._kept.pop(key, (None, 0))
        self._held_bytes -= size
        return kept
