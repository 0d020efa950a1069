"""`python -m kernel.soak`: one daemon for hours, agents that come and go, and faults: what grows?

    --count N    seconds
    --seed S     of the faults

The daemon is the only one from the first minute to the last, on an ext4 of its own, with its
defaults. Four agents stream and two applications hold sessions; whoever is done, or killed, is
judged, what it left is resolved or deleted, and another one comes. About twice a minute there is a
fault: a process that is killed, a disk that hangs or is full, a daemon that stands still, strangers
at the door. At the end the power is cut, and another daemon comes.

Every ten seconds its memory, threads, descriptors and files are counted. What the last quarter of
the time has more than the second one (by their medians) is what an hour's work has left behind.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final, NamedTuple

import msgspec
import walld_client
from walld_client.wire import messages as wire

from . import mounts
from .converse import session_name
from .disks import cut, fill
from .judge import WrongError
from .lives import Life
from .load import Habits
from .loop import Loop, options
from .processes import Agent, Application, Daemon, RealDaemon

__all__ = ["main", "run"]

_AGENTS: Final = 4
_APPLICATIONS: Final = 2
_MEGABYTES: Final = 256
_FAULT_SECONDS: Final = 25.0
_HANG_SECONDS: Final = 12.0
_FULL_SECONDS: Final = 5.0
_STILL_SECONDS: Final = 5.0
_SAMPLE_SECONDS: Final = 10.0
_CALL_SECONDS_MAX: Final = 2.0
"""What a busy machine may keep a call waiting; stalls are longer."""
_JUDGED_FROM_SECONDS: Final = 600
"""Below that the second quarter is still a beginning."""
_STRANGERS: Final = 200
_HABITS: Final = Habits(patience_seconds=60)
_TURN_ENDS: Final = ("completed", "interrupted")


class _Sample(NamedTuple):
    """What the daemon takes, and its directory."""

    memory_kib: float
    threads: float
    descriptors: float
    files: float
    file_kib: float


_MAY_GROW: Final = _Sample(memory_kib=8192, threads=2, descriptors=20, files=50, file_kib=65536)
"""From the second quarter to the last: what is there differs by who is there just then."""


class _Soak(Life):
    """One directory, one daemon."""

    def __init__(self, loop: Loop, seed: int, folder: Path, mount: mounts.LoopMount) -> None:
        self.mount = mount
        self.random = Random(f"soak {seed}")
        self.applications: list[Application] = []
        self.samples: list[_Sample] = []
        self._names = 0
        self._full_until = 0
        """Whose number is lower has met a full disk, which drops what is too much (P7)."""
        super().__init__(loop, seed, folder, mount.path / "data")

    def another(self) -> Daemon:
        """As anybody starts it."""
        return RealDaemon(self.folder, self.data)

    def died(self) -> None:
        raise WrongError(f"the daemon ended, {self.daemon.exit_code()}; see {self.daemon.log}")

    def check(
        self, replies: Iterable[walld_client.PartialReply], resting: tuple[str, ...] | None = ()
    ) -> None:
        """Without those of turns, which are the applications' own."""
        super().check((one for one in replies if one.session_id.startswith("session ")), resting)

    # --- who is there ---------------------------------------------------------------------------

    def crowd(self) -> None:
        """As many as always, and none has ended by itself."""
        for one in (*self.agents, *self.applications):
            one.check()
        path = self.daemon.socket_path
        while len(self.agents) < _AGENTS:
            self.agents.append(Agent(self.folder, path, self._name(), self.seed, _HABITS))
        while len(self.applications) < _APPLICATIONS:
            self.applications.append(Application(self.folder, path, self._name(), self.seed))

    def _name(self) -> str:
        self._names += 1
        return f"a{self._names}"

    def those_who_are_done(self) -> list[Agent]:
        """They have said all they will."""
        return [agent for agent in self.agents if agent.board.is_finished]

    def see_off(self, agent: Agent) -> None:
        """It is killed; what it was promised is there, then resolved, then gone."""
        agent.kill()
        agent.check()
        self.never_waited(agent)
        board, is_met = agent.board, int(agent.name[1:]) <= self._full_until
        self.promise("written")
        if board.peer == self.daemon.own_pid() and not is_met:
            self.judge.promised(board, agent.name, "sent")
        replies: list[walld_client.PartialReply]
        replies = self.until(lambda: [self.daemon.replies()], "an answer")[0]
        self.check(replies)
        for reply in replies:
            if reply.stream_id.rpartition(".")[0] == agent.name:
                assert not reply.owner_alive, f"{reply.stream_id}: its process is gone"
                self.resolve(reply)
        self.check_answers()
        for at in range(board.streams):
            del self.judge.stories[f"{agent.name}.{at}"]
        self.agents.remove(agent)
        self.loop.tally.did("agents seen off")

    @staticmethod
    def never_waited(agent: Agent) -> None:
        """P7: agents never block."""
        slowest = agent.board.slowest_seconds
        assert slowest < _CALL_SECONDS_MAX, f"{agent.name}: a token took {slowest:.3f} s"

    def see_off_application(self, one: Application) -> None:
        """It is killed; the turn it was at is interrupted, its session is deleted and gone."""
        one.check()
        one.kill()
        one.check()
        self.look_at_session(one)
        row = one.board.row(0)
        self.loop.tally.kinds["sessions"] = self.loop.tally.kinds.get("sessions", 0) + row.tried + 1
        self.ask(wire.Delete(1, session_name(one.name, row.tried)))
        assert self.state_of(one) is None, f"{one.name}: it was deleted"
        self.applications.remove(one)

    def look_at_session(self, one: Application) -> None:
        """Of an application that was killed: each turn it knows taken is there, none goes on."""
        row = one.board.row(0)
        state = self.state_of(one)
        if state is None:
            assert not row.tokens or row.ended, f"{one.name}: {row}, and its session is gone"
            return
        turns = state["turns"]
        assert len(turns) >= row.tokens or row.ended, (
            f"{one.name}: {row}, and has {len(turns)} turns"
        )
        going = [turn for turn in turns if turn["state"] not in _TURN_ENDS]
        assert not going, f"{one.name}: its process is gone, and they go on: {going}"

    def state_of(self, one: Application) -> dict[str, Any] | None:
        """Of the session that it was at."""
        name = session_name(one.name, one.board.row(0).tried)
        told = self.ask(wire.Project(1, name, "state", b"{}"))
        return None if told is None else msgspec.json.decode(told)

    def ask(self, request: Any) -> Any:
        """The daemon's answer."""
        return self.until(lambda: [self.daemon.ask(request)], "an answer")[0]

    # --- faults ---------------------------------------------------------------------------------

    def fault(self) -> None:
        """One of them, and the daemon is well again."""
        kind = self.random.choice(_FAULTS)
        kind(self)
        self.loop.tally.did(f"times {kind.__name__[1:].replace('_', ' ')}")
        self.until(lambda: self.daemon.status()["state"] == "ok", "a daemon that is well")

    def _an_agent_dies(self) -> None:
        self.see_off(self.random.choice(self.agents))

    def _an_application_dies(self) -> None:
        self.see_off_application(self.random.choice(self.applications))

    def _the_disk_hangs(self) -> None:
        self.mount.freeze()
        try:
            time.sleep(self.random.uniform(0.1, _HANG_SECONDS))
        finally:
            self.mount.thaw()

    def _the_disk_is_full(self) -> None:
        self._full_until = self._names
        ballast = self.mount.path / "ballast"
        try:
            fill(ballast, leave=self.random.randrange(200_000))
            time.sleep(self.random.uniform(0.1, _FULL_SECONDS))
        finally:
            ballast.unlink()

    def _the_daemon_stands_still(self) -> None:
        self.daemon.signal(signal.SIGSTOP)
        try:
            time.sleep(self.random.uniform(0.1, _STILL_SECONDS))
        finally:
            self.daemon.signal(signal.SIGCONT)

    def _strangers_come(self) -> None:
        for _ in range(_STRANGERS):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer, suppress(OSError):
                peer.settimeout(_CALL_SECONDS_MAX)
                peer.connect(self.daemon.socket_path)
                peer.send(self.random.randbytes(self.random.choice((1, 5, 40, 4000))))

    # --- what it takes --------------------------------------------------------------------------

    def sample(self) -> None:
        """Count once."""
        process = Path(f"/proc/{self.daemon.own_pid()}")
        pages = int((process / "statm").read_text().split()[1])
        sizes = [
            os.path.getsize(os.path.join(folder, name))
            for folder, _, names in os.walk(self.data)
            for name in names
            if os.path.exists(os.path.join(folder, name))
        ]
        self.samples.append(
            _Sample(
                pages * os.sysconf("SC_PAGE_SIZE") / 1024,
                len(os.listdir(process / "task")),
                len(os.listdir(process / "fd")),
                len(sizes),
                sum(sizes) / 1024,
            )
        )

    def growth(self) -> str:
        """The medians of each quarter of the time. WrongError where the last has too much more."""
        each = max(1, len(self.samples) // 4)
        quarters = [self.samples[at * each : (at + 1) * each] for at in range(4)]
        middles = [
            _Sample(*(median(column) for column in zip(*one, strict=True)))
            for one in quarters
            if one
        ]
        told = [
            f"  {name}: " + ", ".join(f"{value:,.0f}" for value in values)
            for name, *values in zip(_Sample._fields, *middles, strict=True)
        ]
        text = "\n".join(["medians of each quarter of the time:", *told])
        if len(self.samples) * _SAMPLE_SECONDS >= _JUDGED_FROM_SECONDS:
            for name, second, last, most in zip(
                _Sample._fields, middles[1], middles[-1], _MAY_GROW, strict=True
            ):
                if last - second > most:
                    raise WrongError(f"{name} grew by {last - second:,.0f}, at most {most}; {text}")
        return text

    def end(self, cut: Callable[[], None] | None = None) -> None:
        """As each life; and of sessions what was synced is there."""
        status = self.daemon.status()
        assert not status["lost_acked"], f"the daemon says so itself: {status}"
        for one in self.applications:
            one.check()
            one.kill()
        for agent in self.agents:
            self.never_waited(agent)
        super().end(cut)
        self.daemon = self.another()
        self.daemon.until_ready()
        for one in self.applications:
            self.look_at_session(one)
        self.daemon.signal(signal.SIGTERM)
        self.until_gone()


_FAULTS: Final = (
    _Soak._an_agent_dies,
    _Soak._an_application_dies,
    _Soak._the_disk_hangs,
    _Soak._the_disk_is_full,
    _Soak._the_daemon_stands_still,
    _Soak._strangers_come,
)


def _soak(loop: Loop, seed: int, seconds: float, folder: Path) -> None:
    with mounts.mounted("ext4", _MEGABYTES) as mount:
        life = _Soak(loop, seed, folder, mount)
        with life.lived():
            try:
                _live(life, seconds)
                life.until_finished()
                life.end(partial(cut, mount))
            finally:
                for one in life.applications:
                    one.kill()
        print(life.growth(), flush=True)


def _live(life: _Soak, seconds: float) -> None:
    life.until_listens()
    end = time.monotonic() + seconds
    fault_at = sample_at = time.monotonic()
    while (now := time.monotonic()) < end:
        life.crowd()
        if now >= sample_at:
            sample_at = now + _SAMPLE_SECONDS
            life.sample()
        if now >= fault_at:
            life.fault()
            fault_at = time.monotonic() + life.random.expovariate(1 / _FAULT_SECONDS)
        for agent in life.those_who_are_done():
            life.see_off(agent)
        time.sleep(0.02)


def run(seconds: float, seed: int) -> Loop:
    """So long."""
    loop = Loop("soak", int(seconds))
    loop.cycle(seed, partial(_soak, loop, seed, seconds))
    return loop


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    chosen = options("soak", arguments, 3600)
    reason = mounts.why_not("ext4")
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    return run(chosen.count, chosen.seed).end(1)


if __name__ == "__main__":
    sys.exit(main())
