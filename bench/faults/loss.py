"""What is lost when the agent, the daemon, or both are killed while 20 streams speak?

Each of 60 tokens a second; SIGKILL, at a moment drawn by lot. Lost is what was taken and cannot be
read back afterwards: of walld's tokens those that the kernel took (`sent_seq`), of a rival's those
whose call returned. The agent counts them in memory that outlives it (`doomed.py`). In milliseconds
of speech: tokens lost of all 20, by the 1,200 they say a second.

- The agent: what the daemon or a file has of it then.
- The daemon: started again at once; the agent goes on for a second, and ends. What it said
  meanwhile counts as well, but for calls that failed, which are counted apart.
- Both, in an order drawn by lot: what the next daemon has. A peer without a server is its agent.
- On a disk whose writes and syncs take 20 ms more, for those that write to it themselves.

A round has one of each, all at the same time, each with a server of its own. The page cache is
left alone: power is another question (`make kernel`).
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from walld_client import Unavailable, connect

from bench.daemon import PATIENCE_SECONDS, Daemon, environment
from bench.load.doomed import RATE, STREAMS, TEXT, Board, stream_id
from bench.machine import pinned
from bench.peers.known import PEERS, present
from bench.peers.peer import Peer
from bench.peers.redis_streams import RedisStreams
from bench.report.numbers import median, spread
from bench.report.table import Figure
from bench.run import Run

__all__ = ["measure"]

_KILLED = {
    0: {
        "walld": ("agent", "daemon", "both"),
        "redis-everysec": ("agent", "daemon", "both"),
        "json": ("agent",),
        "queue": ("agent",),
    },
    20: {"walld": ("agent", "both"), "json": ("agent",), "queue": ("agent",)},
}
"""Who is killed, of whom, by the ms that a write and a sync take more."""
_MS_A_TOKEN = 1000 / (STREAMS * RATE)
_FLUSH_BOUND_MS = 3000.0
"""What walld promises where both are killed (P3); where one lives, nothing is lost."""
_READ_SECONDS = 20.0
_SAME_SECONDS = 1.0

_Kind = tuple[int, str, str]
"""ms that a write takes more, peer, who is killed."""


# --- where the tokens go ------------------------------------------------------------------------


class _Store(Protocol):
    """A peer, as far as the bench holds it."""

    def start(self) -> None:
        """Its server is begun, on the folder as it is."""

    def wait(self) -> None:
        """Until its server answers."""

    def kill(self) -> None:
        """SIGKILL of its server."""

    def count(self) -> int:
        """Tokens that can be read back now; Unavailable where that cannot be said yet."""


class _Walld:
    def __init__(self, home: Path, cores: set[int], slow_ms: int) -> None:
        self._home, self._cores = home, cores
        self._options = ["--write-ms", str(slow_ms), "--sync-ms", str(slow_ms)]
        self._daemon: Daemon | None = None

    def start(self) -> None:
        self._daemon = Daemon(
            self._home, self._cores, *self._options, wait=False, program="bench.load.slow_disk"
        )

    def wait(self) -> None:
        assert self._daemon is not None
        self._daemon.wait()

    def kill(self) -> None:
        if self._daemon is not None:
            self._daemon.kill()

    def count(self) -> int:
        client = connect(socket=str(self._home / "s"), timeout=PATIENCE_SECONDS)
        try:
            replies = [client.recover(stream_id=stream_id(at)) for at in range(STREAMS)]
        finally:
            client.close()
        return sum(reply.text.count(TEXT) for reply in replies if reply is not None)


class _Rival:
    def __init__(self, peer: Peer, home: Path, cores: set[int]) -> None:
        self._peer, self._home, self._cores = peer, home, cores

    def start(self) -> None:
        self._peer.start(self._home, self._cores)

    def wait(self) -> None:
        pass  # it has

    def kill(self) -> None:
        if isinstance(self._peer, RedisStreams):
            self._peer.server.stop(signal.SIGKILL)

    def count(self) -> int:
        return self._peer.count(self._home)


# --- one kill -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Outcome:
    taken: int
    lost: int
    failed: int
    longest_seconds: float


class _Trial:
    """One agent with one store, and its end."""

    def __init__(self, run: Run, kind: _Kind) -> None:
        self.kind = kind
        slow_ms, self._key, self._killed = kind
        self._home = run.home()
        self._board = Board(self._home)
        self._store: _Store
        if self._key == "walld":
            self._store = _Walld(self._home, run.cores.daemon, slow_ms)
        else:
            self._store = _Rival(PEERS[self._key](), self._home, run.cores.daemon)
        self._cores = run.cores.agents
        self._agent: subprocess.Popen[bytes] | None = None
        self._store.start()

    def launch(self) -> None:
        """Its agent, once the server answers."""
        self._store.wait()
        slow_ms, _, _ = self.kind
        command = [
            sys.executable,
            "-m",
            "bench.load.doomed",
            self._key,
            str(self._home),
            str(slow_ms),
        ]
        # Its client says that the daemon is gone: no news to who reads the bench.
        with pinned(self._cores), (self._home / "agent.log").open("wb") as log:
            self._agent = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                env=environment(),
            )  # fmt: skip

    def close(self) -> None:
        """Nothing of it is left."""
        if self._agent is not None:
            self._agent.kill()
            self._agent.wait()
            for pipe in (self._agent.stdin, self._agent.stdout):
                if pipe is not None:
                    pipe.close()
        self._store.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def ready(self) -> None:
        """Until the agent is."""
        assert self._agent is not None
        assert self._agent.stdout is not None
        if not self._agent.stdout.readline():
            raise self._ended(self._agent.wait())

    def begin(self) -> None:
        """It streams."""
        assert self._agent is not None
        assert self._agent.stdin is not None
        self._agent.stdin.write(b"\n")
        self._agent.stdin.flush()

    def strike(self, chance: random.Random) -> None:
        """SIGKILL, and a new server where the old one is gone."""
        assert self._agent is not None
        victims = []
        if self._killed in ("agent", "both"):
            victims.append(self._agent.kill)
        if self._killed in ("daemon", "both"):
            victims.append(self._store.kill)
        chance.shuffle(victims)
        for kill in victims:
            kill()
        if self._killed != "agent":
            self._store.start()

    def outcome(self) -> _Outcome:
        """After it: the agent ends, where it lives, and all is read back."""
        assert self._agent is not None
        if self._killed == "daemon":
            self._board.stop()
        ended = self._agent.wait(PATIENCE_SECONDS)
        if ended != (0 if self._killed == "daemon" else -signal.SIGKILL):
            raise self._ended(ended)
        taken = self._board.taken
        # One may have been taken while its agent was killed before it could count it.
        lost = max(0, taken - self._found(taken))
        return _Outcome(taken, lost, self._board.failed, self._board.longest_seconds)

    def _ended(self, code: int) -> RuntimeError:
        said = (self._home / "agent.log").read_text()[-600:]
        return RuntimeError(f"the agent of {self._key} ended with {code}: {said}")

    def _found(self, taken: int) -> int:
        """Tokens there, once nothing is on its way any more: what a dead agent left in the kernel
        comes in time, and a daemon that has just begun reads its log first."""
        deadline = time.monotonic() + _READ_SECONDS
        found, since = -1, 0.0
        while time.monotonic() < deadline:
            with suppress(Unavailable):
                now = self._store.count()
                if now != found:
                    found, since = now, time.monotonic()
                if found >= taken or time.monotonic() - since > _SAME_SECONDS:
                    return found
            time.sleep(0.1)
        raise RuntimeError(f"{self._key} does not come to rest: {found} of {taken} tokens")


# --- all of them --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Losses:
    """Of one peer, killed in one way."""

    peer: Peer
    kind: _Kind
    outcomes: list[_Outcome] = field(default_factory=list)

    def _named(self) -> str:
        slow_ms, key, killed = self.kind
        server = "daemon" if key == "walld" else "server"
        whom = {"agent": "agent", "daemon": server, "both": f"agent and {server}"}[killed]
        return f"{self.peer.name}, {whom} killed" + (f", disk +{slow_ms} ms" if slow_ms else "")

    def figures(self) -> list[Figure]:
        _, key, killed = self.kind
        goal = None
        if key == "walld":
            goal = _FLUSH_BOUND_MS if killed == "both" else 0.0
        lost = [one.lost * _MS_A_TOKEN for one in self.outcomes]
        taken = sum(one.taken for one in self.outcomes)
        failed = sum(one.failed for one in self.outcomes)
        longest = max(one.longest_seconds for one in self.outcomes) * 1000
        note = (
            f"{self._named()}: {len(lost)} times, {sum(one.lost for one in self.outcomes):,} of "
            f"{taken:,} tokens lost; a call took at most {longest:,.1f} ms"
        )
        if failed:
            note += f"; {failed:,} calls failed"
        return [
            Figure("loss", f"{self._named()}: speech lost, median", median(lost), "ms",
                   spread=spread(lost), note=note, who=self.peer.name,
                   outlives=self.peer.outlives, promise=self.peer.promise),
            Figure("loss", f"{self._named()}: speech lost, most", max(lost), "ms", goal,
                   who=self.peer.name),
        ]  # fmt: skip


def _round(run: Run, losses: dict[_Kind, _Losses], chance: random.Random) -> None:
    """One of each."""
    with ExitStack() as stack:
        trials = []
        for kind in losses:
            trial = _Trial(run, kind)
            stack.callback(trial.close)
            trials.append(trial)
        for trial in trials:
            trial.launch()
        for trial in trials:
            trial.ready()
        for trial in trials:
            trial.begin()
        time.sleep(run.pick(1.0, 0.6))
        for trial in chance.sample(trials, len(trials)):
            time.sleep(chance.uniform(0.0, 0.1))
            trial.strike(chance)
        time.sleep(run.pick(1.0, 0.5))
        for trial in trials:
            losses[trial.kind].outcomes.append(trial.outcome())


def measure(run: Run) -> list[Figure]:
    """Each peer, killed in each way."""
    able = present(_KILLED[0])
    losses = {
        kind: _Losses(able[key], kind)
        for slow_ms, killed in _KILLED.items()
        for key in killed
        if key in able
        for kind in [(slow_ms, key, whom) for whom in killed[key]]
    }
    chance = random.Random()
    rounds = int(run.pick(7, 1))
    for number in range(rounds):
        run.step(number / rounds, f"kills, round {number + 1} of {rounds}")
        _round(run, losses, chance)
    return [figure for one in losses.values() for figure in one.figures()]
