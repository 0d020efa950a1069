"""The questions of the bench, in the order in which they are asked and shown.

Owns: their names, and how long each is thought to take. Refuses: what they ask: a module each.
"""

from __future__ import annotations

__all__ = ["QUESTIONS"]

QUESTIONS = {
    "agent_cost": (95.0, 9.0),
    "daemon_dead": (80.0, 14.0),
    "adapters": (2.0, 3.0),
    "checkpoints": (4.0, 2.0),
    "bulk": (21.0, 2.0),
    "live_streams": (245.0, 25.0),
    "memory": (30.0, 10.0),
    "writes": (140.0, 20.0),
    "recover": (5.0, 6.0),
    "restart": (15.0, 2.0),
    "hostile": (320.0, 160.0),
    "stall": (62.0, 12.0),
    "sessions": (55.0, 15.0),
    "submits": (120.0, 9.0),
    "ladders": (27.0, 10.0),
    "loss": (68.0, 11.0),
    "slow_disks": (110.0, 5.0),
    "growth": (92.0, 11.0),
    "peers": (490.0, 60.0),
    "ingest": (46.0, 15.0),
    "streaming": (435.0, 30.0),
}
"""Name of the module and the seconds it is thought to take, whole and quick."""
