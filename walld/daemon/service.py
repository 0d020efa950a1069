"""Builds a daemon from its parts, and starts and stops them in order.

Owns: wiring the rooms together, signals, exit codes. Refuses: everything they do.

A start: own the directory (LOCK, epoch), claim the socket and listen, read the log in the
background, restore, open a new segment, let agents in. Listening comes first, so nobody waits for a
scan: agents' events wait in the kernel, queries wait within their own timeout.
An end (SIGTERM): stop listening, read what the kernel holds, flush, sync, close.

Exit codes: 0 after SIGTERM or SIGINT, or unused; 1 the directory, the socket or the metrics port
cannot be used, or the directory was removed; 3 another daemon took it over. A setting that cannot
be used is raised as ConfigError, for the command line to say (64).
"""

from __future__ import annotations

import gc
import importlib
import itertools
import logging
import os
import socket
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

import anyio

from walld import __version__, limits
from walld.daemon import event_loop, process_limits
from walld.daemon.api.replies import ReplyRequests
from walld.daemon.api.server import QueryServer
from walld.daemon.api.sessions import SessionRequests
from walld.daemon.idle_exit import IdleExit
from walld.daemon.maintenance import Maintenance
from walld.daemon.metrics import Metrics
from walld.daemon.ops import logs
from walld.daemon.ops.status import DaemonStatus
from walld.daemon.ops.systemd import Notifier, listen_fds
from walld.daemon.session_store.checkpoints import Checkpoints
from walld.daemon.session_store.handles import Files
from walld.daemon.session_store.open_sessions import Sessions, wall_ms
from walld.daemon.session_store.turn_watcher import TurnWatcher
from walld.daemon.shutdown import Shutdown
from walld.daemon.signals import StopSignals
from walld.daemon.startup.deferred_recovery import DeferredRecovery
from walld.daemon.startup.finish_intents import IntentFinisher
from walld.daemon.startup.first_segment import FirstSegment
from walld.daemon.startup.reported_logs import OtherLogs, check_data
from walld.daemon.startup.restore_sessions import restore_sessions
from walld.daemon.startup.restore_streams import restore
from walld.daemon.storage.compaction import Compaction
from walld.daemon.storage.disk_threads import ThreadWorker, Worker
from walld.daemon.storage.flusher import Flusher
from walld.daemon.storage.partial_writer import PartialWriter
from walld.daemon.storage.reply_reader import ReplyReader
from walld.daemon.storage.syncer import Syncer
from walld.daemon.storage.writer import Writer
from walld.daemon.strangers_view import StatusView
from walld.daemon.transport import credentials
from walld.daemon.transport.acceptor import Acceptor
from walld.daemon.transport.connections import Connections
from walld.daemon.transport.fair_queue import FairQueue
from walld.daemon.transport.listener import SocketFile
from walld.daemon.transport.liveness import Liveness
from walld.daemon.transport.socket_reader import SocketReader
from walld.disk.fenced import FencedDisk
from walld.disk.folded import FoldedDisk
from walld.disk.real import RealDisk
from walld.disk.reserve import Reserve
from walld.disk.retrying import RetryingDisk, patiently
from walld.engine.engine import Engine
from walld.engine.flush_schedule import FlushSchedule
from walld.errors import ConfigError, DirectoryTaken, WalldError
from walld.ledger.artifacts import ArtifactStore
from walld.ledger.snapshot import SnapshotStore
from walld.ledger.store import LedgerStore
from walld.partials.store import PartialStore
from walld.recovery.directory_lock import own
from walld.recovery.name_forms import rename_to_disk_form
from walld.recovery.startup_recovery import RecoveredStorage, recover_storage
from walld.wal.segment_files import SegmentFiles

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from anyio.abc import TaskGroup

    from walld.daemon.settings import Settings
    from walld.disk.base import Disk
    from walld.disk.lock import Owner
    from walld.engine.stream import Connection, Process
    from walld.wal.records import Owner as StreamOwner

__all__ = ["Daemon", "serve"]

_log = logging.getLogger("walld")
_peers_log = logging.getLogger("walld.transport")
"""What peers do wrong, of which so many lines a second pass."""
_SHOWN_CHARS_MAX = 200
_TICK_SECONDS = 1.0
_TICKS_OF_A_TRIM = 10


class Daemon:
    """All rooms of one running daemon."""

    def __init__(
        self,
        settings: Settings,
        bare: RealDisk,
        owner: Owner,
        listeners: list[socket.socket],
        notifier: Notifier,
        make_worker: Callable[[], Worker] = ThreadWorker,
        socket_files: Sequence[SocketFile] = (),
    ) -> None:
        """socket_files: the paths of `listeners`, to be looked at."""
        self.settings = settings
        self.owner = owner
        schedule = FlushSchedule(settings.flush_bound_ms, settings.flush_linger_ms)
        self.engine = engine = Engine(schedule, owner.log_uuid, owner.epoch)
        self.notifier = notifier
        self._disk: Disk = FencedDisk(bare, owner.is_owner)
        if owner.is_folded:
            self._disk = FoldedDisk(self._disk, is_folded=owner.is_case_blind)
        disk = self._disk
        store = PartialStore(disk)
        self._files = files = SegmentFiles(disk, owner.log_uuid)
        self._worker = worker = make_worker()
        self._boot = credentials.boot_id()
        self._ready = anyio.Event()
        self._tasks: TaskGroup | None = None
        # Who talks to it, and what they say.
        self.liveness = liveness = Liveness(self._boot)
        self.connections = connections = Connections(engine, liveness)
        reserve = Reserve(disk)
        self.other_logs = other_logs = OtherLogs(
            owner.log_uuid, disk, reserve, worker, self._other_logs_noted
        )
        self.acceptor = acceptor = Acceptor(
            engine,
            connections,
            liveness,
            listeners,
            process_limits.peers_max(),
            self._hand_over,
            other_logs.heard,
        )
        self.fair_queue = fair_queue = FairQueue(engine, connections)
        self.socket_reader = SocketReader(
            engine, connections, acceptor, liveness, fair_queue, self._swept, self._wake_maintenance
        )
        # How it is.
        self.status = status = DaemonStatus(settings, engine, connections, owner)
        self.metrics = metrics = Metrics(
            engine.counters, status.gauges, version=__version__, backend=settings.backend
        )
        # To disk.
        self.writer = writer = Writer(
            engine, files, reserve, owner, metrics, make_worker(), self._replaced
        )
        syncing = make_worker()
        self.syncer = syncer = Syncer(
            engine, connections, files, writer, metrics, syncing, self._synced
        )
        self.flusher = flusher = Flusher(
            engine,
            connections,
            writer,
            syncer,
            metrics,
            fair_queue.begun,
            fair_queue.process_shares.users.wrote,
            self._flushed,
        )
        status.writer, status.syncer, status.metrics = writer, syncer, metrics
        status.socket_files = self._socket_files = socket_files
        # Back from it, and what nobody waits for.
        reader = ReplyReader(engine, files, store, worker)
        partial_writer = PartialWriter(
            engine, flusher, store, reader, worker, settings.retention_seconds
        )
        hold, reclaim = settings.release_hold_seconds, settings.reclaim_seconds
        stores = (LedgerStore(disk, reserve), SnapshotStore(disk), ArtifactStore(disk))
        files_of = Files(*stores, make_worker(), make_worker())
        sessions = Sessions(engine, flusher, files_of, self._boot, liveness.of_owner)
        self._deferred_recovery = deferred_recovery = DeferredRecovery(
            engine, writer, files, reserve, worker, syncing, self._replaced, reclaim, sessions
        )
        self.compaction = Compaction(
            engine, flusher, writer, syncer, files, reader, worker, deferred_recovery, reclaim, hold
        )
        self._first_segment = first_segment = FirstSegment(engine, writer, syncer, self.compaction)
        self._shutdown = Shutdown(
            disk, worker, connections, notifier, syncer, first_segment, self._ready
        )
        self._checkpoints = checkpoints = Checkpoints(engine, flusher, files_of, sessions)
        intent_finisher = IntentFinisher(engine, flusher, files_of, sessions)
        self._turns = turns = TurnWatcher(engine, flusher, files_of, reader, sessions, wall_ms)
        partial_writer.before_age = turns.keep_of_expired
        look = partial(worker.run, writer.check_owner)
        self.maintenance = Maintenance(
            engine,
            partial_writer,
            self.compaction,
            reader,
            checkpoints,
            intent_finisher,
            turns,
            deferred_recovery,
            look,
        )
        status.maintenance, status.sessions, status.other_logs = (
            self.maintenance,
            sessions,
            other_logs,
        )
        sessions.doubt_of = other_logs.doubt
        self._restore_sessions = partial(
            restore_sessions, engine, files_of, reader, sessions, intent_finisher, checkpoints
        )
        replies = ReplyRequests(
            *(engine, self.socket_reader, flusher, reader, partial_writer, self._doubt),
            keep_calls=turns.keep_calls,
        )
        asked = SessionRequests(engine, sessions, turns, replies, partial_writer, files_of, wall_ms)
        self.query_server = QueryServer(
            engine,
            connections,
            replies,
            asked,
            StatusView(status.status).status,
            metrics.exposition,
            self._ready,
            fair_queue.process_shares.agents_wait,
            fair_queue.process_shares.other_users_wait,
            lambda: other_logs.made_at_ms,
        )

    def _doubt(self, uid: int) -> str | None:
        return self.status.doubt or self.other_logs.doubt(uid)

    def _other_logs_noted(self) -> None:
        if self.acceptor.is_open:
            self.socket_reader.begin_parked()

    def _hand_over(self, peer: socket.socket, connection: Connection, rest: bytes) -> None:
        if self._tasks is not None:
            self._tasks.start_soon(self.query_server.serve, peer, connection, rest)
        else:  # the end
            peer.close()

    def _swept(self) -> None:
        self.flusher.wake()

    def _replaced(self) -> None:
        self.syncer.wake()

    def _flushed(self) -> None:
        self.fair_queue.flushed()
        self.maintenance.wake()

    def _synced(self) -> None:
        self.flusher.synced()
        self.fair_queue.synced()
        self.maintenance.wake()

    def _wake_maintenance(self) -> None:
        self.maintenance.wake()

    async def run(self, stop: Callable[[], Awaitable[str]]) -> None:
        """Until `stop` returns, with the word for why. DirectoryTaken: another daemon took over."""
        async with anyio.create_task_group() as life:
            async with anyio.create_task_group() as serving:
                serving.start_soon(self._shutdown.run, stop, serving, life)
                await self._work()
            await self._end()
            life.cancel_scope.cancel()

    async def _work(self) -> None:
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self.socket_reader.run)
            tasks.start_soon(self.socket_reader.accept_newcomers)
            tasks.start_soon(self._watchdog)
            if self._socket_files:
                tasks.start_soon(self._watch_sockets)
            self.notifier.ready("recovering")
            await self._start(tasks)
            tasks.start_soon(self._acknowledge)
            tasks.start_soon(self.other_logs.run)
            tasks.start_soon(self._tick)
            await self._first_segment.is_over.wait()
            for run in (self.flusher.run, self.syncer.run, self.maintenance.run):
                tasks.start_soon(run)

    # --- the start ------------------------------------------------------------------------------

    async def _start(self, tasks: TaskGroup) -> None:
        """Read the log, restore, open a new segment, let agents in."""
        begun = time.perf_counter()
        owner = self.owner
        if isinstance(self._disk, FoldedDisk):
            await self._worker.run(partial(rename_to_disk_form, self._disk, owner))
        disk = RetryingDisk(self._disk)
        store = PartialStore(disk)
        await self.other_logs.begin(self.settings.data, owner.lock_before, wall_ms())
        job = partial(recover_storage, disk, store, owner.log_uuid, owner.epoch, owner.lock_before)
        recovered: RecoveredStorage = await self._worker.run(job)
        now = event_loop.now()

        def watch(uid: int, owner: StreamOwner) -> Process | None:
            return self.liveness.of_owner(uid, owner, now)

        restore(self.engine, recovered, self._boot, watch, now)
        for segment in (one for one in self.engine.segments if one.live_bytes):  # else never read
            try:
                await self._worker.run(partial(self._files.adopt, segment.segment_id))
            except OSError as error:  # no reason not to start (P9): it is told when it is asked for
                _log.error("segment %d: cannot be opened: %s", segment.segment_id, error)
        await self._deferred_recovery.begin(recovered)
        await self._first_segment.begin(tasks, recovered)
        await self._restore_sessions(recovered, disk)
        await self._turns.finish_moved()
        self.status.recovered(recovered, time.perf_counter() - begun)
        self.engine.restored(self.status.gap_word, event_loop.now())
        # What a start made stays for good: it need not be looked at by each collection.
        gc.collect()
        gc.freeze()
        # The hot paths make few cycles; collections over 10,000 streams would hold the loop.
        gc.set_threshold(50_000, 20, 50)
        self._ready.set()
        self.socket_reader.open()
        _log.info(
            "ready: %d streams, %d partials, %d bytes of log read in %.3f s",
            len(self.engine.registry.replies),
            len(self.engine.partials),
            recovered.scanned_bytes,
            time.perf_counter() - begun,
        )
        self.notifier.status("ready")

    # --- small tasks ------------------------------------------------------------------------------

    async def _acknowledge(self) -> None:
        while True:
            await anyio.sleep(limits.ACK_PERIOD_SECONDS)
            await self.connections.acknowledge_all()

    async def _tick(self) -> None:
        said, hung = "", None
        for tick in itertools.count(1):
            await anyio.sleep(_TICK_SECONDS)
            if tick % _TICKS_OF_A_TRIM == 0:
                process_limits.trim_heaps()
            await self.socket_reader.tick()
            self._say_lost_and_refused()
            trouble = self.status.disk_trouble
            if (trouble is None) != (hung is None) and self.writer.trouble is None:
                _log.error("disk: %s", trouble or f"answers again; it was: {hung}")
                hung = trouble
            line = self.status.line()
            if line != said:
                self.notifier.status(line)
                said = line

    def _say_lost_and_refused(self) -> None:
        """What clients say is lost; what was refused: who waits for nothing may not hear of it."""
        for lost in self.engine.lost_acked.told():
            _log.critical("lost_acked: uid %d, %s %s, seqs %d to %d", *lost)
        refused = self.engine.handlers.refused_starts
        while refused:
            uid, stream_id, code = refused.popleft()
            _peers_log.warning(
                "a reply of uid %d was refused, nothing of it is kept: its stream_id %r is in use "
                "(code %s); release or resolve the earlier one, or give it another id",
                uid,
                stream_id[:_SHOWN_CHARS_MAX],
                code,
            )

    async def _watch_sockets(self) -> None:
        """In a thread of its own, which waits for no disk that hangs and for no log to be read."""
        worker = ThreadWorker()
        while True:
            await anyio.sleep(_TICK_SECONDS)
            for file in self._socket_files:
                before = file.listener
                listener = await worker.run(file.look)
                if listener is not None:
                    await self.acceptor.listen_at(listener, before)

    async def _watchdog(self) -> None:
        """Fed from the event loop and never tied to the disk: a hung mount is no reason to die."""
        if self.notifier.watchdog_seconds is None:
            return
        while True:
            self.notifier.watchdog()
            await anyio.sleep(self.notifier.watchdog_seconds / 3)

    # --- the end --------------------------------------------------------------------------------

    async def _end(self) -> None:
        """Everything agents have sent so far is on disk, durably, before they see the end."""
        self._tasks = None
        if self._ready.is_set():
            self.socket_reader.begin_parked()
            await self.socket_reader.read_to_end()
            if await self._first_segment.finish():
                await self.flusher.finish()
                if await self._checkpoints.finish():
                    await self.flusher.finish()
                await self.maintenance.look_last()
                await self._worker.run(partial(self.owner.ended, self.engine.batches.synced_no))
        self.socket_reader.close()
        self._files.close()
        self.metrics.close()


def _run(backend: str, main: Callable[[], Awaitable[None]]) -> None:
    options = {"use_uvloop": True} if backend == "asyncio+uvloop" else {}
    anyio.run(main, backend=backend.partition("+")[0], backend_options=options)


def serve(settings: Settings, users_file: str | None = None) -> int:
    """Run a daemon. Returns its exit code. users_file: it also ends when that is unused."""
    if not __debug__:
        print("walld: asserts guard your data: run without python -O", file=sys.stderr)  # noqa: T201
        return 1
    os.umask(0o077)
    process_limits.keep_private()
    process_limits.bound_heaps()
    # Each read(2) of the background gives the interpreter up and must get it back from a busy loop:
    # at the default of 5 ms, or even at 1, a reply of forty records took that forty times.
    sys.setswitchinterval(0.0001)
    signals = StopSignals()
    notifier = Notifier.from_environment(os.environ, os.getpid())
    try:
        return _serve(settings, users_file, notifier, signals)
    except ConfigError:
        raise  # wrong usage, for the command line to say
    except (WalldError, OSError) as error:
        _log.critical("%s", _named(error, settings.data))
        return 1
    finally:
        notifier.close()
        logs.flush()


def _named(error: WalldError | OSError, data: str) -> str:
    """With the whole path: verbs of the disk name theirs from the data directory on."""
    if not isinstance(error, OSError) or not isinstance(error.filename, str):
        return str(error)
    return f"{os.path.join(data, error.filename)}: [Errno {error.errno}] {error.strerror}"


def _first(error: BaseException) -> BaseException:
    """The first that is no group."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _serve(settings: Settings, users: str | None, notifier: Notifier, signals: StopSignals) -> int:
    if settings.backend == "trio":
        # Its import looks for libraries with a child process: not once the data directory is open,
        # for a fork on a hung mount hangs.
        importlib.import_module("trio")
    if settings.expect_data:
        check_data(settings.data)
    disk = patiently(partial(RealDisk, settings.data))
    owner = own(settings.data, RetryingDisk(disk))
    passed = [SocketFile.passed(fd) for fd in listen_fds(os.environ, os.getpid())]
    bound: list[SocketFile] = []
    try:
        if not passed:
            mode, group = settings.socket_mode, settings.socket_group
            bound = [SocketFile.bound(settings.socket, mode, group)]
        files = passed or bound
        where = "the service manager's socket" if passed else settings.socket
        _log.info("walld %s: data %s, listening on %s", __version__, settings.data, where)

        async def main() -> None:
            listeners = [file.listener for file in files]
            daemon = Daemon(settings, disk, owner, listeners, notifier, socket_files=files)
            if settings.metrics is not None:
                daemon.metrics.serve(settings.metrics)
            unused = IdleExit(users, daemon.acceptor, daemon.connections, daemon.status)
            daemon.status.users = unused.status
            with event_loop.known():
                await daemon.run(partial(unused.stop, signals.wait))

        try:
            _run(settings.backend, main)
        except BaseExceptionGroup as group:
            taken, rest = group.split(DirectoryTaken)
            if taken is not None and rest is None:
                _log.critical("fenced: another daemon owns %s now", settings.data)
                return 3
            told, rest = group.split((WalldError, OSError))
            if told is None or rest is not None:
                raise
            raise _first(told) from None
    finally:
        for file in bound:
            file.close()
        owner.close()
    return 0
