"""What goes wrong in a world while it is in trouble.

Owns: causing one kind of trouble after the other, as the plan has them, and that agents come anew.
Refuses: which kinds there are in a run (`plan.py`), how a disk fails (`disks.py`).
"""

from __future__ import annotations

import errno
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import anyio

from .agents import Agent
from .clerks import Clerk
from .oracle import BOUND_SECONDS, Wrong

if TYPE_CHECKING:
    from .world import World

__all__ = ["Trouble"]

_AMBUSHES = ("unlink", "unlink", "rename", "sync", "create", "sync_dir", "write")
"""Verbs just behind which everything ends."""
_LOOKS = 0.4
"""Chance that somebody reads all sessions, beside a trouble."""
_FENCED_SECONDS = 12.0
"""A disk may hang for four, three jobs one behind the other."""
_TOLD_TRIES = 100
_TOLD_SECONDS = 0.005


class Trouble:
    """The trouble of one run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._plan = world.plan
        self._random = world.random
        self._kernel = world.kernel
        self._storage = world.storage
        self._oracle = world.oracle
        self._agents = world.agents
        self._murphy = world.murphy
        self._own = world.own

    async def cause_all(self) -> None:
        """One kind after the other, until the time is over."""
        end = anyio.current_time() + self._plan.seconds
        while (now := anyio.current_time()) < end:
            await anyio.sleep(
                min(self._random.expovariate(1 / self._plan.trouble_every), end - now + 1e-6)
            )
            if self._plan.troubles and anyio.current_time() < end:
                await self._cause(self._random.choice(self._plan.troubles))
                if self._plan.asks and self._random.random() < self._plan.asks:
                    await self._world.questions.look_in()
                if self._plan.clerks and self._world.ledger_random.random() < _LOOKS:
                    await self._world.ledger_questions.look_in()
                if self._own.random() < self._plan.asks_own:
                    await self._world.questions.ask_own()
                if self._world.owners.random() < self._plan.fences:
                    await self._fence()
                self._check_bound()

    async def _cause(self, kind: str) -> None:
        now = anyio.current_time()
        living = [agent for agent in self._agents if agent.is_alive]
        match kind:
            case "kill_daemon" if self._random.random() < 0.5:
                await self._world.lives.kill()
            case "kill_daemon":
                self._storage.crash_at = self._storage.ops + self._random.randrange(1, 20)
            case "cut_power":
                if self._plan.listens:
                    await self._until_told(living)
                await self.cut_power()
            case "ambush":
                self._world.mood.ambushed = self._murphy.choice(_AMBUSHES)
                self._world.mood.takes_power = self._murphy.random() < 0.7
                if self._murphy.random() < 0.3:
                    self._world.mood.fail("sync", errno.EIO)
            case "kill_agent" if living:
                self._replace(self._random.choice(living))
            case "cut" if living:
                connection = self._random.choice(living).socket
                if connection is not None:
                    with suppress(OSError):
                        connection.shutdown(2)
            case "repeat" if living:
                self._repeat(self._random.choice(living))
            case "write_error":
                self._world.mood.fail("write", errno.EIO)
            case "sync_error":
                self._world.mood.fail("sync", errno.EIO)
            case "full" if self._plan.tight:
                self._world.mood.fail("", 0)
                self._world.mood.has_room, self._storage.room = False, self._random.randrange(6000)
            case "full":
                self._world.mood.fail("write", errno.ENOSPC)
            case "stop":
                if living and self._murphy.random() < 0.5:
                    self._replace(self._murphy.choice(living))
                await self._world.lives.stop()
                if self._murphy.random() < 0.3:
                    await self.cut_power()
            case "stall":
                self._world.mood.stalled_until = now + self._random.uniform(0.1, 4.0)

    async def _fence(self) -> None:
        """It stops within a second of its own, whatever it does, or does not."""
        daemon = self._world.lives.daemon
        if daemon is None or not daemon._ready.is_set():
            return
        self._world.watch.fence()
        until = anyio.current_time() + _FENCED_SECONDS
        while self._world.lives.daemon is daemon:
            if anyio.current_time() > until:
                raise Wrong(f"a daemon goes on {_FENCED_SECONDS} s after another took over (SIM13)")
            await anyio.sleep(0.05)

    def _replace(self, agent: Agent) -> None:
        """It is killed, and another of its kind begins."""
        self._kill(agent)
        if isinstance(agent, Clerk):
            self.spawn_clerk()
        else:
            self.spawn()

    def _kill(self, agent: Agent) -> None:
        """SIGKILL, where agents listen in the middle of a word."""
        if self._plan.listens:
            agent.say_a_last_word(self._murphy)
        self._end(agent, anyio.current_time())

    def _end(self, agent: Agent, now: float) -> None:
        agent.kill(now)
        self._world.books.has_died(agent.pid, self._kernel.wall_ms())

    async def _until_told(self, living: list[Agent]) -> None:
        """Wait until some agent is told of a sync: what it was told must be true that moment."""
        for _ in range(_TOLD_TRIES):
            if any(agent.hears_news() for agent in living if agent.is_alive):
                return
            await anyio.sleep(_TOLD_SECONDS)

    def _check_bound(self) -> None:
        """P3 (SIM7): where the disk takes what it is given nothing waits beyond the bound."""
        daemon = self._world.lives.daemon
        if daemon is not None:
            self._world.watch.check_writes(daemon)
        if self._plan.hurts or daemon is None or not daemon._ready.is_set():
            return
        oldest = daemon.engine.schedule.oldest
        late = 0.0 if oldest is None else anyio.current_time() - oldest
        if late > BOUND_SECONDS + 0.5:
            raise Wrong(f"an event has waited {late:.1f} s to be written (P3, SIM7)")

    async def cut_power(self) -> None:
        """The machine is gone, with all that ran on it."""
        self._world.mood.takes_power = False
        now = anyio.current_time()
        for agent in self._agents:
            if agent.is_alive:
                self._end(agent, now)
        self._oracle.power_was_cut(now, hurts=self._plan.hurts)
        self._world.books.power_was_cut(now)
        await self._world.lives.kill()
        self._storage.cut_power()
        self._kernel.reboot()
        self._world.books.has_booted(self._kernel.boot, self._kernel.wall_ms())
        for _ in range(self._plan.agents):
            self.spawn()
        for _ in range(self._plan.clerks):
            self.spawn_clerk()

    def _repeat(self, agent: Agent) -> None:
        """A network says again what was said on the connection at hand, to the same daemon.

        Not what a client resends: that is about streams a daemon may be done with since.
        """
        connection = agent.socket
        if connection is None or connection.daemon_no != self._kernel.daemon_no:
            return
        if connection.is_cut:  # all its streams are done with: the daemon forgot who that was
            return
        if agent.link.reconnect.connections > 1:
            return
        with agent.entered(), suppress(OSError):
            again = type(connection)(self._kernel, 1, 1)
            try:
                again.setblocking(False)
                again.connect(self._world.socket_path)
                super(type(again), again).send(bytes(connection.said))
            finally:
                again.close()

    def spawn(self) -> None:
        """A new agent process begins."""
        uid = self._random.choice((1000, 1001))
        agent = Agent(self._kernel, self._oracle, self._world.socket_path, uid)
        self._agents.append(agent)
        script = Random(self._random.random())
        assert self._world.tasks is not None
        plan = self._plan
        self._world.tasks.start_soon(agent.live, script, plan.replies, plan.pace, plan.listens)

    def spawn_clerk(self) -> None:
        """A new process that writes sessions begins."""
        random = self._world.ledger_random
        clerk = Clerk(self._world, random.choice((1000, 1001)))
        self._agents.append(clerk)
        assert self._world.tasks is not None
        self._world.tasks.start_soon(clerk.write, Random(random.random()))
