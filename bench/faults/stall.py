"""A disk that takes nothing for ten seconds: who notices?

1,000 streams at 60 tokens a second for a minute, on an ext4 of their own that is frozen meanwhile
(FIFREEZE: each write and each sync of it waits). An agent that uses the client, in a process of its
own, times each token() it calls; a client asks for Status a hundred times a second, which takes as
long as the daemon's loop is busy with something else. Afterwards nothing may be missing.

Wants root, mkfs.ext4 and fsfreeze; where it cannot have them it says so and measures nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from walld_client.wire import messages as wire

from bench.daemon import Daemon, Peer, ended, environment
from bench.load.offering import Offering, compiled, wrong_replies
from bench.machine import pinned
from bench.report.numbers import quantile
from bench.report.table import Figure
from bench.run import Run

__all__ = ["measure"]

_CONNS, _PER, _RATE = 100, 10, 60
_ASK_SECONDS = 0.01
_CHECKED = 40
_MEGABYTES = 512


def _why_not() -> str | None:
    if os.geteuid() != 0:
        return "only root can mount and freeze a file system"
    missing = [name for name in ("mkfs.ext4", "mount", "fsfreeze") if shutil.which(name) is None]
    return f"needs {', '.join(missing)}" if missing else None


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def _disk(home: Path) -> Iterator[Path]:
    """An ext4 of its own where the daemon's data will be."""
    image, data = home / "image", home / "data"
    data.mkdir()
    with image.open("wb") as file:
        file.truncate(_MEGABYTES << 20)
    _do("mkfs.ext4", "-q", str(image))
    _do("mount", "-o", "loop", str(image), str(data))
    try:
        (data / "lost+found").rmdir()
        data.chmod(0o700)
        yield data
    finally:
        _do("umount", str(data))


@contextmanager
def _frozen(disk: Path) -> Iterator[None]:
    _do("fsfreeze", "--freeze", str(disk))
    try:
        yield
    finally:
        _do("fsfreeze", "--unfreeze", str(disk))


class _Asker(threading.Thread):
    """Asks for Status, for ever, and remembers when and how long each took."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon=True)
        self.took: list[tuple[float, float]] = []
        self._peer = Peer(daemon.socket_path, "query")
        self._over = threading.Event()

    def run(self) -> None:
        """Until `end`."""
        while not self._over.wait(_ASK_SECONDS):
            begun = time.perf_counter()
            self._peer.ask(wire.Status(1))
            self.took.append((begun, time.perf_counter() - begun))

    def end(self) -> None:
        """No more questions."""
        self._over.set()
        self.join()
        self._peer.socket.close()


def _talking(daemon: Daemon, seconds: float, run: Run) -> subprocess.Popen[str]:
    """The agent with the client (`talker.py`)."""
    command = [sys.executable, "-m", "bench.load.talker", daemon.socket_path, str(seconds)]
    with pinned(run.cores.agents):
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())


def measure(run: Run) -> list[Figure]:
    """One minute with ten seconds of nothing in it."""
    why_not = _why_not()
    if why_not is not None:
        print(f"bench: stall is left out: {why_not}", file=sys.stderr)
        return []
    home = run.home()
    try:
        with _disk(home) as disk, Daemon(home, run.cores.daemon) as daemon:
            return _measure(run, daemon, disk)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _measure(run: Run, daemon: Daemon, disk: Path) -> list[Figure]:
    seconds, stall = run.pick(60, 6), run.pick(10, 2)
    program = compiled(run.folder)
    burst = 1 if program else 4
    with (
        Offering(
            program, daemon.socket_path, _CONNS, _PER, _RATE, run.cores.agents, burst
        ) as offering,
        ended(_talking(daemon, seconds, run)) as talker,
    ):
        asker = _Asker(daemon)
        asker.start()
        offering.begin(seconds)
        run.step(0.1, "before the stall")
        time.sleep(seconds / 3)
        run.step(0.4, "the disk takes nothing")
        with _frozen(disk):
            begun = time.perf_counter()
            time.sleep(stall)
            waiting = daemon.status()
            over = time.perf_counter()
        run.step(0.6, "after the stall")
        said = offering.result()
        asker.end()
        assert talker.stdout is not None
        talked = json.loads(talker.stdout.read())
        assert talker.wait() == 0
        daemon.settle()
        after = daemon.metrics()
        lost = said["taken"] + talked["calls"]
        lost -= after['walld_events_received_total{kind="token"}']
        lost += sum(v for k, v in after.items() if k.startswith("walld_events_discarded_total"))
        wrong = wrong_replies(daemon, offering, _CHECKED)
        offering.end()
    lags = [took for at, took in asker.took if begun <= at < over]
    others = [took for at, took in asker.took if not begun <= at < over]
    note = (
        f"{said['taken']:,.0f} tokens of {_CONNS * _PER:,} streams, {said['eagain']:.0f} times "
        f"EAGAIN; at the end of the stall {waiting['queue_bytes'] / 1e6:.1f} MB waited to be "
        f"written and {waiting['unsynced_bytes'] / 1e6:.1f} MB to be synced; token() at most "
        f"{talked['most_us'] / 1000:.2f} ms in {talked['calls']:,} calls"
    )
    return [
        Figure("stall", f"{stall:.0f} s of no disk: token() of an agent, p99.9",
               talked["p999_us"] / 1000, "ms", 1.0, note=note),
        Figure("stall", "tokens lost, of all", lost + talked["missing"], "", 0),
        Figure("stall", f"of {_CHECKED} recovered, wrong", wrong, "", 0),
        Figure("stall", "the loop answers Status, p99, while it lasts",
               quantile(lags, 0.99) * 1000, "ms", 20.0,
               spread=(min(lags) * 1000, max(lags) * 1000)),
        Figure("stall", "the same before and after", quantile(others, 0.99) * 1000, "ms", 20.0),
    ]  # fmt: skip
