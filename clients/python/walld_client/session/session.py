"""A session in a program without an event loop.

Owns: the methods that wait. Refuses: what they do (`session_steps.py`, `submitting.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from walld_client.argument_checks import Count, EntryId, Ident, PathOrDict, Place, Seconds, Sources
from walld_client.limits import SUBMIT_SECONDS
from walld_client.reply.reply import Reply
from walld_client.session.session_steps import SessionSteps
from walld_client.session.submitting import resume, submit
from walld_client.session.turn import Turn
from walld_client.session.turn_steps import TurnSteps, find_turn
from walld_client.steps import Asks, Blocking, blocking, run

__all__ = ["Session"]


class Session(Blocking[SessionSteps]):
    """The log of one session. Making one asks nothing: it is there once something is appended."""

    __slots__ = ("_open",)

    def __init__(self, steps: SessionSteps, query: Asks, open_reply: Callable[..., Reply]) -> None:
        super().__init__(steps, query)
        self._open = open_reply

    @property
    def session_id(self) -> str:
        """Its id, as it was given."""
        return self._steps.session_id

    @property
    def breaks(self) -> list[dict[str, Any]]:
        """Where the session's file is damaged, as far as the last read met it.

        offset, first_seq, last_seq (of what is missing), why. Empty: what was read was whole.
        """
        return self._steps.breaks

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.session_id!r}>"

    append = blocking(SessionSteps.append)
    append_many = blocking(SessionSteps.append_many)
    message = blocking(SessionSteps.message)
    edit = blocking(SessionSteps.edit)
    undo = blocking(SessionSteps.undo)
    label = blocking(SessionSteps.label)
    setting = blocking(SessionSteps.setting)
    change_model = blocking(SessionSteps.change_model)
    branch = blocking(SessionSteps.branch)
    compact = blocking(SessionSteps.compact)
    artifact = blocking(SessionSteps.artifact)
    read_artifact = blocking(SessionSteps.read_artifact)
    messages = blocking(SessionSteps.messages)
    find = blocking(SessionSteps.find)
    events = blocking(SessionSteps.events)
    state = blocking(SessionSteps.state)
    project = blocking(SessionSteps.project)
    checkpoint_workspace = blocking(SessionSteps.checkpoint_workspace)
    resume_check = blocking(SessionSteps.resume_check)
    explain = blocking(SessionSteps.explain)
    settle = blocking(SessionSteps.settle)
    adopt = blocking(SessionSteps.adopt)

    def submit(
        self,
        content: Any,
        *,
        message_id: Ident | None = None,
        retry_of: EntryId | None = None,
        stream_id: Ident | None = None,
        attachments: Sources = (),
        model: str | None = None,
        calls: Literal["journal"] | None = None,
        timeout: Seconds = SUBMIT_SECONDS,
        **meta: Any,
    ) -> Turn:
        """Take in the user's message; it survives the loss of power when this returns.

        The same message_id and content give the first turn. retry_of: a new turn on the message of
        that turn. attachments: bytes or paths, kept beside the session, or dicts of your own.
        calls: "journal" promises a `turn.intent` before each run of a tool: a call without one has
        not started, and the gate need not ask.
        Raises NotDurable where that is not known within `timeout`.
        """
        made = submit(
            self._steps,
            content,
            message_id=message_id,
            retry_of=retry_of,
            stream_id=stream_id,
            attachments=attachments,
            model=model,
            calls=calls,
            timeout=timeout,
            meta=meta,
        )
        return self._turn(run(self._query, made))

    def resume(
        self,
        workspace: PathOrDict | None = None,
        policy: Mapping[str, str] | Callable[[dict[str, Any]], str] | None = None,
        checked: Mapping[str, Literal["ran", "did_not_run"]] | None = None,
        accept: Literal["check"] | None = None,
        timeout: Seconds = SUBMIT_SECONDS,
    ) -> Turn:
        """Go on with the newest turn, where the gate lets it: a new turn on its message, synced.

        `resume_check` and the turn are one step: of several that resume at once one gets it. Its
        `calls` are the open ones, each with `may`; what may `run`, you may run directly. Where the
        gate says check: checked has the call ids that you looked at, and what became of each;
        accept="check" goes on all the same.
        Raises Blocked where it must not go on, Refused: `already_resumed` (by whom),
        `nothing_to_resume`, `stale` (others append faster than it is judged).
        """
        made = resume(
            self._steps,
            workspace=workspace,
            policy=policy,
            checked=checked,
            accept=accept,
            timeout=timeout,
        )
        return self._turn(run(self._query, made))

    def turn(self, turn_id: EntryId | None = None, *, stream_id: Ident | None = None) -> Turn:
        """A turn by its id or by a stream of its replies. Refused where there is none."""
        return self._turn(run(self._query, find_turn(self._steps, turn_id, stream_id)))

    def fork(self, at: Place | None, new_id: Ident, whole: bool = False) -> Session:
        """A new session from the path to entry `at`; whole: every branch.

        at: None for the leaf, "" for before the first entry.
        """
        other = run(self._query, self._steps.forked(at, new_id, whole))
        return Session(other, self._query, self._open)

    def child(
        self,
        id: Ident,  # noqa: A002
        *,
        call_id: EntryId,
        turn: EntryId | None = None,
        stream_id: Ident | None = None,
        n: Count | None = None,
    ) -> Session:
        """The session of a sub-agent, joined to the call that it works for; synced.

        Begin it before the work: while the call has no result it has the last words of the child's
        newest turn, once that is completed or answered, and till then the gate judges the call by
        the child's gate. `completed()` of a turn of it gives the call its result (`tool_finished`;
        say none yourself), once; where that was killed, `child` does that is asked for again.
        turn, stream_id, n: of the call, as `settle` takes them.
        Refused: `unknown_call`, none that is open has that id; `ambiguous_call`, several have it.
        """
        steps = self._steps.child(id, call_id=call_id, turn=turn, stream_id=stream_id, n=n)
        other = run(self._query, steps)
        return Session(other, self._query, self._open)

    def _turn(self, steps: TurnSteps) -> Turn:
        return Turn(steps, self._query, self._open)
