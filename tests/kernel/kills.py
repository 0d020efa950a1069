"""`python -m kernel.kills`: daemon, agents or both killed under load, what is there?

    --count N    kills
    --seed S     of the first directory
    --full       `walld serve` as a process of its own

A directory lives through several kills; whoever was killed is replaced, whoever lives goes on. At
its end the agents that live say the rest, and all of it must be there (P2).

- The daemon is killed: what was acknowledged as written is in the directory, before the next
  daemon touches it (P2). An agent: what the kernel took is answered by the daemon (P1). Both:
  what was acknowledged as written is in the directory, and nothing older than the bound is
  missing (P3), which takes runs longer than the bound: one directory in sixteen.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from walld_client.wire import messages as wire

from .board import Board
from .judge import Judge, WrongError
from .load import Habits
from .loop import Loop, kept_offline, options
from .processes import Agent, Daemon, ForkedDaemon, RealDaemon
from .spoiled import spoil as spoil_by_name

__all__ = ["main", "run"]

_KILLS_A_DIRECTORY: Final = 16
_LONG_EVERY: Final = 16
"""Of so many directories one is for the bound: two kills of all, each after a load of a second."""
_LONG_BOUND_MS: Final = 500
_BUSY_SECONDS: Final = 0.25
"""What a machine full of other work may keep a daemon from running, on top of its bound."""
_SMALL: Final[tuple[dict[str, int], ...]] = (
    {},
    {"SEGMENT_BYTES_MAX": 4096, "INDEX_ENTRIES_MAX": 6, "UNSYNCED_BYTES_MAX": 16384},
)
_BOUNDS_MS: Final = ("20", "50", "200", "3000")
_RECLAIM_SECONDS: Final = ("0", "0.05", "30")
_VICTIMS: Final = ("daemon",) * 9 + ("agent",) * 6 + ("both",) * 5


class _Directory:
    """One data directory, through its kills."""

    def __init__(
        self, loop: Loop, seed: int, folder: Path, *, full: bool, spoil: Callable[[], None] | None
    ) -> None:
        self.loop = loop
        self.seed = seed
        self.folder = folder
        self.full = full
        self.spoil = spoil
        self.random = Random(f"kills {seed}")
        self.judge = Judge(loop.tally.counts)
        self.small = self.random.choice(_SMALL)
        self.agents: list[Agent] = []
        self.dead: set[str] = set()
        self._names = 0
        self.daemon: Daemon

    # --- who is there ---------------------------------------------------------------------------

    def _start(self, bound_ms: str | None = None) -> None:
        flags = {
            "flush_bound_ms": bound_ms or self.random.choice(_BOUNDS_MS),
            "reclaim_seconds": self.random.choice(_RECLAIM_SECONDS),
        }
        data = self.folder / "data"
        if self.full:
            self.daemon = RealDaemon(self.folder, data, (), **flags)
        else:
            self.daemon = ForkedDaemon(
                self.folder, data, small=self.small, spoil=self.spoil, **flags
            )

    def _spawn(self, habits: Habits | None = None) -> None:
        name = f"a{self._names}"
        self._names += 1
        path = self.daemon.socket_path
        self.agents.append(Agent(self.folder, path, name, self.seed, habits))

    def _bury(self, agent: Agent) -> None:
        agent.kill()
        agent.check()
        self.agents.remove(agent)
        self.dead.add(agent.name)

    def close(self) -> None:
        """Nobody is left."""
        self.daemon.kill()
        for agent in self.agents:
            agent.kill()

    # --- a directory for kills at random --------------------------------------------------------

    def live(self, kills: int) -> None:
        """So many, and the end in peace."""
        self._start()
        try:
            self.daemon.until_listens()
            self._spawn()
            for _ in range(kills):
                if not self.agents or (len(self.agents) < 3 and self.random.random() < 0.3):
                    self._spawn()
                time.sleep(self.random.expovariate(1 / (0.1 if self.full else 0.025)))
                victim = self.random.choice(_VICTIMS)
                {"daemon": self._daemon, "agent": self._agent, "both": self._both}[victim]()
                self.loop.tally.did(f"kills of {victim}")
            self._finish()
        finally:
            self.close()

    def _daemon(self) -> None:
        self.daemon.kill()
        self._judge_offline()
        self._start()

    def _agent(self) -> None:
        """The daemon lives, and answers with everything the kernel took of the dead one."""
        daemon = self.daemon
        daemon.until_ready()
        agent = self.random.choice(self.agents)
        if self.random.random() < 0.5:
            daemon.until(lambda: agent.board.peer == daemon.own_pid(), "an agent that came back")
            time.sleep(self.random.expovariate(1 / 0.01))
        self._bury(agent)
        board = agent.board
        certain = (
            board.peer == daemon.own_pid()
        )  # else some of it may have gone to one that was killed
        for one in self.agents:
            self.judge.promised(one.board, one.name, "written")
        self.judge.promised(board, agent.name, "sent" if certain else "written")
        replies = daemon.replies()
        for one in [agent, *self.agents]:
            self.judge.said(one.board, one.name)
        alive = [r.stream_id for r in replies if r.owner_alive and _of(r.stream_id, agent.name)]
        if alive:
            raise WrongError(f"called alive, and their process is gone: {alive}")
        self.judge.check(replies, resting=())
        if certain:
            self.loop.tally.did("agents whose every byte was asked for")
        for reply in replies:
            dead = reply.stream_id.rpartition(".")[0] in self.dead
            if dead and self.random.random() < 0.3:
                daemon.ask(wire.Resolve(1, reply.stream_id, reply.last_seq))
                self.judge.resolved(reply.stream_id)

    def _both(self) -> None:
        first = self.random.random() < 0.5
        if first:
            self.daemon.kill()
            time.sleep(self.random.choice((0.0, 0.0, 0.003)))
        for agent in list(self.agents):
            self._bury(agent)
            self.judge.promised(agent.board, agent.name, "written")
            self.judge.said(agent.board, agent.name)
        if not first:
            time.sleep(self.random.choice((0.0, 0.0, 0.003)))
            self.daemon.kill()
        self._judge_offline()
        self._start()
        self.daemon.until_listens()

    def _judge_offline(self) -> None:
        """What the dead daemon left, before the next one comes."""
        for agent in self.agents:
            self.judge.promised(agent.board, agent.name, "written")
            self.judge.said(agent.board, agent.name)
        if (self.folder / "data/wal").is_dir() or self.judge.expects_any():
            self.judge.check(kept_offline(self.folder / "data"), resting=self.dead)

    def _finish(self) -> None:
        """Everybody who lives says the rest, and all of it is there."""
        daemon = self.daemon
        for agent in self.agents:
            board = agent.board
            daemon.until(lambda board=board: board.is_finished, "all said and synced")  # type: ignore[misc]
            for at in range(board.streams):
                row = board.row(at)
                if 0 <= row.synced < row.tried:
                    raise WrongError(f"{agent.name}.{at}: {row}, and all of it is synced")
            self.judge.promised(board, agent.name, "synced")
            self.judge.said(board, agent.name)
        daemon.until_ready()
        self.judge.check(daemon.replies(), resting=self.dead)
        status = daemon.status()
        if status["lost_acked"] or status["start"]["corrupt"]:
            raise WrongError(f"the daemon says so itself: {status}")

    # --- a directory for the bound --------------------------------------------------------------

    def live_long(self, kills: int) -> None:
        """Both are killed after more than one bound."""
        for number in range(kills):
            self._start(str(_LONG_BOUND_MS))
            try:
                self.daemon.until_ready()
                self._spawn(Habits(drains=0.01, bursts=2000))
                agent = self.agents[0]
                self.daemon.until(agent.board.is_told, "a first ack")
                time.sleep(_LONG_BOUND_MS / 1000 * self.random.uniform(1.2, 1.8))
                killed_at = time.monotonic()
                if number % 2:
                    self.daemon.kill()
                self._bury(agent)
                self.daemon.kill()
                self.judge.promised(agent.board, agent.name, "written")
                self.judge.said(agent.board, agent.name)
                kept = kept_offline(self.folder / "data")
                last = {reply.stream_id: reply.last_seq for reply in kept}
                self.judge.check(kept)
                _within_bound(agent.board, agent.name, last, killed_at)
                self.loop.tally.did("kills of both, after a bound")
            finally:
                self.close()


def _of(stream_id: str, name: str) -> bool:
    return stream_id.rpartition(".")[0] == name


def _within_bound(board: Board, name: str, last: dict[str, int], killed_at: float) -> None:
    """P3: what was given to the kernel longer ago than the bound is there."""
    for at in range(board.streams):
        row = board.row(at)
        first_lost = last.get(f"{name}.{at}", 0) + 1
        if row.released or first_lost > row.tokens:
            continue
        age = killed_at - board.time_of(at, first_lost)
        if age > _LONG_BOUND_MS / 1000 + _BUSY_SECONDS:
            raise WrongError(f"{name}.{at} seq {first_lost} is lost, {age:.3f} s after it was said")


def run(count: int, seed: int, *, full: bool, spoil: Callable[[], None] | None) -> Loop:
    """So many kills."""
    loop = Loop("kills", _KILLS_A_DIRECTORY)
    done = number = 0
    while done < count:
        kills = min(_KILLS_A_DIRECTORY, count - done)
        long = (seed + number) % _LONG_EVERY == 0
        kills = min(kills, 2) if long else kills
        make = partial(_Directory, loop, seed + number, full=full, spoil=spoil)
        loop.cycle(seed + number, partial(_one, make, kills, long))
        done += kills
        number += 1
    return loop


def _one(make: Callable[[Path], _Directory], kills: int, long: bool, folder: Path) -> None:
    directory = make(folder)
    (directory.live_long if long else directory.live)(kills)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    chosen = options("kills", arguments, 3000)
    spoiled = spoil_by_name(chosen.spoil)
    return run(chosen.count, chosen.seed, full=chosen.full, spoil=spoiled).end(chosen.count)


if __name__ == "__main__":
    sys.exit(main())
