"""Every view of a session by its name.

Owns: names, their arguments and the checks of those. Refuses: the views themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from walld.sessions.gate.pending import pending
from walld.sessions.gate.resume import resume
from walld.sessions.state.account import Unreleased
from walld.sessions.state.errors import BadArgument, UnknownProjection
from walld.sessions.state.events import Event
from walld.sessions.views.audit import audit
from walld.sessions.views.child_view import child_view
from walld.sessions.views.evaluation import evaluation
from walld.sessions.views.explanation import explain
from walld.sessions.views.find import find
from walld.sessions.views.message_page import messages_or_page
from walld.sessions.views.messages import edit_target, undone
from walld.sessions.views.state_view import state_view
from walld.sessions.views.trace import trace
from walld.sessions.views.transcript import transcript
from walld.sessions.views.tree import branches, tree
from walld.sessions.views.turn_view import turn

__all__ = ["PROJECTIONS", "check", "project"]


class _Projection(NamedTuple):
    fold: Callable[..., object]
    arguments: dict[str, tuple[type, ...]]
    with_unreleased: bool = False
    """It tells of replies, too, that are in no session yet."""


def _pending(events: Sequence[Event], **arguments: Any) -> list[dict[str, Any]]:
    return pending(events, **arguments, gone=undone(events))


def _resume(events: Sequence[Event], **arguments: Any) -> dict[str, Any]:
    return resume(events, **arguments, gone=undone(events))


_TEXT: Final = (str, type(None))
_TABLE: Final = (dict, type(None))
_OF_GATE: Final[dict[str, tuple[type, ...]]] = {
    "workspace": _TABLE,
    "missing_artifacts": (list,),
    "budget": _TABLE,
    "breaks": (list,),
    "last_seq": (int,),
    "replies": (list,),
    "workers": (list,),
    "now_ms": (int,),
    "policy": _TABLE,
    "processes": (dict,),
    "session": (str,),
}

PROJECTIONS: Final[dict[str, _Projection]] = {
    "messages": _Projection(
        messages_or_page,
        {
            "format": (str,),
            "branch": _TEXT,
            "compacted": (bool,),
            "unknown": (str,),
            "last": (int, type(None)),
            "before": _TEXT,
            "processes": (dict,),
        },
        with_unreleased=True,
    ),
    "state": _Projection(state_view, {}),
    "turn": _Projection(turn, {"turn_id": _TEXT, "stream_id": _TEXT}),
    "tree": _Projection(tree, {}),
    "branches": _Projection(branches, {}),
    "transcript": _Projection(transcript, {}, with_unreleased=True),
    "trace": _Projection(trace, {}, with_unreleased=True),
    "audit": _Projection(audit, {"replies": (list,), "workers": (list,), "last_seq": (int,)}),
    "eval": _Projection(evaluation, {"turn": _TEXT}, with_unreleased=True),
    "pending": _Projection(
        _pending,
        {
            "last_seq": (int,),
            "replies": (list,),
            "workers": (list,),
            "now_ms": (int,),
            "processes": (dict,),
        },
    ),
    "resume": _Projection(_resume, _OF_GATE),
    "explain": _Projection(explain, _OF_GATE),
    "child": _Projection(child_view, {"session": _TEXT, "of": _TABLE}, with_unreleased=True),
    "edit_target": _Projection(edit_target, {"of": (str,), "role": (bool,)}),
    "find": _Projection(
        find, {"type": _TEXT, "key": _TEXT, "key_prefix": _TEXT, "last": (int, type(None))}
    ),
}


def project(
    name: str,
    events: Sequence[Event],
    arguments: dict[str, Any],
    unreleased: Sequence[Unreleased] = (),
) -> object:
    """The view of that name, of all events of a session in order of seq, as plain JSON values.

    unreleased: replies that are in no session, for a view `with_unreleased`. Text is
    as the events have it: half characters too. Raises UnknownProjection, BadArgument.
    """
    check(name, arguments)
    if unreleased:
        return PROJECTIONS[name].fold(events, **arguments, unreleased=unreleased)
    return PROJECTIONS[name].fold(events, **arguments)


def check(name: str, arguments: dict[str, Any]) -> None:
    """There is such a view, and it takes these. UnknownProjection, BadArgument."""
    projection = PROJECTIONS.get(name)
    if projection is None:
        raise UnknownProjection(name, " | ".join(PROJECTIONS))
    for given, value in arguments.items():
        kinds = projection.arguments.get(given)
        if kinds is None:
            raise BadArgument(given, name, " | ".join(projection.arguments) or "no arguments")
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            limit = " | ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
            raise BadArgument(given, type(value).__name__, limit)
