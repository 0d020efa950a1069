"""A seed, expanded into what will happen: printed when something is wrong.

Owns: which kinds of trouble a run has, and how often. Refuses: making them happen (`world.py`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
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
    """Of kill_daemon, cut_power, kill_agent, cut, repeat, write_error, sync_error, full, stall
    and stop."""
    send_faults: float
    """Share of an agent's sends that go wrong."""
    crash_in_recovery: float
    """Chance that a start is crashed again."""
    rot: bool
    """Bytes that were synced are damaged before the last start."""
    crash_at: int = 0
    """The disk verb of the first life that is not carried out any more; 0: none."""
    crash_again: int = 0
    """The verb of the second life that is not carried out any more; 0: none."""
    power: bool = False
    """Those crashes are power cuts."""
    asks: float = 0.0
    """Chance that somebody asks, and resolves what is left, beside a trouble."""
    small: bool = False
    """Segments, indexes and slices are small, and room is taken back at once."""
    short_writes: float = 0.0
    """Share of writes that take a part of what they were given."""
    tight: bool = False
    """A full disk is one with some bytes left, not one that says so to every write."""
    listens: float = 0.0
    """Chance that an agent hears what is synced, or asks for it, behind what it says."""
    ambush: bool = False
    """Power is cut, or the daemon killed, just behind a verb that matters."""
    rot_live: bool = False
    """Bytes rot under the daemon that has read them, too."""
    early: float = 0.0
    """Share of the disk's jobs that are done at once and told of later, not done when told."""
    asks_own: float = 0.0
    """Chance that a process asks for what it has said itself, beside a trouble."""
    looks: int = 1
    """So many times as many crash states are looked at."""
    clerks: int = 0
    """Processes that write sessions, beside the agents."""
    acts: int = 0
    """A clerk's."""
    checkpoint_lines: int = 50
    """A session's lines go to its file when there are so many."""
    deletes: float = 0.0
    """Chance that an act is to delete a session."""
    ledger_bytes: int = 0
    """What lines may take in memory, where that is little."""
    fences: float = 0.0
    """Chance that another owner raises the epoch, beside a trouble."""

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
            clerks=1,
            acts=5,
            checkpoint_lines=3,
            deletes=0.1,
        )

    @classmethod
    def tiny(cls, seed: int, profile: str) -> Plan:
        """A run of about sixty disk verbs, to be crashed at every pair of them."""
        short = cls.short(seed, profile)
        return replace(short, seconds=0.2, agents=1, replies=1, pace=0.01, clerks=0)

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
        plan = cls(
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
        return plan._with_more()

    def _with_more(self) -> Plan:
        """Kinds that came later, drawn apart, so that what a seed was before it still is.

        The number is one with which the seeds that found bugs (`test_simulation.py`) get none of
        them: they stay the very runs that did.
        """
        more = Random(f"more 2212 {self.seed}")
        if more.random() < 0.4:
            return self._with_later()
        found = replace(
            self,
            disk_seconds=more.choice((self.disk_seconds, 0.05)),
            trouble_every=more.choice((self.trouble_every, 0.15)),
            listens=more.choice((0.0, 0.5, 0.9)),
            troubles=self.troubles
            + tuple(kind for kind in ("stop", "ambush", "ambush") if more.random() < 0.4),
            asks=more.choice((0.0, 0.3, 0.6)),
            small=more.random() < 0.5,
            short_writes=more.choice((0.0, 0.0, 0.3)),
            tight=more.random() < 0.5,
            rot_live=more.random() < 0.5,
            rot=self.rot or more.random() < 0.3,
        )
        return replace(found, ambush="ambush" in found.troubles)._with_later()

    def _with_later(self) -> Plan:
        """The same once more: also the first plans of the zoo stay what they were."""
        later = Random(f"late 20799 {self.seed}")
        if later.random() >= 0.15:
            return self._with_sessions()
        found = replace(
            self,
            early=later.choice((0.5, 1.0)),
            asks_own=later.choice((0.0, 0.8)),
            disk_seconds=later.choice((self.disk_seconds, 0.05, 0.2)),
        )
        return found._with_sessions()

    def _with_sessions(self, *, always: bool = False) -> Plan:
        """And once more: some write sessions. always: also where the seed has none."""
        sessions = Random(f"sessions 441695 {self.seed}")
        if sessions.random() >= 0.15 and not always:
            return self._with_owners()
        found = replace(
            self,
            clerks=sessions.choice((1, 2, 3)),
            acts=sessions.choice((5, 15, 30)),
            checkpoint_lines=sessions.choice((2, 5, 12, 50)),
            deletes=sessions.choice((0.0, 0.05, 0.15)),
            ledger_bytes=sessions.choice((0, 0, 0, 4000)),
        )
        return found._with_owners()

    def _with_owners(self) -> Plan:
        """And once more: in some another owner takes the directory. The number as above."""
        owners = Random(f"owners 3269998 {self.seed}")
        if owners.random() >= 0.15:
            return self
        return replace(self, fences=owners.choice((0.2, 0.5)))

    @classmethod
    def of_sessions(cls, seed: int) -> Plan:
        """The plan of a seed, with sessions."""
        return cls.of(seed)._with_sessions(always=True)

    @property
    def hurts(self) -> bool:
        """The disk fails or hangs in this run: nothing is promised of when it is written."""
        return bool({"write_error", "sync_error", "full", "stall"} & set(self.troubles))

    def __str__(self) -> str:
        return "\n".join(f"  {name} = {value!r}" for name, value in asdict(self).items())
