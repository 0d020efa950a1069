"""How far is walld from what this machine can do at all, and what is the gap made of?

A ladder for each thing that somebody waits for. The first rung is the least that any design pays,
by the kernel alone; each further one does all that the one below does and one thing more, and the
last is walld as a program uses it. Rungs take turns, so that a neighbour on the machine is
everybody's. What a rung adds to the one below is a cause of the gap; the notes name them, the
largest first.

    token       a send of as many bytes | packed first | token(); back to back, and 60 a second
    nothing     a round trip to a process that blocks | to one with walld's event loop |
                raw frames to walld | recover() of the client
    long reply  the same, the answer as long as a reply of 10,000 tokens is on the wire
    submit      a write and an fdatasync | and a round trip | to an event loop that hands them to a
                thread | raw frames to walld | submit()
    restart     the log's bytes read, a piece at a time into one buffer | and their CRC-32 | walld's
                scan of them, in this process

A figure has its ladder as `series` and its rung as `who`; the last to the first has no rung. Bulk
ingest has its wall in `ingest.py`, and 64 submitters have theirs in `submits.py`: one sync for all.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from zlib import crc32

import anyio
import msgspec
from walld_client import Client, connect
from walld_client.encoding import event_frames
from walld_client.wire import messages as wire

from bench.daemon import Daemon, Peer, ended, environment
from bench.faults.recover import read, speak, timed
from bench.faults.restart import make_log
from bench.machine import pinned
from bench.report.charts import short
from bench.report.numbers import blocks, median, spread
from bench.report.table import Figure
from bench.run import Run
from walld.daemon.storage.disk_threads import ThreadWorker
from walld.disk.lock import Owner
from walld.disk.real import RealDisk
from walld.wal.log_scan import LogScan

__all__ = ["echo", "measure", "scanning"]

_Rungs = dict[str, Callable[[], object]]
_BLOCKS = 5
_PACED_SECONDS = 1 / 60
_REST_SECONDS = 0.002
"""Behind a rung's turn: whoever was sent something has it by then."""
_TOKENS = 10_000
_CONTENT = "walls " * 50
_PIECE_BYTES = 256 * 1024
_ADDS = {
    "a frame packed and sent": "packing the frame",
    "token()": "the link's lock, the copy that is kept, seq and the checks",
    "a round trip to an event loop": "an event loop in place of a blocking read",
    "raw frames to walld": "the daemon",
    "recover()": "the client",
    "a write, an fdatasync and a round trip": "the round trip",
    "the same through an event loop and a thread": "an event loop that hands both to a thread",
    "submit()": "the client",
    "the bytes read, and their CRC-32": "the CRC-32",
    "walld's scan": "finding the batches and what their directories name",
}
"""What a rung does that the one below it does not."""


def echo(descriptor: str, how: str, length: str) -> None:
    """In a process of its own: so many bytes for whatever comes.

    how: "blocks", "loop", or the path of a file that has what comes, synced, before it is answered.
    """
    other = socket.socket(fileno=int(descriptor))
    answer = bytes(int(length))
    other.sendall(b"!")
    if how == "blocks":
        while other.recv(1 << 16):
            other.sendall(answer)
        return
    kept = None if how == "loop" else os.open(how, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    uvloop = {"use_uvloop": True}
    anyio.run(_echo, other, answer, kept, backend="asyncio", backend_options=uvloop)


async def _echo(other: socket.socket, answer: bytes, kept: int | None) -> None:
    other.setblocking(False)
    thread = ThreadWorker()
    while True:
        try:
            if not (received := other.recv(1 << 16)):
                return
        except BlockingIOError:
            await anyio.wait_readable(other)
            continue
        if kept is not None:
            await thread.run(partial(_keep, kept, received))
        sent = 0
        while sent < len(answer):
            try:
                sent += other.send(answer[sent:])
            except BlockingIOError:
                await anyio.wait_writable(other)


def _keep(file: int, data: bytes) -> None:
    os.write(file, data)
    os.fdatasync(file)


@contextmanager
def _answering(run: Run, how: str, length: int) -> Iterator[socket.socket]:
    """A socket to a process on the daemon's core that answers with so many bytes, or takes all."""
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    program = f"from bench.costs.ladders import echo; echo({other.fileno()}, {how!r}, {length})"
    with pinned(run.cores.daemon):
        process = subprocess.Popen(
            [sys.executable, "-c", program], env=environment(), pass_fds=[other.fileno()]
        )
    other.close()
    with own, ended(process):
        own.recv(1)
        yield own


@contextmanager
def _echoing(
    run: Run, how: str, length: int, asked: bytes = bytes(64)
) -> Iterator[Callable[[], None]]:
    """A round trip: what is asked there, so many bytes back."""
    with _answering(run, how, length) as own:

        def there_and_back() -> None:
            own.sendall(asked)
            left = length
            while left:
                left -= len(own.recv(1 << 18))

        yield there_and_back


def _climbed(
    ladder: str,
    rungs: _Rungs,
    rounds: int,
    each: int,
    before: Callable[[], object] = lambda: None,
) -> list[Figure]:
    """p50 of each rung, `each` calls at a time, and the last to the first with the gap's causes.

    before: done in front of each call, and not counted.
    """
    took: dict[str, list[float]] = {name: [] for name in rungs}
    for _ in range(rounds):
        for name, action in rungs.items():
            for _ in range(each):
                before()
                took[name] += timed(action, 1)
            time.sleep(_REST_SECONDS)
    figures = [
        Figure(
            "ladders", f"{ladder}: {name}, p50", median(seconds) * 1e6, "us",
            spread=spread([median(block) * 1e6 for block in blocks(seconds, _BLOCKS)]),
            series=ladder, who=name,
        )
        for name, seconds in took.items()
    ]  # fmt: skip
    lowest, *_, highest = took.values()
    pairs = zip(blocks(highest, _BLOCKS), blocks(lowest, _BLOCKS), strict=True)
    ratios = [median(above) / median(below) for above, below in pairs]
    middles = {name: median(seconds) * 1e6 for name, seconds in took.items()}
    names = list(middles)
    added = {name: middles[name] - middles[below] for below, name in pairwise(names)}
    causes = sorted(added, key=lambda name: -added[name])
    note = ", ".join(f"{_ADDS[name]} {short(added[name], 'us')}" for name in causes)
    value = middles[names[-1]] / middles[names[0]]
    figures.append(
        Figure("ladders", f"{ladder}: {names[-1]} to {names[0]}", value, "x",
               spread=spread(ratios), note=f"{ladder}: {note}", series=ladder)
    )  # fmt: skip
    return figures


# --- the ladders --------------------------------------------------------------------------------


def _token(run: Run) -> list[Figure]:
    prefix = event_frames.text_prefix(event_frames.TOKEN, 1)
    frame = event_frames.plain_text(prefix, 1, b"abcde")
    with run.daemon() as daemon, _answering(run, "blocks", 0) as into:
        into.setblocking(False)
        client = connect(socket=daemon.socket_path)
        reply = client.reply("ladder")
        rungs: _Rungs = {
            "a send of as many bytes": lambda: into.send(frame),
            "a frame packed and sent": lambda: into.send(
                event_frames.plain_text(prefix, 1, b"abcde")
            ),
            "token()": partial(reply.token, "abcde"),
        }
        figures = _climbed("token, back to back", rungs, int(run.pick(500, 50)), 20)
        figures += _climbed(
            "token, 60 a second", rungs, int(run.pick(60, 10)), 5,
            before=partial(time.sleep, _PACED_SECONDS),
        )  # fmt: skip
        reply.end()
        client.close()
    return figures


def _asked(run: Run, daemon: Daemon, client: Client, ladder: str, session: str) -> list[Figure]:
    """Of a question about a session: nothing there, or a long reply."""
    with Peer(daemon.socket_path, "query") as raw:
        request = wire.Recover(1, "latest", session)
        length = len(raw.ask(request))
        is_there = session == "long"
        program = partial(read, client, session) if is_there else partial(client.recover, session)
        with _echoing(run, "blocks", length) as blocks_, _echoing(run, "loop", length) as loop:
            rungs: _Rungs = {
                "a round trip to a process that blocks": blocks_,
                "a round trip to an event loop": loop,
                "raw frames to walld": partial(raw.ask, request),
                "recover()": program,
            }
            return _climbed(ladder, rungs, int(run.pick(60, 10)), 5)


def _submit(run: Run) -> list[Figure]:
    with run.daemon() as daemon, Peer(daemon.socket_path, "query") as raw:
        client = connect(socket=daemon.socket_path)
        session = client.session("ladder")
        session.submit(_CONTENT)
        line = _first_line(raw, "ladder")
        file = os.open(run.folder / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        number = iter(range(1, 1 << 30))

        def written() -> None:
            os.write(file, line)
            os.fdatasync(file)

        kept = str(run.folder / "kept")
        with (
            _echoing(run, "blocks", 64) as there_and_back,
            _echoing(run, kept, 64, line) as through_a_thread,
        ):

            def both() -> None:
                written()
                there_and_back()

            def raw_submit() -> None:
                at = next(number)
                payload = b'{"message_id":"raw-%d","content":"%b"}' % (at, _CONTENT.encode())
                entry = wire.NewEntry("turn_submitted", payload, f"e{at}", turn=f"t{at}")
                raw.ask(wire.Append(at, "raw", [entry], level="synced"))

            rungs: _Rungs = {
                "a write and an fdatasync": written,
                "a write, an fdatasync and a round trip": both,
                "the same through an event loop and a thread": through_a_thread,
                "raw frames to walld": raw_submit,
                "submit()": partial(session.submit, _CONTENT),
            }
            figures = _climbed("a durable submit", rungs, int(run.pick(100, 20)), 5)
        os.close(file)
        client.close()
    return figures


def _first_line(raw: Peer, session_id: str) -> bytes:
    answer = raw.ask(wire.Events(1, session_id))
    return msgspec.msgpack.decode(answer, type=list[bytes])[0]


@contextmanager
def scanning(run: Run, size: int) -> Iterator[_Rungs]:
    """Ways to go through a log of so many bytes."""
    data = run.home() / "data"
    make_log(data, size)
    paths = sorted((data / "wal").glob("*.wal"))
    disk = RealDisk(str(data))
    holder = Owner(str(data), os.urandom(16))

    room = memoryview(bytearray(_PIECE_BYTES))  # one: fresh memory costs more than what is read

    def pieces() -> Iterator[memoryview]:
        for path in paths:
            with path.open("rb", buffering=0) as file:
                while taken := file.readinto(room):
                    yield room[:taken]

    def checked() -> int:
        crc = 0
        for piece in pieces():
            crc = crc32(piece, crc)
        return crc

    rungs: _Rungs = {
        "the bytes read": lambda: sum(map(len, pieces())),
        "the bytes read, and their CRC-32": checked,
        "walld's scan": lambda: sum(1 for _ in LogScan(disk, holder.log_uuid)),
    }
    try:
        yield rungs
    finally:
        holder.close()
        disk.close()


def _restart(run: Run) -> list[Figure]:
    megabytes = int(run.pick(64, 16))
    with scanning(run, megabytes * 1_000_000) as rungs:
        return _climbed(f"a restart's scan, {megabytes} MB", rungs, 5, 1)


def measure(run: Run) -> list[Figure]:
    """All of them."""
    run.step(0.0, "a token")
    figures = _token(run)
    with run.daemon() as daemon, daemon.agent() as peer:
        run.step(0.4, "a long reply, flushed 700 times")
        peer.send(wire.Start(1, 0, os.urandom(8).hex(), "long"))
        speak(peer, _TOKENS)
        daemon.settle()
        client = connect(socket=daemon.socket_path, timeout=30.0)
        client.recover("nobody")
        run.step(0.6, "nothing there")
        figures += _asked(run, daemon, client, "recover of nothing", "nobody")
        run.step(0.7, "a long reply")
        figures += _asked(run, daemon, client, "recover of 10,000 tokens", "long")
        client.close()
    run.step(0.8, "a submit")
    figures += _submit(run)
    run.step(0.9, "a restart")
    return figures + _restart(run)
