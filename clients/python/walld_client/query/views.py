"""Requests a view of a session.

Owns: the one request, and what is said where its answer comes too late. Refuses: what a view means
(the daemon folds it), what becomes of it (`session_steps.py`, `ledger_steps.py`).

A view is made of all events of its session (an audit and the gate of its artifacts, too), so it
takes as long as that is: the wait that is enough for any other request may be too short for one of
100,000 events.
"""

from __future__ import annotations

from collections.abc import Callable

from walld_client.errors import Unavailable
from walld_client.query.requests import Late
from walld_client.steps import Asked, Steps
from walld_client.wire import messages

__all__ = ["asked_view"]


def asked_view(
    session_id: str,
    name: str,
    arguments: bytes,
    seen: Callable[[str], list[messages.Seen]],
    *,
    breaks: bool = False,
) -> Steps[bytes]:
    """The answer to Project. Unavailable where it comes too late says what to do.

    seen: how far this process has come with its streams of a session, as it is asked.
    """
    try:
        answer: bytes = yield Asked(
            lambda request_id: messages.Project(
                request_id, session_id, name, arguments, None, seen(session_id), breaks=breaks
            )
        )
    except Late as error:
        raise Unavailable(
            f"{error}: view {name} of session {session_id!r} is made of all there is of it, and a"
            " long one may take longer (wait longer with connect(timeout=), or --timeout)"
        ) from error
    return answer
