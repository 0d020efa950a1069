"""The questions of the bench, in the order in which they are asked and shown.

Owns: their names, and how long each is thought to take. Refuses: what they ask: a module each.
"""

from __future__ import annotations

__all__ = ["QUESTIONS"]

QUESTIONS = {
    "agent_cost": (95.0, 9.0),
    "daemon_dead": (80.0, 14.0),
    "adapters": (15.0, 3.0),
    "checkpoints": (15.0, 2.0),
    "bulk": (20.0, 2.0),
    "live_streams": (260.0, 25.0),
    "memory": (60.0, 10.0),
    "writes": (125.0, 20.0),
    "recover": (20.0, 6.0),
    "restart": (30.0, 2.0),
    "hostile": (180.0, 50.0),
    "stall": (75.0, 12.0),
    "sessions": (60.0, 15.0),
    "submits": (75.0, 9.0),
    "ladders": (40.0, 10.0),
    "loss": (80.0, 11.0),
    "slow_disks": (110.0, 5.0),
    "growth": (105.0, 11.0),
    "peers": (600.0, 60.0),
    "ingest": (60.0, 15.0),
    "streaming": (450.0, 30.0),
}
"""Name of the module and the seconds it is thought to take, whole and quick."""
