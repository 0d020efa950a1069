"""The steps of calls about all sessions: list, delete, audit, repair plan.

Owns: listing, deleting, auditing. Refuses: one session's own calls (`session_steps.py`), the rules
of an audit (`audit.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from walld_client.argument_checks import Beginning, Ident, as_declared
from walld_client.errors import Refused, Unavailable
from walld_client.query.damage_log import told
from walld_client.query.requests import decode_bool, decode_json, decode_lines, decode_sessions
from walld_client.query.views import asked_view
from walld_client.session import artifacts, audit, entries
from walld_client.session.append_queue import AppendQueue, delivered
from walld_client.session.audit import AwaitedPresent, RepairStep, Report
from walld_client.steps import Answered, Asked, Steps
from walld_client.wire import messages

__all__ = ["SessionInfo", "after_posts", "audited", "delete", "plan", "sessions"]

_T = TypeVar("_T")
Seen = Callable[[str], list[messages.Seen]]
"""How far a process has sent the streams of a session: what is asked is behind that."""


Leaving = Callable[[str], Callable[[], None]]
"""Called as a session is to be deleted; what it gives, once that is done."""


def _nothing(_session_id: str) -> list[messages.Seen]:
    return []


def _stays(_session_id: str) -> Callable[[], None]:
    return lambda: None


class SessionInfo(msgspec.Struct, frozen=True):
    """A session that was written. last_at: seconds since the epoch. bytes: of its events.

    trouble: why it cannot be read, "" where it can; session_id is then its directory's name where
    nothing else names it.
    """

    session_id: str
    last_seq: int
    last_at: float
    bytes: int
    trouble: str = ""


def after_posts(append_queue: AppendQueue, steps: Steps[_T]) -> Steps[_T]:
    """The steps, once all that was appended without waiting is there."""
    yield from delivered(append_queue, append_queue.timeout)
    return (yield from steps)


@as_declared
def sessions(prefix: Beginning | None = None) -> Steps[list[SessionInfo]]:
    """Those of this user whose id begins so."""
    answer = yield Asked(lambda request_id: messages.Sessions(request_id, prefix or ""))
    return [
        SessionInfo(one.session_id, one.last_seq, one.last_at_ms / 1000, one.bytes, one.trouble)
        for one in decode_sessions(answer)
    ]


@as_declared
def delete(session_id: Ident, seen: Seen = _nothing, leaving: Leaving = _stays) -> Steps[bool]:
    """Remove all there is of a session, what this process has just sent of it too."""
    is_gone = leaving(session_id)
    answer = yield Asked(
        lambda request_id: messages.Delete(request_id, session_id, None, seen(session_id))
    )
    is_gone()
    return decode_bool(answer)


@as_declared
def audited(
    session_id: Ident | None, present: AwaitedPresent, seen: Seen = _nothing
) -> Steps[Report]:
    """The report of one session, or of all."""
    if session_id is not None:
        troubles = {session_id: ""}
    else:
        troubles = {one.session_id: one.trouble for one in (yield from sessions())}
    facts: dict[str, dict[str, Any]] = {}
    for one, trouble in troubles.items():
        try:
            found = yield from _facts(one, seen)
        except (Refused, Unavailable):
            if not trouble:
                raise
            found = None
        if found is not None or trouble:
            facts[one] = _with_trouble(found or {}, trouble)
    return audit.report_of(facts, (yield from _answered(facts, present)))


def _answered(
    facts: Mapping[str, Mapping[str, Any]], present: AwaitedPresent
) -> Steps[AwaitedPresent]:
    """What the program says of each turn, before anything is judged by it."""
    if not callable(present):
        return present
    answers: dict[tuple[str, str], bool | None] = {}
    for session_id, one in facts.items():
        for turn in audit.turns_of(session_id, one):
            answer = present(turn)
            if inspect.isawaitable(answer):
                answer = yield Answered(answer, audit.checked_answer)
            answers[session_id, turn.turn_id] = audit.checked_answer(answer)
    return lambda turn: answers[turn.session_id, turn.turn_id]


def _with_trouble(found: dict[str, Any], trouble: str) -> dict[str, Any]:
    """What keeps a session from being read is said, unless its breaks say it."""
    return found if found.get("chain_breaks") or not trouble else found | {"unreadable": [trouble]}


@as_declared
def plan(
    session_id: Ident, present: AwaitedPresent, seen: Seen = _nothing
) -> Steps[list[RepairStep]]:
    """The repair of one session, what was put beside it included.

    Turns whose lines are lost to damage are in no plan: that there are some is logged.
    """
    facts = (yield from _facts(session_id, seen)) or {}
    told(session_id, facts.get("chain_breaks") or [])
    steps = []
    answered = yield from _answered({session_id: facts}, present)
    for one in audit.plan_of(session_id, facts, answered):
        message = one.message
        if message["role"] == "user" and message["content"] is None and one.submitted_seq:
            said = yield from _said(session_id, one.submitted_seq)
            message = message | {"content": said}
        message = yield from artifacts.resolved(session_id, message)
        steps.append(msgspec.structs.replace(one, message=message))
    return steps


def _said(session_id: str, seq: int) -> Steps[Any]:
    """The content of the turn that the event of that seq submitted."""
    answer = yield Asked(lambda request_id: messages.Events(request_id, session_id, seq - 1, 1))
    lines = decode_lines(answer)
    event = entries.read_json(lines[0]) if lines else {}
    if event.get("seq") != seq or event.get("type") != "turn_submitted":
        raise Unavailable(f"event {seq} of session {session_id!r} is not to be had")
    return event["payload"].get("content")


def _facts(session_id: str, seen: Seen) -> Steps[dict[str, Any] | None]:
    text = decode_json((yield from asked_view(session_id, "audit", b"{}", seen)))
    return None if text is None else entries.read_json(text)
