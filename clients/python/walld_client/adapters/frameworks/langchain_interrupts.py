"""Tools of LangGraph that wait for somebody: their results come in another run.

Owns: which run goes on with calls that an interrupted run has left open. Refuses: what is
interrupted, and what the results are (`langchain.py`).

A run is interrupted by one of its tools, or before them (LangChain's HumanInTheLoopMiddleware),
and another run, with another callback perhaps, goes on from the checkpoint. Both run the task that
was interrupted, whose name LangGraph makes of its checkpoint. Call ids alone tell nothing: some
servers' are the same each time.

The calls wait as long as the program holds the model's message: in the run's result, say. Their
reply ends behind that, the calls still open.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from walld_client.adapters.frameworks.model_call import Board, ModelCall, safely
from walld_client.link import process

__all__ = ["hold", "supersede", "take_up"]

_AGAIN = "taken up"
"""In a place, where a model call of the run would have its node."""


class _Held:
    """A model call whose tools wait for a run with one of these tasks."""

    def __init__(self, call: ModelCall, tasks: frozenset[str], message: Any) -> None:
        self.call = call
        self.tasks = tasks
        self.drop = weakref.finalize(message, _dropped, self)


_held: dict[_Held, None] = {}
_mutex = process.Mutex(threading.RLock)
"""Of the table; a finalizer may come while its own thread has it."""


def hold(board: Board, run: Hashable, tasks: Iterable[str], outputs: Any) -> None:
    """The run gives this back, these tasks of it interrupted. Calls whose message is in it wait."""
    messages = {one.id: one for one in _answers_in(outputs)}
    for call in board.take_out(run):
        message = messages.get(call.message_id)
        if message is None:
            call.close()
        else:
            with _mutex.lock:
                _held[_Held(call, frozenset(tasks), message)] = None


def take_up(board: Board, run: Hashable, task: str) -> None:
    """A run begins this task: what waits for it is the run's."""
    if not _held:
        return
    with _mutex.lock:
        found = [one for one in _held if task in one.tasks]
        # Of two callbacks beside each other each has its own.
        found = [one for one in found if one.call.is_of(board)] or found
        for one in found:
            del _held[one]
            one.drop.detach()
    for one in found:
        board.take_in(one.call, (run, _AGAIN))


def supersede(board: Board, call: ModelCall) -> None:
    """The run's model has asked for tools: with an id that waits from before, that is the newer."""
    for other in board.open_in(call.place[:1]):
        if other.place[1:] == (_AGAIN,) and other.given_ids() & call.given_ids():
            other.close()


@safely
def _dropped(one: _Held) -> None:
    with _mutex.lock:
        is_held = one in _held
        _held.pop(one, None)
    if is_held:
        one.call.close()


def _answers_in(state: Any) -> Iterator[Any]:
    """Messages of a model in the state that a graph gives back."""
    for value in state.values() if isinstance(state, dict) else [state]:
        for one in value if isinstance(value, list) else ():
            if getattr(one, "type", None) == "ai" and one.id:
                yield one
