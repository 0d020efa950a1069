"""What a session is to the one that it was begun for: a sub-agent's, by the call that it works on.

Owns: which turns are the work of a call, and what the child said last in them. Refuses: the call's
outcome (`state/account.py`), whether the child may go on (`gate/resume.py`).

A child may serve several calls, one behind the other: the work of a call are the turns that were
submitted behind the newest entry that names it, up to the next that names another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from walld.sessions.gate.pending import gone_answer, is_answered, open_tools
from walld.sessions.gate.turn_history import TurnHistory, history_of
from walld.sessions.gate.unreleased import said_before, said_in
from walld.sessions.state.account import Unreleased
from walld.sessions.state.events import Event, Link, link_of
from walld.sessions.views.messages import undone

__all__ = ["child_view"]


_GONE: Final = "It answered; its words are in its program's own store, and no more in its session."


def child_view(
    events: Sequence[Event],
    session: str | None = None,
    of: dict[str, Any] | None = None,
    unreleased: Sequence[Unreleased] = (),
) -> dict[str, Any] | None:
    """session, call_id, of: whose work it is; the newest, or the one that is named so. is_newest.
    turn, state: of its newest turn; is_done: that was completed, or answered, and no call of the
    others may have run; result: the text that the model said last in it, or what names its
    artifact. None of a session that is nobody's child.
    """
    links = [(one.seq, link) for one in events if (link := _link_in(one)) is not None]
    wanted = session, of
    named = [one for one in links if session is None or (one[1].session, one[1].of) == wanted]
    if not named:
        return None
    seq, link = named[-1]
    until = next((at for at, other in links if at > seq and _of(other) != _of(link)), None)
    said = said_in(unreleased, events)
    loose = [*said, *said_before(unreleased, events)]
    account = history_of(events, loose, gone=undone(events))
    turns = [
        turn
        for turn in account.turns.values()
        if seq < turn.submitted.seq and (until is None or turn.submitted.seq < until)
    ]
    told: dict[str, Any] = {"session": link.session, "call_id": link.call_id, "of": link.of}
    told |= {"is_newest": until is None, "turn": None, "state": None}
    told |= {"is_done": False, "result": None}
    if not turns:
        return told
    turn, waiting = turns[-1], open_tools(account)
    is_done = turn.state.state == "completed" or is_answered(turn, waiting, said)
    is_done &= not {one.turn for one in waiting} & {one.state.turn_id for one in turns}
    told |= {"turn": turn.state.turn_id, "state": turn.state.state, "is_done": is_done}
    return told | {"result": _last_words(turn, said) if is_done else None}


def _link_in(event: Event) -> Link | None:
    return link_of(event.payload) if event.type == "child_of" else None


def _of(link: Link) -> tuple[str, dict[str, Any]]:
    return link.session, link.of


def _last_words(turn: TurnHistory, said: Sequence[Event]) -> object:
    """Of the model, as text; "" where it said nothing."""
    if gone_answer(turn, said) is not None:
        return _GONE
    spoken = [*turn.spoken, *(one for one in said if one.turn == turn.state.turn_id)]
    messages = [one.payload for one in spoken if one.payload.get("role") == "assistant"]
    content = messages[-1].get("content") if messages else ""
    if not isinstance(content, list):
        return "" if content is None else content
    texts = [one.get("text") for one in content if isinstance(one, dict)]
    return "\n".join(one for one in texts if isinstance(one, str))
