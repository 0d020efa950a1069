"""Bounds what all processes of one user may give between two flushes while another user waits.

Owns: who of which user waited last, what each user has given since the last flush began, and how
much that may be. Refuses: clocks (`now` is an argument), the parts of processes within it
(`process_shares.py`), reading (`socket_reader.py`).

Whoever waits for a flush waits for all that is in it. Parts by process, and a little for each
process and each of its streams, are as much as somebody starts processes and streams: beside 20
processes of short replies another user's agents waited 12 times as long as alone (p99), beside
10,000 live streams 8 times. So while one user waits all processes of another give one share
together, and all that they say counts, little things too. Within it they take turns.

A share is work of less time than the flush itself takes: USER_BYTES, or what goes in a fraction of
the time of the disk's last writes (USER_BYTES_PER_SECOND): where each write takes 20 ms there are
fewer flushes, and as much may be given in a second. It is the disk's time, not the flush's, or each
share would make the next one larger.

Invariant I4: while a user waits for a flush all processes of another one give a share of a flush
together, and one turn more.
"""

from __future__ import annotations

from walld import limits

__all__ = ["UserShares"]


class UserShares:
    """What users may give now."""

    def __init__(self) -> None:
        self._asked: tuple[int, float] = (-1, -limits.ASKED_SECONDS)
        """Who waited for a flush last, and when; and the last who was somebody else."""
        self._asked_before = self._asked
        self._spent: dict[int, int] = {}
        """Since the last flush began, by uid."""
        self._share = limits.USER_BYTES
        self._write_seconds = 0.0

    def asked(self, uid: int, now: float) -> None:
        """Somebody of that user waits for a flush."""
        if uid != self._asked[0]:
            self._asked_before = self._asked
        self._asked = uid, now

    def others_wait(self, uid: int, now: float) -> bool:
        """Somebody of another user waits, or did a moment ago."""
        asked = self._asked_before if self._asked[0] == uid else self._asked
        return now - asked[1] < limits.ASKED_SECONDS

    def left(self, uid: int) -> int:
        """How much the user may give beside another who waits; 0 or less: nothing."""
        return self._share - self._spent.get(uid, 0)

    def gave(self, uid: int, work: int) -> None:
        """A process of the user gave so much."""
        self._spent[uid] = self._spent.get(uid, 0) + work

    def renew(self, write_seconds: float) -> None:
        """A flush has begun. write_seconds: what the disk's write of the last one took.

        The shorter of two counts: a write that took long once is no slow disk.
        """
        much = sum(spent > limits.LITTLE_BYTES for spent in self._spent.values())
        steady, self._write_seconds = min(self._write_seconds, write_seconds), write_seconds
        together = max(limits.USER_BYTES, int(steady * limits.USER_BYTES_PER_SECOND))
        self._share = min(together, limits.PARTS_BYTES) // max(1, much)
        self._spent = {}
