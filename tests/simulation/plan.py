"""A seed, expanded into what will happen: printed when something is wrong.

Owns: which kinds of trouble a run has, and how often. Refuses: making them happen (`world.py`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from random import Random

from walld.disk.medium import PROFILES

__all__ = ["Plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """One run."""

    seed: int
    profile: str
    seconds: float
    """Of trouble; then it must come to rest."""
    agents: int
    replies: int
    """An agent's."""
    pace: float
    """Seconds between two bursts of tokens."""
    flush_linger_ms: str
    disk_seconds: float
    """What a job takes, about."""
    trouble_every: float
    """Seconds between two troubles."""
    troubles: tuple[str, ...]
    """kill_daemon, cut_power, kill_agent, cut, repeat, write_error, sync_error, full, stall"""
    send_faults: float
    """Share of an agent's sends that go wrong."""
    crash_in_recovery: float
    """Chance that a start is crashed again."""
    rot: bool
    """Bytes that were synced are damaged before the last start."""
    crash_at: int = 0
    """The disk verb of the first life that is not carried out any more; 0: none."""
    power: bool = False
    """That crash is a power cut."""

    @classmethod
    def short(cls, seed: int, profile: str) -> Plan:
        """A run of some hundred disk verbs and no trouble, to be crashed at each of them."""
        return cls(
            seed=seed,
            profile=profile,
            seconds=1.5,
            agents=2,
            replies=2,
            pace=0.05,
            flush_linger_ms="1",
            disk_seconds=0.0002,
            trouble_every=1.0,
            troubles=(),
            send_faults=0.0,
            crash_in_recovery=0.0,
            rot=False,
        )

    @classmethod
    def of(cls, seed: int) -> Plan:
        """Swarm testing: each seed has some kinds of trouble and not others."""
        random = Random(f"plan {seed}")
        kinds = (
            "kill_daemon",
            "cut_power",
            "kill_agent",
            "cut",
            "repeat",
            "write_error",
            "sync_error",
            "full",
            "stall",
        )
        chosen = tuple(kind for kind in kinds if random.random() < 0.45)
        return cls(
            seed=seed,
            profile=random.choice(list(PROFILES)),
            seconds=random.choice((2.0, 4.0, 8.0, 16.0)),
            agents=random.choice((1, 2, 3, 5)),
            replies=random.choice((1, 2, 4)),
            pace=random.choice((0.02, 0.1, 0.5, 1.0)),
            flush_linger_ms=random.choice(("auto", "auto", "1", "100", "1500")),
            disk_seconds=random.choice((0.0, 0.0002, 0.002, 0.02)),
            trouble_every=random.choice((0.3, 1.0, 2.0)),
            troubles=chosen,
            send_faults=random.choice((0.0, 0.0, 0.02, 0.2)),
            crash_in_recovery=random.choice((0.0, 0.3, 0.7)),
            rot=random.random() < 0.2,
        )

    def __str__(self) -> str:
        return "\n".join(f"  {name} = {value!r}" for name, value in asdict(self).items())
