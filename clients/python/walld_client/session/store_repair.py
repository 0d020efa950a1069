"""What a program with a store of its own does as it starts: the one order that is right.

Owns: the order of saving, marking, resolving and auditing, and what is said of it. Refuses: the
store (the application's), what a plan or an audit says (`session/audit.py`).

Session by session: what the user said and the store lacks, then what the dead process had said,
then the mark behind it, then the reply is resolved: so a store that keeps its rows in the order in
which they came has them as they were. Of a reply with an open call the gate is asked before it
goes. At last the audit, which finds what nothing can put back.

Invariants: each step is one that may be done again, under a key of its own; a reply is resolved
behind the last of its saves. So whoever is killed anywhere in it runs it again, and who runs it
twice changes nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from walld_client.argument_checks import Beginning, as_declared
from walld_client.recovered.entry_messages import entry_messages
from walld_client.session.audit import AuditedTurn, RepairStep, Report, joined

if TYPE_CHECKING:
    from walld_client.recovered.partial import PartialReply

__all__ = ["AsyncStore", "Startup", "Store", "startup", "startup_awaited"]

_OPEN = "unknown"
_Steps = Generator[Any, Any, "Startup"]


class Store(Protocol):
    """Your own store of messages, by key. Saving what is there already changes it or does nothing.

    The key of a message is its `_key`: `STREAM:SEQ` of what a reply had said, the message id of
    what a user said (or, without one, its turn's id), `TURN:interrupted` of a mark.
    """

    def has(self, key: str) -> bool:
        """It is saved."""

    def save(self, session_id: str, message: dict[str, Any]) -> None:
        """Keep it under its `_key`, durably."""

    def mark(self, session_id: str, turn: str, reason: str) -> None:
        """Show that the work stopped here. turn: its id, or of a reply without one its stream's."""


class AsyncStore(Protocol):
    """The same for an event loop."""

    def has(self, key: str) -> Awaitable[bool]:
        """As `Store.has`."""

    def save(self, session_id: str, message: dict[str, Any]) -> Awaitable[None]:
        """As `Store.save`."""

    def mark(self, session_id: str, turn: str, reason: str) -> Awaitable[None]:
        """As `Store.mark`."""


class Startup(msgspec.Struct, frozen=True, kw_only=True):
    """What was done. adopted: stream ids of replies that were saved and resolved. saved: messages.
    marked: turns, or streams of replies without one. gates: of sessions with a call that may have
    run in a reply that was resolved, what the gate said before. report: of the audit behind all.
    """

    adopted: list[str]
    saved: int
    marked: list[str]
    gates: dict[str, dict[str, Any]]
    report: Report


@as_declared
def startup(client: Any, store: Store, prefix: Beginning = "") -> Startup:
    """Bring your store up to what a crash left, and let walld forget it. Killed within, run again.

    prefix: of the ids of the sessions that this store is of; others are left alone. Replies are
    those that `client.orphans()` sees.
    Raises Unavailable where walld cannot know now: nothing is lost, run it later.
    """
    steps = _steps(client, store, prefix)
    answer = None
    while True:
        try:
            answer = steps.send(answer)
        except StopIteration as done:
            made: Startup = done.value
            return made


@as_declared
async def startup_awaited(client: Any, store: AsyncStore, prefix: Beginning = "") -> Startup:
    """The same of an asyncio client and a store whose calls are awaited."""
    steps = _steps(client, store, prefix)
    answer = None
    while True:
        try:
            asked = steps.send(answer)
        except StopIteration as done:
            made: Startup = done.value
            return made
        answer = await asked if inspect.isawaitable(asked) else asked


def _steps(client: Any, store: Any, prefix: str) -> _Steps:
    """Yields what each call gave, to be awaited where it has to be."""
    replies: dict[str, list[PartialReply]] = {}
    for reply in (yield client.orphans()):
        if reply.session_id.startswith(prefix):
            replies.setdefault(reply.session_id, []).append(reply)
    adopted: list[str] = []
    marked: list[str] = []
    gates: dict[str, dict[str, Any]] = {}
    saved = 0
    listed = [one.session_id for one in (yield client.sessions(prefix or None))]
    for session_id in dict.fromkeys([*listed, *replies]):
        plan: list[RepairStep] = []
        if session_id in listed:
            plan = yield client.repair_plan(session_id, present=_Present(store))
        orphans = replies.get(session_id, [])
        messages = [
            one.message | {"_key": one.message_id or one.turn_id}
            for one in plan
            if one.op == "materialise_user_message"
        ]
        messages += [
            one | {"_key": f"{reply.stream_id}:{one['_wal_seq']}", "_turn": reply.turn_id}
            for reply in orphans
            for one in entry_messages(reply)
        ]
        for message in messages:
            yield store.save(session_id, message)
        saved += len(messages)
        marks = {
            one.turn_id: one.reason or "unknown" for one in plan if one.op == "mark_interrupted"
        }
        for reply in orphans:
            if reply.turn_id is None and not reply.messages():
                marks[reply.stream_id] = reply.lost_reason or "unknown"
        for turn, reason in marks.items():
            if not (yield store.has(f"{turn}:interrupted")):
                yield store.mark(session_id, turn, reason)
                marked.append(turn)
        for reply in orphans:
            if any(one.kind == "tool" and one.outcome == _OPEN for one in reply.segments):
                gates[session_id] = yield client.session(session_id).resume_check()
            yield client.resolve(reply.stream_id, reply.last_seq)
            adopted.append(reply.stream_id)
    audited: list[Report] = []
    for name in listed if prefix else (None,):
        audited.append((yield client.audit(name, present=_Present(store))))  # noqa: PERF401
    report = joined(audited)
    return Startup(adopted=adopted, saved=saved, marked=marked, gates=gates, report=report)


class _Present:
    """What the store says of a turn's message."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __call__(self, turn: AuditedTurn) -> Any:
        return self._store.has(turn.message_id or turn.turn_id)
