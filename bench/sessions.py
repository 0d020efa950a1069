"""What does a session cost: submitting, appending, opening, its files, and the tokens beside it?

- A durable submit, by the client, to what nobody can go below: a write and an fdatasync of a line
  of that length, and a round trip of such bytes to a process that only echoes. In turns, once on
  the disk as it is and once with 5 ms more a sync, for both. One journal commits both files: below
  1 means that the rival waits for what the daemon does behind its answer, too.
- 64 submitters at once on such a slow disk, to a writer that syncs each line for itself.
- An append to a session of 100,000 events, and to one of ten: in turns.
- Opening the long one: its fold out of snapshot and file at every 2,500 events of its way there
  (done here, with what the daemon does it with), and the first append after a restart. Other
  sessions are there, so that the daemon has not opened it of itself.
- The bytes of a session's files.
- An agent's tokens while 16 sessions are appended to flat out, in a process that gives way to the
  agent's (nice).
"""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import msgspec
from walld_client import connect
from walld_client.wire import messages as wire

from bench.appenders import Log, entry, message, payloads
from bench.daemon import Daemon, Peer, environment, highest_lag
from bench.machine import pinned
from bench.numbers import median, quantile, spread
from bench.run import Run
from bench.slow_sync import SYNC_SECONDS, slowed
from bench.table import Figure
from walld.daemon.sessions import Files, Sessions
from walld.disk.real import RealDisk
from walld.ledger.artifacts import ArtifactStore
from walld.ledger.line import make_line
from walld.ledger.names import session_dir
from walld.ledger.snapshot import SnapshotStore
from walld.ledger.store import LedgerStore

__all__ = ["measure"]

_BLOCKS = 5
_SLOW = "bench.slow_sync"
_USUAL = message(300)
_LOOK_EVENTS = 2500
_OTHERS = 400
_CHAIN_AND_CRC = len(make_line(1, "a", 0, "b", b"{}", bytes(16))) - len(
    b'{"seq":1,"id":"a","at":"1970-01-01T00:00:00.000Z","type":"b","payload":{}}\n'
)


def _timed(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def _blocks(values: list[float]) -> list[list[float]]:
    size = max(1, len(values) // _BLOCKS)
    return [values[at : at + size] for at in range(0, size * _BLOCKS, size)]


def _ratio(name: str, ours: list[float], rivals: list[float], goal: float, note: str) -> Figure:
    ratios = [median(a) / median(b) for a, b in zip(_blocks(ours), _blocks(rivals), strict=True)]
    value = median(ours) / median(rivals)
    return Figure("sessions", name, value, "x", goal, spread=spread(ratios), note=note)


# --- submitting ---------------------------------------------------------------------------------


def echo(descriptor: str) -> None:
    """In a process of its own: give back what comes."""
    other = socket.socket(fileno=int(descriptor))
    while received := other.recv(1 << 16):
        other.send(received)


@contextmanager
def _echoing(run: Run) -> Iterator[socket.socket]:
    """A socket whose other end echoes, on the daemon's core."""
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    program = f"from bench.sessions import echo; echo({other.fileno()})"
    with pinned(run.cores.daemon):
        process = subprocess.Popen(
            [sys.executable, "-c", program], env=environment(), pass_fds=[other.fileno()]
        )
    other.close()
    try:
        own.send(b"there?")
        own.recv(6)
        yield own
    finally:
        own.close()
        process.wait()


def _last_line(daemon: Daemon, session_id: str) -> bytes:
    with Peer(daemon.socket_path, "query") as peer:
        lines = msgspec.msgpack.decode(peer.ask(wire.Events(1, session_id)), type=list[bytes])
    return lines[-1]


def _submits(run: Run, program: str, count: int) -> tuple[list[float], list[float], list[float]]:
    """Seconds of a submit, of a write and sync with a round trip, and of that sync, in turns."""
    ours: list[float] = []
    bare: list[float] = []
    syncs: list[float] = []
    sync = slowed(os.fdatasync) if program == _SLOW else os.fdatasync
    with run.daemon(program=program) as daemon, _echoing(run) as echoing:
        client = connect(socket=daemon.socket_path)
        session = client.session("one")
        content = "walls " * 50
        for _ in range(20):
            session.submit(content)
        line = _last_line(daemon, "one")
        answer = bytes(64)
        file = os.open(run.folder / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        clock = time.perf_counter
        try:
            for _ in range(count):
                begun = clock()
                session.submit(content)
                ours.append(clock() - begun)
                begun = clock()
                echoing.send(answer)
                echoing.recv(1 << 16)
                written = clock()
                os.write(file, line)
                sync(file)
                ended = clock()
                bare.append(ended - begun)
                syncs.append(ended - written)
        finally:
            os.close(file)
            client.close()
    return ours, bare, syncs


def _submit_figures(run: Run) -> list[Figure]:
    figures = []
    for program, disk in (("walld", ""), (_SLOW, ", 5 ms a sync")):
        count = int(run.pick(1000, 200) if program == "walld" else run.pick(200, 40))
        ours, bare, syncs = _submits(run, program, count)
        name = f"durable submit to write, fdatasync and a round trip, p50{disk}"
        note = (
            f"submit{disk}: p50 {median(ours) * 1e6:.0f} us, p99 {quantile(ours, 0.99) * 1e6:.0f} "
            f"us; bare: p50 {median(bare) * 1e6:.0f} us, of which write and fdatasync "
            f"{median(syncs) * 1e6:.0f} us"
        )
        figures.append(_ratio(name, ours, bare, 2.0, note))
    return figures


def _alone(run: Run, line: bytes, seconds: float) -> float:
    """Lines a second of a writer that syncs each."""
    sync, count = slowed(os.fdatasync), 0
    file = os.open(run.folder / "alone", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    begun = time.perf_counter()
    while time.perf_counter() < begun + seconds:
        os.write(file, line)
        sync(file)
        count += 1
    os.close(file)
    return count / (time.perf_counter() - begun)


def _appenders(daemon: Daemon, seconds: float, sessions: int, kind: str) -> list[str]:
    """The command of `appenders.py`, which gives way to whatever else is on its core."""
    command = ["nice", "-n", "10", sys.executable, "-m", "bench.appenders"]
    return [*command, daemon.socket_path, str(seconds), str(sessions), kind]


def _crowd_figures(run: Run) -> list[Figure]:
    rounds, seconds = int(run.pick(5, 2)), run.pick(2, 1)
    ratios, rates, tails = [], [], []
    for _ in range(rounds):
        alone = _alone(run, _USUAL, seconds / 2)
        # A fresh one each time: whose turns are open when it ends leaves the next one work.
        with run.daemon(program=_SLOW) as daemon, pinned(run.cores.agents):
            done = subprocess.run(
                _appenders(daemon, seconds, 64, "submit"),
                env=environment(), stdout=subprocess.PIPE, check=True,
            )  # fmt: skip
        said = json.loads(done.stdout)
        rates.append(said["answered"] / said["seconds"])
        tails.append(said["p99_ms"])
        ratios.append(rates[-1] / alone)
    note = (
        f"{median(rates):,.0f} durable submits a second, p99 {median(tails):.0f} ms, of 64 sessions"
        f"; a sync takes {SYNC_SECONDS * 1000:.0f} ms more, for both"
    )
    return [
        Figure("sessions", "64 submitters to one sync a line, 5 ms a sync, throughput",
               median(ratios), "x", 20.0, most=False, spread=spread(ratios), note=note)
    ]  # fmt: skip


# --- a long session -----------------------------------------------------------------------------


@dataclass(slots=True)
class _Looks:
    """What was found of a session on its way."""

    seconds: list[float] = field(default_factory=list)
    behind: list[int] = field(default_factory=list)

    def look(self, daemon: Daemon, session_id: str, last_seq: int) -> None:
        """Fold it as an opening does, out of what is on disk now."""
        with RealDisk(str(daemon.data), read_only=True) as disk:
            snapshots = SnapshotStore(disk)
            nobody = cast(Any, None)
            files = Files(LedgerStore(disk), snapshots, ArtifactStore(disk), nobody, nobody)
            sessions = Sessions(cast(Any, None), cast(Any, None), files, "", lambda *_: None)
            uid = os.getuid()
            # The least of some: what neighbours add to it is not the opening's.
            took = [_timed(lambda: sessions.fold(uid, session_id, [])) for _ in range(5)]
            found = snapshots.read(uid, session_id)
        self.seconds.append(min(took))
        self.behind.append(last_seq - (0 if found is None else found.covers_seq))


def ask(path: str) -> None:
    """In a process of its own: ask for Status every 5 ms until stdin ends. Says what each took."""
    took: list[float] = []
    with Peer(path, "query") as peer:
        while not select.select([0], [], [], 0.005)[0]:
            took.append(_timed(lambda: peer.ask(wire.Status(1))) * 1000)
    print(json.dumps(took))


def _settled(daemon: Daemon, last_seq: int, session_id: str) -> None:
    """Until a checkpoint has nothing to do any more: fewer lines wait than make one due."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with RealDisk(str(daemon.data), read_only=True) as disk:
            tail = LedgerStore(disk).tail(os.getuid(), session_id)
        if tail is not None and last_seq - tail.last_seq < 50:
            return
        time.sleep(0.02)
    raise RuntimeError("the session's lines do not come to its file")


def _grown(run: Run, daemon: Daemon, log: Log, events: int) -> tuple[_Looks, list[float]]:
    """Make a session of so many events; what openings take meanwhile, and what Status does."""
    looks = _Looks()
    given = payloads()
    program = f"from bench.sessions import ask; ask({daemon.socket_path!r})"
    with pinned(run.cores.agents):
        asker = subprocess.Popen(
            [sys.executable, "-c", program], env=environment(),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
    step = min(_LOOK_EVENTS, events // 4)
    for last in range(step, events + 1, step):
        run.step(0.3 + 0.3 * last / events, f"a session of {last:,} events")
        log.grow(given, step)
        if last >= events * 3 // 4:
            _settled(daemon, last, log.session_id)
            looks.look(daemon, log.session_id, last)
    said, _ = asker.communicate()
    return looks, json.loads(said)


def _appends(run: Run, peer: Peer, long: Log, count: int) -> tuple[list[float], list[float]]:
    """Seconds of an append to the long session, and of one around a session's tenth, in turns."""
    ours: list[float] = []
    rivals: list[float] = []
    for at in range((count + 9) // 10):
        short = Log(peer, f"short-{at}")
        short.append(*(entry(_USUAL) for _ in range(5)))
        for _ in range(10):
            ours.append(_timed(partial(long.append, entry(_USUAL))))
            rivals.append(_timed(partial(short.append, entry(_USUAL))))
        if at % 10 == 0:
            run.step(0.6, f"{at * 10} appends of {count}")
    return ours, rivals


def _reopened(run: Run, home: Daemon, session_id: str) -> float:
    """Seconds of the first append after a restart."""
    with Daemon(home.home, run.cores.daemon) as daemon, Peer(daemon.socket_path, "query") as peer:
        Log(peer, "another").append(entry(_USUAL))  # the log is read
        long, one = Log(peer, session_id), entry(_USUAL)
        return _timed(lambda: long.append(one))


def _long_figures(run: Run) -> list[Figure]:
    events = int(run.pick(100_000, 10_000))
    home = run.home()
    try:
        with Daemon(home, run.cores.daemon) as daemon, Peer(daemon.socket_path, "query") as peer:
            for at in range(_OTHERS):
                Log(peer, f"other-{at}").append(entry(_USUAL))
            long = Log(peer, "a-long-one")
            looks, asked = _grown(run, daemon, long, events)
            ours, rivals = _appends(run, peer, long, int(run.pick(2000, 410)))
            _settled(daemon, events + len(ours), long.session_id)
            looks.look(daemon, long.session_id, events + len(ours))
        opened = []
        for at in range(int(run.pick(5, 2))):
            run.step(0.65 + at / 100, f"restart {at + 1}")
            opened.append(_reopened(run, daemon, long.session_id) * 1000)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    note = (
        f"append at event {events:,}: p50 {median(ours) * 1e6:.0f} us, p99 "
        f"{quantile(ours, 0.99) * 1e6:.0f} us; at event 10: {median(rivals) * 1e6:.0f} us, "
        f"{quantile(rivals, 0.99) * 1e6:.0f} us"
    )
    name = f"{events:,} events"
    opens = [seconds * 1000 for seconds in looks.seconds]
    return [
        _ratio(f"append (written) at event {events:,} to event 10, p50", ours, rivals, 1.2, note),
        Figure("sessions", f"opening a session on its way to {name}, at worst", max(opens), "ms",
               20.0, spread=spread(opens)),
        Figure("sessions", f"first append to one of {name} after a restart", median(opened),
               "ms", 20.0, spread=spread(opened)),
        Figure("sessions", "events folded behind the snapshot, at most", max(looks.behind), "",
               50, spread=spread(looks.behind)),
        Figure("sessions", f"the loop answers Status while one grows to {name}, p99",
               quantile(asked, 0.99), "ms", 20.0, spread=(min(asked), max(asked))),
    ]  # fmt: skip


# --- on disk ------------------------------------------------------------------------------------


def _bytes_figure(run: Run, name: str, given: Iterator[bytes]) -> Figure:
    events = 10_000
    with run.daemon() as daemon, Peer(daemon.socket_path, "query") as peer:
        log = Log(peer, "s")
        log.grow(given, events, 10)
        lines = msgspec.msgpack.decode(peer.ask(wire.Events(1, "s")), type=list[bytes])
        daemon.stop()
        folder = daemon.data / session_dir(os.getuid(), "s")
        size = sum(one.stat().st_size for one in folder.iterdir() if one.is_file())
        snapshot = (folder / "snapshot").stat().st_size
    assert len(lines) == events
    own = sum(map(len, lines)) - events * _CHAIN_AND_CRC
    note = (
        f"{name}: {own / events:.0f} bytes a line without chain and crc, "
        f"{_CHAIN_AND_CRC} for those, {snapshot / events:.0f} of the snapshot"
    )
    return Figure("sessions", f"files of {events:,} events to their own lines, {name}", size / own,
                  "x", 1.3, note=note)  # fmt: skip


def _bytes_figures(run: Run) -> list[Figure]:
    overhead = len(make_line(1000, "a" * 16, 0, "message", b"{}", bytes(16), parent="a" * 16))
    small = message(200 - overhead + _CHAIN_AND_CRC + len(b"{}"))
    return [
        _bytes_figure(run, "of a coding agent's sizes", payloads()),
        _bytes_figure(run, "lines of 200 bytes", iter(lambda: small, b"")),
    ]


# --- tokens beside it ---------------------------------------------------------------------------


def _talk(run: Run, daemon: Daemon, seconds: float, beside: int) -> dict[str, float]:
    """An agent's token() for so long, and the flush lag; with so many sessions flat out."""
    before = daemon.metrics()
    with pinned(run.cores.agents):
        flood = None
        if beside:
            command = _appenders(daemon, seconds + 1.5, beside, "append")
            flood = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE)
            time.sleep(0.5)
        command = [sys.executable, "-m", "bench.talker", daemon.socket_path, str(seconds)]
        done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, check=True)
    said: dict[str, float] = json.loads(done.stdout)
    if flood is not None:
        told, _ = flood.communicate()
        answered = json.loads(told)
        said["appends"] = answered["answered"] / answered["seconds"]
    said["lag"] = highest_lag(before, daemon.metrics())
    return said


def _token_figures(run: Run) -> list[Figure]:
    rounds, seconds = int(run.pick(3, 1)), run.pick(4, 2)
    alone, beside = [], []
    with run.daemon() as daemon:
        for at in range(rounds):
            run.step(0.85 + 0.15 * at / rounds, "tokens beside sessions")
            alone.append(_talk(run, daemon, seconds, 0))
            beside.append(_talk(run, daemon, seconds, 16))

    def of(talks: list[dict[str, float]], name: str) -> float:
        return median(talk[name] for talk in talks)

    note = (
        f"token() of an agent, p50 / p99 / p99.9: {of(alone, 'p50_us'):.0f} / "
        f"{of(alone, 'p99_us'):.0f} / {of(alone, 'p999_us'):.0f} us alone, "
        f"{of(beside, 'p50_us'):.0f} / {of(beside, 'p99_us'):.0f} / {of(beside, 'p999_us'):.0f} us "
        f"beside {of(beside, 'appends'):,.0f} appends a second to 16 sessions; flush lag at most "
        f"{of(alone, 'lag'):g} and {of(beside, 'lag'):g} s"
    )
    tails = [talk["p999_us"] / 1000 for talk in beside]
    return [
        Figure("sessions", "token(), p50, beside 16 sessions to alone",
               of(beside, "p50_us") / of(alone, "p50_us"), "x", note=note),
        Figure("sessions", "token(), p99, beside 16 sessions to alone",
               of(beside, "p99_us") / of(alone, "p99_us"), "x"),
        Figure("sessions", "token(), p99.9, beside 16 sessions", median(tails), "ms", 1.0,
               spread=spread(tails)),
        Figure("sessions", "flush lag beside 16 sessions, highest bucket",
               max(talk["lag"] for talk in beside), "s", 3.0),
        Figure("sessions", "tokens missing", sum(talk["missing"] for talk in alone + beside), "",
               0),
    ]  # fmt: skip


def measure(run: Run) -> list[Figure]:
    """All of it."""
    run.folder.mkdir(parents=True, exist_ok=True)
    run.step(0.0, "one submitter")
    figures = _submit_figures(run)
    run.step(0.1, "64 submitters")
    figures += _crowd_figures(run)
    figures += _long_figures(run)
    run.step(0.75, "bytes on disk")
    figures += _bytes_figures(run)
    return figures + _token_figures(run)
