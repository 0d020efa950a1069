"""What of a trial's events is there, what is not, and what is there that nobody said.

Owns: comparing records with notes, adding trials up. Refuses: knowing any store or fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from . import events
from .notes import Notes
from .store import Found

__all__ = ["Counts", "judge"]


@dataclass
class Counts:
    """Of one trial, or of many.

    lost: acknowledged, and not there. unacked_lost: given to the store, not acknowledged, not
    there. glued: records that hold more than one event or parts of two. altered: records handed out
    as whole that are nothing anybody said. refused: trials in which the store did not start, or did
    not read; what is lost then is counted after its documented repair. silent: trials with anything
    lost or altered of which the store said nothing. revived: trials in which a server had ended by
    itself, or answered no more, and was started again. oldest_ms: how long before the fault the
    oldest of what was lost had been acknowledged.
    """

    trials: int = 0
    acked: int = 0
    lost: int = 0
    trials_with_loss: int = 0
    unacked_lost: int = 0
    altered: int = 0
    glued: int = 0
    doubled: int = 0
    reordered: int = 0
    said: int = 0
    silent: int = 0
    refused: int = 0
    revived: int = 0
    oldest_ms: int = 0

    def add(self, other: Counts) -> None:
        """Those of another trial."""
        for name, value in asdict(other).items():
            own = getattr(self, name)
            setattr(self, name, max(own, value) if name == "oldest_ms" else own + value)


def judge(notes: Mapping[str, Notes], found: Found, struck_at: float = 0.0) -> Counts:
    """One trial, its writers by their stream. struck_at: see `Trial.struck`; 0: never."""
    counts = Counts(trials=1)
    there: set[tuple[str, int]] = set()
    last = dict.fromkeys(notes, 0)
    for record in found.records:
        one = events.which(record)
        if one is None or one[0] not in notes:
            parts = events.count(record)
            counts.glued += parts > 1
            counts.altered += parts <= 1
            continue
        stream, seq = one
        if one in there:
            counts.doubled += 1
        elif seq < last[stream]:
            counts.reordered += 1
        there.add(one)
        last[stream] = max(last[stream], seq)
    counts.glued += sum(events.count(record) > 1 for record in found.broken)
    for stream, noted in notes.items():
        acked = noted.acked_by(struck_at) if struck_at else noted.acked
        missing = [seq for seq in range(1, noted.tried + 1) if (stream, seq) not in there]
        lost = sum(seq <= acked for seq in missing)
        if lost and struck_at:
            age = struck_at - noted.acked_at(missing[0])
            counts.oldest_ms = max(counts.oldest_ms, int(1000 * age))
        counts.acked += acked
        counts.lost += lost
        counts.unacked_lost += len(missing) - lost
    counts.trials_with_loss += counts.lost > 0
    is_harmed = bool(counts.lost or counts.altered or counts.glued)
    counts.said += is_harmed and bool(found.said)
    counts.silent += is_harmed and not found.said
    return counts
