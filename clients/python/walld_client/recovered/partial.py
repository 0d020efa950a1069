"""A recovered reply, as an application reads it.

Owns: `PartialReply` and its reading from the wire. Refuses: asking for it (`client.py`), folding
(the daemon has done that), the shapes of messages (`projections.py`).

Invariants: pure reading. The same answer of the daemon gives the same object, and nothing in it
was made up: a half character that stays alone is a half in `text` and U+FFFD only in JSON and in
messages for a provider; bytes that are no text at all are U+FFFD.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any, Literal

import msgspec
from walld_client.encoding import wtf8
from walld_client.recovered.projections import anthropic_messages, openai_messages, plain_message
from walld_client.recovered.segments import Segment, opaque, segment_from_wire
from walld_client.wire import messages as wire

__all__ = [
    "Format",
    "Gap",
    "PartialReply",
    "ReplyError",
    "Retried",
    "Segment",
    "StepBegun",
    "from_recovered",
]

Format = Literal["plain", "openai", "anthropic"]


class Gap(msgspec.Struct, frozen=True):
    """Seqs that are missing, both included. verdict: dropped | torn | corrupt | unknown.

    One that the reply ends in is open: at least these are missing.
    """

    first_seq: int
    last_seq: int
    verdict: str


class ReplyError(msgspec.Struct, frozen=True):
    """What `Reply.error` was told."""

    message: str
    kind: str | None = None
    detail: Any = None


class StepBegun(msgspec.Struct, frozen=True):
    """Where a step of an attempt begins, and what `Reply.step` was told; the first step has none.

    attempt, step: from 0, as segments have them. seq: of the call. at: seconds since the epoch.
    """

    attempt: int
    step: int
    seq: int
    at: float
    info: Any = None


class Retried(msgspec.Struct, frozen=True):
    """Where an attempt begins, and what `Reply.retry` was told.

    attempt: the one that begins, from 1. seq: of the call. at: seconds since the epoch. step: only
    the step under way was begun anew.
    """

    attempt: int
    seq: int
    at: float
    reason: str | None = None
    step: bool = False


class PartialReply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply that was not released, as far as it got.

    status: live | complete | cancelled | errored | crashed. owner_alive: the process it belongs to
    is there, whatever the status; only a reply whose owner is gone is an orphan to adopt.
    lost_reason: why a reply that was cancelled or crashed ended. finish_reason: of its last
    message. started_at, last_event_at: seconds since the epoch. last_seq: what `resolve` takes.
    gaps: any makes the reply partial. attempts: 1 and one more for each retry. partial: it is not
    whole, and partial_reason says by what evidence. text: of the last attempt, all steps joined.
    segments: everything, in order, earlier attempts too. doubt: why there may be more replies than
    those that were told with it, or a later one, which cannot be read; None: there are none.
    app: the application whose it is; None: everybody's, of a client that names none. steps: where
    steps begin, by attempt; retries: where attempts do.
    """

    stream_id: str
    session_id: str
    turn_id: str | None
    parent: str | None
    meta: Any
    status: str
    owner_alive: bool
    lost_reason: str | None
    error: ReplyError | None
    finish_reason: str | None
    started_at: float
    last_event_at: float
    last_seq: int
    gaps: list[Gap]
    attempts: int
    events: int
    partial: bool
    partial_reason: str | None
    text: str
    segments: list[Segment]
    wal_recovered: bool = True
    doubt: str | None = None
    app: str | None = None
    steps: list[StepBegun] = []
    retries: list[Retried] = []

    def messages(self, format: Format = "plain") -> list[dict[str, Any]]:  # noqa: A002
        """The last attempt as messages.

        "plain": one a step, with reasoning, tool calls and the keys that name its place in the
        log (`_wal_stream` and `_wal_seq` are its identity; a larger `_wal_last_seq` replaces it);
        `_wal_info` is what `Reply.step` was told.
        "openai", "anthropic": what may be sent to the provider as it is. A reply that said
        nothing gives no message.
        """
        if format == "plain":
            return self._plain()
        last = [segment for segment in self.segments if segment.attempt == self.attempts - 1]
        if format == "openai":
            return openai_messages(last)
        if format == "anthropic":
            return anthropic_messages(last)
        raise ValueError(f"format {format!r} is none of 'plain', 'openai', 'anthropic'")

    def to_message(self, format: Format = "plain") -> dict[str, Any] | None:  # noqa: A002
        """The one message of this reply; None where it said nothing.

        Raises ValueError where it is more than one.
        """
        messages = self.messages(format)
        if len(messages) > 1:
            raise ValueError(
                f"reply {self.stream_id!r} is {len(messages)} {format} messages, limit 1:"
                " use messages()"
            )
        return messages[0] if messages else None

    def to_dict(self) -> dict[str, Any]:
        """Every field and `messages`, safe for JSON."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        fields["error"] = None if self.error is None else msgspec.structs.asdict(self.error)
        fields["gaps"] = [msgspec.structs.asdict(gap) for gap in self.gaps]
        fields["steps"] = [msgspec.structs.asdict(step) for step in self.steps]
        fields["retries"] = [msgspec.structs.asdict(one) for one in self.retries]
        fields["segments"] = []
        fields["messages"] = self.messages()
        safe = {name: wtf8.jsonable(value) for name, value in fields.items()}
        safe["segments"] = [segment.to_dict() for segment in self.segments]
        return safe

    def _plain(self) -> list[dict[str, Any]]:
        steps: dict[int, list[Segment]] = {}
        for segment in self.segments:
            if segment.attempt == self.attempts - 1:
                steps.setdefault(segment.step, []).append(segment)
        messages = []
        begun = {one.step: one.info for one in self.steps if one.attempt == self.attempts - 1}
        told = list(steps.values())
        for step, following in zip_longest(told, told[1:]):
            message = plain_message(step)
            if message is not None:
                message |= self._place(step, following)
                if (info := begun.get(step[0].step)) is not None:
                    message["_wal_info"] = info
                messages.append(message)
        return messages

    def _place(self, step: list[Segment], following: list[Segment] | None) -> dict[str, Any]:
        """Where a step's message stands in the log.

        The last seq of a step that is followed by another reaches up to that one, so it only ever
        grows: the message as first recovered is replaced by the one that is known to be whole.
        """
        last_seq = max(segment.last_seq for segment in step)
        until = self.last_seq if following is None else following[0].first_seq - 1
        reason = _step_partial_reason(step)
        if following is None and self.partial and not self._about_an_empty_step(step):
            reason = self.partial_reason
        return {
            "_wal_recovered": True,
            **({"_partial": True, "_partial_reason": reason} if reason else {}),
            "_wal_stream": self.stream_id,
            "_wal_seq": step[0].first_seq,
            "_wal_last_seq": max(last_seq, until),
            "_wal_started_at": step[0].at,
            "_wal_last_event_at": self.last_event_at if following is None else step[-1].at,
        }

    def _about_an_empty_step(self, step: list[Segment]) -> bool:
        """True where the reply is partial for a later step that has said nothing yet."""
        said = [segment for segment in step if segment.kind not in {"custom", "gap"}]
        while said and said[-1].kind == "text" and not said[-1].text.strip():
            said.pop()
        return self.partial_reason == "answer_missing" and bool(said) and said[-1].kind == "text"


def _step_partial_reason(step: list[Segment]) -> str | None:
    """Why a step is partial for what it holds itself."""
    if any(segment.kind == "gap" for segment in step):
        return "gap"
    if any(segment.kind == "tool" and segment.outcome == "unknown" for segment in step):
        return "tool_open"
    return None


def from_recovered(recovered: wire.Recovered) -> PartialReply:
    """A reply as the daemon sent it, in plain objects. Never raises."""
    segments = [segment_from_wire(segment) for segment in recovered.segments]
    error = recovered.error
    last_attempt = recovered.attempts - 1
    spoken = [one for one in segments if one.kind == "text" and one.attempt == last_attempt]
    return PartialReply(
        stream_id=recovered.stream_id,
        session_id=recovered.session_id,
        turn_id=recovered.turn_id,
        parent=recovered.parent,
        meta={} if recovered.meta is None else opaque(recovered.meta),
        status=recovered.status,
        owner_alive=recovered.owner_alive,
        lost_reason=recovered.lost_reason,
        error=None
        if error is None
        else ReplyError(error.message, error.kind, opaque(error.detail)),
        finish_reason=recovered.finish_reason,
        started_at=recovered.started_at_ms / 1000,
        last_event_at=recovered.last_event_at_ms / 1000,
        last_seq=recovered.last_seq,
        gaps=[Gap(gap.first_seq, gap.last_seq, gap.verdict) for gap in recovered.gaps],
        attempts=recovered.attempts,
        events=recovered.events,
        partial=recovered.partial,
        partial_reason=recovered.partial_reason,
        text=wtf8.join("".join([segment.text for segment in spoken])),
        segments=segments,
        doubt=recovered.doubt,
        app=recovered.app,
        steps=[
            StepBegun(one.attempt, one.step, one.seq, one.at_ms / 1000, opaque(one.info))
            for one in recovered.steps
        ],
        retries=[
            Retried(one.attempt, one.seq, one.at_ms / 1000, one.reason, one.step)
            for one in recovered.retries
        ],
    )
