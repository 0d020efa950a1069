"""Processes that write sessions: the real client's calls, taken step by step on the world's clock.

Owns: an application that appends, submits turns and streams their replies, asks again where an
answer was lost, deletes a session now and then, and tells the books all of it. Refuses: judging.

The calls are the client's own generators (`walld_client/steps.py`): what it would ask a socket and
wait for is asked here and waited for without blocking the one thread.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from walld_client.errors import Refused, Unavailable
from walld_client.limits import SUBMIT_SECONDS, TIMEOUT_SECONDS
from walld_client.link import process
from walld_client.query.requests import Conversation, decode_bool, decode_placed
from walld_client.query.sync_tokens import SyncTokens
from walld_client.session import ledger_steps
from walld_client.session.append_order import PostedEntry
from walld_client.session.entries import draft
from walld_client.session.session_steps import SessionSteps
from walld_client.session.submitting import submit
from walld_client.session.turn_steps import TurnSteps
from walld_client.steps import Asked, Done, Steps
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode

from .agents import Agent
from .oracle import Wrong

if TYPE_CHECKING:
    from walld_client.reply.reply import Reply

    from .books import Asking
    from .oracle import Story
    from .world import World

__all__ = ["Clerk"]

T = TypeVar("T")
_ACTS = ("note", "note", "notes", "notes", "turn", "turn", "turn", "once", "messages", "long")
_WORDS = ("wall", " holds", ".", " 日本", " 🙂", " a", " longer piece of text,")
_RETRIES = 8
_RETRY_SECONDS = 0.3
_DELETE_SECONDS = 300.0
_REFUSALS = frozenset(("disk_full", "ledger_full", "behind", "recovering"))


class Clerk(Agent):
    """One process. It asks for one thing after the other, as its application waits for each."""

    def __init__(self, world: World, uid: int) -> None:
        super().__init__(world.kernel, world.oracle, world.socket_path, uid)
        self._world = world
        self._books = world.books
        self._path = world.socket_path
        self._connection: socket.socket | None = None
        self._sync_tokens = SyncTokens()
        self._conversation = Conversation(self._sync_tokens)
        self._posts = _Posts()
        self._made = 0

    async def write(self, random: Random) -> None:
        """Its thread and its application, until it is killed."""
        plan = self._world.plan
        with self._scope:
            await self._while_alive(lambda: self._acts(random, plan.acts, plan.pace))

    async def _acts(self, random: Random, acts: int, pace: float) -> None:
        for _ in range(acts):
            await anyio.sleep(random.expovariate(1 / pace))
            session_id = f"book {random.randrange(2)}"
            try:
                if random.random() < self._world.plan.deletes:
                    await self._delete(session_id)
                    continue
                with self.entered():
                    steps = self.client._session(session_id)
                    steps._append_queue = self._posts  # type: ignore[assignment]
                await self._act(random, random.choice(_ACTS), steps, pace)
            except Unavailable:
                continue  # it has tried often enough
            except Refused as error:
                gone = error.code in ("unknown_turn", "lost_entry")  # somebody deletes it meanwhile
                known = gone and self._books.was_deleted((self.uid, session_id))
                if error.code not in _REFUSALS and not known:
                    raise Wrong(f"{self.pid} was refused: {error}") from error

    async def _act(self, random: Random, act: str, steps: SessionSteps, pace: float) -> None:
        synced = random.random() < 0.5
        if act == "messages":
            await self._run(steps.messages())
        elif act == "turn":
            await self._turn(random, steps, pace)
        elif act == "once":
            await self._append(steps, [self._draft(steps, random, once=True)], synced)
        elif act == "notes":
            count = random.randrange(2, 6)
            drafts = [self._draft(steps, random, once=True) for _ in range(count)]
            await self._append(steps, drafts, synced)
        else:
            long = 3000 if act == "long" else 0
            made = self._draft(steps, random, once=False, long=long)
            await self._run(steps.appended([made], synced=synced))

    def _mark(self, steps: SessionSteps, ident: str) -> str:
        """Words that stand in this entry or reply alone."""
        mark = f"mark-{ident}-{self.uid}-"
        session = self.uid, steps.session_id
        self._books.marks.setdefault(session, {})[ident] = mark.encode()
        return mark

    def _draft(self, steps: SessionSteps, random: Random, *, once: bool, long: int = 0) -> Any:
        self._made += 1
        ident = f"{self.pid}/{self._made}"
        text = self._mark(steps, ident) + random.choice(_WORDS) * random.choice((1, 1, 40))
        payload = {"role": "user", "content": text + "x" * long}
        return draft(random.choice(("message", "note")), payload, id=ident, once=once)

    async def _append(self, steps: SessionSteps, drafts: list[Any], synced: bool) -> None:
        """Once, however often it must be asked for."""
        await self._insist(lambda: steps.appended(drafts, synced=synced))

    async def _insist(self, make: Callable[[], Steps[T]]) -> T:
        for _ in range(_RETRIES):
            with suppress(Unavailable):
                return await self._run(make())
            await anyio.sleep(_RETRY_SECONDS)
        raise Unavailable("never answered")

    # --- turns ----------------------------------------------------------------------------------

    async def _turn(self, random: Random, steps: SessionSteps, pace: float) -> None:
        self._made += 1
        message_id = f"{self.pid}/{self._made}"
        content = self._mark(steps, message_id)
        turn = await self._insist(
            lambda: submit(
                steps,
                content,
                message_id=message_id,
                retry_of=None,
                stream_id=None,
                attachments=(),
                model=None,
                calls=None,
                timeout=SUBMIT_SECONDS,
                meta={},
            )
        )
        for _ in range(random.choice((0, 1, 1, 1, 2))):
            if self._books.is_being_deleted((self.uid, steps.session_id)):
                return
            await self._reply_of(random, turn, steps, pace)
        if random.random() < 0.3:
            await self._run(turn.intent("t", {}, side_effect="none", resume_policy="never-rerun"))
        if random.random() < 0.6:
            await self._run(turn.completed())

    async def _reply_of(
        self, random: Random, turn: TurnSteps, steps: SessionSteps, pace: float
    ) -> None:
        self._made += 1
        stream_id = f"{self.pid}-{self._made}t"
        if random.random() < 0.5:
            await self._run(turn.assistant_started(stream_id))
            if self._books.is_being_deleted((self.uid, steps.session_id)):
                return
        auto = random.random() < 0.8
        with self.entered():
            turn_id = turn.turn_id
            story = self.oracle.begin(self.uid, stream_id, steps.session_id, turn_id)
            reply = self.client.reply(
                steps.session_id, stream_id=stream_id, turn_id=turn_id, auto_release=auto
            )
        self.open.append((reply, story))
        with self.entered():
            mark = self._mark(steps, stream_id)
            story.said[reply.token(mark)] = "text", mark
            story.next_seq = reply._stream.next_seq
        for _ in range(random.randrange(4)):
            await anyio.sleep(random.expovariate(1 / pace))
            with self.entered():
                self._say(random, reply, story)
        await anyio.sleep(random.expovariate(2 / pace))
        ending = random.choice(("end", "end", "end", "end", "leave", "cancel", "forget"))
        with self.entered():
            if ending != "forget":
                story.ending, story.end_seq = ending, reply._stream.next_seq
            if ending == "end":
                story.released = auto
                reply.end("stop")
            elif ending == "cancel":
                reply.cancel("stopped")
            elif ending == "leave":
                with reply:
                    pass
            story.next_seq = reply._stream.next_seq
        if random.random() < 0.4:
            self.nudge()
        if ending != "forget" and not story.released and random.random() < 0.6:
            await anyio.sleep(random.expovariate(1 / pace))
            with self.entered():
                story.released = True
                reply.release()
                story.next_seq = reply._stream.next_seq

    def _say(self, random: Random, reply: Reply, story: Story) -> None:
        for _ in range(random.choice((1, 2, 5))):
            is_step = random.random() < 0.1
            text = random.choice(_WORDS)
            seq = reply.step() if is_step else reply.token(text)
            if seq > 0:
                story.said[seq] = ("step", "") if is_step else ("text", text)
            story.next_seq = reply._stream.next_seq

    # --- the end of a session -------------------------------------------------------------------

    async def _delete(self, session_id: str) -> None:
        """Not while a living process has something of it that it may send again."""
        session = self.uid, session_id
        self._world.questions.look()
        for story in self.oracle.stories.values():
            is_its = (story.uid, story.session_id) == session
            if is_its and not story.is_dead and not story.release_kept:
                return
        if self._books.is_being_deleted(session):
            return
        begun = self._world.lives.starts
        await self._run(ledger_steps.delete(session_id))
        for story in self.oracle.stories.values():
            if (story.uid, story.session_id) == session and self._world.lives.starts == begun:
                story.resolved |= story.is_dead

    # --- asking ---------------------------------------------------------------------------------

    async def _run(self, steps: Steps[T]) -> T:
        """As `walld_client/steps.py` runs them."""
        came: Any = None
        error: Exception | None = None
        while True:
            try:
                with self.entered():
                    step = steps.send(came) if error is None else steps.throw(error)
            except StopIteration as done:
                value: T = done.value
                return value
            came = error = None
            try:
                if isinstance(step, Done):
                    await self._deliver()
                else:
                    assert isinstance(step, Asked), step
                    came = await self._ask(step)
            except (Refused, Unavailable) as raised:
                error = raised

    async def _deliver(self) -> None:
        """What was posted goes before what is asked now. Unavailable where it cannot be sent."""
        while self._posts.kept:
            with suppress(Refused):  # which its process is told by the log
                await self._ask(Asked(self._posts.kept[0].request, again=True))
            del self._posts.kept[0]

    async def _ask(self, asked: Asked) -> bytes:
        """As `walld_client/query/query.py` asks: a kept connection that is gone is made anew,
        once."""
        again = asked.again and self._connection is not None
        try:
            return await self._exchange(asked)
        except _Stale:
            if not again:
                raise
            return await self._exchange(asked)

    async def _exchange(self, asked: Asked) -> bytes:
        asking = None
        try:
            await self._open()
            with self.entered():
                request = asked.make(self._conversation.next_id())
            seconds = TIMEOUT_SECONDS if asked.timeout is None else asked.timeout
            asking = self._noted(request)
            if isinstance(request, wire.Delete):
                seconds = _DELETE_SECONDS
            self._sent(encode(request))
            with anyio.fail_after(seconds):
                while (answer := self._conversation.feed(await self._received())) is None:
                    pass
        except Refused:
            if asking is not None:
                self._books.refused(asking)
            raise
        except TimeoutError:
            self._drop()
            raise Unavailable("no answer in time") from None
        except BaseException:
            self._drop()
            raise
        if asking is not None:
            placed = decode_placed(answer) if asking.entries else []
            assert asking.entries or isinstance(decode_bool(answer), bool)
            now, starts = anyio.current_time(), self._world.lives.starts
            self._books.answers(asking, placed, now, starts)
        return answer

    def _noted(self, request: Any) -> Asking | None:
        if not isinstance(request, wire.Append | wire.Delete):
            return None
        session = self.uid, request.session_id
        entries, level = [], "synced"
        if isinstance(request, wire.Append):
            entries, level = request.entries, request.level
            marks = self._books.marks.get(session, {})
            for entry in entries:
                if entry.type == "turn_submitted":
                    marks[entry.id] = marks[json.loads(entry.payload)["message_id"]]
        return self._books.asks(session, self.pid, entries, level, self._world.lives.starts)

    async def _open(self) -> None:
        if self._connection is not None:
            return
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.setblocking(False)
        try:
            with self.entered():
                self.kernel.bound(peer)
                self._conversation = Conversation(self._sync_tokens)
                hello = self._conversation.hello()
                assert process.producer()
            peer.connect(self._path)
            self._connection = peer
            self._sent(hello)
            with anyio.fail_after(TIMEOUT_SECONDS):
                while self._conversation.welcome is None:
                    self._conversation.feed(await self._received())
        except (OSError, TimeoutError) as error:
            peer.close()
            self._connection = None
            raise Unavailable(f"no walld: {error}") from error

    def _sent(self, frame: bytes) -> None:
        assert self._connection is not None
        try:
            while frame:
                frame = frame[self._connection.send(frame) :]
        except OSError as error:
            raise _Stale(f"the connection is gone: {error}") from error

    async def _received(self) -> bytes:
        connection = self._connection
        assert connection is not None
        try:
            await anyio.wait_readable(connection)
            received = connection.recv(1 << 16)
        except OSError as error:
            raise _Stale(f"the connection is gone: {error}") from error
        if not received:
            raise _Stale("walld closed the connection before it answered")
        return received

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Its query connection, too."""
        self._drop()

    def kill(self, now: float) -> None:
        """SIGKILL: the kernel closes that socket, too."""
        super().kill(now)
        if self._connection is not None:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)


class _Posts:
    """An append queue without its thread (`walld_client/session/append_queue.py`): what was
    posted and is not sent."""

    timeout = TIMEOUT_SECONDS

    def __init__(self) -> None:
        self.kept: list[PostedEntry] = []

    def __len__(self) -> int:
        return len(self.kept)

    def post(self, session_id: str, entry: wire.NewEntry) -> None:
        self.kept.append(PostedEntry(session_id, entry))

    def settle(self, timeout: float, session_id: str | None = None) -> None:
        """As a step, of which the clerk itself takes care."""


class _Stale(Unavailable):
    """The connection ended before the answer."""
