"""walld switched off, for asyncio programs: `null.py` with awaited answers.

Owns: the colour. Refuses: everything `null.py` refuses.
"""

# ruff: noqa: D102 - each method is documented where it does something

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from walld_client.aio import Client, Reply
from walld_client.ids import Entry, checked_id
from walld_client.limits import CLOSE_SECONDS, TIMEOUT_SECONDS
from walld_client.null import NullAnswers, NullMixin, NullSession
from walld_client.query.aio_pool import AsyncPool
from walld_client.recovered.partial import PartialReply
from walld_client.reply.reply import check_drain
from walld_client.session.aio_session import Session
from walld_client.session.audit import AwaitedPresent, RepairStep, Report, report_of
from walld_client.session.ledger_steps import SessionInfo
from walld_client.stats import Stats

__all__ = ["AsyncNullClient", "AsyncNullPool", "AsyncNullReply"]


class AsyncNullReply(NullMixin, Reply):
    """A reply that goes nowhere."""

    __slots__ = ()

    async def drain(self, timeout: float = TIMEOUT_SECONDS, level: str = "written") -> bool:  # noqa: ASYNC109
        check_drain(timeout, level)
        return True


class AsyncNullPool(NullAnswers, AsyncPool):
    """Asked by the sessions of an asyncio client."""

    def __init__(self) -> None:
        """Without connections."""

    async def ask(
        self,
        make: Callable[[int], msgspec.Struct],
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        again: bool = True,
    ) -> bytes:
        return self.answer(make)


class AsyncNullClient(Client):
    """A client that touches nothing."""

    def __init__(self) -> None:
        """Without what a client has: there is no link and no query."""
        self._pool = AsyncNullPool()

    def reply(
        self,
        session_id: str,
        *,
        stream_id: str | None = None,
        turn_id: str | Entry | None = None,
        parent: str | Entry | None = None,
        auto_release: bool = True,
        **meta: Any,
    ) -> Reply:
        return AsyncNullReply(session_id, stream_id, turn_id)

    def release(self, stream_id: str) -> bool:
        return False

    def stats(self) -> Stats:
        return Stats(connected=False, socket="")

    def check(self) -> str:
        return "not recoverable: walld is switched off (WALLD_ENABLED)"

    async def recover(
        self, session_id: str | None = None, *, stream_id: str | None = None
    ) -> PartialReply | None:
        return None

    async def recover_all(self, session_id: str | None = None) -> list[PartialReply]:
        return []

    async def orphans(self, session_id: str | None = None) -> list[PartialReply]:
        return []

    async def unsaved(self, session_id: str | None = None) -> list[PartialReply]:
        return []

    async def has_partial(self, session_id: str) -> bool | None:
        return False

    async def resolve(self, stream_id: str, last_seq: int | None = None) -> bool:
        return False

    def session(self, session_id: str) -> Session:
        return Session(NullSession(session_id), self._pool, self.reply)

    async def sessions(self, prefix: str | None = None) -> list[SessionInfo]:
        return []

    async def delete(self, session_id: str) -> bool:
        checked_id(session_id, "session_id")
        return False

    async def audit(
        self, session_id: str | None = None, *, present: AwaitedPresent = None
    ) -> Report:
        return report_of({}, present)

    async def repair_plan(self, session_id: str, *, present: AwaitedPresent) -> list[RepairStep]:
        checked_id(session_id, "session_id")
        report_of({}, present)  # a mistake is said here too
        return []

    async def close(self, timeout: float = CLOSE_SECONDS) -> bool:  # noqa: ASYNC109
        return True
