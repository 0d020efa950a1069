"""The engine's facade: the core, and who takes in what agents and sessions say.

Owns: who is made of what; imports run from here down. Refuses: decisions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walld.engine.core import Core
from walld.engine.event_handlers import EventHandlers
from walld.engine.frame_decoder import FrameDecoder
from walld.engine.resolved_streams import ResolvedStreams
from walld.engine.resume import ResumeHandler
from walld.engine.session_log import SessionLogs
from walld.engine.turn_commit import TurnCommit

if TYPE_CHECKING:
    from walld.engine.flush_schedule import FlushSchedule
    from walld.engine.stream import Process

__all__ = ["Engine"]


class Engine(Core):
    """What the daemon has of it. Synchronous, on one thread, `now` is an argument."""

    def __init__(
        self, schedule: FlushSchedule, log_uuid: bytes = bytes(16), epoch: int = 0
    ) -> None:
        super().__init__(schedule, log_uuid, epoch)
        self.session_logs = SessionLogs(self)
        self.turn_commit = TurnCommit(self, self.session_logs)
        self.resolved = ResolvedStreams(self, self.turn_commit)
        self.handlers = EventHandlers(self, self.turn_commit, self.resolved)
        self.resume = ResumeHandler(self, self.turn_commit, self.resolved, self.handlers)
        self.decoder = FrameDecoder(self, self.turn_commit, self.handlers, self.resume)

    def lose(self, process: Process, reason: str) -> None:
        """A process is gone and all it sent is read: its streams are orphans."""
        process.is_lost = True
        for stream in list(process.streams.values()):
            self.orphan(stream, reason)
        process.streams.clear()
        self.session_logs.lose(process, reason)
