"""The peers by their keys.

Owns: that list, in the order of the tables. A key is what names a peer on a command line.
"""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import partial
from importlib import metadata

from bench.peers.by_hand import JsonLines, QueueAndThread, WholeFile
from bench.peers.databases import Postgres, Sqlite, program
from bench.peers.frameworks import DbosStream, LangGraphSaver
from bench.peers.jetstream import JetStream
from bench.peers.peer import Peer, found
from bench.peers.redis_streams import RedisStreams
from bench.peers.sidecar import Bare, Sidecar

__all__ = ["PEERS", "present", "versions"]

PEERS: dict[str, Callable[[], Peer]] = {
    "walld": Sidecar,
    "send": Bare,
    "queue": QueueAndThread,
    "walld-written": partial(Sidecar, "written"),
    "json": partial(JsonLines, fsync=False),
    "rewrite": WholeFile,
    "sqlite-normal": partial(Sqlite, "NORMAL"),
    "redis-everysec": partial(RedisStreams, "everysec"),
    "jetstream": JetStream,
    "walld-synced": partial(Sidecar, "synced"),
    "json-fsync": partial(JsonLines, fsync=True),
    "sqlite-full": partial(Sqlite, "FULL"),
    "redis-always": partial(RedisStreams, "always"),
    "postgres": Postgres,
    "langgraph": LangGraphSaver,
    "dbos": DbosStream,
}
"""Those with the same promise stand together: the agent's or none, all processes, power."""


def present(keys: Iterable[str]) -> dict[str, Peer]:
    """Those of them that can run here; of the others the reason is said."""
    able = {}
    for key in keys:
        peer = PEERS[key]()
        reason = peer.why_not()
        if reason is None:
            able[key] = peer
        else:
            print(f"bench: {peer.name} is left out: it {reason}", file=sys.stderr)
    return able


_PACKAGES = ("redis", "hiredis", "nats-py", "psycopg", "langgraph-checkpoint-sqlite", "dbos")


def versions() -> dict[str, str]:
    """Of the servers and the clients, as far as they are here; SQLite is Python's own."""
    said = {"SQLite": sqlite3.sqlite_version}
    for name in ("redis-server", "nats-server"):
        path = found(name)
        if path is not None:
            said[name] = _number(path)
    postgres = program("postgres")
    if postgres is not None:
        said["postgres"] = _number(postgres)
    for package in _PACKAGES:
        try:
            said[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return said


def _number(path: str) -> str:
    words = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    number = re.search(r"\d+(\.\d+)+", words)
    return number[0] if number else words.strip()
