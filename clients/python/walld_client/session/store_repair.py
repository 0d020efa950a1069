"""What a program with a store of its own does as it starts: the one order that is right.

Owns: the order of saving, marking, resolving and auditing, and what is said of it. Refuses: the
store (the application's), what a plan or an audit says (`session/audit.py`).

Session by session: what the user said and the store lacks, then what the dead process had said,
then the mark behind it, then the reply is resolved: so a store that keeps its rows in the order in
which they came has them as they were. Of a reply with an open call the gate is asked before it
goes; where its session has no log, in which that call would stay, the reply stays until somebody
settles the call. At last the audit, which finds what nothing can put back.

Invariants: each step is one that may be done again, under a key of its own; a reply is resolved
behind the last of its saves. So whoever is killed anywhere in it runs it again, and who runs it
twice changes nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from walld_client.aio_steps import run as run_awaiting
from walld_client.argument_checks import Beginning, as_declared
from walld_client.errors import Refused
from walld_client.recovered.entry_messages import entry_messages
from walld_client.session.audit import AuditedTurn, RepairStep, Report, joined
from walld_client.steps import Answered, Steps, run

if TYPE_CHECKING:
    from walld_client.recovered.partial import PartialReply

__all__ = ["AsyncStore", "Startup", "Store", "startup", "startup_awaited"]

_OPEN = "unknown"


class Store(Protocol):
    """Your own store of messages, by key: saving one that is there replaces it.

    The key of a message is its `_key`: `STREAM:SEQ` of what a reply had said, the message id of
    what a user said (or, without one, its turn's id), `TURN:interrupted` of a mark. Where it has a
    reply's stream id, the program saved that reply whole itself: it is resolved, and no more.
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
    marked: turns, or streams of replies without one. kept: stream ids of replies that were saved
    and not resolved: nothing else would say of their open calls; each run says so, until
    `settle()`. gates: of sessions with a call that may have run in a reply of either, what the gate
    said before. report: of the audit behind all.
    """

    adopted: list[str]
    kept: list[str]
    saved: int
    marked: list[str]
    gates: dict[str, dict[str, Any]]
    report: Report


@as_declared
def startup(client: Any, store: Store, prefix: Beginning = "") -> Startup:
    """Bring your store up to what a crash left, and let walld forget it. Killed within, run again.

    prefix: of the ids of the sessions that this store is of: others are left alone. Say it where
    the user has sessions of other programs, which nothing else tells apart. Replies are those that
    `client.orphans()` sees.
    Raises Unavailable where walld cannot know now: nothing is lost, run it later.
    """
    return run(client, _steps(client, store, prefix))


@as_declared
async def startup_awaited(client: Any, store: AsyncStore, prefix: Beginning = "") -> Startup:
    """The same of an asyncio client and a store whose calls are awaited."""
    return await run_awaiting(client, _steps(client, store, prefix))


def _steps(client: Any, store: Any, prefix: str) -> Steps[Startup]:
    """Asks nothing itself: what a call gave is awaited where it has to be."""
    replies: dict[str, list[PartialReply]] = {}
    for reply in (yield from _came(client.orphans())):
        if reply.session_id.startswith(prefix):
            replies.setdefault(reply.session_id, []).append(reply)
    listed = [one.session_id for one in (yield from _came(client.sessions(prefix or None)))]
    made: list[Startup] = []
    for session_id in dict.fromkeys([*listed, *replies]):
        orphans, is_listed = replies.get(session_id, []), session_id in listed
        made.append((yield from _of_session(client, store, session_id, orphans, is_listed)))
    audited: list[Report] = []
    for name in listed if prefix else (None,):
        report = yield from _came(client.audit(name, present=_Present(store)))
        audited.append(report)
    return Startup(
        adopted=[stream for one in made for stream in one.adopted],
        kept=[stream for one in made for stream in one.kept],
        saved=sum(one.saved for one in made),
        marked=[turn for one in made for turn in one.marked],
        gates={session: gate for one in made for session, gate in one.gates.items()},
        report=joined(audited),
    )


def _of_session(
    client: Any, store: Any, session_id: str, orphans: list[PartialReply], is_listed: bool
) -> Steps[Startup]:
    """What there is to do of one. What it is refused keeps no other session from its turn."""
    plan: list[RepairStep] = []
    if is_listed:
        with suppress(Refused):  # it cannot be read: the audit says so
            plan = yield from _came(client.repair_plan(session_id, present=_Present(store)))
    messages = [
        one.message | {"_key": one.message_id or one.turn_id}
        for one in plan
        if one.op == "materialise_user_message"
    ]
    for reply in orphans:
        if not (yield from _came(store.has(reply.stream_id))):
            messages += [
                one | {"_key": f"{reply.stream_id}:{one['_wal_seq']}", "_turn": reply.turn_id}
                for one in entry_messages(reply)
            ]
    for message in messages:
        yield from _came(store.save(session_id, message))
    marks: dict[str, str] = {}
    for step in plan:
        if step.op == "mark_interrupted" and not (yield from _has_any(store, step.stream_ids)):
            marks[step.turn_id] = step.reason or "unknown"
    for reply in orphans:
        if reply.turn_id is None and not reply.messages():
            marks[reply.stream_id] = reply.lost_reason or "unknown"
    marked: list[str] = []
    for turn, reason in marks.items():
        if not (yield from _came(store.has(f"{turn}:interrupted"))):
            yield from _came(store.mark(session_id, turn, reason))
            marked.append(turn)
    adopted: list[str] = []
    kept: list[str] = []
    gates: dict[str, dict[str, Any]] = {}
    for reply in orphans:
        with suppress(Refused):  # it grew, or its owner is back: the next run has it, or its owner
            if any(one.kind == "tool" and one.outcome == _OPEN for one in reply.segments):
                gates[session_id] = yield from _came(client.session(session_id).resume_check())
                if not is_listed:
                    kept.append(reply.stream_id)
                    continue
            yield from _came(client.resolve(reply.stream_id, reply.last_seq))
            adopted.append(reply.stream_id)
    saved = len(messages)
    done = {"adopted": adopted, "kept": kept, "marked": marked}
    return Startup(saved=saved, gates=gates, report=joined([]), **done)


def _has_any(store: Any, stream_ids: list[str]) -> Steps[bool]:
    """The store has one of these replies whole: the program saved it before it was killed."""
    for stream_id in stream_ids:
        if (yield from _came(store.has(stream_id))):
            return True
    return False


def _came(value: Any) -> Steps[Any]:
    """What a call of the program's or the client's gave."""
    return (yield Answered(value, _refused)) if inspect.isawaitable(value) else value


def _refused(value: Any) -> Any:
    if inspect.iscoroutine(value):
        value.close()  # nobody will await it
    raise TypeError("startup() awaits nothing: walld_client.aio.startup() does")


class _Present:
    """What the store says of a turn's message."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __call__(self, turn: AuditedTurn) -> Any:
        return self._store.has(turn.message_id or turn.turn_id)
