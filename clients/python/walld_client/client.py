"""The blocking client: open replies, and ask what was left of them.

Owns: `connect`, the environment variables, requests and what they mean without a daemon. Refuses:
moving bytes (`link.py` for events, `query.py` for requests).

What replies need is loaded with this module; requests and sessions are by the first that is used.

`ClientBase` holds all that is the same for programs with and without an event loop; `Client` asks
by blocking, `aio.Client` by awaiting.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from walld_client import link_registry
from walld_client.argument_checks import Count, Path, Seconds, as_declared
from walld_client.encoding import value_encoding
from walld_client.encoding.event_frames import ID
from walld_client.encoding.redaction import checked
from walld_client.errors import Unavailable
from walld_client.first_use import first_use, loading, made
from walld_client.ids import Entry, checked_id, id_in, new_stream_id
from walld_client.limits import (
    BACKLOG_BYTES_MAX,
    BACKLOG_BYTES_MIN,
    CLOSE_SECONDS,
    TIMEOUT_SECONDS,
)
from walld_client.link import process
from walld_client.link.application import application
from walld_client.link.socket_path import find_socket
from walld_client.link.stream import Stream
from walld_client.reply import send
from walld_client.reply.reply import Reply
from walld_client.stats import Stats, sentence, stats_of
from walld_client.steps import Steps, run
from walld_client.wire import messages

if TYPE_CHECKING:
    from walld_client.query.pool import Pool
    from walld_client.query.query import Query
    from walld_client.query.sync_tokens import SyncTokens
    from walld_client.recovered.partial import PartialReply
    from walld_client.session.append_queue import AppendQueue
    from walld_client.session.audit import AwaitedPresent, Present, RepairStep, Report
    from walld_client.session.ledger_steps import SessionInfo
    from walld_client.session.session import Session
    from walld_client.session.session_steps import SessionSteps

__all__ = ["Ask", "Client", "ClientBase", "check", "connect", "is_enabled", "is_named"]

_log = logging.getLogger("walld")
_NAMED_MAX = 5
"""Of other applications, in a log line."""
_T = TypeVar("_T")

Ask = Callable[[int], msgspec.Struct]
"""Builds a request for the id that the connection gives it."""


def is_enabled() -> bool:
    """False where WALLD_ENABLED switches walld off for this process."""
    return os.environ.get("WALLD_ENABLED", "1").strip().lower() not in ("0", "false", "no", "off")


class ClientBase:
    """What both kinds of client share: sending, and the making and reading of requests."""

    def __init__(
        self,
        socket: str | os.PathLike[str] | None,
        data: str | os.PathLike[str] | None,
        timeout: float,
        backlog_bytes_max: int,
        redact: Callable[[str], str] | None,
        app: str | None,
    ) -> None:
        if backlog_bytes_max < BACKLOG_BYTES_MIN:
            raise ValueError(
                f"backlog_bytes_max must be at least {BACKLOG_BYTES_MIN}, got {backlog_bytes_max}"
            )
        path = None if socket is None else os.fspath(socket)
        given = data if data is not None else os.environ.get("WALLD_DATA") or None
        self._data = None if given is None else os.fspath(given)
        self._timeout = timeout
        self._redact = checked(redact)
        self._app, self._sees_all = application(app)
        self._locate = partial(find_socket, path)
        self._key, self._link = link_registry.join(path, backlog_bytes_max)
        self._taken: bool | None = None
        """What close() said of the rest; None before. Whoever closes decides it, one at a time."""
        self._is_parted = False

    @first_use
    def _append_queue(self) -> AppendQueue:
        """What the client's sessions post."""
        from walld_client.session.append_queue import AppendQueue

        return AppendQueue(self._locate, self._timeout, self._link.released)

    @first_use
    def _sync_tokens(self) -> SyncTokens:
        from walld_client.query.sync_tokens import SyncTokens

        return SyncTokens(lambda: self._link.acks.log)

    def _parts(self) -> bool:
        """Lets go of the link, once, whoever closes: True where nobody else has it."""
        is_first, self._is_parted = not self._is_parted, True
        return is_first and link_registry.part(self._key, self._link)

    # --- sending ---

    @as_declared
    def release(self, stream_id: str) -> bool:
        """The application's copy of a reply of this process is safe. False: not known here.

        Works from any thread and after the Reply object is gone. ValueError before its end.
        """
        process.check_fork()
        stream = self._link.registry.named(stream_id)
        return stream is not None and send.release(self._link, stream) > 0

    def stats(self) -> Stats:
        """What was sent, what waits, what was dropped."""
        return stats_of(self._link)

    def check(self) -> str:
        """One sentence: would what this process says now be recoverable?"""
        return sentence(self._link, self._locate)

    def _begin(
        self,
        session_id: str,
        stream_id: str | None,
        turn_id: str | Entry | None,
        parent: str | Entry | None,
        meta: dict[str, Any],
    ) -> Stream:
        start = messages.Start(
            ID,
            ID,
            new_stream_id() if stream_id is None else checked_id(stream_id, "stream_id"),
            checked_id(session_id, "session_id"),
            None if turn_id is None else id_in(turn_id, "turn_id"),
            None if parent is None else id_in(parent, "parent"),
            value_encoding.info_bytes(meta),
            time.time_ns() // 1_000_000,
            self._app,
        )
        if self._taken is not None:
            _log.warning("this walld client is closed: reply %r is not sent", start.stream_id)
        return self._link.begin(start, long_way_only=self._redact is not None)

    # --- asking ---

    def _recover(self, which: str, session_id: str | None, stream_id: str | None) -> Ask:
        if session_id is not None:
            checked_id(session_id, "session_id")
        if stream_id is not None:
            checked_id(stream_id, "stream_id")
        if which == "latest" and session_id is None and stream_id is None:
            raise ValueError(
                "recover() needs a session_id or a stream_id; recover_all() needs none"
            )
        return lambda request_id: messages.Recover(
            request_id, which, session_id, stream_id, self._seen(session_id, stream_id)
        )

    def _has_partial(self, session_id: str) -> Ask:
        checked_id(session_id, "session_id")
        return lambda request_id: messages.HasPartial(
            request_id, session_id, self._seen(session_id, None)
        )

    def _resolve(self, stream_id: str, last_seq: int | None) -> Ask:
        checked_id(stream_id, "stream_id")
        if last_seq is not None and (type(last_seq) is not int or not 0 <= last_seq < 2**32):
            raise ValueError(
                f"last_seq must be an int from 0 to {2**32 - 1}, "
                f"got {value_encoding.brief(last_seq)}"
            )
        return lambda request_id: messages.Resolve(
            request_id, stream_id, last_seq, None, self._seen(None, stream_id)
        )

    @staticmethod
    def _is_so(answer: bytes) -> bool:
        with loading():
            from walld_client.query.requests import decode_bool

        return decode_bool(answer)

    def _recovered(self, answer: bytes, *, every: bool) -> list[PartialReply]:
        """every: also those of other applications."""
        with loading():
            from walld_client.query.requests import decode_replies
            from walld_client.recovered.partial import from_recovered

        told = decode_replies(answer)
        if every or self._sees_all:
            return list(map(from_recovered, told))
        own = [one for one in told if one.app in (None, self._app)]
        if others := {one.app for one in told} - {None, self._app}:
            _log.info(
                "%d replies of other applications are left to them (%s); connect(app='*') sees all",
                len(told) - len(own),
                ", ".join(map(repr, sorted(map(str, others))[:_NAMED_MAX])),
            )
        return list(map(from_recovered, own))

    def _unsaved(self, session_id: str | None) -> list[str]:
        """Stream ids of what has ended here and is not released, in the order of their begin."""
        if session_id is not None:
            checked_id(session_id, "session_id")
        process.check_fork()
        with self._link.mutex:  # reading only
            return [
                stream.start.stream_id
                for stream in self._link.registry.by_number.values()
                if stream.terminal
                and not (stream.released or stream.gone)
                and session_id in (None, stream.session_id)
            ]

    def _seen(self, session_id: str | None, stream_id: str | None = None) -> list[messages.Seen]:
        """How far this process has come with the streams it asks about: it reads its own writes.

        Of what is not sent yet too: the daemon waits for it. So this is asked when a request is
        built, with a connection at hand: then there is a daemon to send to.
        """
        producer = self._link.producer
        return [messages.Seen(producer, *due) for due in self._link.due_seqs(session_id, stream_id)]

    # --- sessions ---

    def _session(self, session_id: str) -> SessionSteps:
        with loading():
            from walld_client.session.session_steps import SessionSteps

        app = None if self._sees_all else self._app
        return SessionSteps(session_id, self._redact, self._seen, self._append_queue, app)

    def _sessions(self, prefix: str | None) -> Steps[list[SessionInfo]]:
        with loading():
            from walld_client.session import ledger_steps

        return ledger_steps.sessions(prefix)

    def _delete(self, session_id: str) -> Steps[bool]:
        with loading():
            from walld_client.session import ledger_steps

        return ledger_steps.delete(session_id, self._seen, self._link.leaving)

    def _audit(self, session_id: str | None, present: AwaitedPresent) -> Steps[Report]:
        with loading():
            from walld_client.session import ledger_steps

        return ledger_steps.audited(session_id, present, self._seen)

    def _repair_plan(self, session_id: str, present: AwaitedPresent) -> Steps[list[RepairStep]]:
        with loading():
            from walld_client.session import ledger_steps

        return ledger_steps.plan(session_id, present, self._seen)

    def _after_posts(self, steps: Steps[_T]) -> Steps[_T]:
        with loading():
            from walld_client.session.ledger_steps import after_posts

        return after_posts(self._append_queue, steps)

    # --- without a daemon ---

    def _kept_offline(self, error: Unavailable, session_id: str | None) -> bool | None:
        """What the data directory alone can say: True, False, or None for cannot know."""
        if self._data is None:
            return None
        with loading():
            from walld_client.query import offline

        if not offline.nobody_listens(error.__cause__):
            return None
        if self._link.registry.by_number:
            return None  # what this process itself holds for a daemon is not in the directory
        uid = os.geteuid()
        if session_id is None:
            return offline.has_any(self._data, uid)
        return offline.has_partial(self._data, uid, session_id)

    def _proven_empty(self, error: Unavailable, session_id: str | None) -> None:
        """Returns where nothing is kept, proven; raises Unavailable where that is not known."""
        kept = self._kept_offline(error, session_id)
        if kept is False:
            return
        hint = ""
        if kept:
            hint = f"; something is kept: `walld recover --data {self._data}` can read it"
        raise Unavailable(f"{error}{hint}") from error


class Client(ClientBase):
    """A connection to walld for programs without an event loop. Safe in any thread."""

    def __init__(
        self,
        socket: str | os.PathLike[str] | None,
        data: str | os.PathLike[str] | None,
        timeout: float,
        backlog_bytes_max: int,
        redact: Callable[[str], str] | None,
        app: str | None,
    ) -> None:
        super().__init__(socket, data, timeout, backlog_bytes_max, redact, app)
        self._closing = process.Mutex()
        self._closer = 0
        """The thread that has that."""

    @first_use
    def _query(self) -> Query:
        """What replies are asked for on, one request after another."""
        return self._new_query()

    @first_use
    def _pool(self) -> Pool:
        """What sessions ask on, each request on a connection of its own."""
        from walld_client.query.pool import Pool

        return Pool(self._query, self._new_query, self._timeout)

    def reply(
        self,
        session_id: str,
        *,
        stream_id: str | None = None,
        turn_id: str | Entry | None = None,
        parent: str | Entry | None = None,
        auto_release: bool = True,
        **meta: Any,
    ) -> Reply:
        """Open a reply. Use it as a context manager; `end()` it once your copy is saved."""
        stream = self._begin(session_id, stream_id, turn_id, parent, meta)
        return Reply(self._link, stream, self._redact, auto_release)

    def recover(
        self, session_id: str | None = None, *, stream_id: str | None = None
    ) -> PartialReply | None:
        """The latest unreleased reply. None: there is nothing, proven.

        Raises Unavailable where that cannot be known.
        """
        replies = self._replies("latest", session_id, stream_id)
        return replies[-1] if replies else None

    def recover_all(self, session_id: str | None = None) -> list[PartialReply]:
        """Every unreleased reply, in the order in which they began.

        Without an id, those of this application in all sessions.
        """
        return self._replies("all", session_id, None)

    def orphans(self, session_id: str | None = None) -> list[PartialReply]:
        """Unreleased replies of this application whose process is gone: the only ones to adopt."""
        return self._replies("orphans", session_id, None)

    def unsaved(self, session_id: str | None = None) -> list[PartialReply]:
        """Replies of this process that have ended, cancelled ones say, and are not released.

        Save each, then `release(stream_id)`. Raises Unavailable.
        """
        return [
            reply
            for stream_id in self._unsaved(session_id)
            for reply in self._replies("all", None, stream_id)
        ]

    def has_partial(self, session_id: str) -> bool | None:
        """Is there an unreleased reply of this session? None: cannot know."""
        ask = self._has_partial(session_id)
        try:
            return self._is_so(self._query.ask(ask))
        except Unavailable as error:
            return self._kept_offline(error, session_id)

    def resolve(self, stream_id: str, last_seq: int | None = None) -> bool:
        """Remove a reply whose owner is gone, once it is saved. False: there is none such.

        Raises Refused where it has grown beyond `last_seq` or its owner lives.
        """
        return self._is_so(self._query.ask(self._resolve(stream_id, last_seq)))

    def session(self, session_id: str) -> Session:
        """The log of a session. Asks nothing."""
        with loading():
            from walld_client.session.session import Session

        return Session(self._session(session_id), self._pool, self.reply)

    def sessions(self, prefix: str | None = None) -> list[SessionInfo]:
        """Sessions that were written, whose id begins so."""
        return self._asked(self._sessions(prefix))

    def delete(self, session_id: str) -> bool:
        """Remove all there is of a session, replies and artifacts too. False: there was nothing; or
        the daemon was gone before it could answer, and the delete was asked for again.

        When it returns nothing of it can be read back; its bytes leave the disk behind that.
        """
        return self._asked(self._delete(session_id))

    def audit(self, session_id: str | None = None, *, present: Present = None) -> Report:
        """What the log holds against your own store; without an id, of every session.

        present: the turn or message ids that your store holds, or a callable that says of a turn
        True, False, or None: cannot know.
        """
        return self._asked(self._audit(session_id, present))

    def repair_plan(self, session_id: str, *, present: Present) -> list[RepairStep]:
        """Steps for your own store, in order; one whose `key` was done before is passed over."""
        return self._asked(self._repair_plan(session_id, present))

    @as_declared
    def close(self, timeout: Seconds = CLOSE_SECONDS) -> bool:
        """Wait for the kernel to take the rest, at most `timeout`; True if it has. Then let go.

        Another close() waits for this one, in its own time, and says the same. One that is
        interrupted in its wait has let go of nothing: the next does it.
        """
        process.check_fork()
        deadline = time.monotonic() + timeout
        lock = self._closing.lock
        if self._closer == threading.get_ident():  # in a signal handler, within the other one
            is_flushed = link_registry.flushed(self._link, _left(deadline))
            return is_flushed and not made(self, "_append_queue")
        if not lock.acquire(timeout=_left(deadline)):
            return bool(self._taken)
        try:
            self._closer = threading.get_ident()
            if self._taken is None:
                self._taken = self._handed_over(deadline)
                self._let_go(deadline)
            return self._taken
        finally:
            self._closer = 0
            lock.release()

    def _handed_over(self, deadline: float) -> bool:
        done = link_registry.flushed(self._link, _left(deadline))
        append_queue: AppendQueue | None = made(self, "_append_queue")
        if append_queue:
            with suppress(Unavailable):
                append_queue.settle(_left(deadline))
        pool: Pool | None = made(self, "_pool")
        query: Query | None = made(self, "_query")
        if pool is not None:
            pool.close()
        elif query is not None:
            query.close()
        return (append_queue is None or append_queue.close()) and done

    def _let_go(self, deadline: float) -> None:
        if self._parts():
            closed = threading.Event()
            self._link.shut(closed.set)
            process.io_thread().wait(closed, max(0.1, _left(deadline)))

    def _asked(self, steps: Steps[_T]) -> _T:
        return run(self._pool, self._after_posts(steps))

    def _new_query(self) -> Query:
        with loading():
            from walld_client.query.query import Query

        return Query(self._locate, self._timeout, self._sync_tokens)

    def _replies(
        self, which: str, session_id: str | None, stream_id: str | None
    ) -> list[PartialReply]:
        ask = self._recover(which, session_id, stream_id)
        try:
            answer = self._query.ask(ask)
        except Unavailable as error:
            self._proven_empty(error, session_id)
            return []
        return self._recovered(answer, every=is_named(which, session_id, stream_id))


def is_named(which: str, session_id: str | None, stream_id: str | None) -> bool:
    """Who asks for a session or a reply by its id sees it, whichever application's; who sweeps
    takes what is found, and so sees its own.
    """
    return which != "orphans" and (session_id is not None or stream_id is not None)


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


@as_declared
def connect(
    socket: Path | None = None,
    *,
    data: Path | None = None,
    timeout: Seconds = TIMEOUT_SECONDS,
    backlog_bytes_max: Count = BACKLOG_BYTES_MAX,
    redact: Callable[[str], str] | None = None,
    app: str | None = None,
) -> Client:
    """A client. Never fails for want of a daemon: events wait in memory until there is one.

    socket: its path; else WALLD_SOCKET, else the first that exists of
    $XDG_RUNTIME_DIR/walld/walld.sock, /run/walld/walld.sock and a private folder of this user in
    the temporary directory. data: the data directory (else WALLD_DATA), for answers without a
    daemon. timeout: what a request waits. backlog_bytes_max: what is held until it is known
    synced. redact: changes every text but ids and names before it leaves the process; a secret
    split over two tokens is its author's problem unless it buffers. What it raises is raised by
    the call. app: the application whose replies these are, and whose `orphans` are seen; else
    WALLD_APP, else the main program's path, or a launcher's name and the working directory. "*":
    those of all applications of this user are seen.
    """
    if not is_enabled():
        from walld_client.null import NullClient

        return NullClient()
    return Client(socket, data, timeout, backlog_bytes_max, redact, app)


def check(socket: str | os.PathLike[str] | None = None) -> str:
    """One sentence: would a reply of this process, sent now, be recoverable?"""
    client = connect(socket)
    try:
        return client.check()
    finally:
        client.close(0.0)
