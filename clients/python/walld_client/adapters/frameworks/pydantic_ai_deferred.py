"""Tools of Pydantic AI that wait for somebody: their results come in another run.

Owns: which run a response's open calls came from. Refuses: what the results are (`pydantic_ai.py`).

A run that ends in `DeferredToolRequests` is gone on with by giving another run its messages. That
run is told by its last response: the very parts of it, which Pydantic AI hands on, or, where the
program has kept them as JSON, an equal one of the same moment. Call ids alone tell nothing: some
servers' are the same in each answer.

The calls wait as long as the program holds the messages or the requests. Their reply ends behind
that, the calls still open.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from walld_client.adapters.frameworks.model_call import Board, safely
from walld_client.link import process

__all__ = ["Tools", "defer", "take_up"]


class Tools:
    """Where the results of a run's tools go."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.run = object()
        """Stands for the run."""

    @safely
    def end(self) -> None:
        """No tool of the run answers any more."""
        self.board.run_ended(self.run)


class _Waiting:
    """Calls of a response that are open."""

    def __init__(self, call: Any, response: Any, tools: Tools) -> None:
        self.call = weakref.ref(call)
        self.made = response.timestamp
        self.tools = tools
        self.drop = weakref.finalize(call, _dropped, self)


_waiting: dict[_Waiting, None] = {}
_mutex = process.Mutex(threading.RLock)
"""Of the table; a finalizer may come while its own thread has it."""


def defer(requests: Any, messages: Any, tools: Tools) -> bool:
    """The run ended with these requests; False where none of its calls waits."""
    ids = {one.tool_call_id for one in (*requests.approvals, *requests.calls)}
    for response in reversed(messages):
        for part in response.parts if response.kind == "response" else ():
            if getattr(part, "tool_call_id", None) in ids:
                with _mutex.lock:
                    _waiting[_Waiting(part, response, tools)] = None
                return True
    return False


def take_up(messages: Any) -> Tools | None:
    """Whose calls a run with these messages goes on with; they wait for it alone from here on."""
    response = next((one for one in reversed(messages) if one.kind == "response"), None)
    if response is None or not _waiting:
        return None
    with _mutex.lock:
        waiting = [(one, one.call()) for one in _waiting]
        found = [one for one, call in waiting if any(part is call for part in response.parts)]
        found = found or [
            one
            for one, call in waiting
            if one.made == response.timestamp and call in response.parts
        ]
        if len(found) != 1:
            return None
        del _waiting[found[0]]
        found[0].drop.detach()
        return found[0].tools


def _dropped(one: _Waiting) -> None:
    with _mutex.lock:
        _waiting.pop(one, None)
    one.tools.end()
