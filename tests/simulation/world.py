"""A daemon, agents, a disk and trouble, in one thread on a clock that jumps.

Owns: the life of a run: trouble for a while, then rest, then the judgement; and that daemons come
back. Refuses: what is right (`oracle.py`).

The daemon and the client are the production code, whole. What is simulated is below them: the disk
(`walld/disk/simulated.py`), the kernel's word on processes and time (`kernel.py`), and the threads,
whose jobs run on the loop after the time the disk is said to take.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar

import anyio
import msgspec
import trio
from trio.testing import MockClock
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode, split

from walld import limits
from walld.daemon import flusher, serve
from walld.daemon import listener as sockets
from walld.daemon.notify import Notifier
from walld.daemon.serve import Daemon
from walld.daemon.settings import load
from walld.disk.medium import PROFILES, Crashed, Storage
from walld.disk.owner import LOCK_BYTES, LOCK_NAME, lock_record, parse_lock
from walld.disk.simulated import SimulatedDisk
from walld.wal.scan import LogScan, list_segments, newest_header

from .agents import Agent
from .disks import ShortDisk
from .kernel import Kernel
from .oracle import Oracle, Promise, Wrong
from .plan import Plan

__all__ = ["Outcome", "run"]

T = TypeVar("T")
_BOUND_SECONDS = 3.0
_REST_SECONDS = 30.0
"""Within which all must be delivered once trouble is over."""
_LOOK_SECONDS = 0.05
_FOREVER = 600.0
_RECLAIM_SECONDS = 0.2
_SLICE_SECONDS = 0.002
"""What sealing one record takes, where bounds are small: agents speak meanwhile."""
_ERASED_SECONDS = 90.0
_ROOM_BYTES = 1 << 40
_AMBUSHES = ("unlink", "unlink", "rename", "sync", "create", "sync_dir", "write")
"""Verbs just behind which everything ends."""
_OWN_TIMES = 3
_TOLD_TRIES = 100
_TOLD_SECONDS = 0.005
_hears: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(wire.ToAgent | wire.Answer)


class Outcome(msgspec.Struct):
    """What a run came to. digest: of all disk verbs and answers, the same for the same seed."""

    seed: int
    digest: str
    simulated_seconds: float
    starts: int
    checks: int
    disk_ops: int
    streams: int


class _Owner:
    """The hold on a simulated directory: `Owner` on disk verbs, without a lock to wait for."""

    def __init__(self, disk: SimulatedDisk) -> None:
        ids = list_segments(disk)
        newest = newest_header(disk, ids)
        self.path = LOCK_NAME
        self._disk = disk
        names = [entry.name for entry in disk.list_dir("")]
        self._file = disk.open(LOCK_NAME) if LOCK_NAME in names else disk.create(LOCK_NAME)
        raw = self._file.read_at(LOCK_BYTES, 0)
        told = parse_lock(raw, LOCK_NAME)
        self.epoch = max(0 if newest is None else newest.epoch, told[0] if told else 0) + 1
        self.log_uuid = os.urandom(16) if newest is None else newest.log_uuid
        if told and ids:
            self.log_uuid = told[1]
        self._record = lock_record(self.epoch, self.log_uuid)
        self._file.write_at(self._record, 0)
        self._file.sync()
        disk.sync_dir("")

    def is_owner(self) -> bool:
        """Nobody froze it here."""
        return self._file.read_at(LOCK_BYTES, 0) == self._record

    def close(self) -> None:
        """Nothing to close."""


class _Worker:
    """A thread of the daemon: its jobs run on the loop, one at a time, after their time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = anyio.Lock()

    async def run(self, job: Callable[[], T]) -> T:
        with anyio.CancelScope(shield=True):  # a thread is not cancelled either
            async with self._lock:
                if self._world.works_early():
                    # What comes after its beginning is not in it, however long it takes.
                    done = job()
                    await anyio.sleep(self._world.latency())
                    return done
                await anyio.sleep(self._world.latency())
                return job()

    async def timed(self, job: Callable[[], object]) -> float:
        begun = anyio.current_time()
        await self.run(job)
        return anyio.current_time() - begun


class World:
    """One run."""

    def __init__(self, plan: Plan, folder: str, trace: list[tuple[str, str]] | None = None) -> None:
        self.plan = plan
        self.random = Random(f"run {plan.seed}")
        self.kernel = Kernel(Random(f"kernel {plan.seed}"))
        self.storage = Storage(Random(f"disk {plan.seed}"), PROFILES[plan.profile])
        self.storage.trace = trace
        self.oracle = Oracle()
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
        self.daemon: Daemon | None = None
        self.starts = 0
        self.rotten = False
        self.is_calm = False
        self._scope = anyio.CancelScope()
        self._wanted = anyio.Event()
        self._is_wanted = True
        self._down = anyio.Event()
        self._stop = anyio.Event()
        self._stalled_until = 0.0
        self._tasks: anyio.abc.TaskGroup | None = None
        self._hash = hashlib.sha256()
        self._ending = anyio.Event()
        self._has_ended = False
        self._shorts = Random(f"short {plan.seed}")
        self._murphy = Random(f"murphy {plan.seed}")
        self._early = Random(f"early {plan.seed}")
        self._own = Random(f"own {plan.seed}")
        self._ambushed = ""
        self._takes_power = False
        self._errors: dict[str, int] = {}
        self._error_until = 0.0
        self._has_room = True
        self.storage.fail = self._failing

    # --- the disk -------------------------------------------------------------------------------

    def latency(self) -> float:
        """What a job takes now."""
        now = anyio.current_time()
        if now < self._stalled_until:
            return self._stalled_until - now
        mean = self.plan.disk_seconds
        return self.random.expovariate(1 / mean) if mean else 0.0

    def works_early(self) -> bool:
        """Whether the job at hand is done now, and told of later."""
        return self.plan.early > 0 and self._early.random() < self.plan.early

    def _failing(self, verb: str, path: str) -> int:
        if verb == self._ambushed and path.startswith(("wal/", "partials/")):
            self._ambushed = ""
            self.storage.crash_at = self.storage.ops + self._murphy.randrange(1, 5)
        if not self._has_room and anyio.current_time() > self._error_until:
            self._no_more_errors()
        if not self._errors or not path.startswith(("wal/", "partials/")):
            return 0
        if anyio.current_time() > self._error_until:
            self._no_more_errors()
            return 0
        return self._errors.get(verb, 0) if self.random.random() < 0.7 else 0

    def _no_more_errors(self) -> None:
        self._errors.clear()
        if not self._has_room:
            self._has_room, self.storage.room = True, _ROOM_BYTES

    # --- the daemon -----------------------------------------------------------------------------

    async def keep_daemon(self) -> None:
        """A supervisor: whenever it is gone it is started again."""
        while True:
            self._down = anyio.Event()
            with anyio.CancelScope() as self._scope:
                await self._one_life()
            self.daemon = None
            self._down.set()
            if self._stop.is_set():
                return
            await anyio.sleep(self.random.choice((0.0, 0.01, 0.5, 2.0)))

    async def _one_life(self) -> None:
        self.starts += 1
        self.kernel.daemon_no = self.starts
        storage = self.storage
        if self.starts == 1:
            storage.crash_at = self.plan.crash_at
        elif self.starts == 2 and self.plan.crash_again and not self.is_calm:
            storage.crash_at = storage.ops + self.plan.crash_again
            self._takes_power = self.plan.power
        elif not self.is_calm and self.random.random() < self.plan.crash_in_recovery:
            storage.crash_at = storage.ops + self.random.randrange(1, 60)
            self._takes_power = self.plan.ambush and self._murphy.random() < 0.5
        disk = ShortDisk(storage, self.plan.short_writes, self._shorts)
        self._ending = anyio.Event()
        self._has_ended = False
        listener = None
        daemon = None
        try:
            owner = _Owner(disk)
            listener = sockets.bind(self.socket_path, 0o600, None)
            daemon = Daemon(
                self.settings,
                disk,  # type: ignore[arg-type]
                owner,  # type: ignore[arg-type]
                [listener],
                Notifier(),
                lambda: _Worker(self),
            )
            daemon.state._now = anyio.current_time  # type: ignore[method-assign]
            self.daemon = daemon
            await daemon.run(self._stopped)
            self._has_ended = True
        except BaseException as error:
            if daemon is None and isinstance(error, OSError):
                return  # it cannot use its directory now: exit 1, and the supervisor tries again
            crashed, rest = _split(error)
            if not crashed:
                raise
            if rest is not None:
                raise rest from None
            self._died()
            self.daemon = None  # it is not there to be killed once more
            if (self.starts == 1 and self.plan.power) or self._takes_power:
                await self._cut_power()
        finally:
            if storage.life == disk._life:
                storage.life += 1
            self.daemon = None
            if daemon is not None:
                with suppress(OSError, ValueError):
                    daemon.intake.close()
                daemon.metrics.close()
            if listener is not None:
                listener.close()
                with suppress(OSError):
                    os.unlink(self.socket_path)

    def _died(self) -> None:
        """A crash: what was promised of the dead is less now."""
        self._ambushed = ""
        self.kernel.daemon_no = 0
        self.storage.kill()
        self.oracle.crashed(anyio.current_time(), _FOREVER if self._hurt else 2 * _BOUND_SECONDS)

    @property
    def _hurt(self) -> bool:
        """The disk fails or hangs in this run: nothing is promised of when it is written."""
        return bool({"write_error", "sync_error", "full", "stall"} & set(self.plan.troubles))

    async def _stopped(self) -> str:
        await self._ending.wait()
        return "the run says so"

    async def stop_daemon(self) -> None:
        """SIGTERM: it ends when all that was sent to it is kept."""
        if self.daemon is None or not self.daemon._ready.is_set():
            return
        self.kernel.daemon_no = 0  # what is sent from here on it may not read any more
        down = self._down
        self._ending.set()
        await down.wait()
        if self._has_ended:
            self.oracle.stopped()

    async def kill_daemon(self) -> None:
        """SIGKILL, between two steps."""
        if self.daemon is None:
            return
        self._died()
        down = self._down
        self._scope.cancel()
        await down.wait()

    async def up(self) -> Daemon:
        """The daemon, once it has read its log."""
        with anyio.fail_after(_REST_SECONDS):
            while True:
                if self.daemon is not None and self.daemon._ready.is_set():
                    return self.daemon
                await anyio.sleep(_LOOK_SECONDS)

    # --- trouble --------------------------------------------------------------------------------

    async def trouble(self) -> None:
        """One kind after the other, until the time is over."""
        end = anyio.current_time() + self.plan.seconds
        while (now := anyio.current_time()) < end:
            await anyio.sleep(
                min(self.random.expovariate(1 / self.plan.trouble_every), end - now + 1e-6)
            )
            if self.plan.troubles and anyio.current_time() < end:
                await self._cause(self.random.choice(self.plan.troubles))
                if self.plan.asks and self.random.random() < self.plan.asks:
                    await self._look_in()
                if self._own.random() < self.plan.asks_own:
                    await self._ask_own()
                self._check_bound()

    async def _cause(self, kind: str) -> None:
        now = anyio.current_time()
        living = [agent for agent in self.agents if agent.is_alive]
        match kind:
            case "kill_daemon" if self.random.random() < 0.5:
                await self.kill_daemon()
            case "kill_daemon":
                self.storage.crash_at = self.storage.ops + self.random.randrange(1, 20)
            case "cut_power":
                if self.plan.listens:
                    await self._until_told(living)
                await self._cut_power()
            case "ambush":
                self._ambushed = self._murphy.choice(_AMBUSHES)
                self._takes_power = self._murphy.random() < 0.7
                if self._murphy.random() < 0.3:
                    self._fail("sync", errno.EIO)
            case "kill_agent" if living:
                self._kill(self.random.choice(living))
                self._spawn()
            case "cut" if living:
                connection = self.random.choice(living).socket
                if connection is not None:
                    with suppress(OSError):
                        connection.shutdown(2)
            case "repeat" if living:
                self._repeat(self.random.choice(living))
            case "write_error":
                self._fail("write", errno.EIO)
            case "sync_error":
                self._fail("sync", errno.EIO)
            case "full" if self.plan.tight:
                self._fail("", 0)
                self._has_room, self.storage.room = False, self.random.randrange(6000)
            case "full":
                self._fail("write", errno.ENOSPC)
            case "stop":
                if living and self._murphy.random() < 0.5:
                    self._kill(self._murphy.choice(living))
                    self._spawn()
                await self.stop_daemon()
                if self._murphy.random() < 0.3:
                    await self._cut_power()
            case "stall":
                self._stalled_until = now + self.random.uniform(0.1, 4.0)

    def _kill(self, agent: Agent) -> None:
        """SIGKILL, where agents listen in the middle of a word."""
        if self.plan.listens:
            agent.say_a_last_word(self._murphy)
        agent.kill(anyio.current_time())

    async def _until_told(self, living: list[Agent]) -> None:
        """Wait until some agent is told of a sync: what it was told must be true that moment."""
        for _ in range(_TOLD_TRIES):
            if any(agent.hears_news() for agent in living if agent.is_alive):
                return
            await anyio.sleep(_TOLD_SECONDS)

    def _check_bound(self) -> None:
        """P3: where the disk takes what it is given nothing waits beyond the bound."""
        daemon = self.daemon
        if self._hurt or daemon is None or not daemon._ready.is_set():
            return
        oldest = daemon.engine.commit.oldest
        late = 0.0 if oldest is None else anyio.current_time() - oldest
        if late > _BOUND_SECONDS + 0.5:
            raise Wrong(f"an event has waited {late:.1f} s to be written (P3)")

    def _fail(self, verb: str, number: int) -> None:
        self._errors[verb] = number
        self._error_until = anyio.current_time() + self.random.choice((0.0, 0.05, 1.0, 3.0))

    async def _cut_power(self) -> None:
        self._takes_power = False
        now = anyio.current_time()
        for agent in self.agents:
            if agent.is_alive:
                agent.kill(now)
        for story in self.oracle.stories.values():
            # Written and not synced may be gone: two bounds are promised, and time is counted.
            if now - (story.killed_at or now) < 4 * _BOUND_SECONDS or self._hurt:
                story.taken = -1
        self.oracle.power_was_cut()
        await self.kill_daemon()
        self.storage.cut_power()
        self.kernel.reboot()
        for _ in range(self.plan.agents):
            self._spawn()

    def _repeat(self, agent: Agent) -> None:
        """A network says again what was said on the connection at hand, to the same daemon.

        Not what a client resends: that is about streams a daemon may be done with since.
        """
        connection = agent.socket
        if connection is None or connection.daemon_no != self.kernel.daemon_no:
            return
        if agent.link.dialing.connections > 1:
            return
        with agent.entered(), suppress(OSError):
            again = type(connection)(self.kernel, 1, 1)
            try:
                again.setblocking(False)
                again.connect(self.socket_path)
                super(type(again), again).send(bytes(connection.said))
            finally:
                again.close()

    def _spawn(self) -> None:
        uid = self.random.choice((1000, 1001))
        agent = Agent(self.kernel, self.oracle, self.socket_path, uid)
        self.agents.append(agent)
        script = Random(self.random.random())
        assert self._tasks is not None
        plan = self.plan
        self._tasks.start_soon(agent.live, script, plan.replies, plan.pace, plan.listens)

    # --- the run --------------------------------------------------------------------------------

    async def live(self) -> None:
        """Trouble, rest, judgement."""
        self.kernel.send_faults = self.plan.send_faults
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self.keep_daemon)
            for _ in range(self.plan.agents):
                self._spawn()
            await self.trouble()
            await self._come_to_rest()
            await anyio.sleep(2 * _BOUND_SECONDS)  # what the dead left is written by then
            await self._all_are_answered()
            settled = await self._ask_all()
            self._judge(settled, "at rest", self.oracle.promises(settled=True))
            if self.plan.small:
                await self._erased()
            await self._again(settled)
            if self.plan.rot:
                await self._rot()
            self._stop.set()
            tasks.cancel_scope.cancel()

    async def _come_to_rest(self) -> None:
        """No more trouble: everything is delivered, and said to be, within its time."""
        self.is_calm = True
        self.kernel.send_faults = 0.0
        self.storage.crash_at = 0
        self._ambushed, self._takes_power = "", False
        self._no_more_errors()
        self._stalled_until = 0.0
        await self.up()
        living = [agent for agent in self.agents if agent.is_alive]
        while not all(agent.has_finished for agent in living):  # noqa: ASYNC110 - time is virtual
            await anyio.sleep(0.5)
        deadline = anyio.current_time() + _REST_SECONDS
        while not all(agent.is_done() for agent in living):
            if anyio.current_time() > deadline:
                late = [a.pid for a in living if not a.is_done()]
                raise Wrong(f"agents {late} are not done {_REST_SECONDS} s after all trouble")
            for agent in living:
                agent.nudge()
            await anyio.sleep(0.5)
        await self._check_peace()

    async def _all_are_answered(self) -> None:
        """Whoever has asked for a sync is told. A disk that failed is tried after up to 8 s."""
        deadline = anyio.current_time() + _REST_SECONDS
        while asked := [a.pid for a in self.agents if a.is_alive and a.link.hearing.drains]:
            if anyio.current_time() > deadline:
                raise Wrong(f"agents {asked} have asked for a sync and got no answer")
            await anyio.sleep(0.5)

    async def _check_peace(self) -> None:
        """Nothing rotted: nothing may be called corrupt, nothing lost that was promised."""
        daemon = await self.up()
        mended = daemon.state._mended
        if mended is not None and mended.verdict.corrupt:
            raise Wrong(f"corrupt, and nothing rotted (I5): {mended.verdict.corrupt}")
        lost = daemon.engine.counters.lost_acked
        if lost:
            raise Wrong(f"lost_acked is {lost}")

    async def _again(self, settled: list[wire.Recovered]) -> None:
        """I8: another crash and start, and the same is said in the same words."""
        await self.kill_daemon()
        again = await self._ask_all()
        self._judge(again, "after another start", self.oracle.promises(settled=True))
        words = [_words(reply) for reply in settled]
        if [_words(reply) for reply in again] != words:
            raise Wrong(f"a start changed what is said (I8)\n{words}\n{list(map(_words, again))}")
        await anyio.sleep(_BOUND_SECONDS)  # agents are back by then, and say what they were told
        await self._check_peace()

    async def _rot(self) -> None:
        """Damage to what was synced: said, never served as if it were whole."""
        if self.plan.rot_live:
            self.rotten = self._damage("flip", "zero", "stale")
            self._judge(await self._ask_all(), "after rot underneath", self.oracle.promises())
        await self.kill_daemon()
        times = self.random.choice((1, 1, 3))
        is_one_bit = self.plan.rot_live is False and times == 1 and self.plan.asks > 0
        told = LogScan(SimulatedDisk(self.storage))
        told_no = max((batch.synced_no for _, batch in told), default=0)
        for _ in range(times):
            self.rotten |= self._damage(*(("flip",) if is_one_bit else ("flip", "zero", "stale")))
        found = await self._ask_all()
        daemon = await self.up()
        # I6: what is said to be damaged may be missing; where nothing is said nothing is missing.
        self.rotten = daemon.state.gap_word != "dropped"
        if is_one_bit:
            self._check_one_bit(daemon, told_no)
        self._judge(found, "after rot", self.oracle.promises())

    def _check_one_bit(self, daemon: Daemon, told_no: int) -> None:
        """A flipped bit costs one batch, which is not called torn where the log says it is synced.

        told_no: up to there it did, but perhaps in the very header that was hit (C3, V1).
        """
        assert daemon.state._mended is not None
        verdict = daemon.state._mended.verdict
        lost = [one for one in verdict.corrupt if one.first_no]
        if sum(one.last_no - one.first_no + 1 for one in lost) > 1:
            raise Wrong(f"one bit has cost more than one batch (C3): {verdict.corrupt}")
        if any(one.first_no and one.first_no < told_no for one in verdict.torn):
            raise Wrong(f"synced, and called torn (V1): {verdict.torn}")

    def _damage(self, *kinds: str) -> bool:
        """Some bytes of the log rot. True where that changed any."""
        paths = [path for path in sorted(self.storage.files()) if path.startswith("wal/")]
        path = self.random.choice(paths)
        return self.storage.damage(path, self.random.choice(kinds)) is not None  # type: ignore[arg-type]

    def _look(self) -> None:
        for agent in self.agents:
            if agent.is_alive:
                agent.look()

    def _judge(
        self,
        found: list[wire.Recovered],
        where: str,
        promises: dict[tuple[int, str], Promise],
    ) -> None:
        self._look()
        self.oracle.check(found, where, promises, rotten=self.rotten)
        self._hash.update(msgspec.msgpack.encode(found))

    async def _ask_all(self) -> list[wire.Recovered]:
        """Every reply of both users."""
        found: list[wire.Recovered] = []
        for uid in (1000, 1001):
            daemon = await self.up()
            assert daemon is not None
            answer = await _asked(self.socket_path, wire.Recover(1, "all", uid=uid))
            if answer is None:
                self.rotten = True
                continue  # "cannot know", which the oracle lets pass only where something rotted
            found += msgspec.convert(answer, list[wire.Recovered])
        return found

    async def _look_in(self) -> None:
        """Somebody asks in the middle of trouble, and resolves a reply whose agent is gone.

        What is answered must hold as well as at rest: what was synced is there, and all that the
        dead have sent (P11, Q1). A daemon that dies meanwhile answers nothing.
        """
        daemon, start = self.daemon, self.starts
        if daemon is None or not daemon._ready.is_set():
            return
        self._look()
        promises = self.oracle.promises()
        try:
            found = await self._ask_all()
            if self.starts != start:
                return
            self._judge(found, "in the middle", promises)
            await self._resolve([reply for reply in found if not reply.owner_alive])
        except OSError:
            return

    async def _ask_own(self) -> None:
        """A process asks for what it has said a moment ago: it reads its own writes (Q1).

        It gets them wherever they are: unread, queued, in the batch being built, on their way.
        """
        for _ in range(_OWN_TIMES):
            daemon, start = self.daemon, self.starts
            living = [agent for agent in self.agents if agent.is_alive and agent.has_said()]
            if not living or daemon is None or not daemon._ready.is_set():
                return
            agent = self._own.choice(living)
            agent.say_a_last_word(self._own)
            self._look()
            said, every = agent.has_said(), self.oracle.promises()
            promises = {key: one for key, one in every.items() if key[0] == agent.uid}
            for story, seen in said:
                key = story.uid, story.stream_id
                floor = max(promises[key].floor, seen.seq)
                promises[key] = promises[key]._replace(floor=floor)
            request = wire.Recover(1, "all", seen=[seen for _, seen in said])
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            with agent.entered():
                self.kernel.bound(peer)
            try:
                answer = await _asked(self.socket_path, request, peer, ("behind", "recovering"))
            except OSError:
                return
            if answer is None or self.starts != start:
                return
            replies = msgspec.convert(answer, list[wire.Recovered])
            self._judge(replies, f"what {agent.pid} has said itself", promises)

    async def _resolve(self, orphans: list[wire.Recovered]) -> None:
        for reply in orphans:
            if self.random.random() < 0.3:
                story = self.oracle.stories[reply.uid, reply.stream_id]
                story.released = True  # it may go from here on
                request = wire.Resolve(1, reply.stream_id, reply.last_seq, reply.uid)
                start = self.starts
                answer = await _asked(self.socket_path, request)
                story.resolved = answer is True and self.starts == start

    async def _erased(self) -> None:
        """P5: what was released leaves the disk once its time is over, budget allowing.

        Segments are emptied one by one, a sync each: here there are more of them than anywhere.
        """
        deadline = anyio.current_time() + _ERASED_SECONDS
        while left := self._not_erased():
            engine = (await self.up()).engine
            if engine.carry_budget < engine.segments.live_bytes:
                return
            if anyio.current_time() > deadline:
                raise Wrong(f"was released and is still there (P5): {left}")
            await anyio.sleep(2.0)

    def _not_erased(self) -> str:
        """Now, or if power were cut now."""
        files = self.storage.files(), self.storage.files(durable=True)
        return self.oracle.not_erased(files[0]) or self.oracle.not_erased(files[1])

    def outcome(self) -> Outcome:
        """What it came to."""
        for path, content in sorted(self.storage.files().items()):
            self._hash.update(f"{path} {len(content)} ".encode() + content)
        return Outcome(
            self.plan.seed,
            self._hash.hexdigest()[:16],
            round(anyio.current_time(), 3),
            self.starts,
            self.oracle.checks,
            self.storage.ops,
            len(self.oracle.stories),
        )


_OWN: dict[tuple[Any, str], Any] = {
    # What a start made is collected once in a daemon's life; here that is a tenth of the time.
    (serve, "gc"): SimpleNamespace(
        collect=lambda: 0, freeze=lambda: None, set_threshold=lambda *_: None
    ),
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


def _words(reply: wire.Recovered) -> Any:
    """What may not change from start to start: all but who is alive."""
    return msgspec.to_builtins(
        msgspec.structs.replace(reply, owner_alive=False, status="", lost_reason=None)
    )


def _split(error: BaseException) -> tuple[bool, BaseException | None]:
    """(a crash is in it, what else is in it)."""
    if isinstance(error, BaseExceptionGroup):
        crashed, rest = error.split((Crashed, trio.Cancelled))
        return crashed is not None, rest
    return isinstance(error, Crashed), None


async def _asked(
    path: str,
    request: wire.FromQuery,
    peer: socket.socket | None = None,
    cannot: tuple[str, ...] = (),
) -> Any:
    """The answer to a request, asked as root, or by whoever made `peer`.

    None where it cannot be known. cannot: codes of errors that say so here, beside unreadable.
    """
    with peer or socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.setblocking(False)
        peer.connect(path)
        peer.send(encode(wire.Hello(1, "query", bytes(16))) + encode(request))
        buffer, chunks = b"", []
        with anyio.fail_after(_REST_SECONDS):
            while True:
                await anyio.wait_readable(peer)
                data = peer.recv(1 << 20)
                if not data:
                    raise ConnectionResetError("the daemon is gone")
                buffer += data
                bodies, buffer = split(buffer)
                for body in bodies:
                    message = _hears.decode(body)
                    if isinstance(message, wire.Error) and message.code in (
                        "unreadable",
                        *cannot,
                    ):
                        return None
                    if isinstance(message, wire.Error):
                        raise Wrong(f"the daemon answers {message}")
                    if isinstance(message, wire.Answer):
                        chunks.append(message.chunk)
                        if message.last:
                            return msgspec.msgpack.decode(b"".join(chunks))


def run(plan: Plan, trace: list[tuple[str, str]] | None = None) -> Outcome:
    """One run, to its end. Raises Wrong, or whatever the code under test raised."""
    trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[attr-defined]
    trio._core._run._r = Random(f"trio {plan.seed}")  # type: ignore[attr-defined]
    clock = MockClock(autojump_threshold=0)
    folder = tempfile.mkdtemp(prefix="walld-sim-")
    outcomes: list[Outcome] = []
    level = logging.getLogger("walld").level
    logging.getLogger("walld").setLevel(logging.CRITICAL + 1)

    async def main() -> None:
        world = World(plan, folder, trace)
        try:
            with _bounds(_SMALL if plan.small else _OWN), world.kernel.installed():
                await world.live()
                outcomes.append(world.outcome())
        finally:
            for agent in world.agents:
                if agent.socket is not None:
                    agent.socket.close()
            world.kernel.close()

    try:
        anyio.run(main, backend="trio", backend_options={"clock": clock})
    finally:
        logging.getLogger("walld").setLevel(level)
        shutil.rmtree(folder, ignore_errors=True)
    return outcomes[0]
