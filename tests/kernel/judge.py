"""Whether what a directory tells is what was said and acknowledged. It knows nothing of storage.

Owns: every stream of one data directory, from its first start to the end of the directory, through
all crashes: what must be there, what may be, what may not. Refuses: reading it (`loop.py`).

- synced and acknowledged: there after anything (P4); written and acknowledged: there after the
  death of processes (P2); taken by the kernel of a daemon that lives: there (P1).
- Text is byte-equal and in seq order; what is missing is a gap; no gap is `corrupt` (P9), none
  lies below what was acknowledged; nothing was made up (P11).
- Released and acknowledged: does not come back (P5). Not released: does not go (P6).
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

import walld_client

from . import words
from .board import Board

__all__ = ["Counts", "Judge", "Story", "WrongError"]


class WrongError(AssertionError):
    """A promise was broken."""


@dataclass(slots=True)
class Counts:
    """What was checked, for the last line of a loop."""

    replies: int = 0
    events: int = 0
    acknowledged: int = 0
    """Events that were acknowledged at the level the crash must keep, and were there."""
    released: int = 0
    """Replies whose release was acknowledged, and that did not come back."""
    gaps: int = 0
    unacknowledged_lost: int = 0


@dataclass(slots=True)
class Story:
    """One stream. floor: the seq up to which all must be there. ceiling: the last that was said."""

    floor: int = -1
    ceiling: int = -1
    tokens: int = 0
    may_be_gone: bool = False
    is_gone: bool = False
    taken: int = -1
    """As floor, for one check only: the kernel has it, a daemon that lives reads it."""
    is_taken_away: bool = False
    """As is_gone, for one check only."""


@dataclass(slots=True)
class Judge:
    """All streams of one directory."""

    counts: Counts
    stories: dict[str, Story] = field(default_factory=dict)

    def promised(self, board: Board, name: str, level: str) -> None:
        """What an agent was told until now must hold. level: "synced", "written", "sent".

        "sent" holds for one check: its daemon lives, and may die before it has written that.
        """
        for at in range(board.streams):
            row = board.row(at)
            story = self.stories.setdefault(f"{name}.{at}", Story())
            told = row.synced if level == "synced" else row.written
            story.may_be_gone |= row.released > 0
            story.is_gone |= 0 < row.released <= told
            below = row.released - 1 if row.released else row.tried
            story.floor = max(story.floor, min(told, below))
            if level == "sent":
                story.taken = min(row.sent, below)
                story.is_taken_away = 0 < row.released <= row.sent

    def said(self, board: Board, name: str) -> None:
        """What an agent has said until now may be there."""
        for at in range(board.streams):
            row = board.row(at)
            story = self.stories.setdefault(f"{name}.{at}", Story())
            story.ceiling, story.tokens = row.tried, row.tokens
            story.may_be_gone |= row.released > 0

    def resolved(self, stream_id: str) -> None:
        """It was removed, and the daemon has said so."""
        self.stories[stream_id].is_gone = self.stories[stream_id].may_be_gone = True

    def expects_any(self) -> bool:
        """Something must be there."""
        return any(story.floor >= 0 and not story.may_be_gone for story in self.stories.values())

    def check(
        self, replies: Iterable[walld_client.PartialReply], *, resting: Container[str] | None = None
    ) -> None:
        """Compare. resting: agents of whose streams nothing is changed any more; None is all.

        What is there of those stays, and what is gone stays gone.
        """
        found: dict[str, walld_client.PartialReply] = {}
        for reply in replies:
            if reply.stream_id in found:
                raise WrongError(f"{reply.stream_id} is there twice")
            if reply.stream_id not in self.stories:
                raise WrongError(f"{reply.stream_id} was never begun")
            found[reply.stream_id] = reply
        for stream_id, story in self.stories.items():
            reply_or_none = found.get(stream_id)
            if reply_or_none is None:
                self._absent(stream_id, story)
            else:
                self._present(stream_id, story, reply_or_none)
            if resting is None or stream_id.rpartition(".")[0] in resting:
                _settle(story, reply_or_none)
            story.taken, story.is_taken_away = -1, False

    def _absent(self, stream_id: str, story: Story) -> None:
        floor = max(story.floor, story.taken)
        if floor >= 0 and not story.may_be_gone:
            raise WrongError(f"{stream_id} is gone, and was acknowledged up to {floor}")
        self.counts.released += story.is_gone
        if not story.may_be_gone:
            self.counts.unacknowledged_lost += story.ceiling + 1

    def _present(self, stream_id: str, story: Story, reply: walld_client.PartialReply) -> None:
        counts = self.counts
        floor = max(story.floor, story.taken)
        if story.is_gone or story.is_taken_away:
            raise WrongError(f"{stream_id} was released, acknowledged, and is back")
        if reply.last_seq > story.ceiling:
            raise WrongError(f"{stream_id} has seq {reply.last_seq}, {story.ceiling} was the last")
        if reply.last_seq < floor:
            raise WrongError(f"{stream_id} ends at {reply.last_seq}, {floor} acknowledged")
        missing: set[int] = set()
        for gap in reply.gaps:
            if gap.verdict == "corrupt":
                raise WrongError(f"{stream_id} has a corrupt gap: {gap}")
            if gap.first_seq <= floor:
                raise WrongError(f"{stream_id} has a gap {gap}, {floor} acknowledged")
            missing.update(range(gap.first_seq, gap.last_seq + 1))
        covered = _covered(stream_id, story, reply)
        wanted = range(1, min(story.tokens, reply.last_seq) + 1)
        for seq in wanted:
            if (seq in covered) == (seq in missing):
                raise WrongError(f"{stream_id} seq {seq}: neither there nor a gap, or both")
        counts.replies += 1
        counts.events += len(covered)
        counts.acknowledged += max(0, min(floor, story.tokens))
        counts.gaps += len(reply.gaps)
        counts.unacknowledged_lost += story.ceiling - reply.last_seq + len(missing)


def _covered(stream_id: str, story: Story, reply: walld_client.PartialReply) -> set[int]:
    """Seqs whose text is there, each once, in order, as it was said."""
    covered: set[int] = set()
    last_seq = 0
    for piece in reply.segments:
        if piece.kind == "gap":
            continue
        if piece.kind != "text" or piece.first_seq <= last_seq:
            raise WrongError(f"{stream_id} has {piece.kind} at {piece.first_seq} after {last_seq}")
        last_seq = piece.last_seq
        if last_seq > story.tokens:
            raise WrongError(f"{stream_id} has text at {last_seq}, it ended at {story.tokens}")
        if piece.text != words.said(stream_id, piece.first_seq, last_seq):
            raise WrongError(f"{stream_id} {piece.first_seq}..{last_seq}: not what was said")
        covered.update(range(piece.first_seq, last_seq + 1))
    return covered


def _settle(story: Story, reply: walld_client.PartialReply | None) -> None:
    """Its agent is dead and nobody writes: what is there stays, what is gone stays gone."""
    if reply is None:
        story.is_gone = story.may_be_gone = True
        story.floor = -1
        return
    first_gap = min((gap.first_seq for gap in reply.gaps), default=reply.last_seq + 1)
    story.floor = max(story.floor, first_gap - 1)
    story.ceiling = reply.last_seq
    story.tokens = min(story.tokens, reply.last_seq)
    story.may_be_gone = False
