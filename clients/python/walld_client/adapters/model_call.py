"""One model call as a framework shows it, with the tools it asked for.

Owns: `ModelCall`, a sink whose reply stays open until its tools have answered, and `Board`, which
finds the call that a tool's result belongs to. Refuses: what a framework's objects mean.

A framework runs the tools itself and shows their results by call id, after the model is done. So
the reply ends when the last of its calls has its result, or when the run they belong to ends;
what is open then stays open, and is `unknown` to whoever reads it. The provider's finish is said
when it comes, not then: a reply that is killed among its tools says that its text was whole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Any

from walld_client.adapters.recording import NO_TERMINAL, Opener
from walld_client.adapters.wire import Failure, call_name, finish_word
from walld_client.reply import ReplyBase

__all__ = ["Board", "ModelCall", "safely"]

_log = logging.getLogger("walld")


def safely(method: Callable[..., None]) -> Callable[..., None]:
    """The same method, raising nothing: what it cannot follow is a line in the log."""

    def guarded(*args: Any, **named: Any) -> None:
        try:
            method(*args, **named)
        except Exception:
            _log.warning("an event of a run is passed over", exc_info=True)

    return guarded


class ModelCall:
    """A sink (`wire.Sink`) into a reply that is opened with the first thing said."""

    def __init__(self, board: Board, run: Hashable, meta: dict[str, Any]) -> None:
        self.run = run
        self.has_spoken = False
        self.is_over = False
        """The model is done, one way or another."""
        self.waiting: set[str] = set()
        """Calls without a result."""
        self._board = board
        self._meta = meta
        self._reply: ReplyBase | None = None

    def reply(self) -> ReplyBase | None:
        """None where it is not to be recorded."""
        if not self.has_spoken:
            self.has_spoken = True
            self._reply = self._board.opener.open(**self._meta)
        return self._reply

    def token(self, text: str, **info: Any) -> int:
        """As `Reply.token`."""
        reply = self.reply()
        return 0 if reply is None else reply.token(text, **info)

    def reasoning(self, text: str, **info: Any) -> int:
        """As `Reply.reasoning`."""
        reply = self.reply()
        return 0 if reply is None else reply.reasoning(text, **info)

    def tool(
        self, name: str, arguments: object = None, *, call_id: str | None = None, **info: Any
    ) -> int:
        """As `Reply.tool`; a call that the framework runs is waited for."""
        reply = self.reply()
        if reply is None:
            return 0
        if call_id is not None and not info.get("server"):
            self.waiting.add(call_id)
            self._board.calls[call_id] = self
        return reply.tool(name, arguments, call_id=call_id, **info)

    def tool_arguments(self, delta: str, *, call_id: str) -> int:
        """As `Reply.tool_arguments`."""
        reply = self.reply()
        return 0 if reply is None else reply.tool_arguments(delta, call_id=call_id)

    def tool_result(
        self,
        result: object,
        *,
        call_id: str | None = None,
        name: str | None = None,
        failed: bool = False,
        **info: Any,
    ) -> int:
        """As `Reply.tool_result`; the last one ends a reply whose model is done."""
        reply = self.reply()
        if reply is None:
            return 0
        seq = reply.tool_result(result, call_id=call_id, name=name, failed=failed, **info)
        if call_id is not None:
            self.waiting.discard(call_id)
            self._board.calls.pop(call_id, None)
        if self.is_over and not self.waiting:
            self.close()
        return seq

    def event(self, kind: str, payload: object = None) -> int:
        """As `Reply.event`."""
        reply = self.reply()
        return 0 if reply is None else reply.event(kind, payload)

    def finish(self, reason: str | None = None) -> int:
        """As `Reply.finish`."""
        reply = self.reply()
        if reply is None:
            return 0
        return reply.finish(None if reason is None else finish_word(reason, bool(self.waiting)))

    def done(self) -> None:
        """The model is done, by its provider's word."""
        self.is_over = True
        if self.waiting and self.run is not None:
            self._board.waiting.setdefault(self.run, []).append(self)
        else:
            self.close()

    def close(self) -> None:
        """Nothing more is to come."""
        if self._reply is not None:
            self._reply.end()
        self._forget()

    def fail(self, failure: Failure = NO_TERMINAL) -> None:
        """The model failed, or was cut without a word (the default)."""
        self.is_over = True
        if self._reply is not None:
            self._reply.error(failure.message, kind=failure.kind, detail=failure.detail)
        self._forget()

    def cancel(self, reason: str) -> None:
        """The program wants no more of it."""
        self.is_over = True
        if self._reply is not None:
            self._reply.cancel(reason)
        self._forget()

    def broke(self, error: BaseException) -> None:
        """An exception ended it: an error, or a cancel where that is what it was."""
        self.is_over = True
        if self._reply is not None:
            self._reply.__exit__(type(error), error, None)
        self._forget()

    def _forget(self) -> None:
        for call_id in self.waiting:
            self._board.calls.pop(call_id, None)
        self.waiting.clear()


class Board:
    """The model calls of a program whose tools are being run, by call id and by run."""

    def __init__(self, opener: Opener) -> None:
        self.opener = opener
        self.calls: dict[str, ModelCall] = {}
        self.waiting: dict[Hashable, list[ModelCall]] = {}

    def begin(self, run: Hashable, **meta: Any) -> ModelCall:
        """A model call. run: what its tools belong to; None: nothing runs them here."""
        return ModelCall(self, run, {name: one for name, one in meta.items() if one is not None})

    def tool_started(self, call_id: str | None, name: object = None) -> None:
        """The program begins to run a tool that a recorded call has asked for."""
        call = None if call_id is None else self.calls.get(call_id)
        if call is not None:
            call.event("tool_started", {"call_id": call_id, "name": call_name(name)})

    def tool_result(self, call_id: str | None, result: object, *, failed: bool = False) -> None:
        """What a tool gave back, into the reply that asked for it."""
        call = None if call_id is None else self.calls.get(call_id)
        if call is not None:
            call.tool_result(result, call_id=call_id, failed=failed)

    def run_ended(self, run: Hashable) -> None:
        """No tool of this run answers any more."""
        for call in self.waiting.pop(run, ()):
            if call.waiting:
                call.close()
