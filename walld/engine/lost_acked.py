"""Counts events that clients were told are synced and the log does not have.

Owns: the sums, and who lost what, for the log. Refuses: finding it (`Resume` of a reply, a
receipt of a session).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walld import limits

if TYPE_CHECKING:
    from walld.engine.counters import Counters

__all__ = ["LostAcked"]


class LostAcked:
    """Of one engine."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._found_no = 0
        self._attested_no = 0
        self._lost: list[tuple[int, str, str, int, int]] = []

    def found(self, batch_no: int) -> None:
        """The highest batch that the start found, or found to have been there."""
        self._found_no = batch_no

    def attest(self, synced_no: int, reached_no: int = 0) -> None:
        """Somebody was told that batches up to `synced_no` are synced.

        reached_no: a batch up to there may be one of this daemon's own.
        """
        if synced_no > reached_no:
            self._attested_no = max(self._attested_no, synced_no)

    @property
    def missing(self) -> int:
        """Batches behind what the start found: somebody was told that they are synced."""
        return max(0, self._attested_no - self._found_no)

    def count(
        self, uid: int, name: str, first_seq: int, last_seq: int, kind: str = "stream"
    ) -> None:
        """A client was told that these are synced, and they are not here."""
        if last_seq >= first_seq:
            self._counters.lost_acked += last_seq - first_seq + 1
            if len(self._lost) < limits.LOG_LINES_PER_SECOND_MAX:
                self._lost.append((uid, kind, name, first_seq, last_seq))

    def told(self) -> list[tuple[int, str, str, int, int]]:
        """(uid, "stream" or "session", its id, first, last seq) of what was counted since, some."""
        told, self._lost = self._lost, []
        return told
