"""walld switched off (WALLD_ENABLED=0): every call is there and does nothing.

Owns: answers that are empty and true to their types. Refuses: sockets, files, threads, clocks.

The stream id is real all the same: the application stamps it on the message it saves, and the
stamp must not depend on a switch. An id of a reply or a session that is none raises here too, and
so does what is no timeout or level of a drain, or no `present`; no other argument is looked at.
"""

# ruff: noqa: D102 - each method is documented where it does something

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import msgspec
from walld_client.client import Client
from walld_client.errors import Refused
from walld_client.ids import Entry, checked_id, id_of, new_entry_id, new_stream_id
from walld_client.limits import CLOSE_SECONDS, TIMEOUT_SECONDS
from walld_client.query.pool import Pool
from walld_client.recovered.partial import PartialReply
from walld_client.reply.open_calls import OpenCalls
from walld_client.reply.reply import Reply, ReplyBase, check_drain
from walld_client.session.audit import Present, RepairStep, Report, report_of
from walld_client.session.ledger_steps import SessionInfo
from walld_client.session.session import Session
from walld_client.session.session_steps import SessionSteps
from walld_client.stats import Stats
from walld_client.steps import Steps
from walld_client.wire import messages

__all__ = ["NullAnswers", "NullClient", "NullMixin", "NullPool", "NullReply", "NullSession"]


class NullMixin(ReplyBase):
    """The calls of a reply that send; each returns 0."""

    __slots__ = ("_null_session_id", "_null_stream_id", "_null_turn_id")

    def __init__(self, session_id: str, stream_id: str | None, turn_id: str | Entry | None) -> None:
        self._null_session_id = checked_id(session_id, "session_id")
        self._null_stream_id = (
            new_stream_id() if stream_id is None else checked_id(stream_id, "stream_id")
        )
        self._null_turn_id = None if turn_id is None else id_of(turn_id)
        self._open_calls = OpenCalls()

    @property
    def stream_id(self) -> str:
        return self._null_stream_id

    @property
    def session_id(self) -> str:
        return self._null_session_id

    @property
    def turn_id(self) -> str | None:
        return self._null_turn_id

    @property
    def sent_seq(self) -> int:
        return 0

    @property
    def durable_seq(self) -> int:
        return 0

    def token(self, text: str, **info: Any) -> int:
        return 0

    def reasoning(self, text: str, **info: Any) -> int:
        return 0

    def tool(
        self,
        name: str,
        arguments: object = None,
        *,
        call_id: str | Entry | None = None,
        **info: Any,
    ) -> int:
        return 0

    def tool_arguments(self, delta: str, *, call_id: str | Entry) -> int:
        return 0

    def tool_result(
        self,
        result: object,
        *,
        call_id: str | Entry | None = None,
        name: str | None = None,
        failed: bool = False,
        **info: Any,
    ) -> int:
        return 0

    def step(self, **info: Any) -> int:
        return 0

    def event(self, kind: str, payload: object = None) -> int:
        return 0

    def model_call(
        self,
        *,
        model: str | None = None,
        provider: str | None = None,
        request_id: str | None = None,
        usage: Mapping[str, float] | None = None,
        tools_hash: str | None = None,
        status: str | None = None,
        error_class: str | None = None,
    ) -> int:
        return 0

    def retry(self, reason: str | None = None, *, step: bool = False) -> int:
        return 0

    def move(self, session_id: str) -> int:
        self._null_session_id = checked_id(session_id, "session_id")
        return 0

    def finish(self, reason: str | None = None) -> int:
        return 0

    def end(self, finish_reason: str | None = None) -> int:
        return 0

    def cancel(self, reason: str | None = None) -> int:
        return 0

    def error(self, message: str, *, kind: str | None = None, detail: Any = None) -> int:
        return 0

    def release(self) -> int:
        return 0

    def _fail_at_end(self, message: str, *, kind: str | None = None, detail: Any = None) -> None:
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None

    def __del__(self) -> None:
        return None


class NullReply(NullMixin, Reply):
    """A reply that goes nowhere."""

    __slots__ = ()

    def drain(self, timeout: float = TIMEOUT_SECONDS, level: str = "written") -> bool:
        """True at once: there is nothing to wait for."""
        check_drain(timeout, level)
        return True


class NullAnswers:
    """What a session asks of a walld that is switched off: ids are real, answers are empty."""

    def answer(self, make: Callable[[int], msgspec.Struct]) -> bytes:
        request = make(1)
        empty: object = None  # never written
        if isinstance(request, messages.Append):
            empty = [messages.Placed(0, entry.id) for entry in request.entries]
        elif isinstance(request, (messages.Sessions, messages.Fork)):
            empty = []
        elif isinstance(request, (messages.PutArtifact, messages.Delete)):
            empty = isinstance(request, messages.PutArtifact)
        elif isinstance(request, messages.GetArtifact):
            hashed = request.sha256.hex()
            raise Refused("artifact_missing", hashed, "walld switched on (WALLD_ENABLED)")
        return msgspec.msgpack.encode(empty)


class NullPool(NullAnswers, Pool):
    """Asked by the sessions of a client that blocks."""

    def __init__(self) -> None:
        """Without connections."""

    def ask(
        self,
        make: Callable[[int], msgspec.Struct],
        timeout: float | None = None,
        *,
        again: bool = True,
    ) -> bytes:
        return self.answer(make)


class NullSession(SessionSteps):
    """A session of nobody's link: every turn that is asked for is there."""

    __slots__ = ()

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id, None, lambda one: [], None)

    def named_call(
        self,
        child: str,
        call_id: str,
        turn: str | None,
        stream_id: str | None,
        n: int | None,
    ) -> Steps[dict[str, Any]]:
        yield from ()
        return {"turn": turn or new_entry_id(), "call_id": call_id}

    def turn_facts(
        self, turn_id: str | None, stream_id: str | None
    ) -> Steps[dict[str, Any] | None]:
        yield from ()
        return {
            "turn_id": turn_id or new_entry_id(),
            "message_id": new_entry_id(),
            "stream_ids": [stream_id] if stream_id else [],
            "state": "submitted",
        }


class NullClient(Client):
    """A client that touches nothing."""

    def __init__(self) -> None:
        """Without what a client has: there is no link and no query."""
        self._pool = NullPool()

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
        return NullReply(session_id, stream_id, turn_id)

    def release(self, stream_id: str) -> bool:
        return False

    def stats(self) -> Stats:
        return Stats(connected=False, socket="")

    def check(self) -> str:
        return "not recoverable: walld is switched off (WALLD_ENABLED)"

    def recover(
        self, session_id: str | None = None, *, stream_id: str | None = None
    ) -> PartialReply | None:
        return None

    def recover_all(self, session_id: str | None = None) -> list[PartialReply]:
        return []

    def orphans(self, session_id: str | None = None) -> list[PartialReply]:
        return []

    def unsaved(self, session_id: str | None = None) -> list[PartialReply]:
        return []

    def has_partial(self, session_id: str) -> bool | None:
        return False

    def resolve(self, stream_id: str, last_seq: int | None = None) -> bool:
        return False

    def session(self, session_id: str) -> Session:
        return Session(NullSession(session_id), self._pool, self.reply)

    def sessions(self, prefix: str | None = None) -> list[SessionInfo]:
        return []

    def delete(self, session_id: str) -> bool:
        checked_id(session_id, "session_id")
        return False

    def audit(self, session_id: str | None = None, *, present: Present = None) -> Report:
        return report_of({}, present)

    def repair_plan(self, session_id: str, *, present: Present) -> list[RepairStep]:
        checked_id(session_id, "session_id")
        report_of({}, present)  # a mistake is said here too
        return []

    def close(self, timeout: float = CLOSE_SECONDS) -> bool:
        return True
