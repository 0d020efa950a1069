"""One model call as a framework shows it, with the tools it asked for.

Owns: `ModelCall`, a sink whose reply stays open until its tools have answered, and `Board`, which
finds the call that a tool's result belongs to. Refuses: what a framework's objects mean, and how
its runs are told apart.

A framework runs the tools itself and shows their results by call id, after the model is done. So
the reply ends when the last of its calls has its result, or when the run they belong to ends;
what is open then stays open, and is `unknown` to whoever reads it. The provider's finish is said
when it comes, not then: a reply that is killed among its tools says that its text was whole.
Where a result may change, because the tool that has failed may be run again, it has one once the
model is told of it.

Call ids are a server's and not unique (`call_0`): two users who run at once may have the same. So
a result goes to the call that waits for it in its own run, and where runs lie in runs (`Place`) to
the nearest there. Of several of one answer that have the same id it is the first without a result,
of that name if one is. What may be of several runs is written nowhere, and the log says so once. A
call that is not recorded is waited for all the same: its results are not another's.

The session is asked for when the model call begins, in the context of whoever makes it; the reply
is opened with the first thing said, by whoever reads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from typing import Any
from weakref import WeakSet

from walld_client.adapters.frameworks.recording import NO_TERMINAL, Opener, ending_of
from walld_client.adapters.wires.model_said import ModelSaid
from walld_client.adapters.wires.wire import LIMITS, Failure, Sink, call_name, finish_word
from walld_client.link import process
from walld_client.reply.reply import ReplyBase

__all__ = ["Board", "ModelCall", "Place", "safely"]

Place = tuple[Hashable, ...]
"""The runs that a model call or a tool lies in, the outermost first. Empty: of a model call, that
nothing runs its tools here; of a tool, that nobody knows."""
_log = logging.getLogger("walld")


def safely(method: Callable[..., None]) -> Callable[..., None]:
    """The same method, raising nothing: what it cannot follow is a line in the log."""

    def guarded(*args: Any, **named: Any) -> None:
        try:
            method(*args, **named)
        except Exception:
            _log.warning("an event of a run is passed over", exc_info=True)

    return guarded


class _Waits:
    """A call without a result."""

    __slots__ = ("given", "has_started", "is_told", "name")

    def __init__(self, given: str, name: str) -> None:
        self.given = given
        """Its provider's id, which another call may have too."""
        self.name = name
        self.has_started = False
        self.is_told = False
        """It has a result, and another one may take its place."""


class ModelCall:
    """A sink (`wire.Sink`) into a reply that is opened with the first thing said."""

    def __init__(
        self,
        board: Board,
        place: Place,
        session: str | None,
        meta: dict[str, Any],
        about: dict[str, Any],
    ) -> None:
        self.place = place
        self.has_spoken = False
        self.is_over = False
        """The model is done, one way or another."""
        self.waiting: dict[str, _Waits] = {}
        """Calls without a result, in order, by what they are called in the reply."""
        self._unheard: dict[str, bool] = {}
        """By call, in order: has nothing of its arguments come?"""
        self.message_id: str | None = None
        """The framework's own name of the answer, where it has one."""
        self.said = ModelSaid(**about)
        """What is told of the model; whoever records sets `usage` before the end."""
        self._about = about
        self._board = board
        self._session = session
        self._meta = meta
        self._reply: ReplyBase | None = None
        self._sink: Sink | None = None
        """The reply, with what is declared of its calls."""

    def again(self) -> ModelCall:
        """Another attempt at it, in the same session."""
        return ModelCall(self._board, self.place, self._session, self._meta, self._about)

    def is_of(self, board: Board) -> bool:
        """Is that where its results come from?"""
        return self._board is board

    def move(self, board: Board, place: Place) -> None:
        """Another run goes on with it."""
        self._board, self.place = board, place

    def reply(self) -> ReplyBase | None:
        """None where it is not to be recorded."""
        if not self.has_spoken:
            self.has_spoken = True
            if self._session is not None:
                self._reply = self._board.open(self._session, self._meta)
            if self._reply is not None:
                self._sink = self._board.declaring(self._reply)
                self.said.say(self._reply.event)
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
        if call_id is not None and not info.get("server"):
            self._waits_for(call_id, name, info.get("given_id"))
        if call_id is not None:
            is_unheard = arguments is None and self._unheard.get(call_id, True)
            self._unheard[call_id] = is_unheard
        self.reply()
        sink = self._sink
        return 0 if sink is None else sink.tool(name, arguments, call_id=call_id, **info)

    def _waits_for(self, call_id: str, name: str, given: str | None) -> None:
        known = self.waiting.get(call_id)
        if known is None:
            self.waiting[call_id] = _Waits(given or call_id, name)
            self._board.wait(self)
        else:
            known.name, known.given = name, given or known.given

    def tool_started(self, call_id: str, name: str | None) -> str:
        """A tool begins to run: what its call, by the provider's id, is called in the reply."""
        calls = self._calls_of(call_id, name)
        calls.sort(key=lambda one: (self.waiting[one].has_started, not self.waiting[one].is_told))
        own = calls[0] if calls else call_id
        if own in self.waiting:
            self.waiting[own].has_started = True
        self.event("tool_started", {"call_id": own, "name": call_name(name)})
        return own

    def _calls_of(self, call_id: str | None, name: str | None) -> list[str]:
        """Calls that wait and are called so, here or by their provider, in order; of that name, if
        some are.
        """
        calls = [own for own, one in self.waiting.items() if call_id in (own, one.given)]
        return [one for one in calls if self.waiting[one].name == name] or calls

    def waits_for(self, call_id: str) -> bool:
        """Is a result by this id one of its calls'?"""
        return call_id in self.waiting or call_id in self.given_ids()

    def given_ids(self) -> set[str]:
        """The provider's ids of the calls that wait."""
        return {one.given for one in self.waiting.copy().values()}

    def tool_arguments(self, delta: str, *, call_id: str) -> int:
        """As `Reply.tool_arguments`."""
        self._unheard[call_id] = False
        reply = self.reply()
        return 0 if reply is None else reply.tool_arguments(delta, call_id=call_id)

    def tool_result(
        self,
        result: object,
        *,
        call_id: str | None = None,
        name: str | None = None,
        failed: bool = False,
        may_change: bool = False,
        **info: Any,
    ) -> int:
        """As `Reply.tool_result`; the last one ends a reply whose model is done.

        may_change: it is waited for on: another one may take its place.
        """
        reply, seq = self.reply(), 0
        own = next(iter(self._calls_of(call_id, name)), call_id)
        if reply is not None:
            seq = reply.tool_result(result, call_id=own, failed=failed, **info)
        if may_change and own in self.waiting:
            self.waiting[own].is_told = True
        elif own is not None and not may_change:
            self.waiting.pop(own, None)
        if self.is_over and not self.waiting:
            self.close()
        return seq

    def told(self, call_id: str) -> list[str]:
        """Calls of this id whose result may change."""
        return [own for own in self._calls_of(call_id, None) if self.waiting[own].is_told]

    def settle(self, call_id: str) -> None:
        """Their results do not change any more."""
        for own in self.told(call_id):
            self.waiting.pop(own, None)
        if self.is_over and not self.waiting:
            self.close()

    def event(self, kind: str, payload: object = None) -> int:
        """As `Reply.event`."""
        reply = self.reply()
        return 0 if reply is None else reply.event(kind, payload)

    def finish(self, reason: str | None = None) -> int:
        """As `Reply.finish`."""
        reply = self.reply()
        if reply is None:
            return 0
        self._said_all(is_cut=(reason or "").lower() in LIMITS)
        return reply.finish(None if reason is None else finish_word(reason, bool(self.waiting)))

    def _said_all(self, *, is_cut: bool) -> None:
        """Calls of which no arguments came have none: but for the last, where that may be cut."""
        last = next(reversed(self._unheard), None) if is_cut else None
        unheard = [one for one, is_so in self._unheard.items() if is_so and one != last]
        self._unheard.clear()
        for call_id in unheard:
            self.tool_arguments("{}", call_id=call_id)
        self._unheard.clear()

    def done(self) -> None:
        """The model is done, by its provider's word."""
        self.is_over = True
        self._said_all(is_cut=False)
        self._model_ended("complete")
        if self.waiting and self.place:
            self._board.leave_open(self)
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
        self._model_ended("error", failure.kind, failure.message)
        if self._reply is not None:
            self._reply.error(failure.message, kind=failure.kind, detail=failure.detail)
        self._forget()

    def cancel(self, reason: str) -> None:
        """The program wants no more of it."""
        self.is_over = True
        self._model_ended("cancelled")
        if self._reply is not None:
            self._reply.cancel(reason)
        self._forget()

    def broke(self, error: BaseException) -> None:
        """An exception ended it: an error, or a cancel where that is what it was."""
        self.is_over = True
        self._model_ended(*ending_of(error))
        if self._reply is not None:
            self._reply.__exit__(type(error), error, None)
        self._forget()

    def _model_ended(self, status: str, kind: str | None = None, message: str = "") -> None:
        if self._reply is not None:
            self.said.end(self._reply.event, status, kind, message)

    def _forget(self) -> None:
        self.waiting.clear()
        self._board.closed(self)


class Board:
    """The model calls of a program whose tools are being run, by call id and by run."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._mutex = process.Mutex(threading.RLock)
        """Of the two tables: tools run in threads. A finalizer of a run (`run_ended`) may come
        while its own thread has it."""
        self._waiting: WeakSet[ModelCall] = WeakSet()
        """Who waits for results. Weak: a model call that is dropped without a word is collected,
        and its reply with it, which makes that a cancelled one."""
        self._open: dict[Hashable, dict[ModelCall, None]] = {}
        """Calls whose model is done, by their outermost run."""
        self._has_warned = False

    def begin(
        self, *place: Hashable, about: dict[str, Any] | None = None, **meta: Any
    ) -> ModelCall:
        """A model call begins, here and now: its session is asked for. about: what is known of the
        model, which its reply says first. Never raises.
        """
        told = {name: one for name, one in meta.items() if one is not None}
        return ModelCall(self, place, self._opener.session(), told, about or {})

    def open(self, session: str, meta: dict[str, Any]) -> ReplyBase | None:
        """The reply of a model call."""
        return self._opener.open_in(session, **meta)

    def declaring(self, reply: ReplyBase) -> Sink:
        """Where the calls of a reply go to have what the program declares of them."""
        return self._opener.effects.sink(reply)

    def tool_started(self, place: Place, call_id: str | None, name: object = None) -> str | None:
        """The program begins to run a tool that a recorded call has asked for. By what comes back
        its result is told from that of another call of the same id.
        """
        call = self._find(place, call_id)
        if call is None or call_id is None:
            return call_id
        return call.tool_started(call_id, name if isinstance(name, str) else None)

    def tool_result(
        self,
        place: Place,
        call_id: str | None,
        result: object,
        *,
        name: str | None = None,
        failed: bool = False,
        may_change: bool = False,
        **info: Any,
    ) -> bool:
        """What a tool gave back, into the reply that asked for it, if there is one."""
        call = self._find(place, call_id)
        if call is not None:
            call.tool_result(
                result, call_id=call_id, name=name, failed=failed, may_change=may_change, **info
            )
        return call is not None

    def reply_of(self, place: Place, call_id: str | None) -> ReplyBase | None:
        """The reply that asked for what a tool gives back here."""
        call = self._find(place, call_id)
        return None if call is None else call.reply()

    def settle(self, place: Place, call_id: str) -> None:
        """A model of this place is told a call's result: no other one takes its place any more."""
        with self._mutex.lock:
            found = {one: _shared(place, one.place) for one in self._waiting if one.told(call_id)}
        depth = max(found.values(), default=0)
        nearest = [one for one, at in found.items() if depth and at == depth]
        if len(nearest) == 1:
            nearest[0].settle(call_id)

    def _find(self, place: Place, call_id: str | None) -> ModelCall | None:
        """The one call that waits for it nearest to this place, in the same run."""
        if not call_id:
            return None
        with self._mutex.lock:
            waiting = [one for one in self._waiting if one.waits_for(call_id)]
        depths = [_shared(place, one.place) for one in waiting]
        nearest = max(depths, default=0)
        found = [one for one, depth in zip(waiting, depths, strict=True) if depth == nearest]
        if len(found) == 1 and nearest:
            return found[0]
        if waiting and (nearest or not place) and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "a tool's result is not recorded: its run cannot be told from others that run"
                " beside it and wait for the same call id; further ones are not reported"
            )
        return None

    def run_ended(self, run: Hashable) -> None:
        """No tool of this outermost run answers any more."""
        with self._mutex.lock:
            calls = self._open.pop(run, {})
        for call in calls:
            call.close()

    def is_open(self, run: Hashable) -> bool:
        """Does a call of this outermost run wait for its tools?"""
        with self._mutex.lock:
            return run in self._open

    def open_in(self, place: Place) -> list[ModelCall]:
        """The calls of an outermost run that wait for their tools."""
        with self._mutex.lock:
            return [one for run in place for one in self._open.get(run, ())]

    def take_out(self, run: Hashable) -> list[ModelCall]:
        """The same, which this run answers no more, and another one may."""
        with self._mutex.lock:
            calls = list(self._open.pop(run, ()))
            self._waiting.difference_update(calls)
        return calls

    def take_in(self, call: ModelCall, place: Place) -> None:
        """A run, the first of this place, goes on with what another one has left open."""
        call.move(self, place)
        with self._mutex.lock:
            self._waiting.add(call)
            self.leave_open(call)

    # --- of a model call -------------------------------------------------------------------------

    def wait(self, call: ModelCall) -> None:
        """It waits for a result."""
        with self._mutex.lock:
            self._waiting.add(call)

    def leave_open(self, call: ModelCall) -> None:
        """Its model is done, its tools are not."""
        with self._mutex.lock:
            self._open.setdefault(call.place[0], {})[call] = None

    def closed(self, call: ModelCall) -> None:
        """Nothing more of it is to come."""
        with self._mutex.lock:
            self._waiting.discard(call)
            calls = self._open.get(call.place[0], {}) if call.place else {}
            calls.pop(call, None)
            if call.place and not calls:
                self._open.pop(call.place[0], None)


def _shared(one: Place, other: Place) -> int:
    """How many runs they have in common, from the outermost on."""
    depth = 0
    for here, there in zip(one, other, strict=False):
        if here != there:
            break
        depth += 1
    return depth
