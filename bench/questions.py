"""The questions of the bench, in the order in which they are asked and shown.

Owns: their names, and how long each is thought to take. Refuses: what they ask: a module each.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["QUESTIONS", "Asked"]


class Asked(NamedTuple):
    """module: what measures it. whole, quick: seconds that this is thought to take."""

    module: str
    whole: float
    quick: float


QUESTIONS = {
    "agent_cost": Asked("bench.costs.agent_cost", 95.0, 9.0),
    "daemon_dead": Asked("bench.faults.daemon_dead", 80.0, 14.0),
    "adapters": Asked("bench.costs.adapters", 2.0, 3.0),
    "checkpoints": Asked("bench.costs.checkpoints", 4.0, 2.0),
    "bulk": Asked("bench.costs.bulk", 21.0, 2.0),
    "live_streams": Asked("bench.costs.live_streams", 245.0, 25.0),
    "memory": Asked("bench.costs.memory", 30.0, 10.0),
    "writes": Asked("bench.costs.writes", 140.0, 20.0),
    "recover": Asked("bench.faults.recover", 5.0, 6.0),
    "restart": Asked("bench.faults.restart", 15.0, 2.0),
    "hostile": Asked("bench.faults.hostile", 320.0, 160.0),
    "stall": Asked("bench.faults.stall", 62.0, 12.0),
    "sessions": Asked("bench.costs.sessions", 55.0, 15.0),
    "submits": Asked("bench.costs.submits", 120.0, 9.0),
    "ladders": Asked("bench.costs.ladders", 27.0, 10.0),
    "loss": Asked("bench.faults.loss", 68.0, 11.0),
    "slow_disks": Asked("bench.faults.slow_disks", 110.0, 5.0),
    "growth": Asked("bench.costs.growth", 92.0, 11.0),
    "peers": Asked("bench.peers", 490.0, 60.0),
    "ingest": Asked("bench.costs.ingest", 46.0, 15.0),
    "streaming": Asked("bench.costs.streaming", 435.0, 30.0),
}
