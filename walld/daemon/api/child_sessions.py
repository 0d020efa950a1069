"""Looks at the sessions of sub-agents for the views of the sessions that began them.

Owns: what is asked of a child, and how deep. Refuses: which children a view needs
(`sessions/gate/children.py`), what is said of one (`sessions/views/child_view.py`), its gate.

A child is of the same user as the session that names it: another user's is never read.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from walld import limits
from walld.daemon.session_store.handles import SourceGone
from walld.errors import FormatError, ProtocolError, Refusal
from walld.sessions.state.events import Child, link_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from walld_client.wire import messages as wire

    from walld.engine.stream import Connection
    from walld.sessions.gate.workers import Worker
    from walld.sessions.state.events import Event

__all__ = ["ChildSessions", "Looking"]

_log = logging.getLogger("walld.requests")

_JUDGING: Final = ("explain", "pending", "resume")
"""Views that want a child's gate; the others what it said last."""


class Looking(NamedTuple):
    """What one request has looked into. above: the sessions whose views ask, the parent's last.
    met: children, on all ways down.
    """

    above: tuple[str, ...]
    met: list[str]

    def below(self, session_id: str) -> Looking:
        """For the children of that session."""
        return self._replace(above=(*self.above, session_id))


class ChildSessions:
    """Of one daemon."""

    def __init__(
        self,
        view: Callable[..., Awaitable[tuple[bytes | bytearray | None, object]]],
        begun: Callable[[Connection, int, str], Awaitable[list[Worker]]],
        wall_ms: Callable[[], int],
    ) -> None:
        """view: of one session; it may ask here again. begun: who is at work on one, now open."""
        self._view = view
        self._begun = begun
        self._wall_ms = wall_ms

    async def of(
        self,
        connection: Connection,
        request: wire.Project,
        uid: int,
        entry: Event,
        looking: Looking,
        policy: Mapping[str, Any] | None,
    ) -> Child | None:
        """What became of the session that the entry names; None where it says nothing of that call,
        or is looked into already. policy: of who asks for a gate.
        """
        link = link_of(entry.payload)
        assert link is not None, "it is the work of a call"
        if link.session in looking.above:
            return None
        if len(looking.above) > limits.CHILD_DEPTH_MAX:
            return Child(unread=f"it stands more than {limits.CHILD_DEPTH_MAX} sessions deep")
        if len(looking.met) == limits.CHILDREN_MAX:
            return Child(unread=f"more than {limits.CHILDREN_MAX} are not done")
        looking.met.append(link.session)

        async def view(name: str, arguments: dict[str, Any]) -> Any:
            asked = msgspec.structs.replace(request, session_id=link.session, name=name)
            told, _ = await self._view(connection, uid, asked, arguments, looking)
            return None if told is None else json.loads(told)

        try:
            workers = await self._begun(connection, uid, link.session)
            found = await view("child", {"session": looking.above[-1], "of": link.of})
            if found is None:
                return None
            became = Child(found["turn"], found["is_done"], _result(link.session, found))
            if became.is_done or request.name not in _JUDGING:
                return became
            asked: dict[str, Any] = {"now_ms": self._wall_ms(), "workers": workers}
            gate = await view("resume", asked if policy is None else asked | {"policy": policy})
        except (Refusal, ProtocolError, FormatError, OSError) as error:
            return Child(unread=str(error))
        except SourceGone:
            return None
        except Exception:  # a bug met by a child costs its parent no view
            _log.exception("what became of session %r is not known", link.session)
            return Child(unread="a bug; see the log")
        if gate is None:
            return None
        told = {name: gate[name] for name in ("status", "reasons", "owner")}
        return became._replace(**told)


def _result(session_id: str, found: Mapping[str, Any]) -> object:
    """What a child said last. What is beside the child is not beside its parent: it says so."""
    result = found["result"]
    named = result.get("_artifact") if isinstance(result, dict) else None
    if not isinstance(named, dict):
        return result
    return {"_artifact": named | {"session": session_id}}
