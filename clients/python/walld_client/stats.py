"""Statistics of a link: numbers for programs, a sentence for people.

Owns: what is counted and how it is said. Refuses: changing anything; `sentence` only knocks at the
socket and asks to be let in, where no daemon has welcomed this process yet.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec
from walld_client.errors import Unavailable
from walld_client.first_use import loading
from walld_client.link import poll, process
from walld_client.link.connection import NOSIGNAL
from walld_client.link.link import Link
from walld_client.link.socket_path import check_server

__all__ = ["Stats", "sentence", "stats_of"]

_KNOCK_MS: Final = 50
_ANSWER_BYTES_MAX: Final = 4096


class Stats(msgspec.Struct, frozen=True):
    """The link of a client, at one moment.

    sent: events the kernel has taken for the daemon at hand, or that are done with. backlog:
    events it has not (yet); after a daemon's death also those that are not known synced.
    backlog_bytes: what they occupy. unsynced_bytes: all that is held for resending, backlog
    included. dropped: events lost for want of memory before they were sent: a gap. unheld: sent,
    but dropped from memory before they were known synced. late: calls after a terminal, not sent.
    refused: events the daemon would not take. refused_replies: those of which it would take
    nothing, since their id is in use. reconnects: connections beyond the first. streams:
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
    refused_replies: int = 0


def stats_of(link: Link) -> Stats:
    """Counted under the link's lock: the numbers belong together."""
    process.check_fork()
    with link.mutex, link:
        link.catch_up()
        backlog = link.backlog
        backlog.count()
        return Stats(
            connected=link.connected,
            socket=link.reconnect.path,
            sent=link.registry.events() - backlog.waiting_events - backlog.dropped_events,
            backlog=backlog.waiting_events,
            backlog_bytes=backlog.waiting_bytes,
            unsynced_bytes=backlog.frames_bytes,
            dropped=backlog.dropped_events,
            unheld=backlog.unheld_events,
            late=link.late_events,
            refused=link.acks.refused_events,
            reconnects=max(0, link.reconnect.connections - 1),
            streams=len(link.registry.by_number),
            refused_replies=link.acks.refused_replies,
        )


def sentence(link: Link, locate: Callable[[], str]) -> str:
    """For a start-up log: recoverable or not, and why. Waits for the daemon `_KNOCK_MS` at most."""
    process.check_fork()
    with link.mutex, link:
        if link.connected:
            link.hear()  # that this process may not come in is said to it there
        welcomed = link.connected and link.acks.welcomed
    path = link.reconnect.path if welcomed else "(no socket)"
    error: OSError | None = None
    try:
        if not welcomed:
            path = locate()
            _knock(path)
    except Unavailable as refused:
        waiting = stats_of(link).backlog
        return f"not recoverable: at {path} {refused}; {waiting} events wait in memory"
    except OSError as found:
        error = found
    stats = stats_of(link)
    if stats.connected and not stats.backlog:
        return f"recoverable: walld at {stats.socket} has taken all {stats.sent} events"
    if stats.connected:
        return (
            f"not wholly recoverable: walld at {stats.socket} has yet to take "
            f"{stats.backlog} events, which wait in memory"
        )
    if isinstance(error, BlockingIOError):
        return f"not recoverable now: walld at {path} has no room for another connection"
    if error is not None:
        return (
            f"not recoverable: no walld at {path}: {error.strerror or error} "
            f"(errno {error.errno}, uid {os.geteuid()}); {stats.backlog} events wait in memory"
        )
    return f"recoverable: walld listens at {path}; {stats.backlog} events are on their way to it"


def _knock(path: str) -> None:
    """Say hello there. OSError where nobody listens, Unavailable where it lets this process not in;
    what somebody busy says later is not waited for: what is sent by then waits in the kernel.
    """
    with loading():
        from walld_client.query.requests import Conversation

    conversation = Conversation()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        probe.connect(path)
        check_server(probe, path)
        with suppress(OSError):  # it may have said no, and gone, already
            probe.send(conversation.hello(), NOSIGNAL)
        if poll.ready({probe.fileno(): poll.IN}, _KNOCK_MS / 1000):
            conversation.feed(probe.recv(_ANSWER_BYTES_MAX))
