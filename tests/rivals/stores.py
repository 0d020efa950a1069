"""Who takes part, in which classes of durability; what each promises.

Owns: the list. Each rival is there as it is shipped and with the setting its manual gives for data
that must not be lost, where it has one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from . import nats_jetstream, redis_aof
from .jsonl import Jsonl
from .nats_jetstream import NatsJetstream
from .redis_aof import RedisAof
from .sidecar import Sidecar
from .sqlite_wal import SqliteWal
from .trial import MakeStore

__all__ = ["CLASSES", "Entry"]

_PROCESSES = ("no fault", "writer killed", "server killed", "all killed", "disk full")
"""The page cache outlives them, so whoever has written is safe."""
_POWER = (*_PROCESSES, "power cut", "one sync fails", "device fails")
_DAMAGE = (*_POWER, "one bit flipped")


@dataclass(frozen=True)
class Entry:
    """One store in one class. make: the store, on two folders. why_not: what it misses here.

    keeps: faults (their first words) that what it acknowledged outlives, by its own manual. Of a
    flipped bit no store promises more than to say so.
    """

    name: str
    make: MakeStore
    keeps: tuple[str, ...] = _PROCESSES
    why_not: Callable[[], str | None] = lambda: None


CLASSES = (
    Entry(
        "walld, told written", partial(Sidecar, level="written"), (*_PROCESSES, "one bit flipped")
    ),
    Entry("walld, told synced", partial(Sidecar, level="synced"), _DAMAGE),
    Entry("Redis AOF, everysec", partial(RedisAof, policy="everysec"), why_not=redis_aof.why_not),
    Entry("Redis AOF, always", partial(RedisAof, policy="always"), _POWER, redis_aof.why_not),
    Entry(
        "NATS JetStream, as shipped",
        partial(NatsJetstream, setting="as shipped"),
        why_not=nats_jetstream.why_not,
    ),
    Entry(
        "NATS JetStream, always",
        partial(NatsJetstream, setting="always"),
        _POWER,
        nats_jetstream.why_not_always,
    ),
    Entry("SQLite WAL, NORMAL", partial(SqliteWal, level="NORMAL")),
    Entry("SQLite WAL, FULL", partial(SqliteWal, level="FULL"), _POWER),
    Entry("JSON lines, write", partial(Jsonl, fsync=False)),
    Entry("JSON lines, write + fsync", partial(Jsonl, fsync=True), _POWER),
)
