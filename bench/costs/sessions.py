"""What does a session cost: appending, opening, its files, and the tokens beside it?

- An append to a session of 100,000 events, and to one of ten: in turns.
- Opening the long one: its fold out of snapshot and file at every 2,500 events of its way there
  (done here, with what the daemon does it with), and the first append after a restart. Other
  sessions are there, so that the daemon has not opened it of itself.
- The bytes of a session's files.
- An agent's tokens while 16 sessions are appended to flat out, in a process that gives way to the
  agent's (nice).

Durable submits are a question of their own (`submits`).
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
from walld_client.wire import messages as wire

from bench.daemon import Daemon, Peer, ended, environment, highest_lag
from bench.load.appenders import Log, appending, entry, message, payloads
from bench.machine import pinned
from bench.report.numbers import median, quantile, ratio, spread
from bench.report.table import Figure
from bench.run import Run
from walld.daemon.session_store.handles import Files
from walld.daemon.session_store.open_sessions import Sessions
from walld.disk.real import RealDisk
from walld.ledger.artifacts import ArtifactStore
from walld.ledger.line import CHAIN_BYTES, chain_text, make_line
from walld.ledger.names import session_dir
from walld.ledger.snapshot import SnapshotStore
from walld.ledger.store import LedgerStore

__all__ = ["appends", "ask", "make_others", "measure", "reopened"]

_BLOCKS = 5
_USUAL = message(300)
_LOOK_EVENTS = 2500
_OTHERS = 400
_SHORT_EVENTS = 10
_CHAIN = len(b',"chain":""') + len(chain_text(bytes(CHAIN_BYTES)))
_CHAIN_AND_CRC = len(make_line(1, "a", 0, "b", b"{}", bytes(16))) - len(
    b'{"seq":1,"id":"a","at":"1970-01-01T00:00:00.000Z","type":"b","payload":{}}\n'
)


def _timed(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def _ratio(name: str, ours: list[float], rivals: list[float], goal: float, note: str) -> Figure:
    value, each = ratio(ours, rivals, _BLOCKS)
    return Figure("sessions", name, value, "x", goal, spread=spread(each), note=note)


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
            took = [_timed(lambda: sessions.fold(uid, session_id)) for _ in range(5)]
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
    program = f"from bench.costs.sessions import ask; ask({daemon.socket_path!r})"
    with pinned(run.cores.agents):
        asker = subprocess.Popen(
            [sys.executable, "-c", program], env=environment(),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
    step = min(_LOOK_EVENTS, events // 4)
    with ended(asker):
        for last in range(step, events + 1, step):
            run.step(0.3 + 0.3 * last / events, f"a session of {last:,} events")
            log.grow(given, step)
            if last >= events * 3 // 4:
                _settled(daemon, last, log.session_id)
                looks.look(daemon, log.session_id, last)
        said, _ = asker.communicate()
    return looks, json.loads(said)


def appends(
    run: Run, peer: Peer, short: Sequence[int], long: Mapping[int, Log], count: int
) -> dict[int, list[float]]:
    """Seconds of appends around that event of a session, by event, in turns.

    short: a session of its own for each ten appends, or it would soon be longer. long: those that
    are there.
    """
    took: dict[int, list[float]] = {events: [] for events in (*long, *short)}
    for at in range((count + 9) // 10):
        logs = dict(long)
        for events in short:
            logs[events] = Log(peer, f"short-{events}-{at}")
            logs[events].append(*(entry(_USUAL) for _ in range(events - 5)))
        for _ in range(10):
            for events, log in logs.items():
                took[events].append(_timed(partial(log.append, entry(_USUAL))))
        if at % 10 == 0:
            run.step(0.6, f"{at * 10} appends of {count}")
    return took


def make_others(peer: Peer) -> None:
    """So many sessions that a daemon, once started, has not opened any soon of itself."""
    for at in range(_OTHERS):
        Log(peer, f"other-{at}").append(entry(_USUAL))


def reopened(run: Run, home: Path, session_ids: Sequence[str]) -> list[float]:
    """Seconds of the first append to each after a restart."""
    with Daemon(home, run.cores.daemon) as daemon, Peer(daemon.socket_path, "query") as peer:
        Log(peer, "another").append(entry(_USUAL))  # the log is read
        return [
            _timed(partial(Log(peer, session_id).append, entry(_USUAL)))
            for session_id in session_ids
        ]


def _long_figures(run: Run) -> list[Figure]:
    events = int(run.pick(100_000, 10_000))
    home = run.home()
    try:
        with Daemon(home, run.cores.daemon) as daemon, Peer(daemon.socket_path, "query") as peer:
            make_others(peer)
            long = Log(peer, "a-long-one")
            looks, asked = _grown(run, daemon, long, events)
            took = appends(run, peer, [_SHORT_EVENTS], {events: long}, int(run.pick(2000, 410)))
            ours, rivals = took[events], took[_SHORT_EVENTS]
            _settled(daemon, events + len(ours), long.session_id)
            looks.look(daemon, long.session_id, events + len(ours))
        opened = []
        for at in range(int(run.pick(5, 2))):
            run.step(0.65 + at / 100, f"restart {at + 1}")
            opened.append(reopened(run, home, [long.session_id])[0] * 1000)
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
    own = sum(map(len, lines)) - events * _CHAIN
    bare = own - events * (_CHAIN_AND_CRC - _CHAIN)
    note = (
        f"{name}: {bare / events:.0f} bytes a line without chain and crc, to which the files are "
        f"{size / bare:.2f} x; {_CHAIN} of the chain, {_CHAIN_AND_CRC - _CHAIN} of the crc, "
        f"{snapshot / events:.0f} of the snapshot"
    )
    what = f"files of {events:,} events to their own lines without the chain, {name}"
    return Figure("sessions", what, size / own, "x", 1.3, note=note)


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
    with pinned(run.cores.agents), ExitStack() as held:
        flood = None
        if beside:
            command = appending(daemon, seconds + 1.5, beside, "append")
            flood = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE)
            held.enter_context(ended(flood))
            time.sleep(0.5)
        command = [sys.executable, "-m", "bench.load.talker", daemon.socket_path, str(seconds)]
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
    figures = _long_figures(run)
    run.step(0.75, "bytes on disk")
    figures += _bytes_figures(run)
    return figures + _token_figures(run)
