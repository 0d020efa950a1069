"""Handles that the parts of the session store share: its files and their threads, a session in use.

Owns: the three types. Refuses: everything that is done with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from walld.daemon.storage.disk_threads import Worker
    from walld.ledger.artifacts import ArtifactStore
    from walld.ledger.snapshot import SnapshotStore
    from walld.ledger.store import LedgerStore

__all__ = ["Files", "Source", "SourceGone"]


class Files(NamedTuple):
    """What is on disk of sessions, and the thread that alone touches it. views: one that folds."""

    ledgers: LedgerStore
    snapshots: SnapshotStore
    artifacts: ArtifactStore
    thread: Worker
    views: Worker


class Source:
    """A session that is being copied, or added to. is_gone: its delete has begun since that did."""

    __slots__ = ("is_gone", "key")

    def __init__(self, uid: int, session_id: str) -> None:
        self.key = uid, session_id
        self.is_gone = False


class SourceGone(Exception):
    """A session was deleted while a view of it was made."""
