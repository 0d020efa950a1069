"""Bounds what all processes of one user may give between two flushes while another user waits.

Owns: which users wait, what each has given since the last flush began, and how much that may be.
Refuses: clocks (`now` is an argument), the parts of processes within it (`process_shares.py`),
reading (`socket_reader.py`).

Whoever waits for a flush waits for all that is in it. Parts by process, and a little for each
process and each of its streams, are as much as somebody starts processes and streams: beside 20
processes of short replies another user's agents waited 12 times as long as alone (p99), beside
10,000 live streams 8 times. So while one user waits all processes of another give one share
together, and all that they say counts, little things too. Within it they take turns. Where several
other users give much, each has an even part of a share.

A share is work of less time than the flush itself takes: USER_BYTES, or what goes in a fraction of
the time of the disk's last writes (USER_BYTES_PER_SECOND): where each write takes 20 ms there are
fewer flushes, and as much may be given in a second. It is the disk's time, not the flush's, or each
share would make the next one larger.

Invariant I4: while a user waits for a flush all processes of another one give a share of a flush
together, and one turn more.
"""

from __future__ import annotations

from walld import limits
from walld.daemon.transport.recent_askers import RecentAskers

__all__ = ["UserShares"]


class UserShares:
    """What users may give now."""

    def __init__(self) -> None:
        self.waiting = RecentAskers[int]()
        """Of whom somebody waits for a flush, or did a moment ago; by uid."""
        self._spent: dict[int, int] = {}
        """Since the last flush began, by uid."""
        self._share = limits.USER_BYTES
        self._write_seconds = self._write_seconds_before = 0.0

    def left(self, uid: int) -> int:
        """How much the user may give beside another who waits; 0 or less: nothing."""
        return self._share - self._spent.get(uid, 0)

    def gave(self, uid: int, work: int) -> None:
        """A process of the user gave so much."""
        self._spent[uid] = self._spent.get(uid, 0) + work

    def wrote(self, seconds: float) -> None:
        """What the disk's last write took, without all that came before it."""
        self._write_seconds_before, self._write_seconds = self._write_seconds, seconds

    def renew(self) -> None:
        """A flush has begun: everybody has a new share. The shorter of the last two writes counts,
        since one slow write is no slow disk.
        """
        much = sum(spent > limits.LITTLE_BYTES for spent in self._spent.values())
        steady = min(self._write_seconds, self._write_seconds_before)
        together = max(limits.USER_BYTES, int(steady * limits.USER_BYTES_PER_SECOND))
        self._share = min(together, limits.PARTS_BYTES) // max(1, much)
        self._spent = {}
