"""walld switched off, for asyncio programs: `null.py` with awaited answers.

Owns: the colour. Refuses: everything `null.py` refuses.
"""

# ruff: noqa: D102 - each method is documented where it does something

from __future__ import annotations

from typing import Any

from walld_client.aio import Client, Reply
from walld_client.limits import CLOSE_SECONDS, TIMEOUT_SECONDS
from walld_client.null import NullMixin
from walld_client.partial import PartialReply
from walld_client.reply import check_level
from walld_client.stats import Stats

__all__ = ["AsyncNullClient", "AsyncNullReply"]


class AsyncNullReply(NullMixin, Reply):
    """A reply that goes nowhere."""

    __slots__ = ()

    async def drain(self, timeout: float = TIMEOUT_SECONDS, level: str = "written") -> bool:  # noqa: ASYNC109
        check_level(level)
        return True


class AsyncNullClient(Client):
    """A client that touches nothing."""

    def __init__(self) -> None:
        """Without what a client has: there is no link and no query."""

    def reply(
        self,
        session_id: str,
        *,
        stream_id: str | None = None,
        turn_id: str | None = None,
        parent: str | None = None,
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

    async def has_partial(self, session_id: str) -> bool | None:
        return False

    async def resolve(self, stream_id: str, last_seq: int | None = None) -> bool:
        return False

    async def close(self, timeout: float = CLOSE_SECONDS) -> bool:  # noqa: ASYNC109
        return True
