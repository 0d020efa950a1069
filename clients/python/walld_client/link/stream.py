"""One stream of this process, as its link knows it.

Owns: the stream's number, names and positions. Refuses: sending, and the rules of a reply
(`reply.py`). Everything here is read and written under the lock of the stream's link.

It outlives the Reply object: a reply that ended may be released by id from another thread much
later, and what it sent may have to be sent again.
"""

from __future__ import annotations

from collections.abc import Callable

from walld_client.encoding import event_frames
from walld_client.limits import CHORES_EVERY_TOKENS
from walld_client.wire.messages import AppError, Start

__all__ = ["Stream"]


class Stream:
    """One stream.

    next_seq: of its next event. synced: up to here the daemon has nothing more to say, -1 if none;
    gaps are covered. first_lost: lowest seq that is not known to be safe and never will be.
    held_from: lowest seq the ring still holds, next_seq if none. unsendable_from, unsendable_to:
    the latest run of seqs that no daemon gets any more. taken: highest seq the kernel has, valid
    only while `stall_no` is the backlog's own; otherwise all of it is taken.
    lingers: it is open only for a response that may be taken up again; a release ends it.
    introduced: its Start was given to a connection. terminal: it ended, in whatever way.
    failure: said where it would end clean or be abandoned: what it holds is known to be cut.
    is_whole: asked where it would end clean without a word; False makes it a cancelled one.
    gone: nothing of it is sent any more (given up, refused, of the parent process, or released
    before any daemon heard of it). long_way_only: a token must not take the short way (redact,
    terminal, gone). chores_seq: the token that does the link's chores once it is sent. call: id,
    and that id packed, of the call whose arguments came last.
    """

    __slots__ = (
        "arguments_prefix",
        "call",
        "chores_seq",
        "deleted",
        "failure",
        "first_lost",
        "gone",
        "held_from",
        "inherited",
        "introduced",
        "is_whole",
        "lingers",
        "long_way_only",
        "next_seq",
        "number",
        "owned",
        "reasoning_prefix",
        "refusal",
        "refused",
        "released",
        "session_id",
        "stall_no",
        "start",
        "synced",
        "taken",
        "terminal",
        "token_prefix",
        "unsendable_from",
        "unsendable_to",
    )

    def __init__(self, number: int, start: Start, long_way_only: bool) -> None:
        self.number = number
        self.failure: AppError | None = None
        self.is_whole: Callable[[], bool] | None = None
        self.lingers = False
        self.start = start
        self.session_id = start.session_id
        self.token_prefix = event_frames.text_prefix(event_frames.TOKEN, number)
        self.reasoning_prefix = event_frames.text_prefix(event_frames.REASONING, number)
        self.arguments_prefix = event_frames.text_prefix(event_frames.ARGUMENTS, number, 1)
        self.call: tuple[str | None, bytes] = None, b""
        self.long_way_only = long_way_only
        # Spread, so that a hundred streams in step do not do their chores all at once.
        self.chores_seq = 64 + number * 389 % CHORES_EVERY_TOKENS
        self.next_seq = 0
        self.synced = -1
        self.deleted = -1
        """Up to here its session was deleted from here: no daemon is to have that."""
        self.first_lost = 2**32
        self.held_from = 0
        self.unsendable_from = self.unsendable_to = -1
        self.taken = -1
        self.stall_no = -1
        self.introduced = False
        self.terminal = False
        self.released = False
        self.gone = False
        self.inherited = False
        """It belongs to the process this one was forked from."""
        self.owned = True
        """A Reply object still stands for it."""
        self.refused: set[int] = set()
        """Seqs the daemon refused: intact but illegal, so never sent again."""
        self.refusal: tuple[str, str, str] | None = None
        """Code, got and limit of the first event that was refused, for want of room too."""

    @property
    def moved_to(self) -> str | None:
        """Where its moves have brought it; None where it never moved."""
        return None if self.session_id == self.start.session_id else self.session_id

    @property
    def stream_id(self) -> str:
        """The application's name of it."""
        return self.start.stream_id

    @property
    def durable(self) -> int:
        """Highest seq up to which every event is known safe on disk, -1 if none."""
        return min(self.synced, self.first_lost - 1)

    @property
    def due(self) -> int:
        """Highest seq that a daemon has or will be given, now or by the next connection."""
        seq = self.next_seq - 1
        if self.unsendable_to == seq:
            seq = self.unsendable_from - 1
        while seq in self.refused:
            seq -= 1
        return max(seq, 0)  # its Start goes before all else, if only in a Resume

    @property
    def is_unheard(self) -> bool:
        """No daemon has said a word to its Start."""
        return self.synced < 0 and not self.gone

    @property
    def attested(self) -> int:
        """Up to here a daemon is to have it, -1 if none: it was told that this is synced."""
        return self.synced if self.synced > self.deleted else -1

    def mark_unsendable(self, first_seq: int, last_seq: int) -> None:
        """These were dropped before any daemon is known to have them: none gets them any more."""
        self.lose(first_seq, last_seq)
        if first_seq > self.unsendable_to + 1:
            self.unsendable_from = first_seq
        self.unsendable_to = max(self.unsendable_to, last_seq)

    def rewind(self) -> None:
        """The connection is gone. What a full ring dropped is held by nobody: only what is synced
        is known to be there.
        """
        self.lose(0, self.held_from - 1)
        self.taken = min(self.held_from - 1, self.synced)
        if self.held_from >= self.next_seq > self.synced + 1:
            self.mark_unsendable(self.synced + 1, self.next_seq - 1)

    def lose(self, first_seq: int, last_seq: int) -> None:
        """These were dropped, refused, or given up; what is known synced of them is safe."""
        first_seq = max(first_seq, self.synced + 1)
        if first_seq <= last_seq:
            self.first_lost = min(self.first_lost, first_seq)

    def stop_sending(self) -> None:
        """From here on nothing of it is sent or held."""
        self.gone = True
        self.long_way_only = True

    def is_settled(self) -> bool:
        """Released and all of it acknowledged: nothing is left to do for it."""
        if not self.released:
            return False
        seq = self.synced
        while seq + 1 in self.refused:  # no ack is due for what was refused
            seq += 1
        return seq >= self.next_seq - 1
