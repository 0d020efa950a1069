"""A turn in an asyncio program.

Owns: the methods that are awaited, and the turn's reply. Refuses: what they do (`turn_steps.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any

from walld_client.aio_steps import AsyncAsks, Awaited, awaited, run
from walld_client.argument_checks import EntryId, Ident, as_declared
from walld_client.reply.aio_reply import Reply
from walld_client.session.turn import TurnFacts
from walld_client.session.turn_steps import TurnSteps

__all__ = ["Opening", "Turn"]


class Turn(TurnFacts, Awaited[TurnSteps]):
    """One turn: the user's message, the work on it, its reply, its end."""

    __slots__ = ("_open",)

    def __init__(
        self, steps: TurnSteps, query: AsyncAsks, open_reply: Callable[..., Reply]
    ) -> None:
        super().__init__(steps, query)
        self._open = open_reply

    worker_started = awaited(TurnSteps.worker_started)
    completed = awaited(TurnSteps.completed)
    interrupted = awaited(TurnSteps.interrupted)
    intent = awaited(TurnSteps.intent)
    decision = awaited(TurnSteps.decision)
    approval = awaited(TurnSteps.approval)
    tool_started = awaited(TurnSteps.tool_started)
    tool_finished = awaited(TurnSteps.tool_finished)
    observation = awaited(TurnSteps.observation)

    @as_declared
    def reply(
        self,
        *,
        stream_id: Ident | None = None,
        parent: EntryId | None = None,
        auto_release: bool = True,
        **meta: Any,
    ) -> Opening:
        """Open the reply of this turn: `async with turn.reply() as reply`, or await it.

        Its `end()` appends the messages to the session.
        """

        async def opened() -> Reply:
            began = self._steps.assistant_started(stream_id)
            reply = self._open(
                self.session_id,
                stream_id=await run(self._query, began),
                turn_id=self.turn_id,
                parent=parent,
                auto_release=auto_release,
                **meta,
            )
            self._steps.speaks(reply)
            return reply

        return Opening(opened)


class Opening:
    """A reply on its way: to be awaited, or entered."""

    __slots__ = ("_opened", "_reply")

    def __init__(self, opened: Callable[[], Awaitable[Reply]]) -> None:
        self._opened = opened
        self._reply: Reply | None = None

    def __await__(self) -> Generator[Any, None, Reply]:
        return self._opened().__await__()

    async def __aenter__(self) -> Reply:
        self._reply = await self._opened()
        return await self._reply.__aenter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._reply is not None, "entered before"
        await self._reply.__aexit__(exc_type, exc, traceback)
