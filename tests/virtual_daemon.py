"""A whole daemon in this process on a virtual clock: an hour of it takes as long as its work.

The daemon is the real one, with real files and a real Unix socket; trio's MockClock jumps to the
next deadline whenever nothing is ready to run. Threads would break that, so disk jobs run on the
loop, and may be given a virtual duration (`slow`). A disk can be told to fail (`Faults`).
"""

from __future__ import annotations

import errno
import gc
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import anyio
import msgspec
from inline_worker import InlineWorker
from trio.testing import MockClock
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode, split

from walld.daemon.ops.systemd import Notifier
from walld.daemon.service import Daemon
from walld.daemon.settings import Settings, load
from walld.daemon.storage import flusher
from walld.daemon.transport import listener as sockets
from walld.disk.real import RealDisk, RealFile
from walld.disk.retrying import RetryingDisk
from walld.recovery.directory_lock import own

__all__ = [
    "Faults",
    "Home",
    "Peer",
    "Slow",
    "Virtual",
    "all_is_there_after",
    "asked",
    "living",
    "peers_named",
    "recovered",
    "run",
    "said",
    "text_of",
    "tokens",
    "until",
]

T = TypeVar("T")
_hears: msgspec.msgpack.Decoder[wire.ToAgent | wire.Answer] = msgspec.msgpack.Decoder(
    wire.ToAgent | wire.Answer
)


def run(main: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    """Run it on trio with a clock that jumps."""
    clock = MockClock(autojump_threshold=0)
    # What a disk job took in real time must decide nothing here.
    clocks = SimpleNamespace(perf_counter=lambda: _in_disk[0], time_ns=time.time_ns)
    vars(flusher)["time"] = clocks
    # A daemon collects and freezes all of its process at its start. This process is no daemon's.
    daemons = vars(sys.modules[Daemon.__module__])
    daemons["gc"] = SimpleNamespace(**dict.fromkeys(_OF_GC, lambda *_: None))
    try:
        anyio.run(main, *arguments, backend="trio", backend_options={"clock": clock})
    finally:
        vars(flusher)["time"] = time
        daemons["gc"] = gc


_OF_GC = ("collect", "freeze", "set_threshold")
_in_disk = [0.0]
"""What disk verbs have taken in all: the clock by which the flusher measures them."""


class Slow(InlineWorker):
    """Runs jobs on the loop; each takes `seconds` of virtual time before its turn comes."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    async def run(self, job: Callable[[], T]) -> T:
        with anyio.CancelScope(shield=True):  # a thread is not cancelled either
            await anyio.sleep(self.seconds)
        return job()


class Faults:
    """What the disk is to do wrong: per verb, the errors of its next calls. Empty: all is well.

    "write": write_at, "sync": File.sync, "create": Disk.create, each under wal/ alone.
    """

    def __init__(self) -> None:
        self.next: dict[str, list[int | None]] = {"write": [], "sync": [], "create": []}
        """errno of each coming call, None for one that works; after them `stuck` holds."""
        self.stuck: dict[str, int] = {}
        self.write_seconds = 0.0
        """What a write says it took: the cost that the linger follows."""
        self.told: list[tuple[str, str, int | None]] = []
        """(verb, path, errno) of every call so far."""

    def check(self, verb: str, path: str) -> None:
        if not path.startswith("wal/"):
            return
        number = self.next[verb].pop(0) if self.next[verb] else self.stuck.get(verb)
        self.told.append((verb, path, number))
        if number is not None:
            raise OSError(number, os.strerror(number), path)

    def none_was_tried_again(self) -> None:
        """W2: no verb on a file where it failed, but for want of room."""
        failed: set[tuple[str, str]] = set()
        for verb, path, number in self.told:
            assert (verb, path) not in failed
            if number not in (None, errno.ENOSPC):
                failed.add((verb, path))


class FaultyDisk(RealDisk):
    """A real disk that fails when told to."""

    def __init__(self, root: str, faults: Faults) -> None:
        super().__init__(root)
        self.faults = faults

    def create(self, path: str) -> RealFile:
        self.faults.check("create", path)
        made = super().create(path)
        return FaultyFile(self, path, made)


class FaultyFile(RealFile):
    """A file of a FaultyDisk."""

    def __init__(self, disk: FaultyDisk, path: str, made: RealFile) -> None:
        super().__init__(disk, path, made._fd)
        self._faults = disk.faults

    def write_at(self, data: bytes, offset: int) -> int:
        self._faults.check("write", self.path)
        _in_disk[0] += self._faults.write_seconds
        return super().write_at(data, offset)

    def sync(self) -> None:
        try:
            self._faults.check("sync", self.path)
        except OSError:
            self._poisoned = True  # as the real one is after an error
            raise
        super().sync()


class Home:
    """A data directory and a socket path; daemons come and go."""

    def __init__(self, path: Path, **flags: str) -> None:
        self.data = path / "data"
        self.socket_path = str(path / "s")
        given: dict[str, str | None] = {"data": str(self.data), "socket": self.socket_path}
        self.settings: Settings = load(given | flags, {"HOME": str(path)}, os.getuid())

    def holds(self, text: bytes) -> list[str]:
        """Files below the data directory that hold these bytes."""
        found = [path for path in self.data.rglob("*") if path.is_file()]
        return sorted(
            str(path.relative_to(self.data)) for path in found if text in path.read_bytes()
        )

    def wal_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(path.stat().st_size for path in (self.data / "wal").glob("*.wal"))


@asynccontextmanager
async def living(
    home: Home, before: Callable[[Virtual], None] | None = None
) -> AsyncIterator[Virtual]:
    """A daemon from its start to an orderly end. before: called when its socket is there."""
    virtual = Virtual(home)
    if before is not None:
        before(virtual)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(virtual.live)
        await until(lambda: not virtual.is_starting)
        yield virtual
        if not virtual.ended.is_set():
            virtual.stop.set()
            await virtual.ended.wait()


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Look every virtual millisecond; TimeoutError where it never comes."""
    with anyio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 - what is looked at has no event
            await anyio.sleep(0.001)


class Virtual:
    """One daemon."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.faults = Faults()
        self.background, self.worker, self.syncer = Slow(), Slow(), Slow()
        self.sessions = Slow()
        home.data.mkdir(mode=0o700, exist_ok=True)
        self.disk = FaultyDisk(str(home.data), self.faults)
        self._owner = own(str(home.data), RetryingDisk(self.disk))
        self._listener = sockets.bind(home.socket_path, 0o600, None)
        workers = iter([self.background, self.worker, self.syncer, self.sessions, Slow()])
        self.daemon = Daemon(
            home.settings,
            self.disk,
            self._owner,
            [self._listener],
            Notifier(),
            lambda: next(workers),
        )
        self.engine = self.daemon.engine
        # A scrape's thread cannot ask the loop for the time; here the loop's is the only one.
        self.daemon.status._now = anyio.current_time  # type: ignore[method-assign]
        self._scope = anyio.CancelScope()
        self.stop = anyio.Event()
        self.ended = anyio.Event()

    @property
    def is_starting(self) -> bool:
        """The log is being read."""
        return not (self.daemon._ready.is_set() or self.ended.is_set())

    async def live(self) -> None:
        try:
            with self._scope:
                await self.daemon.run(self._stopped)
        finally:
            self._let_go()
            self.ended.set()

    async def _stopped(self) -> str:
        await self.stop.wait()
        return "the test is over"

    async def crash(self) -> None:
        """Gone between two steps, as by SIGKILL: nothing is flushed, nobody is told."""
        self._scope.cancel()
        await self.ended.wait()

    def _let_go(self) -> None:
        """What the kernel does for a process that is gone; closing twice is harmless."""
        with suppress(OSError, ValueError):
            self.daemon.socket_reader.close()
        self.daemon._files.close()
        self.daemon.metrics.close()
        self._listener.close()
        with suppress(OSError):
            os.unlink(self.home.socket_path)
        self._owner.close()
        self.disk.close()

    def lag_max(self) -> float:
        """The upper edge of the fullest flush lag bucket that has anything in it."""
        edges = [0.0]
        for metric in self.daemon.metrics.flush_lag.collect():
            counts = {s.labels["le"]: s.value for s in metric.samples if s.name.endswith("_bucket")}
            total = counts["+Inf"]
            edges += [float(le) for le, count in counts.items() if count >= total][:1]
        return edges[-1]


class Peer:
    """A raw connection. Sending never waits; what came back is asked for with `hear`."""

    def __init__(
        self, virtual: Virtual, role: str = "agent", producer: bytes | None = None
    ) -> None:
        self.producer = producer or os.urandom(16)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.setblocking(False)
        self.socket.connect(virtual.home.socket_path)
        self.ended = False
        self._buffer = b""
        self._drains = 1000
        self._inbox: list[Any] = []
        self.send(wire.Hello(1, role, self.producer))

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *messages: msgspec.Struct) -> None:
        """All of it, at once."""
        raw = b"".join(map(encode, messages))
        assert self.socket.send(raw) == len(raw)

    def heard(self) -> list[Any]:
        """What has come and was not given out yet, Welcome left out."""
        with suppress(BlockingIOError):
            try:
                while data := self.socket.recv(1 << 20):
                    self._buffer += data
            except ConnectionResetError:
                pass  # the end, with something of ours unread
            self.ended = True
        bodies, self._buffer = split(self._buffer)
        said = [_hears.decode(body) for body in bodies]
        inbox, self._inbox = self._inbox, []
        return inbox + [message for message in said if not isinstance(message, wire.Welcome)]

    async def hear(self, kind: type[T], seconds: float = 60.0) -> T:
        """The next message of that kind; what comes before it is dropped."""
        with anyio.fail_after(seconds):
            while True:
                messages = self.heard()
                for at, message in enumerate(messages, 1):
                    if isinstance(message, kind):
                        self._inbox = messages[at:]
                        return message
                await anyio.sleep(0.001)

    async def drain(self, level: str = "written") -> None:
        """All that was sent is at that level."""
        self._drains += 1
        self.send(wire.Drain(self._drains, level))
        while await self.hear(wire.Drained) != wire.Drained(self._drains, level):
            pass


async def asked(virtual: Virtual, request: wire.FromQuery) -> Any:
    """The answer to a request on a connection of its own."""
    with Peer(virtual, "query") as peer:
        peer.send(request)
        chunks = []
        while True:
            answer = await peer.hear(wire.Answer)
            chunks.append(answer.chunk)
            if answer.last:
                return msgspec.msgpack.decode(b"".join(chunks))


async def recovered(virtual: Virtual, stream_id: str) -> wire.Recovered | None:
    """The reply of a stream."""
    answer = await asked(virtual, wire.Recover(1, "all", None, stream_id))
    found = msgspec.convert(answer, list[wire.Recovered])
    return found[0] if found else None


def text_of(reply: wire.Recovered | None) -> bytes:
    """The text of a reply."""
    assert reply is not None
    return b"".join(piece.text for piece in reply.segments if piece.kind == "text")


def tokens(first: int, last: int) -> list[wire.Token]:
    """Of stream 1; each says its seq."""
    return [wire.Token(1, seq, b"%04d" % seq) for seq in range(first, last + 1)]


def said(count: int) -> bytes:
    """The text of `tokens(1, count)`."""
    return b"".join(token.text for token in tokens(1, count))


async def all_is_there_after(home: Home, count: int) -> None:
    """A start finds every one of `tokens(1, count)` of the reply "r", and no damage."""
    async with living(home) as again:
        assert text_of(await recovered(again, "r")) == said(count)
        status = again.daemon.status.status()
        assert status["start"]["corrupt"] == 0  # type: ignore[index]


@contextmanager
def peers_named(monkeypatch: Any, pid: int) -> Iterator[None]:
    """Peers have this pid to the daemon; 0 is what one of another pid namespace has."""
    from walld.daemon.transport import credentials

    def named(peer: socket.socket) -> credentials.PeerCredentials:
        return credentials.PeerCredentials(pid, os.getuid(), os.getgid())

    with monkeypatch.context() as patch:
        patch.setattr(credentials, "credentials", named)
        patch.setattr(credentials, "open_pidfd", lambda _peer, _pid: None)
        yield
