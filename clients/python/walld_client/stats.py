"""How a link is: in numbers for programs, in a sentence for people.

Owns: what is counted and how it is said. Refuses: changing anything; `sentence` only knocks at the
socket, without a word, where there is no connection.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import msgspec
from walld_client.link import Link

__all__ = ["Stats", "sentence", "stats_of"]


class Stats(msgspec.Struct, frozen=True):
    """The link of a client, at one moment.

    sent: events the kernel has taken for the daemon at hand, or that are done with. backlog:
    events it has not (yet); after a daemon's death also those that are not known synced.
    backlog_bytes: what they occupy. unsynced_bytes: all that is held for resending, backlog
    included. dropped: events lost for want of memory before they were sent: a gap. unheld: sent,
    but dropped from memory before they were known synced. late: calls after a terminal, not sent.
    refused: events the daemon would not take. reconnects: connections beyond the first. streams:
    replies not yet released and acknowledged.
    """

    connected: bool
    socket: str
    sent: int = 0
    backlog: int = 0
    backlog_bytes: int = 0
    unsynced_bytes: int = 0
    dropped: int = 0
    unheld: int = 0
    late: int = 0
    refused: int = 0
    reconnects: int = 0
    streams: int = 0


def stats_of(link: Link) -> Stats:
    """Counted under the link's lock: the numbers belong together."""
    with link.mutex, link:
        backlog = link.backlog
        backlog.count()
        return Stats(
            connected=link.connected,
            socket=link.dialing.path,
            sent=link.registry.events() - backlog.waiting_events - backlog.dropped_events,
            backlog=backlog.waiting_events,
            backlog_bytes=backlog.waiting_bytes,
            unsynced_bytes=backlog.frames_bytes,
            dropped=backlog.dropped_events,
            unheld=backlog.unheld_events,
            late=link.late_events,
            refused=link.hearing.refused_events,
            reconnects=max(0, link.dialing.connections - 1),
            streams=len(link.registry.by_number),
        )


def sentence(link: Link, locate: Callable[[], str]) -> str:
    """For a start-up log: recoverable or not, and why."""
    stats = stats_of(link)
    if stats.connected and not stats.backlog:
        return f"recoverable: walld at {stats.socket} has taken all {stats.sent} events"
    if stats.connected:
        return (
            f"not wholly recoverable: walld at {stats.socket} has yet to take "
            f"{stats.backlog} events, which wait in memory"
        )
    path = "(no socket)"
    try:
        path = locate()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            probe.connect(path)
    except BlockingIOError:
        return f"not recoverable now: walld at {path} has no room for another connection"
    except OSError as error:
        return (
            f"not recoverable: no walld at {path}: {error.strerror or error} "
            f"(errno {error.errno}, uid {os.geteuid()}); {stats.backlog} events wait in memory"
        )
    return f"recoverable: walld listens at {path}; {stats.backlog} events are on their way to it"
