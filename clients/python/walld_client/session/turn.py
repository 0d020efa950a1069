"""A turn in a program without an event loop.

Owns: the methods that wait, and the turn's reply. Refuses: what they do (`turn_steps.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from walld_client.argument_checks import EntryId, Ident, as_declared
from walld_client.reply.reply import Reply
from walld_client.session.turn_steps import TurnSteps
from walld_client.steps import Asks, Blocking, blocking, run

__all__ = ["Turn", "TurnFacts"]


class TurnFacts:
    """What a turn of either colour knows of itself."""

    __slots__ = ()
    _steps: TurnSteps

    @property
    def turn_id(self) -> str:
        """Its id; also the id of the entry that submitted it."""
        return self._steps.turn_id

    @property
    def message_id(self) -> str:
        """The id of the user's message: what a resubmit is known by."""
        return self._steps.message_id

    @property
    def session_id(self) -> str:
        """The session it belongs to."""
        return self._steps.session.session_id

    @property
    def stream_ids(self) -> list[str]:
        """The streams of its replies, that of the submit first."""
        return list(self._steps.stream_ids)

    @property
    def state(self) -> str:
        """submitted, worker_started, assistant_started, completed or interrupted.

        As this object knows it; `session.turn()` looks it up.
        """
        return self._steps.state

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Of a turn that `resume()` gave: the calls without a result, as the gate judged them."""
        return self._steps.calls

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.turn_id!r} of {self.session_id!r}: {self.state}>"


class Turn(TurnFacts, Blocking[TurnSteps]):
    """One turn: the user's message, the work on it, its reply, its end."""

    __slots__ = ("_open",)

    def __init__(self, steps: TurnSteps, query: Asks, open_reply: Callable[..., Reply]) -> None:
        super().__init__(steps, query)
        self._open = open_reply

    worker_started = blocking(TurnSteps.worker_started)
    completed = blocking(TurnSteps.completed)
    interrupted = blocking(TurnSteps.interrupted)
    intent = blocking(TurnSteps.intent)
    decision = blocking(TurnSteps.decision)
    approval = blocking(TurnSteps.approval)
    tool_started = blocking(TurnSteps.tool_started)
    tool_finished = blocking(TurnSteps.tool_finished)
    observation = blocking(TurnSteps.observation)

    @as_declared
    def reply(
        self,
        *,
        stream_id: Ident | None = None,
        parent: EntryId | None = None,
        auto_release: bool = True,
        **meta: Any,
    ) -> Reply:
        """Open the reply of this turn. Its `end()` appends the messages to the session."""
        stream_id = run(self._query, self._steps.assistant_started(stream_id))
        reply = self._open(
            self.session_id,
            stream_id=stream_id,
            turn_id=self.turn_id,
            parent=parent,
            auto_release=auto_release,
            **meta,
        )
        self._steps.speaks(reply)
        return reply
