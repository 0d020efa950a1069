"""Agent processes: the real client, its thread's work done by a task, and a script to follow.

Owns: what is once per process in the client (producer id, stream numbers, I/O thread, links) kept
apart for each simulated process, and an application that streams replies and tells the oracle.
Refuses: judging.
"""

from __future__ import annotations

import math
import select
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from random import Random
from typing import Any

import anyio
from walld_client import client as clients
from walld_client import link_registry
from walld_client.link import process
from walld_client.reply.reply import Reply
from walld_client.wire import messages as wire

from .kernel import Kernel, SimulatedSocket
from .oracle import Oracle, Story

__all__ = ["Agent"]

_LATE_SECONDS = 1e-4
"""A thread that waits until a time wakes behind it."""
_WORDS = ("wall", " holds", ".", "日本", "\n", "🙂", " a", "", " longer piece of text,", "\ud83d")


class _GoneError(BaseException):
    """A dead process runs no code."""


class _IOThread:
    """What the client's thread does, done by a task of the world."""

    lacks_thread = False

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self._is_woken = False
        self._sleeping: anyio.CancelScope | None = None

    def keep(self, thing: Any) -> None:
        if thing not in self.kept:
            self.kept.append(thing)
        self.wake()

    def wake(self) -> None:
        self._is_woken = True
        if self._sleeping is not None:
            self._sleeping.cancel()

    async def sleep(self, wants: list[tuple[int, int, float | None]]) -> None:
        """Until it is woken, or a socket or the time is what something wants."""
        due = min((at for _, _, at in wants if at is not None), default=math.inf)
        with anyio.CancelScope(deadline=due + _LATE_SECONDS) as self._sleeping:
            if self._is_woken:
                self._sleeping.cancel()
            async with anyio.create_task_group() as tasks:
                for fd, mask, _ in wants:
                    if fd >= 0 and mask & select.POLLIN:
                        tasks.start_soon(self._wake_by, anyio.wait_readable, fd)
                    if fd >= 0 and mask & select.POLLOUT:
                        tasks.start_soon(self._wake_by, anyio.wait_writable, fd)
                await anyio.sleep_forever()
        self._sleeping, self._is_woken = None, False

    async def _wake_by(self, wait: Callable[[int], Awaitable[None]], fd: int) -> None:
        with suppress(OSError):  # closed before its turn came: the process was killed
            await wait(fd)
        self.wake()

    def forked(self) -> None:
        raise AssertionError("nobody forks here")


class Agent:
    """One process."""

    def __init__(self, kernel: Kernel, oracle: Oracle, socket_path: str, uid: int) -> None:
        self.kernel = kernel
        self.oracle = oracle
        self.uid = uid
        self.pid = kernel.spawn()
        self.is_alive = True
        self._io_thread = _IOThread()
        self._producer = b""
        self._numbers = count(1)
        self._links: dict[str, Any] = {}
        self._users: dict[str, int] = {}
        self.open: list[tuple[Reply, Story]] = []
        with self.entered():
            self.client = clients.connect(socket_path, app="a")  # a seed is the same from any path
        self.link = self.client._link
        self.has_finished = False
        """Its application has said all it will."""
        self._listens = 0.0
        self._scope = anyio.CancelScope()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Code of this process runs."""
        if not self.is_alive:
            raise _GoneError  # killed before its turn came
        was = self.kernel.running
        kept = (
            process._producer,
            process._numbers,
            process._io_thread,
            link_registry._links,
            link_registry._users,
        )
        self.kernel.running = self.pid, self.uid
        process._producer, process._numbers = self._producer, self._numbers
        process._io_thread = self._io_thread  # type: ignore[assignment]
        link_registry._links, link_registry._users = self._links, self._users
        try:
            yield
        finally:
            self._producer = process._producer
            (
                process._producer,
                process._numbers,
                process._io_thread,
                link_registry._links,
                link_registry._users,
            ) = kept
            self.kernel.running = was

    async def live(self, random: Random, replies: int, pace: float, listens: float) -> None:
        """Its thread and its application, until it is killed."""
        self._listens = listens

        async def replies_of_it() -> None:
            for number in range(replies):
                await anyio.sleep(random.expovariate(1 / (4 * pace)))
                await self._reply(random, f"{self.pid}-{number}", pace)

        with self._scope:
            await self._while_alive(replies_of_it)

    async def _while_alive(self, application: Callable[[], Awaitable[None]]) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep)
                await application()
                self.has_finished = True
        except* _GoneError:
            pass

    # --- its thread -----------------------------------------------------------------------------

    async def _keep(self) -> None:
        """The I/O thread's loop, as `walld_client/link/io_thread.py` has it."""
        io_thread = self._io_thread
        while True:
            with self.entered():
                wants = [thing.wants() for thing in io_thread.kept]
            await io_thread.sleep(wants)
            with self.entered():
                for thing in list(io_thread.kept):
                    fd, mask, _ = thing.wants()
                    seen = 0
                    if fd >= 0:
                        poll = select.poll()
                        poll.register(fd, mask)
                        seen = dict(poll.poll(0)).get(fd, 0)
                    if not thing.attend(seen):
                        io_thread.kept.remove(thing)

    # --- its application ------------------------------------------------------------------------

    async def _reply(self, random: Random, stream_id: str, pace: float) -> None:
        auto = random.random() < 0.7
        session = f"s{random.randrange(3)}"
        with self.entered():
            story = self.oracle.begin(self.uid, stream_id, session)
            reply = self.client.reply(session, stream_id=stream_id, auto_release=auto)
        self.open.append((reply, story))
        for _ in range(random.randrange(1, 12)):
            await anyio.sleep(random.expovariate(1 / pace))
            with self.entered():
                self._say(random, reply, story)
            if self._listens:
                await self._listen(random, reply)
        await anyio.sleep(random.expovariate(1 / pace))
        ending = random.choice(("end", "end", "end", "cancel", "error", "leave", "forget"))
        with self.entered():
            if ending != "forget":
                story.ending, story.end_seq = ending, reply._stream.next_seq
            if ending == "end":
                story.released = auto
                reply.end("stop")
            elif ending == "cancel":
                reply.cancel("stopped")
            elif ending == "error":
                reply.error("it broke")
            elif ending == "leave":
                with reply:
                    pass
            story.next_seq = reply._stream.next_seq
        if ending != "forget" and not story.released and random.random() < 0.4:
            await anyio.sleep(random.expovariate(1 / (4 * pace)))
            with self.entered():
                story.released = True
                reply.release()
                story.next_seq = reply._stream.next_seq

    def _say(self, random: Random, reply: Reply, story: Story) -> None:
        for _ in range(random.choice((1, 1, 2, 5, 20))):
            kind = random.choice(("text",) * 8 + ("reasoning", "tool", "step", "custom"))
            text = random.choice(_WORDS) * random.choice((1, 1, 1, 40))
            if kind == "text":
                seq = reply.token(text)
            elif kind == "reasoning":
                seq = reply.reasoning(text)
            elif kind == "tool":
                seq = reply.tool("search", {"q": text}, call_id=f"c{story.next_seq}")
            elif kind == "step":
                seq = reply.step()
            else:
                seq = reply.event("note", text)
            if seq > 0:
                story.said[seq] = kind, text
            story.next_seq = reply._stream.next_seq

    async def _listen(self, random: Random, reply: Reply) -> None:
        """An application that wants to know: asks for a sync, and a moment later how far it is."""
        if random.random() < self._listens / 3:
            self.nudge()
        if random.random() < self._listens:
            await anyio.sleep(random.expovariate(1 / 0.05))
            with self.entered():
                assert reply.durable_seq < reply._stream.next_seq
            self.look()

    def hears_news(self) -> bool:
        """It looks how far its open replies are synced. True where that is further than before."""
        before = sum(story.synced for _, story in self.open)
        with self.entered():
            for reply, _ in self.open:
                assert reply.durable_seq < reply._stream.next_seq
        self.look()
        return sum(story.synced for _, story in self.open) > before

    def has_said(self) -> list[tuple[Story, wire.Seen]]:
        """What of its open replies the kernel has taken for the daemon it is connected to."""
        connection = self.socket
        if connection is None or connection.daemon_no != self.kernel.daemon_no:
            return []
        with self.entered():
            return [
                (story, wire.Seen(process.producer(), reply._stream.number, reply.sent_seq))
                for reply, story in self.open
                if reply.sent_seq >= 0 and not story.released and not reply._stream.gone
            ]

    def say_a_last_word(self, random: Random) -> None:
        """The last thing its process does: one more burst, which nobody has read yet."""
        with self.entered():
            for reply, story in self.open[-1:]:
                if not reply._stream.terminal:
                    self._say(random, reply, story)

    def look(self) -> None:
        """What its process has been told so far, for the oracle."""
        for reply, story in self.open:
            story.synced = max(story.synced, reply._stream.synced)
            story.release_kept |= story.released and story.synced >= story.next_seq - 1

    # --- what happens to it ---------------------------------------------------------------------

    @property
    def socket(self) -> SimulatedSocket | None:
        """Its connection, where it has one."""
        found: SimulatedSocket | None = self.link._socket
        return found

    def kill(self, now: float) -> None:
        """SIGKILL: the kernel closes its sockets; what they took is still there to be read."""
        self.look()
        connection = self.socket
        daemon_no = self.kernel.daemon_no
        heard = connection is not None and connection.daemon_no == daemon_no > 0
        for reply, story in self.open:
            story.killed_at = now
            # What a dead daemon's socket took, and nobody has noticed yet, is lost with both.
            story.taken = reply.sent_seq if heard else -1
            if story.released and story.taken >= story.next_seq - 1:
                story.taken = -1  # its release was taken too: it may be gone
        self.is_alive = False
        self._scope.cancel()
        if connection is not None:
            connection.close()
        self.kernel.exit(self.pid)

    def close(self) -> None:
        """The run is over: give back what its process holds beside its client's connection."""

    def is_done(self) -> bool:
        """The kernel, and the daemon, have everything it said."""
        self.look()
        return all(
            reply._stream.gone or story.synced >= story.next_seq - 1 or reply._stream.is_settled()
            for reply, story in self.open
        )

    def nudge(self) -> None:
        """Ask the daemon to say when all of it is synced."""
        with self.entered(), suppress(ValueError):
            self.link.drain("synced", lambda _ok: None)
