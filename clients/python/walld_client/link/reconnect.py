"""Connects to a daemon: where, how often, and what is logged when there is none.

Owns: the attempts of one link, their backoff, the new socket's settings, and the one log line for
the first event that cannot be delivered. Refuses: what is sent, and waiting: it says when an
attempt is due (`retry_at`), the I/O thread waits for that.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import time
from collections.abc import Callable

from walld_client.limits import BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN
from walld_client.link.socket_path import check_server

__all__ = ["Reconnect"]

_log = logging.getLogger("walld")
_chance = random.SystemRandom()
"""Not the module's own: a program that has seeded that draws the same with walld as without."""


class Reconnect:
    """Attempts to connect.

    path: of the latest attempt. connections: attempts that succeeded. retry_at: monotonic time
    before which none should be made. told: it is in the log that events are not delivered.
    """

    __slots__ = (
        "_attempts",
        "_backlog_bytes_max",
        "_locate",
        "connections",
        "path",
        "retry_at",
        "told",
    )

    def __init__(self, locate: Callable[[], str], backlog_bytes_max: int) -> None:
        self._locate = locate
        self._backlog_bytes_max = backlog_bytes_max
        self._attempts = 0
        self.connections = 0
        self.path = ""
        self.retry_at = 0.0
        self.told = False

    def is_due(self) -> bool:
        """An attempt may be made now."""
        return time.monotonic() >= self.retry_at

    def dial(self) -> socket.socket | OSError:
        """A connected, non-blocking socket, or why there is none. Never waits."""
        connection: socket.socket | None = None
        try:
            self.path = self._locate()
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.setblocking(False)
            # Clamped by the kernel; the ring must always hold more than the socket does.
            room = min(1 << 30, self._backlog_bytes_max // 4)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
            connection.connect(self.path)
            check_server(connection, self.path)
        except OSError as error:
            if connection is not None:
                connection.close()
            self.back_off()
            return error
        self.connections += 1
        return connection

    def hurry(self) -> None:
        """Somebody waits for what is held, and a daemon is there: try now, and soon again."""
        self._attempts = 0
        self.retry_at = 0.0

    def back_off(self, seconds_min: float = 0.0) -> None:
        """The next attempt later: twice as long each time, with jitter, within bounds."""
        step = BACKOFF_SECONDS_MIN * 2 ** min(self._attempts, 10)
        self._attempts += 1
        seconds = min(BACKOFF_SECONDS_MAX, step) * _chance.uniform(0.5, 1.0)
        self.retry_at = time.monotonic() + max(seconds, seconds_min)

    def welcomed(self) -> None:
        """A daemon answered: the next outage starts from the shortest wait, with its own line."""
        self._attempts = 0
        if self.told:
            self.told = False
            _log.info("walld at %s takes events again", self.path)

    def tell(self, what: str) -> None:
        """One line for the first event that cannot be delivered, none after it until it can."""
        if not self.told:
            self.told = True
            _log.warning(
                "walld at %s: %s; uid %d, up to %d bytes of events wait in memory for it",
                self.path or "(no socket)",
                what,
                os.geteuid(),
                self._backlog_bytes_max,
            )
