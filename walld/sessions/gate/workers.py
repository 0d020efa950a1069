"""Who is at work on a session: living processes, of turns and of replies that have not ended.

Owns: what the gate knows of them, and its reasons. Refuses: who lives (the daemon, by the kernel's
word), what may be done with a call that somebody is at (`call_rules.py`).

Who asks is at work on its own turn, and not kept from it by that. A child of it is another process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

__all__ = ["Worker", "work_reasons"]

_AT_WORK: Final = "process {} is at work on {} (since {} ms): wait for its end, or end it"
_UNSEEN: Final = (
    "the owner of {} cannot be seen from here (since {} ms): it may live, and is given time to come"
    " back; ask again"
)


class Worker(NamedTuple):
    """A process, and the turn or reply that it works on. pid: 0 where that cannot be seen.

    since_ms: when that was submitted, or began. is_seen: it lives; else it may come back still.
    """

    turn: str | None
    stream_id: str | None
    pid: int
    since_ms: int
    is_asker: bool
    is_seen: bool

    @property
    def is_other(self) -> bool:
        """It lives, and does not ask."""
        return self.is_seen and not self.is_asker

    def told(self) -> dict[str, Any]:
        """As the gate tells it."""
        return {
            "turn": self.turn,
            "stream_id": self.stream_id,
            "pid": self.pid,
            "since_ms": self.since_ms,
            "seen": self.is_seen,
        }


def work_reasons(workers: Sequence[Worker]) -> list[dict[str, Any]]:
    """Of those that do not ask: one each turn, and one each reply of no such turn."""
    reasons = []
    turns = {one.turn for one in workers if one.stream_id is None}
    for one in workers:
        if one.is_asker or (one.stream_id is not None and one.turn in turns):
            continue
        what = f"turn {one.turn}" if one.stream_id is None else f"reply {one.stream_id}"
        if one.is_seen:
            code, verdict = "at_work", "blocked"
            text = _AT_WORK.format(one.pid, what, one.since_ms)
        else:
            code, verdict = "owner_unseen", "check"
            text = _UNSEEN.format(what, one.since_ms)
        reasons.append({"code": code, "message": text, "verdict": verdict, **one.told()})
    return reasons
