"""What is asked of the daemon of a world, and whether the answers hold.

Owns: the questions: at rest, after another start, in the middle of trouble, by a process about its
own words, after rot, of the disk itself. Refuses: what is right (`oracle.py`).
"""

from __future__ import annotations

import hashlib
import re
import socket
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode, split

from walld.daemon.service import Daemon
from walld.disk.lock_record import LOCK_NAME, parse_lock
from walld.disk.medium import Storage
from walld.disk.simulated import SimulatedDisk
from walld.wal.layout import SEGMENT_HEADER_BYTES, unpack_segment_header
from walld.wal.log_scan import LogScan

from .oracle import BOUND_SECONDS, REST_SECONDS, Promise, Wrong

if TYPE_CHECKING:
    from .world import World

__all__ = ["Questions", "asked", "is_spoiled", "words"]

_ERASED_SECONDS = 90.0
_OWN_TIMES = 3
_spoiled: Final = re.compile(r"quarantine/\d{20}\.0\.\d+").fullmatch
_missed: Final = re.compile(r"quarantine/batches-.*").fullmatch
_hears: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(wire.ToAgent | wire.Answer)


class Questions:
    """All that is asked in one run. digest: of the answers."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._plan = world.plan
        self._random = world.random
        self._kernel = world.kernel
        self._storage = world.storage
        self._oracle = world.oracle
        self._agents = world.agents
        self._own = world.own
        self.digest = hashlib.sha256()

    async def check_peace(self) -> None:
        """Nothing rotted: nothing may be called corrupt, nothing lost that was promised."""
        daemon = await self._world.lives.up()
        recovered = daemon.status._recovered
        if recovered is not None and recovered.verdict.corrupt and not self.is_spoiled():
            raise Wrong(f"corrupt, and nothing rotted (SIM5): {recovered.verdict.corrupt}")
        lost = daemon.engine.counters.lost_acked
        if lost:
            raise Wrong(f"lost_acked is {lost}")

    async def again(self, settled: list[wire.Recovered]) -> None:
        """SIM8: another crash and start, and the same is said in the same words."""
        await self._world.lives.kill()
        again = await self.ask_all()
        self.judge(again, "after another start", self._oracle.promises(settled=True))
        was, now = list(map(words, settled)), list(map(words, again))
        if now != was:
            raise Wrong(f"a start changed what is said (SIM8)\n{was}\n{now}")
        await anyio.sleep(BOUND_SECONDS)  # agents are back by then, and say what they were told
        await self.check_peace()

    async def rot(self) -> None:
        """Damage to what was synced: said, never served as if it were whole."""
        self._world.crash_states.is_over = True
        if self._plan.rot_live:
            self._world.rotten = self._damage("flip", "zero", "stale")
            self.judge(await self.ask_all(), "after rot underneath", self._oracle.promises())
        await self._world.lives.kill()
        times = self._random.choice((1, 1, 3))
        is_one_bit = self._plan.rot_live is False and times == 1 and self._plan.asks > 0
        told = LogScan(SimulatedDisk(self._storage))
        told_no = max((batch.synced_no for _, batch in told), default=0)
        for _ in range(times):
            self._world.rotten |= self._damage(
                *(("flip",) if is_one_bit else ("flip", "zero", "stale"))
            )
        found = await self.ask_all()
        daemon = await self._world.lives.up()
        # SIM6: what is said to be damaged may be missing; where nothing is said nothing is missing.
        self._world.rotten = daemon.status.gap_word != "dropped"
        if is_one_bit:
            self._check_one_bit(daemon, told_no)
        self.judge(found, "after rot", self._oracle.promises())

    def _check_one_bit(self, daemon: Daemon, told_no: int) -> None:
        """A flipped bit costs one batch, which is not called torn where the log says it is synced.

        told_no: up to there it did, but perhaps in the very header that was hit (C3, V1).
        """
        assert daemon.status._recovered is not None
        verdict = daemon.status._recovered.verdict
        lost = [range(one.first_no, one.last_no + 1) for one in verdict.corrupt if one.first_no]
        if len({number for one in lost for number in one}) > 1:  # one may have been written again
            raise Wrong(f"one bit has cost more than one batch (C3): {verdict.corrupt}")
        if any(one.first_no and one.first_no < told_no for one in verdict.torn):
            raise Wrong(f"synced, and called torn (V1): {verdict.torn}")

    def _damage(self, *kinds: str) -> bool:
        """Some bytes of the log rot. True where that changed any."""
        paths = [path for path in sorted(self._storage.files()) if path.startswith("wal/")]
        path = self._random.choice(paths)
        return self._storage.damage(path, self._random.choice(kinds)) is not None  # type: ignore[arg-type]

    def look(self) -> None:
        """What agents that live were told so far, for the oracle."""
        for agent in self._agents:
            if agent.is_alive:
                agent.look()

    def judge(
        self,
        found: list[wire.Recovered],
        where: str,
        promises: dict[tuple[int, str], Promise],
    ) -> None:
        """Are these the replies that must be there? Raises Wrong."""
        self.look()
        rotten, spoiled = self._world.rotten, self.is_spoiled()
        self._oracle.check(found, where, promises, rotten=rotten, spoiled=spoiled)
        self.digest.update(msgspec.msgpack.encode(found))

    def is_spoiled(self) -> bool:
        """Of the disk as it is."""
        return is_spoiled(self._storage, self._world.lives.untold)

    async def ask_all(self, cannot: tuple[str, ...] = ()) -> list[wire.Recovered]:
        """Every reply of both users. cannot: codes of errors that are raised as OSError."""
        found: list[wire.Recovered] = []
        for uid in (1000, 1001):
            daemon = await self._world.lives.up()
            assert daemon is not None
            request = wire.Recover(1, "all", uid=uid)
            answer = await asked(self._world.socket_path, request, cannot=cannot)
            if isinstance(answer, wire.Error):
                raise BlockingIOError(answer.code)
            if answer is None:
                self._world.rotten = True
                continue  # "cannot know", which the oracle lets pass only where something rotted
            found += msgspec.convert(answer, list[wire.Recovered])
        return found

    async def look_in(self) -> None:
        """Somebody asks in the middle of trouble, and resolves a reply whose agent is gone.

        What is answered must hold as well as at rest: what was synced is there, and all that the
        dead have sent (P11, Q1). A daemon that dies meanwhile answers nothing, and one whose disk
        stands still that it is behind with what the dead have left: it takes that with the flushes.
        """
        daemon, start = self._world.lives.daemon, self._world.lives.starts
        if daemon is None or not daemon._ready.is_set():
            return
        self.look()
        promises = self._oracle.promises()
        try:
            found = await self.ask_all(("behind",))
            if self._world.lives.starts != start:
                return
            self.judge(found, "in the middle", promises)
            await self._resolve([reply for reply in found if not reply.owner_alive])
        except OSError:
            return

    async def ask_own(self) -> None:
        """A process asks for what it has said a moment ago: it reads its own writes (Q1).

        It gets them wherever they are: unread, queued, in the batch being built, on their way.
        """
        for _ in range(_OWN_TIMES):
            daemon, start = self._world.lives.daemon, self._world.lives.starts
            living = [agent for agent in self._agents if agent.is_alive and agent.has_said()]
            if not living or daemon is None or not daemon._ready.is_set():
                return
            agent = self._own.choice(living)
            agent.say_a_last_word(self._own)
            self.look()
            said, every = agent.has_said(), self._oracle.promises()
            promises = {key: one for key, one in every.items() if key[0] == agent.uid}
            for story, seen in said:
                key = story.uid, story.stream_id
                floor = max(promises[key].floor, seen.seq)
                promises[key] = promises[key]._replace(floor=floor)
            request = wire.Recover(1, "all", seen=[seen for _, seen in said])
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            with agent.entered():
                self._kernel.bound(peer)
            try:
                answer = await asked(
                    self._world.socket_path, request, peer, ("behind", "recovering")
                )
            except OSError:
                return
            is_told = answer is not None and not isinstance(answer, wire.Error)
            if not is_told or self._world.lives.starts != start:
                return
            replies = msgspec.convert(answer, list[wire.Recovered])
            self.judge(replies, f"what {agent.pid} has said itself", promises)

    async def _resolve(self, orphans: list[wire.Recovered]) -> None:
        for reply in orphans:
            if self._random.random() < 0.3:
                story = self._oracle.stories[reply.uid, reply.stream_id]
                story.released = story.given_up = True  # it may go from here on
                request = wire.Resolve(1, reply.stream_id, reply.last_seq, reply.uid)
                start = self._world.lives.starts
                answer = await asked(self._world.socket_path, request, cannot=("disk_full",))
                story.resolved = answer is True and self._world.lives.starts == start

    async def erased(self) -> None:
        """P5: what was released leaves the disk once its time is over, budget allowing.

        Segments are emptied one by one, a sync each: here there are more of them than anywhere.
        """
        deadline = anyio.current_time() + _ERASED_SECONDS
        while left := self._not_erased():
            engine = (await self._world.lives.up()).engine
            if engine.carry_budget < engine.segments.live_bytes:
                return
            if anyio.current_time() > deadline:
                raise Wrong(f"was released and is still there (P5): {left}")
            await anyio.sleep(2.0)

    def _not_erased(self) -> str:
        """Now, or if power were cut now."""
        files = self._storage.files(), self._storage.files(durable=True)
        left = self._oracle.not_erased(files[0]) or self._oracle.not_erased(files[1])
        return left or self._world.ledger_questions.not_erased(("wal/", "partials/"))


def is_spoiled(storage: Storage, untold: list[int]) -> bool:
    """Power has put garbage where a segment's header was: walld takes that for damage. Or on a disk
    that was too full for LOCK to say so (`Lives.untold`) a segment went, and is missed.
    """
    files = storage.files()
    if any(map(_spoiled, files)):
        return True
    if not untold:
        return False
    told = parse_lock(files.get(LOCK_NAME, b""), LOCK_NAME)
    heads = [raw[:SEGMENT_HEADER_BYTES] for path, raw in files.items() if path.startswith("wal/")]
    begins = [one.prev_batch_no + 1 for one in map(unpack_segment_header, heads) if one is not None]
    is_missing = told is not None and told.first_no < min(begins, default=0) <= max(untold)
    return is_missing or any(map(_missed, files))


def words(reply: wire.Recovered) -> Any:
    """What may not change from start to start: all but who is alive."""
    return msgspec.to_builtins(
        msgspec.structs.replace(reply, owner_alive=False, status="", lost_reason=None)
    )


async def asked(
    path: str,
    request: wire.FromQuery,
    peer: socket.socket | None = None,
    cannot: tuple[str, ...] = (),
) -> Any:
    """The answer to a request, asked as root, or by whoever made `peer`.

    None where it cannot be known. cannot: codes of errors that are answers here.
    """
    with peer or socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.setblocking(False)
        peer.connect(path)
        peer.send(encode(wire.Hello(1, "query", bytes(16))) + encode(request))
        buffer, chunks = b"", []
        with anyio.fail_after(REST_SECONDS):
            while True:
                await anyio.wait_readable(peer)
                data = peer.recv(1 << 20)
                if not data:
                    raise ConnectionResetError("the daemon is gone")
                buffer += data
                bodies, buffer = split(buffer)
                for body in bodies:
                    message = _hears.decode(body)
                    if isinstance(message, wire.Error) and message.code == "unreadable":
                        return None
                    if isinstance(message, wire.Error) and message.code in cannot:
                        return message
                    if isinstance(message, wire.Error):
                        raise Wrong(f"the daemon answers {message}")
                    if isinstance(message, wire.Answer):
                        chunks.append(message.chunk)
                        if message.last:
                            return msgspec.msgpack.decode(b"".join(chunks))
