"""A daemon, agents, a disk and trouble, in one thread on a clock that jumps.

Owns: the course of a run: trouble for a while, then rest, then the judgement. Refuses: the daemon's
lives (`lives.py`), what goes wrong (`trouble.py`), what is asked (`questions.py`), what is right
(`oracle.py`).

The daemon and the client are the production code, whole. What is simulated is below them: the disk
(`walld/disk/simulated.py`), the kernel's word on processes and time (`kernel.py`), and the threads,
whose jobs run on the loop after the time the disk is said to take.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any

import anyio
import msgspec
import trio
from trio.testing import MockClock

from walld import limits
from walld.daemon import service
from walld.daemon.settings import load
from walld.daemon.storage import flusher
from walld.disk.medium import PROFILES, Storage

from .agents import Agent
from .books import Books
from .crash_states import CrashStates
from .disks import Mood
from .kernel import Kernel
from .ledger_questions import LedgerQuestions
from .lives import Lives
from .oracle import BOUND_SECONDS, REST_SECONDS, Oracle, Wrong
from .plan import Plan
from .questions import Questions
from .trouble import Trouble
from .watch import Watch

__all__ = ["Outcome", "run"]

_RECLAIM_SECONDS = 0.2
_SLICE_SECONDS = 0.002
"""What sealing one record takes, where bounds are small: agents speak meanwhile."""


_CHECKPOINT_SECONDS = 4.0


class Outcome(msgspec.Struct):
    """What a run came to. digest: of all disk verbs and answers, the same for the same seed."""

    seed: int
    digest: str
    simulated_seconds: float
    starts: int
    checks: int
    disk_ops: int
    streams: int
    crash_states: int


class World:
    """One run."""

    def __init__(self, plan: Plan, folder: str, trace: list[tuple[str, str]] | None = None) -> None:
        self.plan = plan
        self.random = Random(f"run {plan.seed}")
        self.kernel = Kernel(Random(f"kernel {plan.seed}"))
        self.storage = Storage(Random(f"disk {plan.seed}"), PROFILES[plan.profile])
        self.storage.trace = trace
        self.oracle = Oracle()
        is_shaky = plan.ambush or bool({"write_error", "sync_error"} & set(plan.troubles))
        self.books = Books(self.oracle, is_shaky=is_shaky, hurts=plan.hurts or plan.ambush)
        self.books.has_booted(self.kernel.boot, 0)
        self.ledger_random = Random(f"ledger {plan.seed}")
        self.agents: list[Agent] = []
        self.socket_path = f"{folder}/s"
        given: dict[str, str | None] = {
            "data": folder,
            "socket": self.socket_path,
            "flush_linger_ms": plan.flush_linger_ms,
        }
        if plan.small:
            given["reclaim_seconds"] = str(_RECLAIM_SECONDS)
        self.settings = load(given, {"HOME": folder}, os.getuid())
        self.rotten = False
        """Bytes were damaged on purpose, and the daemon has said that something is damaged."""
        self.is_calm = False
        """No more trouble."""
        self.tasks: anyio.abc.TaskGroup | None = None
        self.murphy = Random(f"murphy {plan.seed}")
        self.own = Random(f"own {plan.seed}")
        self.owners = Random(f"owners {plan.seed}")
        self.watch = Watch(self)
        self.mood = Mood(self)
        self.crash_states = CrashStates(self)
        self.storage.fail = self._failing
        self.lives = Lives(self)
        self.trouble = Trouble(self)
        self.questions = Questions(self)
        self.ledger_questions = LedgerQuestions(self)

    async def live(self) -> None:
        """Trouble, rest, judgement."""
        self.kernel.send_faults = self.plan.send_faults
        async with anyio.create_task_group() as tasks:
            self.tasks = tasks
            tasks.start_soon(self.lives.keep)
            for _ in range(self.plan.agents):
                self.trouble.spawn()
            for _ in range(self.plan.clerks):
                self.trouble.spawn_clerk()
            await self.trouble.cause_all()
            await self._come_to_rest()
            await anyio.sleep(2 * BOUND_SECONDS)  # what the dead left is written by then
            await self._all_are_answered()
            settled = await self.questions.ask_all()
            self.questions.judge(settled, "at rest", self.oracle.promises(settled=True))
            lines = await self.ledger_questions.at_rest(settled)
            if self.plan.small:
                await self.questions.erased()
            if self.plan.small:
                lines = await self.ledger_questions.read()  # a reply may have moved meanwhile
            await self.questions.again(settled)
            await self.ledger_questions.again(lines)
            if self.plan.rot:
                await self.questions.rot()
                await self.ledger_questions.after_rot()
            self.lives.over.set()
            tasks.cancel_scope.cancel()

    def _failing(self, verb: str, path: str) -> int:
        self.watch.verb(verb, path)
        self.crash_states.before(verb)
        return self.mood.failing(verb, path)

    async def _come_to_rest(self) -> None:
        """No more trouble: everything is delivered, and said to be, within its time."""
        self.is_calm = True
        self.kernel.send_faults = 0.0
        self.storage.crash_at = 0
        self.mood.ambushed, self.mood.takes_power = "", False
        self.mood.calm()
        self.mood.stalled_until = 0.0
        await self.lives.up()
        living = [agent for agent in self.agents if agent.is_alive]
        while not all(agent.has_finished for agent in living):  # noqa: ASYNC110 - time is virtual
            await anyio.sleep(0.5)
        deadline = anyio.current_time() + REST_SECONDS
        while not all(agent.is_done() for agent in living):
            if anyio.current_time() > deadline:
                late = [a.pid for a in living if not a.is_done()]
                raise Wrong(f"agents {late} are not done {REST_SECONDS} s after all trouble")
            for agent in living:
                agent.nudge()
            await anyio.sleep(0.5)
        await self.questions.check_peace()

    async def _all_are_answered(self) -> None:
        """Whoever has asked for a sync is told. A disk that failed is tried after up to 8 s."""
        deadline = anyio.current_time() + REST_SECONDS
        while asked := [a.pid for a in self.agents if a.is_alive and a.link.acks.drains]:
            if anyio.current_time() > deadline:
                raise Wrong(f"agents {asked} have asked for a sync and got no answer")
            await anyio.sleep(0.5)

    def outcome(self) -> Outcome:
        """What it came to."""
        for path, content in sorted(self.storage.files().items()):
            self.questions.digest.update(f"{path} {len(content)} ".encode() + content)
        return Outcome(
            self.plan.seed,
            self.questions.digest.hexdigest()[:16],
            round(anyio.current_time(), 3),
            self.lives.starts,
            self.oracle.checks,
            self.storage.ops,
            len(self.oracle.stories),
            self.crash_states.seen,
        )


_OWN: dict[tuple[Any, str], Any] = {
    # What a start made is collected once in a daemon's life; here that is a tenth of the time.
    (service, "gc"): SimpleNamespace(
        collect=lambda: 0, freeze=lambda: None, set_threshold=lambda *_: None
    ),
    (limits, "ASKING_SLICE_SECONDS"): 0.001,  # as it was: seeds are the runs they were
}
"""What is other than in production in every run, beside what the kernel gives."""
_SMALL = _OWN | {
    (flusher, "checkpoint"): lambda: anyio.sleep(_SLICE_SECONDS),
    (limits, "SEGMENT_BYTES_MAX"): 4096,
    (limits, "INDEX_ENTRIES_MAX"): 6,
    (limits, "UNSYNCED_BYTES_MAX"): 16384,
    (flusher, "_SEAL_RECORDS"): 1,
}
"""Bounds so low that a short run meets them."""


def _bounds_of(plan: Plan) -> dict[tuple[Any, str], Any]:
    """What stands in the modules in this run."""
    bounds = dict(_SMALL if plan.small else _OWN)
    if plan.clerks:
        bounds[limits, "CHECKPOINT_LINES"] = plan.checkpoint_lines
        bounds[limits, "CHECKPOINT_SECONDS"] = _CHECKPOINT_SECONDS
        if plan.ledger_bytes:
            bounds[limits, "LEDGER_BYTES_MAX"] = plan.ledger_bytes
    return bounds


@contextmanager
def _bounds(values: dict[tuple[Any, str], Any]) -> Iterator[None]:
    """These stand in the modules while it lasts."""
    was = [(module, name, getattr(module, name)) for module, name in values]
    try:
        for (module, name), value in values.items():
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in was:
            setattr(module, name, value)


def run(plan: Plan, trace: list[tuple[str, str]] | None = None) -> Outcome:
    """One run, to its end. Raises Wrong, or whatever the code under test raised."""
    trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[attr-defined]
    trio._core._run._r = Random(f"trio {plan.seed}")  # type: ignore[attr-defined]
    clock = MockClock(autojump_threshold=0)
    folder = tempfile.mkdtemp(prefix="walld-sim-")
    outcomes: list[Outcome] = []

    async def main() -> None:
        world = World(plan, folder, trace)
        try:
            with _bounds(_bounds_of(plan)), world.kernel.installed():
                await world.live()
                outcomes.append(world.outcome())
        finally:
            for agent in world.agents:
                agent.close()
                if agent.socket is not None:
                    agent.socket.close()
            world.kernel.close()

    try:
        with _no_bug_is_passed_over():
            anyio.run(main, backend="trio", backend_options={"clock": clock})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return outcomes[0]


class _Bugs(logging.Handler):
    """What a daemon logs with a traceback: it met a bug, and went on."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.met: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.met.append(record.exc_info[1])


@contextmanager
def _no_bug_is_passed_over() -> Iterator[None]:
    """Nothing is logged meanwhile; the first bug that would have been is raised."""
    log, bugs = logging.getLogger("walld"), _Bugs()
    was = log.level, log.propagate
    log.setLevel(logging.ERROR)
    log.propagate = False
    log.addHandler(bugs)
    try:
        yield
    finally:
        log.removeHandler(bugs)
        log.setLevel(was[0])
        log.propagate = was[1]
    if bugs.met:
        raise bugs.met[0]
