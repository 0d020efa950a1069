"""The steps of one turn's calls, from submission to its end.

Owns: finding a turn again, and the events of its work and its tools. Refuses: submitting
(`submitting.py`), what is legal (the daemon says), a turn's reply (`turn.py` and `aio_turn.py` open
it), sockets.

`state` is what this object knows: it moves with the calls made here, and is looked up anew by
`session.turn()`.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from walld_client.argument_checks import (
    Count,
    Dict,
    EntryId,
    ExitCode,
    FileHashes,
    Ident,
    Time,
    as_declared,
    checked_word,
)
from walld_client.errors import Refused, Unavailable
from walld_client.ids import Entry, id_of, new_entry_id, new_stream_id
from walld_client.query.requests import is_passing
from walld_client.reply.open_calls import OpenCalls
from walld_client.reply.reply import ReplyBase, open_calls_of
from walld_client.session.entries import Draft, draft
from walld_client.session.fingerprint import file_hashes, file_pieces
from walld_client.session.session_steps import SessionSteps
from walld_client.steps import Done, Steps

__all__ = [
    "APPROVALS",
    "IDEMPOTENCY",
    "OUTCOMES",
    "RESUME_POLICIES",
    "SIDE_EFFECTS",
    "TurnSteps",
    "find_turn",
]

SIDE_EFFECTS = ("none", "read", "workspace-write", "external-write", "network", "process")
_EXTERNAL = ("external-write", "network", "process")
IDEMPOTENCY = ("safe", "conditional", "unsafe")
RESUME_POLICIES = (
    "replay-from-event",
    "rerun-after-check",
    "require-user-confirmation",
    "never-rerun",
)
OUTCOMES = ("done", "failed", "timeout", "cancelled")
_RESERVED = frozenset(("call_id", "effect", "of_call", "of_turn", "said"))
"""Fields of a call's events that are not the application's to give."""
_REPLIES_MAX = 16
"""Whose calls an intent is looked for in: the newest."""
APPROVALS = ("asked", "granted", "denied")
_log = logging.getLogger("walld")
_BEFORE_A_REPLY = ("submitted", "worker_started")
_ENDS = ("completed", "interrupted")


class TurnSteps:
    """A turn of one session."""

    __slots__ = (
        "_latest",
        "_replies",
        "_within",
        "calls",
        "message_id",
        "session",
        "state",
        "stream_ids",
        "turn_id",
    )

    def __init__(
        self,
        session: SessionSteps,
        turn_id: str,
        message_id: str,
        stream_ids: Sequence[str] = (),
        state: str = "submitted",
    ) -> None:
        self.session = session
        self.turn_id = turn_id
        self.message_id = message_id
        self.stream_ids = dict.fromkeys(stream_ids)
        """In order, as keys: a turn may have thousands of replies."""
        self.state = state
        self.calls: list[dict[str, Any]] = []
        """Of one that was resumed: the open calls of the turns before."""
        self._latest: dict[str, str] = {}
        self._replies: deque[tuple[str, OpenCalls]] = deque(maxlen=_REPLIES_MAX)
        self._within: set[str] = set()
        """Calls that this object saw intended, with an effect that is no external write."""

    def speaks(self, reply: ReplyBase) -> None:
        """A reply of this turn: what it says is called is what the journal is about."""
        self._replies.append((reply.stream_id, open_calls_of(reply)))

    def worker_started(self, /, **fields: Any) -> Steps[Entry]:
        """A worker has taken it up. fields: the application's own, here as in the calls below."""
        return (yield from self._moved("worker_started", fields))

    def assistant_started(self, stream_id: str | None) -> Steps[str]:
        """The reply begins; returns its stream's id.

        Without one it is that of the submit, while no reply has taken it.
        """
        if stream_id is None:
            is_fresh = bool(self.stream_ids) and self.state in _BEFORE_A_REPLY
            stream_id = next(iter(self.stream_ids)) if is_fresh else new_stream_id()
        payload = {"stream_id": stream_id}
        one = draft("turn_assistant_started", payload, once=True, turn=self.turn_id)
        try:
            yield from self.session.appended([one])
        except (Unavailable, Refused) as error:
            if not is_passing(error):
                raise
            # A reply never fails for the daemon's sake; it names its turn.
            text = "turn %r: its reply begins, and is in the log later: %s"
            _log.warning(text, self.turn_id, error)
            yield from self._posted(one)
        self._reached("assistant_started")  # the next one is not to have this one's id
        self.stream_ids.setdefault(stream_id)
        return stream_id

    def completed(self, /, **fields: Any) -> Steps[Entry]:
        """It is done. A second end is kept in the log, changes nothing and is reported."""
        entry = yield from self._moved("completed", fields)
        yield from self.session.tell_parent()
        return entry

    def interrupted(self, /, reason: str, **fields: Any) -> Steps[Entry]:
        """It ended before it was done."""
        return (yield from self._moved("interrupted", {"reason": reason} | fields))

    # --- tools ---

    def intent(
        self,
        /,
        tool: str,
        arguments: Any,
        *,
        side_effect: str,
        resume_policy: str,
        call_id: EntryId | None = None,
        idempotency: str | None = None,
        key: str | None = None,
        supersedes: EntryId | None = None,
        **fields: Any,
    ) -> Steps[Entry]:
        """A tool is about to be called. Without a call_id the entry's own id is it.

        idempotency: safe (to run it twice is to run it once), conditional (by `key`, which the
        other side knows it by) or unsafe, as it is where nothing is said. A call of a retry with
        the same key takes the place of this one. supersedes: the id of an open call of an earlier
        turn of the same user message, of which this one takes the place.
        """
        checked_word("side_effect", side_effect, SIDE_EFFECTS)
        checked_word("resume_policy", resume_policy, RESUME_POLICIES)
        if idempotency is not None:
            checked_word("idempotency", idempotency, IDEMPOTENCY)
        drawn = new_entry_id()
        call_id = drawn if call_id is None else id_of(call_id)
        self._within.discard(call_id)
        told = {
            "tool": tool,
            "arguments": arguments,
            "side_effect": "external-write" if side_effect in _EXTERNAL else side_effect,
            "resume_policy": resume_policy,
        }
        if side_effect in ("network", "process"):
            told["effect"] = side_effect  # daemons of 0.1.0 take the four words alone
        given = {"idempotency": idempotency, "key": key, "supersedes": supersedes}
        told |= {name: value for name, value in given.items() if value is not None}
        if (said := self._said(call_id)) is not None:
            told["said"] = said
        entry = yield from self._of_tool("tool_intent", call_id, told, fields, id=drawn)
        if side_effect not in _EXTERNAL:
            self._within.add(call_id)
        return entry

    def decision(
        self, /, call_id: EntryId, verdict: str, reason: str | None = None, **fields: Any
    ) -> Steps[Entry]:
        """What a policy said of the call: its yes is none where a person is to say so."""
        told = {"verdict": verdict} | ({} if reason is None else {"reason": reason})
        return (yield from self._of_tool("tool_decision", call_id, told, fields))

    def approval(
        self,
        /,
        call_id: EntryId,
        state: str,
        *,
        by: str | None = None,
        scope: Dict | None = None,
        expires_at: Time | None = None,
        **fields: Any,
    ) -> Steps[Entry]:
        """A person was asked, or has said: "asked", "granted" or "denied".

        by: who. scope: what was allowed, by fields of the intent (`tool`, `arguments`): a call of
        which one is another was not. expires_at: seconds since 1970; behind it the user is asked
        anew before the call runs. Unsupported, and nothing is appended, where a grant has one of
        these two and the daemon is of a build that would let the call run all the same.
        """
        checked_word("state", state, APPROVALS)
        if state == "granted" and (scope is not None or expires_at is not None):
            yield from self.session.reads_grants()
        told = {"state": state, "by": by, "scope": scope, "expires_at": expires_at}
        given = {name: value for name, value in told.items() if value is not None}
        return (yield from self._of_tool("tool_approval", call_id, given, fields))

    def tool_started(
        self, /, call_id: EntryId, pid: Count | None = None, **fields: Any
    ) -> Steps[Entry]:
        """The effect may happen from here on.

        For what may be an external write this waits until it is synced: a host that lost its power
        must not believe that nothing was done. A call whose intent this object did not see (the
        turn was found again, or submitted again) may be one.
        pid: of the process that it runs in, where that may outlive this one: while it is there the
        gate does not let the call run again.
        """
        named = {} if pid is None else (yield Done(lambda: _named_process(pid)))
        synced = call_id not in self._within
        entry = yield from self._of_tool("tool_started", call_id, named, fields, synced=synced)
        self._within.discard(call_id)  # the next one of that id is another call
        return entry

    def tool_finished(
        self,
        /,
        call_id: EntryId,
        result: Any = None,
        *,
        failed: bool = False,
        outcome: str | None = None,
        exit_code: ExitCode | None = None,
        files: FileHashes = (),
        **fields: Any,
    ) -> Steps[Entry]:
        """What the call gave. files: those it wrote, which are hashed, or {path: sha256}.

        outcome: done, failed, timeout or cancelled; else failed where `failed` is said, or done.
        Files that its entry has no room for are told in entries of type lifecycle before it.
        """
        if outcome is not None:
            checked_word("outcome", outcome, OUTCOMES)
            if failed and outcome == "done":
                raise ValueError("failed=True and outcome='done' contradict each other")
        told: dict[str, Any] = {"result": result}
        if failed or outcome not in (None, "done"):
            told["failed"] = True  # also for readers of 0.1.0, which know no outcome
        more = {"outcome": outcome, "exit_code": exit_code}
        told |= {name: value for name, value in more.items() if value is not None}
        if files:
            given = files if isinstance(files, Mapping) else None
            written = (yield Done(lambda: file_hashes(files))) if given is None else dict(given)
            *parts, told["files"] = file_pieces(written)
            for one in parts:
                part = {"kind": "files_written", "fingerprint": {"part": True, "files": one}}
                yield from self.session.append("lifecycle", part, turn=self.turn_id)
        return (yield from self._of_tool("tool_finished", call_id, told, fields))

    def observation(self, /, call_id: EntryId, text: str, **fields: Any) -> Steps[Entry]:
        """What the model is told of the result."""
        return (yield from self._of_tool("observation", call_id, {"text": text}, fields))

    # --- within ---

    def _moved(self, state: str, payload: dict[str, Any]) -> Steps[Entry]:
        entry = yield from self.session.append(f"turn_{state}", payload, turn=self.turn_id)
        self._reached(state)
        return entry

    def _posted(self, one: Draft) -> Steps[None]:
        """Sent once the daemon is there: it may have it already, and then adds none."""
        try:
            yield from self.session.posted(one)
        except Unavailable as error:
            _log.warning("turn %r: that its reply began is not in the log: %s", self.turn_id, error)

    def _reached(self, state: str) -> None:
        if self.state not in _ENDS:
            self.state = state

    def _said(self, call_id: str) -> str | None:
        """Where a reply of this turn said the call: "stream:seq"; None where none here did."""
        for stream_id, calls in reversed(self._replies):
            if (seq := calls.begun_at(call_id)) is not None:
                return f"{stream_id}:{seq}"
        return None

    def _of_tool(
        self,
        type: str,  # noqa: A002
        call_id: str | Entry,
        told: dict[str, Any],
        fields: dict[str, Any],
        *,
        id: str | None = None,  # noqa: A002
        synced: bool = False,
    ) -> Steps[Entry]:
        """An event of a call; its cause is the call's event before, as far as this object saw, and
        an intent's the place in the reply that said the call.

        fields: the application's own, beside what the event says.
        """
        if taken := sorted((_RESERVED | told.keys()) & fields.keys()):
            raise TypeError(f"{', '.join(taken)} of {type} is not the application's to give")
        call_id = id_of(call_id)
        payload = {"call_id": call_id, **told, **fields}
        cause = told.get("said") or self._latest.get(call_id)
        one = draft(type, payload, id=id, once=True, turn=self.turn_id, cause=cause)
        (entry,) = yield from self.session.appended([one], synced=synced)
        self._latest[call_id] = entry.id
        return entry


@as_declared
def find_turn(
    session: SessionSteps, turn_id: EntryId | None, stream_id: Ident | None
) -> Steps[TurnSteps]:
    """The turn of that id, or the one that a stream replies to. Refused where there is none."""
    if (turn_id is None) == (stream_id is None):
        raise TypeError("turn() takes a turn_id or a stream_id")
    turn_id = None if turn_id is None else id_of(turn_id)
    facts = yield from session.turn_facts(turn_id, stream_id)
    if facts is not None:
        streams, message_id = facts.get("stream_ids") or [], facts.get("message_id") or ""
        return TurnSteps(session, facts["turn_id"], message_id, streams, facts["state"])
    raise Refused(
        "unknown_turn",
        turn_id if turn_id is not None else f"stream {stream_id}",
        f"a turn of session {session.session_id}",
    )


def _named_process(pid: int) -> dict[str, Any]:
    """What tells it from another that has its pid later or elsewhere, as far as the kernel says."""
    named: dict[str, Any] = {"pid": pid}
    with suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command's name is in parentheses and may hold anything.
            named["start"] = int(file.read().rpartition(b")")[2].split()[19])
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            named["boot"] = file.read().strip()
        named["namespace"] = os.stat("/proc/self/ns/pid").st_ino
    return named
