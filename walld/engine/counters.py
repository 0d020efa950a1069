"""Counters and gauges of the engine, as plain numbers.

Owns: the counters (`Counters`) and a picture of the moment (`Gauges`). Refuses: Prometheus, clocks,
decisions. Nothing may be decided by a number kept here: state never lives in a metrics branch.

Invariants: counters only grow; only the event loop's thread adds to them; a scrape, which runs in a
thread of its own, only reads. Every label value that is known is there from the start, with 0.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

__all__ = ["DISCARD_REASONS", "EVENT_KINDS", "RECOVERY_OUTCOMES", "Counters", "Gauges"]

EVENT_KINDS = (
    "start",
    "token",
    "reasoning",
    "tool",
    "tool_arguments",
    "tool_result",
    "step",
    "custom",
    "retry",
    "move",
    "finish",
    "app_error",
    "end",
    "release",
)
DISCARD_REASONS = ("duplicate", "disk_full", "late", "refused")
"""duplicate: resent, had it. late: after a terminal or a release. refused: illegal."""
RECOVERY_OUTCOMES = ("found", "nothing", "unavailable")


def _zeros(*labels: str) -> defaultdict[str, int]:
    counts: defaultdict[str, int] = defaultdict(int)
    counts.update(dict.fromkeys(labels, 0))
    return counts


@dataclass(slots=True)
class Counters:
    """Totals since the daemon started."""

    received: defaultdict[str, int] = field(default_factory=lambda: _zeros(*EVENT_KINDS))
    """Events by kind; a folded run counts as that many tokens."""
    discarded: defaultdict[str, int] = field(default_factory=lambda: _zeros(*DISCARD_REASONS))
    protocol_errors: defaultdict[str, int] = field(default_factory=_zeros)
    """By the code of the Error or Refused that the peer got."""
    recoveries: defaultdict[str, int] = field(default_factory=lambda: _zeros(*RECOVERY_OUTCOMES))
    received_bytes: int = 0
    wal_writes: int = 0
    wal_write_bytes: int = 0
    lost_acked: int = 0
    """Events a client was told are synced and this log does not have. Must stay 0."""

    def refused(self, code: str) -> None:
        """A peer was told so, by an Error or a Refused with that code."""
        self.protocol_errors[code] += 1

    def recovered(self, outcome: str) -> None:
        """A recovery came to that: one of RECOVERY_OUTCOMES."""
        self.recoveries[outcome] += 1


@dataclass(slots=True)
class Gauges:
    """The moment of a scrape."""

    queue_events: int = 0
    queue_bytes: int = 0
    streams_live: int = 0
    partials: int = 0
    wal_size_bytes: int = 0
    wal_segments: int = 0
    reclaim_lag_seconds: float = 0.0
    connections: int = 0
    sessions_open: int = 0
    ledger_pending_bytes: int = 0
    """Lines that are not in their session's file, as far as is known."""
