"""The daemon's status: for `walld status`, gauges and the service manager.

Owns: reading the rooms and naming what they say. Refuses: deciding anything by it.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from walld import __version__
from walld.daemon import event_loop
from walld.daemon.ops import logs
from walld.engine.counters import Gauges
from walld.partials.store import PARTIALS_DIR
from walld.recovery import quarantine
from walld.wal.layout import QUARANTINE_DIR

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from walld.daemon.maintenance import Maintenance
    from walld.daemon.metrics import Metrics
    from walld.daemon.session_store.open_sessions import Sessions
    from walld.daemon.settings import Settings
    from walld.daemon.startup.reported_logs import OtherLogs
    from walld.daemon.storage.syncer import Syncer
    from walld.daemon.storage.writer import Writer
    from walld.daemon.transport.connections import Connections
    from walld.daemon.transport.listener import SocketFile
    from walld.disk.lock import Owner
    from walld.engine.engine import Engine
    from walld.recovery.startup_recovery import RecoveredStorage

__all__ = ["DaemonStatus"]


class DaemonStatus:
    """A view of one daemon. Reads only, so that a scrape's thread may use it."""

    def __init__(
        self, settings: Settings, engine: Engine, connections: Connections, owner: Owner
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._connections = connections
        self._owner = owner
        self._since = time.monotonic()
        self._recovered: RecoveredStorage | None = None
        self._recovery_seconds = 0.0
        self._loop_clock_ahead = 0.0
        """Loop time less time.monotonic(): a scrape's thread cannot ask the loop."""
        self.writer: Writer | None = None
        self.syncer: Syncer | None = None
        self.maintenance: Maintenance | None = None
        self.sessions: Sessions | None = None
        self.metrics: Metrics | None = None
        self.other_logs: OtherLogs | None = None
        self.socket_files: Sequence[SocketFile] = ()
        self.users: Callable[[], dict[str, object] | None] | None = None

    def recovered(self, recovered: RecoveredStorage, seconds: float) -> None:
        """The start is over."""
        recovered.streams.clear()
        self._loop_clock_ahead = event_loop.now() - time.monotonic()
        self._recovered, self._recovery_seconds = recovered, seconds

    @property
    def gap_word(self) -> str:
        """What a gap is put down to: what the start found of damage, or else what was dropped."""
        if self._recovered is None:
            return "dropped"
        return quarantine.gap_word(self._recovered.verdict, met_damage=self._recovered.met_damage)

    @property
    def doubt(self) -> str | None:
        """Why "nothing there" cannot be proven; None where it can."""
        if self._engine.partials.are_removed:
            return f"{PARTIALS_DIR}/ was removed while walld ran: see {QUARANTINE_DIR}/"
        if self._engine.set_aside:
            count = self._engine.set_aside
            return f"{count} damaged partials were moved to {QUARANTINE_DIR}/: see `walld fsck`"
        return None if self._recovered is None else self._recovered.doubt

    @property
    def word(self) -> str:
        """Recovering | ok | disk_full | degraded."""
        if self._recovered is None:
            return "recovering"
        if self._engine.disk_full:
            return "disk_full"
        return "ok" if self.trouble is None else "degraded"

    @property
    def trouble(self) -> str | None:
        """What is wrong, in words: with what is kept, or else with where it is asked for."""
        others = (*self.socket_files, self.metrics, self.other_logs)
        asked = (one.trouble for one in others if one is not None)
        return self._trouble_of_data() or next((one for one in asked if one is not None), None)

    def _trouble_of_data(self) -> str | None:
        """With the disk, what is done in the background, LOCK, or what no session is served
        without.
        """
        if self.disk_trouble is not None or self.maintenance is None or self.sessions is None:
            return self.disk_trouble
        trouble, unread = self.maintenance.trouble or self._owner.damage, self.sessions.unread_notes
        if trouble is not None or unread is None:
            return trouble
        return f"no session is served: what is left of deletes and forks cannot be read: {unread}"

    @property
    def disk_trouble(self) -> str | None:
        """What is wrong with the disk, in words: also one that has not answered for a bound."""
        if self.writer is None or self.syncer is None:
            return None
        if self.writer.trouble is not None:
            return self.writer.trouble
        now, bound = self._now(), self._engine.schedule.bound
        oldest, syncing = self._engine.schedule.oldest, self.syncer.syncing_since
        if oldest is not None and now - oldest > bound:
            return f"events have waited {now - oldest:.1f} s to be written, bound {bound:g} s"
        if syncing is not None and now - syncing > bound:
            return f"a sync has not returned for {now - syncing:.1f} s, bound {bound:g} s"
        return None

    def _now(self) -> float:
        """Loop time, also from a scrape's thread."""
        return time.monotonic() + self._loop_clock_ahead

    def reclaim_lag(self) -> float:
        """Seconds by which the oldest released byte has outstayed its time on disk (P5)."""
        since = self._engine.segments.released_since
        due = self._settings.reclaim_seconds + self._settings.release_hold_seconds
        return max(0.0, self._now() - since - due) if since is not None else 0.0

    def gauges(self) -> Gauges:
        """The moment of a scrape."""
        engine = self._engine
        registry = engine.registry
        return Gauges(
            queue_events=engine.batches.waiting,
            queue_bytes=engine.batches.queue_bytes,
            streams_live=len(registry.by_key) - len(registry.lost),
            partials=len(engine.partials) + len(registry.lost),
            wal_size_bytes=engine.segments.size,
            wal_segments=len(engine.segments),
            reclaim_lag_seconds=self.reclaim_lag(),
            connections=len(self._connections),
            sessions_open=len(engine.session_logs.open),
            ledger_pending_bytes=engine.session_logs.pending_bytes,
        )

    def line(self) -> str:
        """For the service manager."""
        now = self.gauges()
        return f"{self.word}: {now.streams_live} live streams, {now.partials} partials"

    def status(self) -> dict[str, object]:
        """For `walld status`."""
        engine, gauges = self._engine, self.gauges()
        batches, oldest = engine.batches, engine.schedule.oldest
        return {
            "state": self.word,
            "trouble": self.trouble,
            "version": __version__,
            "pid": os.getpid(),
            "uptime_seconds": round(time.monotonic() - self._since, 3),
            "backend": self._settings.backend,
            "data": self._settings.data,
            "socket": self._settings.socket,
            "socket_bound_anew": sum(one.bound_anew for one in self.socket_files),
            "log": engine.log_uuid.hex(),
            "new_directory": (self.other_logs and self.other_logs.made_at_ms) or None,
            "epoch": self._owner.epoch,
            "connections": gauges.connections,
            "streams_live": gauges.streams_live,
            "partials": gauges.partials,
            "sessions_open": gauges.sessions_open,
            "ledger_pending_bytes": gauges.ledger_pending_bytes,
            "flush_bound_ms": self._settings.flush_bound_ms,
            "flush_linger_ms": round(engine.schedule.linger * 1000, 1),
            "flush_lag_seconds": 0.0 if oldest is None else round(self._now() - oldest, 6),
            "queue_events": gauges.queue_events,
            "queue_bytes": gauges.queue_bytes,
            "unsynced_bytes": batches.unsynced_bytes,
            "written_no": batches.written_no,
            "synced_no": batches.synced_no,
            "wal_size_bytes": gauges.wal_size_bytes,
            "wal_segments": gauges.wal_segments,
            "wal_live_bytes": engine.segments.live_bytes,
            "reclaim_lag_seconds": round(gauges.reclaim_lag_seconds, 3),
            "record_bytes_first": engine.agent_bytes,
            "record_bytes_carried": engine.carried_bytes,
            "lost_acked": engine.counters.lost_acked,
            "log_lines_dropped": logs.dropped_lines(),
            "users": None if self.users is None else self.users(),
            "start": self._start(),
        }

    def _start(self) -> dict[str, object]:
        if self._recovered is None:
            return {}
        verdict = self._recovered.verdict
        return {
            "seconds": round(self._recovery_seconds, 6),
            "scanned_bytes": self._recovered.scanned_bytes,
            "torn": len(verdict.torn),
            "corrupt": len(verdict.corrupt),
            "unreadable": len(verdict.unreadable),
            "attested_missing": self._engine.lost_acked.missing,
        }
