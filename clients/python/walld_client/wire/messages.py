"""Every frame of the walld protocol, as tagged msgspec unions.

Owns: the names, order and types of the fields on the wire (`clients/PROTOCOL.md` is the
normative text; `clients/vectors/` holds the bytes). Refuses: I/O, framing, meaning.

A message is a msgpack array whose first element is its integer tag. Evolution rules: fields are
only ever appended, with a default; none is reordered, retyped or removed; a receiver ignores
elements it does not know. Tags are never used again.

Text travels as msgpack *bin* in UTF-8 with surrogates passed through, because vendors split an
emoji over two chunks and each half is then a lone surrogate, which no msgpack *str* can hold.
Halves join up when the reply is read (`walld_client.recovered.partial`).
"""

from __future__ import annotations

import msgspec
from walld_client.wire.ledger_messages import (
    OF_ITS_SESSION,
    OF_THIS_MOMENT,
    Append,
    Attest,
    Delete,
    DeleteAt,
    Events,
    Fork,
    GetArtifact,
    Message,
    NewEntry,
    Placed,
    Project,
    PutArtifact,
    RequestId,
    Seen,
    SeenList,
    SessionFacts,
    Sessions,
)

__all__ = [
    "OF_ITS_SESSION",
    "OF_THIS_MOMENT",
    "Ack",
    "Answer",
    "AppError",
    "Append",
    "Attest",
    "Custom",
    "Delete",
    "DeleteAt",
    "Drain",
    "Drained",
    "End",
    "Error",
    "Event",
    "Events",
    "Finish",
    "Fork",
    "FromAgent",
    "FromQuery",
    "Gap",
    "GetArtifact",
    "HasPartial",
    "Hello",
    "List",
    "Metrics",
    "Move",
    "NewEntry",
    "Placed",
    "Project",
    "PutArtifact",
    "Reasoning",
    "Recover",
    "Recovered",
    "RecoveredSegment",
    "Refused",
    "Release",
    "ReplyError",
    "Resolve",
    "Resume",
    "Retried",
    "Retry",
    "Run",
    "Seen",
    "SessionFacts",
    "Sessions",
    "Start",
    "Status",
    "Step",
    "StepBegun",
    "ToAgent",
    "ToQuery",
    "Token",
    "Tool",
    "ToolArguments",
    "ToolResult",
    "Welcome",
]


# --- the first frame of each side ---------------------------------------------------------------


class Hello(Message, tag=0, frozen=True):
    """First frame of a connection, from the client.

    version: protocol version the client speaks (1).
    role: "agent" sends events, "query" sends requests.
    producer: 16 random bytes drawn once per process (again after fork): tells a second producer
        of one stream from a returning one.
    log: uuid (16 bytes) of the log the client last had an Ack from, b"" if none.
    synced_no: highest batch number it was told is synced in that log.
    client: name and version, for the daemon's log.
    """

    version: int
    role: str
    producer: bytes
    log: bytes = b""
    synced_no: int = 0
    client: str = ""


class Welcome(Message, tag=1, frozen=True):
    """The daemon's answer to Hello. A query client waits for it; an agent never waits.

    version: protocol version spoken on this connection. daemon: its version string.
    log: uuid of the log it writes. frame_bytes_max: longest message it takes.
    text_bytes_max: longest text, arguments or result of one event.
    """

    version: int
    daemon: str
    log: bytes
    frame_bytes_max: int
    text_bytes_max: int


# --- what an agent says ---------------------------------------------------------------------------
# `stream` is a number (>= 1) that the producer gives the stream in Start and never uses again, so
# (producer, stream) names it on every later connection and a frame is resent byte for byte.
# `seq` is dense per stream: Start is 0. `info` and `payload` are opaque msgpack of the application.


class Start(Message, tag=2, frozen=True):
    """Seq 0 of a stream: opens it. `meta` is opaque msgpack. `at_ms` is the client's wall clock.

    app: the application whose reply it is, one of several of a user; None is everybody's.
    """

    stream: int
    seq: int
    stream_id: str
    session_id: str
    turn_id: str | None = None
    parent: str | None = None
    meta: bytes | None = None
    at_ms: int = 0
    app: str | None = None


class Token(Message, tag=3, frozen=True):
    """A piece of the reply's text."""

    stream: int
    seq: int
    text: bytes
    info: bytes | None = None


class Reasoning(Message, tag=4, frozen=True):
    """A piece of the model's reasoning: kept, never sent back to a provider."""

    stream: int
    seq: int
    text: bytes
    info: bytes | None = None


class Run(Message, tag=5, frozen=True):
    """Consecutive tokens (kind 3) or reasoning (kind 4) that waited in a client, folded into one.

    seq is that of the first; `lengths` holds one LEB128 varint per token; `text` is all of them.
    """

    stream: int
    seq: int
    kind: int
    lengths: bytes
    text: bytes


class Tool(Message, tag=6, frozen=True):
    """A tool call, or an update of one (same call_id, one answer). `arguments` is JSON in UTF-8."""

    stream: int
    seq: int
    call_id: str
    name: str
    arguments: bytes | None = None
    info: bytes | None = None
    truncated_from: int = 0


class ToolArguments(Message, tag=7, frozen=True):
    """The next piece of a tool call's JSON arguments."""

    stream: int
    seq: int
    call_id: str
    delta: bytes


class ToolResult(Message, tag=8, frozen=True):
    """What a tool gave back. `result` is text, or JSON text where `json` is true.

    truncated_from: true length in bytes where the client cut the result, else 0.
    """

    stream: int
    seq: int
    call_id: str | None
    name: str | None
    result: bytes
    json: bool = False
    failed: bool = False
    info: bytes | None = None
    truncated_from: int = 0


class Step(Message, tag=9, frozen=True):
    """From here on it is the next assistant message of the same run."""

    stream: int
    seq: int
    info: bytes | None = None


class Custom(Message, tag=10, frozen=True):
    """The application's own event, kept in order, never part of text or provider messages."""

    stream: int
    seq: int
    kind: str
    payload: bytes
    truncated_from: int = 0


class Retry(Message, tag=11, frozen=True):
    """What came before is a finished attempt; the text starts again.

    step: only the step under way is done again, the steps before it stand.
    """

    stream: int
    seq: int
    reason: str | None = None
    step: bool = False


class Move(Message, tag=12, frozen=True):
    """The stream belongs to another session from here on."""

    stream: int
    seq: int
    session_id: str


class Finish(Message, tag=13, frozen=True):
    """The provider's own terminal marker was seen."""

    stream: int
    seq: int
    reason: str | None = None


class AppError(Message, tag=14, frozen=True):
    """Terminal: the run failed."""

    stream: int
    seq: int
    message: str
    kind: str | None = None
    detail: bytes | None = None


class End(Message, tag=15, frozen=True):
    """Terminal: `clean` is a whole reply; otherwise it was cancelled, for `reason`."""

    stream: int
    seq: int
    clean: bool
    finish_reason: str | None = None
    reason: str | None = None


class Release(Message, tag=16, frozen=True):
    """The application's copy is safe: walld may forget the reply. Legal after any terminal."""

    stream: int
    seq: int


class Resume(Message, tag=17, frozen=True):
    """After a reconnect, one per stream the client still holds, before anything is resent.

    start: the stream's own Start. held_from: lowest seq the client can resend (next seq if it
    holds nothing). synced: highest seq it was told is synced, -1 if none. next_seq: the seq its
    next event will have. released: its Release was sent (or is about to be resent), so a daemon
    that does not know the stream has finished with it and lost nothing. moved_to: the session where
    its moves have brought it, None where it never moved: a daemon that has nothing of it moves it
    there, if it is not resent all of it.
    """

    start: Start
    held_from: int
    synced: int
    next_seq: int
    released: bool = False
    moved_to: str | None = None


class Drain(Message, tag=18, frozen=True):
    """Asks for Drained once all that was sent before it on this connection is at `level`."""

    id: int
    level: str


Event = (
    Start
    | Token
    | Reasoning
    | Run
    | Tool
    | ToolArguments
    | ToolResult
    | Step
    | Custom
    | Retry
    | Move
    | Finish
    | AppError
    | End
    | Release
)


# --- what the daemon tells an agent ---------------------------------------------------------------


class Ack(Message, tag=32, frozen=True):
    """Cumulative. streams: (stream, written seq, synced seq) of each stream that moved.

    log: the log's uuid. batch_no: highest batch written. synced_no: highest batch synced.
    """

    log: bytes
    batch_no: int
    synced_no: int
    streams: list[tuple[int, int, int]]


class Drained(Message, tag=33, frozen=True):
    """All that was sent before Drain `id` is at `level`."""

    id: int
    level: str


class Refused(Message, tag=34, frozen=True):
    """One event was intact but illegal. It is not kept and must not be resent."""

    stream: int
    seq: int
    code: str
    got: str
    limit: str


class Error(Message, tag=35, frozen=True):
    """Framing is broken or the peer is not welcome. The daemon closes after sending it.

    On a query connection: a request failed; `id` names it and the connection goes on.
    """

    code: str
    message: str
    got: str = ""
    limit: str = ""
    id: int = 0


# --- requests -------------------------------------------------------------------------------------


class Recover(Message, tag=48, frozen=True):
    """Unreleased replies. which: "latest" | "all" | "orphans". Answer: list of Recovered.

    session_id or stream_id may be None; both None (with "all" or "orphans") means every session
    of the caller. uid: whose; None is the caller, another one is for root and the daemon's user.
    """

    id: RequestId
    which: str
    session_id: str | None = None
    stream_id: str | None = None
    seen: SeenList = []  # noqa: RUF012 - its base stands elsewhere, and copies it
    uid: int | None = None


class HasPartial(Message, tag=49, frozen=True):
    """Is there an unreleased reply of this session? Answer: bool."""

    id: RequestId
    session_id: str
    seen: SeenList = []  # noqa: RUF012 - its base stands elsewhere, and copies it


class Resolve(Message, tag=50, frozen=True):
    """Remove an orphan. last_seq: what the caller has seen. Answer: bool, or Error "refused"."""

    id: RequestId
    stream_id: str
    last_seq: int | None = None
    uid: int | None = None
    seen: SeenList = []  # noqa: RUF012 - its base stands elsewhere, and copies it


class Status(Message, tag=51, frozen=True):
    """How the daemon is. Answer: map of str to value."""

    id: RequestId


class Metrics(Message, tag=52, frozen=True):
    """Answer: the Prometheus exposition text."""

    id: RequestId


class List(Message, tag=53, frozen=True):
    """Unreleased replies without their text. Answer: list of Recovered with no segments."""

    id: RequestId
    prefix: str = ""
    uid: int | None = None


class Answer(Message, tag=64, frozen=True):
    """A piece of the answer to request `id`. The pieces joined are one msgpack value.

    receipt: of an Append that is synced, for Attest: the daemon's own, opaque to a client.
    new_directory: when a start of the daemon found its data directory empty, in ms since 1970; 0
    where that is not known, and beside an answer that says nothing of what is kept.
    """

    id: int
    chunk: bytes
    last: bool = True
    receipt: bytes = b""
    new_directory: int = 0


# --- a recovered reply, as it travels -------------------------------------------------------------


class Gap(Message, frozen=True):
    """Seqs from first to last (both missing). verdict: dropped | torn | corrupt | unknown.

    One that the reply ends in is open: at least these are missing.
    """

    first_seq: int
    last_seq: int
    verdict: str


class ReplyError(Message, frozen=True):
    """What `Reply.error` said."""

    message: str
    kind: str | None = None
    detail: bytes | None = None


class RecoveredSegment(Message, frozen=True):
    """One piece of a reply, in order.

    kind: text | reasoning | tool | tool_result (an orphan result) | custom | gap.
    step, attempt: from 0. at_ms: wall clock when its first event arrived.
    text: of text, reasoning. name: of tool, tool_result; the app's kind for custom.
    arguments: JSON text so far. result: text, or JSON text where result_json; payload of custom.
    outcome of a tool: "done" | "failed" | "unknown" (no result seen: never taken as done).
    truncated_from: true length where the client cut it, else 0.
    info: what the program said beside it; of a tool that was told none, beside its result.
    result_info: of a tool, beside its result.
    """

    kind: str
    step: int
    attempt: int
    first_seq: int
    last_seq: int
    at_ms: int
    text: bytes = b""
    call_id: str | None = None
    name: str | None = None
    arguments: bytes | None = None
    arguments_complete: bool = False
    result: bytes | None = None
    result_json: bool = False
    outcome: str | None = None
    truncated_from: int = 0
    info: bytes | None = None
    verdict: str | None = None
    result_info: bytes | None = None


class StepBegun(Message, frozen=True):
    """Where a step of a reply begins, and what its Step said. The first step of a reply has none.

    One that stands in a later attempt, too, is told for each.
    """

    attempt: int
    step: int
    seq: int
    at_ms: int
    info: bytes | None = None


class Retried(Message, frozen=True):
    """Where an attempt of a reply begins, and why. step: of the step under way alone."""

    attempt: int
    seq: int
    at_ms: int
    reason: str | None = None
    step: bool = False


class Recovered(Message, frozen=True):
    """A reply as far as it got. Statuses: live | complete | cancelled | errored | crashed.

    doubt: of the answer it is in, why there may be more replies than it has, or a later one.
    app: as its Start says. steps: by attempt, in order.
    """

    stream_id: str
    session_id: str
    uid: int
    turn_id: str | None
    parent: str | None
    meta: bytes | None
    status: str
    owner_alive: bool
    lost_reason: str | None
    error: ReplyError | None
    finish_reason: str | None
    started_at_ms: int
    last_event_at_ms: int
    last_seq: int
    gaps: list[Gap]
    attempts: int
    events: int
    partial: bool
    partial_reason: str | None
    segments: list[RecoveredSegment]
    doubt: str | None = None
    app: str | None = None
    steps: list[StepBegun] = msgspec.field(default_factory=list)
    retries: list[Retried] = msgspec.field(default_factory=list)


FromAgent = Hello | Resume | Drain | Event
FromQuery = (
    Hello
    | Recover
    | HasPartial
    | Resolve
    | Status
    | Metrics
    | List
    | Append
    | Events
    | Project
    | Sessions
    | Delete
    | DeleteAt
    | Fork
    | PutArtifact
    | GetArtifact
    | Attest
)
ToAgent = Welcome | Ack | Drained | Refused | Error
ToQuery = Welcome | Answer | Error
