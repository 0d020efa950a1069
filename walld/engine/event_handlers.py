"""Handles every event but a token that continues its stream (the slow path in).

Owns: the checks on an intact event and its effect on its stream. Refuses: framing and the token
fast path (`frame_decoder.py`), batches (`batch_builder.py`), I/O.

Invariants
- An illegal event is refused by (stream, seq) and changes nothing; the connection goes on. Where
  it shows that two processes speak as one producer, that ends: nothing behind it is taken.
- A seq below what was taken is a duplicate: ignored and acknowledged again. A seq above it is
  taken, and what is missing stays missing: a gap that recovery shows (P10).
- First terminal wins. Release is legal after any terminal, and only then.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from walld_client.encoding.model_words import TOLD_IN, may_tell
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode

from walld import limits
from walld.engine.admission import (
    SEQ_MAX,
    Problem,
    check_order,
    check_producer,
    id_length,
    start_problem,
)
from walld.engine.stream import varint_lengths
from walld.wal import records
from walld.wal.layout import Flag

if TYPE_CHECKING:
    from collections.abc import Callable

    from walld.engine.core import Core
    from walld.engine.resolved_streams import ResolvedStream, ResolvedStreams
    from walld.engine.stream import Connection, Producer, Stream
    from walld.engine.turn_commit import TurnCommit

__all__ = ["KIND", "EventHandlers", "begin_of"]

KIND: dict[type, str] = {
    wire.Start: "start",
    wire.Token: "token",
    wire.Reasoning: "reasoning",
    wire.Run: "token",
    wire.Tool: "tool",
    wire.ToolArguments: "tool_arguments",
    wire.ToolResult: "tool_result",
    wire.Step: "step",
    wire.Custom: "custom",
    wire.Retry: "retry",
    wire.Move: "move",
    wire.Finish: "finish",
    wire.AppError: "app_error",
    wire.End: "end",
    wire.Release: "release",
}
_RUN_KINDS = (records.Text.kind, records.Thought.kind)
_ENDS = (wire.End, wire.AppError, wire.Release)
_OF_CALLS = (wire.Tool, wire.ToolArguments, wire.ToolResult, wire.AppError)
"""What tells of a tool call, or that the model's failed; others may tell of that."""
_IN_USE = ("stream_owned", "stream_exists")
_UNSAID_MAX = 16
"""Refused replies that are remembered to be said; metrics count all."""


def _is_of_calls(event: wire.Event) -> bool:
    if isinstance(event, wire.Custom):
        return event.kind in TOLD_IN
    return isinstance(event, _OF_CALLS) or (isinstance(event, wire.Token) and may_tell(event.info))


def _use_up(producer: Producer, number: int) -> None:
    """What comes under that number is dropped without an answer. There are few such numbers: a
    client that hears of the refusal says no more under it.
    """
    if len(producer.refused) < limits.REFUSED_STREAMS_MAX:
        producer.refused.add(number)


def _name_of(run: wire.Run) -> str:
    """What counters call each of its events."""
    return "reasoning" if run.kind == records.Thought.kind else "token"


def _longest_text(event: wire.Event) -> int:
    """Bytes of the longest text field of an event that has one."""
    match event:
        case wire.Token() | wire.Reasoning() | wire.Run():
            return len(event.text)
        case wire.Tool():
            return len(event.arguments or b"")
        case wire.ToolArguments():
            return len(event.delta)
        case wire.ToolResult():
            return len(event.result)
        case wire.Custom():
            return len(event.payload)
        case _:
            return 0


def _run_tokens(lengths: bytes) -> tuple[int, int]:
    """(tokens, bytes) that LEB128 lengths speak of; (-1, 0) where they are cut or padded."""
    if lengths.isascii():  # a byte each, as nearly all: a tenth of what the loop takes
        return len(lengths), sum(lengths)
    count = total = value = shift = 0
    for byte in lengths:
        value |= (byte & 127) << shift
        if byte & 128:
            shift += 7
            if shift > 28:
                return -1, 0
            continue
        count += 1
        total += value
        value = shift = 0
    return (-1, 0) if shift else (count, total)


def _rest_of_run(run: wire.Run, next_seq: int) -> wire.Run | None:
    """What a Run holds from `next_seq` on: its beginning was taken before, token by token."""
    skip = next_seq - run.seq
    count, total = _run_tokens(run.lengths)
    if count <= skip or total != len(run.text):
        return None
    ends = [at for at, byte in enumerate(run.lengths, 1) if byte < 128]
    rest = run.lengths[ends[skip - 1] :]
    text = run.text[_run_tokens(run.lengths[: ends[skip - 1]])[1] :]
    return wire.Run(run.stream, next_seq, run.kind, rest, text)


def begin_of(connection: Connection, event: wire.Start, at_ms: int) -> records.Begin:
    """What a record says of who a stream is."""
    return records.Begin(
        connection.uid,
        connection.producer.id,
        event.stream,
        event.stream_id,
        event.session_id,
        event.turn_id,
        event.parent,
        event.meta,
        at_ms,
        connection.process.owner,
        event.app,
    )


class EventHandlers:
    """Takes one decoded event at a time."""

    def __init__(self, core: Core, turn_commit: TurnCommit, resolved: ResolvedStreams) -> None:
        self._core = core
        self._turn_commit = turn_commit
        self._resolved = resolved
        self.refused_starts = deque[tuple[int, str, str]](maxlen=_UNSAID_MAX)
        """Uid, stream id and code of replies whose id is in use, to be said in the log."""
        self._special: dict[type, Callable[[Connection, Stream, wire.Event, int], None]] = {
            wire.Run: self._run,
            wire.Move: self._move,
            wire.End: self._terminal,
            wire.AppError: self._terminal,
            wire.Release: self._release,
        }

    def offer(self, connection: Connection, event: wire.Event, at_ms: int) -> None:
        """An event from a connection that has said Hello."""
        counters = self._core.counters
        is_thought = isinstance(event, wire.Run) and event.kind == records.Thought.kind
        counters.received["reasoning" if is_thought else KIND[type(event)]] += 1
        if not 0 <= event.seq <= SEQ_MAX or not 1 <= event.stream <= SEQ_MAX:
            got = f"stream {event.stream}, seq {event.seq}"
            self.refuse(connection, event, "bad_seq", got, f"1..{SEQ_MAX}, 0..{SEQ_MAX}")
            return
        if isinstance(event, wire.Start):
            self._start(connection, event, at_ms)
            return
        producer = connection.producer
        stream = producer.streams.get(event.stream)
        if stream is None:
            resolved = self._resolved.take(connection, event.stream)
            if resolved is not None:
                stream = self.begin_again(connection, resolved, at_ms)
        if stream is not None and isinstance(event, wire.Run) and event.seq < stream.next_seq:
            event = self._fresh_part(event, stream.next_seq)
        if stream is None:
            self._without_stream(connection, event)
        elif event.seq < stream.next_seq:
            counters.discarded["duplicate"] += 1
            connection.dirty.add(stream)
        elif _longest_text(event) > limits.TEXT_BYTES_MAX:
            got = str(_longest_text(event))
            self.refuse(connection, event, "text_length", got, str(limits.TEXT_BYTES_MAX))
        elif stream.terminal and type(event) is not wire.Release:
            counters.discarded["late"] += 1
            self.refuse(connection, event, "after_terminal", KIND[type(event)], "release")
        elif self._core.is_dropping and not self._finds_room(event):
            self._drop(connection, stream, event)
        else:
            self._core.produces(connection, stream)
            special = self._special.get(type(event))
            if special is not None:
                special(connection, stream, event, at_ms)
            else:
                self._plain(stream, event, 0, at_ms)

    def _plain(self, stream: Stream, event: wire.Event, flags: int, at_ms: int) -> None:
        if isinstance(event, wire.Token | wire.Reasoning) and event.info is None:
            is_text = isinstance(event, wire.Token)
            kind = records.Text.kind if is_text else records.Thought.kind
            lengths = varint_lengths([len(event.text)])
            grown = stream.take_run(kind, event.seq, 1, lengths, event.text, at_ms)
        else:
            stream.may_have_calls |= _is_of_calls(event)
            item = records.encode_item(records.Happened(at_ms - stream.begin.at_ms, event))
            grown = stream.take_item(event.seq, flags, item)
        self._core.queued(stream, grown)

    def _finds_room(self, event: wire.Event) -> bool:
        """On a full disk: an end does, and a move, or what follows would be told of the session
        before it; no number of those fills memory.
        """
        has_some = self._core.batches.queue_bytes < limits.QUEUE_BYTES_MAX
        return isinstance(event, _ENDS) or (isinstance(event, wire.Move) and has_some)

    def _drop(self, connection: Connection, stream: Stream, event: wire.Event) -> None:
        """On a full disk. Its client is told of the first one behind each that was taken: an Ack
        covers gaps, and what it calls safe is to end before this one.
        """
        self._core.counters.discarded["disk_full"] += 1
        if stream.dropped != (connection.name, stream.next_seq):
            stream.dropped = connection.name, stream.next_seq
            if stream.dropped_seq < 0:
                stream.dropped_seq = event.seq
            self.tell_dropped(connection, stream, event.seq, KIND[type(event)])
        count = _run_tokens(event.lengths)[0] if isinstance(event, wire.Run) else 1
        self.passes(connection, event.stream, event.seq + max(count, 1) - 1)

    @staticmethod
    def tell_dropped(connection: Connection, stream: Stream, seq: int, kind: str) -> None:
        """A full disk has dropped it: said before the next Ack, however much waits to be read."""
        number = stream.begin.number
        refused = encode(wire.Refused(number, seq, "disk_full", kind, "room on the disk"))
        if not connection.post(refused):
            connection.untold.setdefault(number, refused)
            connection.dirty.add(stream)

    def _fresh_part(self, run: wire.Run, next_seq: int) -> wire.Run:
        """What of a Run was not taken yet, or all of it where that is nothing; the rest counts."""
        counters, rest = self._core.counters, _rest_of_run(run, next_seq)
        known = _run_tokens(run.lengths)[0] - 1 if rest is None else next_seq - run.seq
        if known > 0:
            counters.received[_name_of(run)] += known
            counters.discarded["duplicate"] += known
        return run if rest is None else rest

    def refuse(
        self, connection: Connection, event: wire.Event, code: str, got: str, limit: str
    ) -> None:
        """Answer an illegal event; nothing of it is kept."""
        self._core.counters.protocol_errors[code] += 1
        self._core.counters.discarded["refused"] += 1
        self.passes(connection, event.stream, event.seq)
        connection.post(encode(wire.Refused(event.stream, event.seq, code, got, limit)))

    @staticmethod
    def passes(connection: Connection, number: int, seq: int) -> None:
        """An event of a stream came, and nothing of it is kept."""
        stream = connection.producer.streams.get(number)
        if stream is not None and seq <= SEQ_MAX:
            stream.passed_seq = max(stream.passed_seq, seq)

    def _without_stream(self, connection: Connection, event: wire.Event) -> None:
        """No such stream of this producer: one that is done with, or one that never began."""
        producer = connection.producer
        if event.stream <= producer.number_max:
            self._core.counters.discarded["late"] += 1
            return
        if event.stream in producer.refused:
            self._core.counters.discarded["refused"] += 1
            return
        _use_up(producer, event.stream)
        got = f"stream {event.stream}"
        limit = f"a stream that began (highest {producer.number_max})"
        self.refuse(connection, event, "unknown_stream", got, limit)

    # --- start ----------------------------------------------------------------------------------

    def _start(self, connection: Connection, event: wire.Start, at_ms: int) -> None:
        producer = connection.producer
        check_producer(connection, event)
        producer.said_max = max(producer.said_max, event.stream)
        known = producer.streams.get(event.stream)
        if known is not None:
            self._core.counters.discarded["duplicate"] += 1
            known.connection = connection
            connection.dirty.add(known)
            return
        check_order(connection, event)
        if event.stream <= producer.number_max:
            self._core.counters.discarded["late"] += 1
            return
        self.begin_unless_refused(connection, event, at_ms)

    def begin_unless_refused(
        self, connection: Connection, event: wire.Start, at_ms: int, *, is_anew: bool = False
    ) -> None:
        """A stream begins, or its Start is refused (`admission.py`). Its number may be any.

        is_anew: its producer says that it had begun.
        """
        registry, partials = self._core.registry, self._core.partials
        problem = start_problem(registry, partials, connection.uid, event, is_anew=is_anew)
        if problem is not None:
            self.refuse_start(connection, event, problem)
            return
        self.begin(connection, event, event.at_ms or at_ms)

    def refuse_start(self, connection: Connection, event: wire.Start, problem: Problem) -> None:
        """A stream does not begin. Its number is used up: what follows under it is not answered."""
        _use_up(connection.producer, event.stream)
        if problem[0] in _IN_USE:
            self.refused_starts.append((connection.uid, event.stream_id, problem[0]))
        self.refuse(connection, event, *problem)

    def begin(
        self, connection: Connection, event: wire.Start, at_ms: int, no: int | None = None
    ) -> Stream:
        """The stream exists from here on, under a new number unless it has one.

        at_ms: when it began, from which its items count; that of its partial where it has one.
        """
        stream = self._core.begin(begin_of(connection, event, at_ms), connection.process, no, None)
        stream.connection = connection
        stream.may_have_calls = may_tell(event.meta)  # it has no event yet
        return stream

    def begin_again(
        self, connection: Connection, resolved: ResolvedStream, at_ms: int
    ) -> Stream | None:
        """The producer of one that was resolved speaks on: a stream takes what comes behind. None:
        it may not begin now, which he is told.
        """
        number = resolved.start.stream
        self.begin_unless_refused(connection, resolved.start, at_ms)
        stream = connection.producer.streams.get(number)
        if stream is None:
            return None
        if resolved.moved_to is not None:  # its turn is where it began
            stream.next_seq = resolved.last_seq
            move = wire.Move(number, resolved.last_seq, resolved.moved_to)
            self.offer(connection, move, at_ms)
        self._core.goes_on_behind(connection, stream, resolved.last_seq, resolved.ended)
        stream.anew_seq, stream.passed_seq = resolved.last_seq, resolved.passed_seq
        return stream

    # --- events with an effect --------------------------------------------------------------------

    def _run(self, connection: Connection, stream: Stream, event: wire.Event, at_ms: int) -> None:
        assert isinstance(event, wire.Run)
        count, total = _run_tokens(event.lengths)
        if event.kind not in _RUN_KINDS or count < 1 or total != len(event.text):
            got = f"kind {event.kind}, {count} lengths over {total} bytes"
            self.refuse(
                connection, event, "malformed_event", got, f"{len(event.text)} bytes of text"
            )
            return
        if event.seq + count - 1 > SEQ_MAX:
            self.refuse(connection, event, "bad_seq", str(event.seq + count - 1), str(SEQ_MAX))
            return
        self._core.counters.received[_name_of(event)] += count - 1
        grown = stream.take_run(event.kind, event.seq, count, event.lengths, event.text, at_ms)
        self._core.queued(stream, grown)

    def _move(self, connection: Connection, stream: Stream, event: wire.Event, at_ms: int) -> None:
        assert isinstance(event, wire.Move)
        length = id_length(event.session_id)
        if not 1 <= length <= limits.ID_BYTES_MAX:
            got, limit = f"session_id of {length} bytes", f"1..{limits.ID_BYTES_MAX}"
            self.refuse(connection, event, "id_length", got, limit)
            return
        self._core.registry.move(stream, event.session_id)
        self._plain(stream, event, Flag.MOVED, at_ms)

    def _terminal(
        self, _connection: Connection, stream: Stream, event: wire.Event, at_ms: int
    ) -> None:
        stream.terminal = True
        self._plain(stream, event, Flag.TERMINAL, at_ms)

    def _release(
        self, connection: Connection, stream: Stream, event: wire.Event, _at_ms: int
    ) -> None:
        if not stream.terminal and not stream.may_release:
            self.refuse(connection, event, "not_terminal", "release", "end, cancel or error first")
            return
        stream.terminal = True
        stream.next_seq = event.seq + 1
        if self._turn_commit.is_awaited(stream):
            self._turn_commit.released(stream)
            return
        self._core.release(stream, Flag.RELEASED, self._core.since)
