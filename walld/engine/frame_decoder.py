"""Decodes frames of an agent's connection and folds tokens (the hot path in).

Owns: cutting frames out of what a read gave, and the fast path for a token that follows the last
one of its stream, or a run of them. Refuses: sockets, and every other event (`event_handlers.py`).
Sans-IO.

Per token the fast path does a length check, a typed decode and a list append; joining, lengths and
all bookkeeping are done once for the tokens of a stream that came in one read, also where tokens of
a hundred streams come in turn. Tried and slower:
one decode of a whole read as an array (the frames' lengths must be walked all the same), memoryview
slices (dearer than small bytes), a run joined token by token.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import msgspec
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode

from walld import limits
from walld.engine.protocol_errors import check_hello, explain
from walld.engine.stream import NOBODY, varint_lengths
from walld.errors import ProtocolError
from walld.wal.records import Text, Thought

if TYPE_CHECKING:
    from walld.engine.core import Core
    from walld.engine.event_handlers import EventHandlers
    from walld.engine.resume import ResumeHandler
    from walld.engine.stream import Connection, Stream
    from walld.engine.turn_commit import TurnCommit

__all__ = ["FrameDecoder"]

_length = struct.Struct(">I").unpack_from
_TEXT_KIND: dict[type, int] = {wire.Token: Text.kind, wire.Reasoning: Thought.kind}
_RUN_KINDS = (Text.kind, Thought.kind)
_NOTHING: list[bytes] = []


class FrameDecoder:
    """Takes what connections say."""

    def __init__(
        self, core: Core, turn_commit: TurnCommit, handlers: EventHandlers, resume: ResumeHandler
    ) -> None:
        self._core = core
        self._turn_commit = turn_commit
        self._handlers = handlers
        self._resume = resume
        self.slow = 0
        """Events so far that were not folded on the way."""
        self.folds = 0
        """How often tokens of one stream joined its run so far, however many."""
        self._decode = msgspec.msgpack.Decoder(wire.FromAgent).decode

    def first(self, connection: Connection, data: bytes) -> tuple[wire.Hello, bytes] | None:
        """The Hello a connection must begin with, and what came behind it; None while it is short.

        Raises ProtocolError.
        """
        data = bytes(connection.tail) + data
        if len(data) < 4:
            connection.tail = data
            return None
        length, most = self._checked(_length(data, 0)[0]), limits.HELLO_BYTES_MAX
        if length > most:
            raise ProtocolError("frame_too_long", "no Hello is as long", length, most)
        stop = 4 + length
        if stop > len(data):
            connection.tail = data
            return None
        body = data[4:stop]
        try:
            hello = self._decode(body)
        except Exception as error:
            raise _broken(explain(body, error, "")) from None
        problem = check_hello(hello)
        if problem is not None:
            raise _broken(problem)
        assert isinstance(hello, wire.Hello)
        connection.tail = b""
        return hello, data[stop:]

    def take(self, connection: Connection, data: bytes, at_ms: int) -> None:
        """What one read of an agent's connection gave, after its Hello.

        at_ms: wall clock, a label only. Raises ProtocolError where framing is lost; what came
        before it is taken.
        """
        if connection.tail:
            # A long frame comes in many reads: collected in place, looked at once it is whole.
            connection.tail += data
            if len(connection.tail) < connection.frame_bytes:
                return
            data = bytes(connection.tail)
        assert connection.producer is not NOBODY
        streams = connection.producer.streams
        decode, core = self._decode, self._core
        position, end = 0, len(data)
        touched: list[Stream] = []
        texts: list[bytes] = []
        stream: Any = None
        kind: Any = None
        number = expected = -1
        try:
            while end - position >= 4:
                stop = position + 4 + _length(data, position)[0]
                if stop > end:
                    self._checked(stop - position - 4)
                    break
                try:
                    event: Any = decode(data[position + 4 : stop])
                except Exception as error:
                    event = None
                    self.slow += 1
                    self._illegal(connection, data[position + 4 : stop], error)
                position = stop
                if (
                    type(event) is kind
                    and event.seq == expected
                    and event.stream == number
                    and event.info is None
                ):
                    expected += 1
                    texts.append(event.text)
                    continue
                if kind is not None:
                    stream.next_seq, kind = expected, None
                if event is None:
                    continue
                if type(event) in _TEXT_KIND and event.info is None:
                    stream = streams.get(event.stream)
                    if (
                        stream is not None
                        and event.seq == stream.next_seq
                        and not stream.terminal
                        and not (core.disk_full and core.is_dropping)
                    ):
                        # Tokens of many streams in turn: gathered by stream, and folded once.
                        kind = type(event)
                        if stream.fresh_kind is not kind:
                            if stream.fresh_kind is not None:
                                self._fold(connection, stream, at_ms)
                            touched.append(stream)
                            stream.fresh, stream.fresh_kind = [], kind
                        texts, number, expected = stream.fresh, event.stream, event.seq + 1
                        texts.append(event.text)
                        continue
                if type(event) is wire.Run and self._run(connection, event, at_ms):
                    continue
                while touched:
                    self._fold(connection, touched.pop(), at_ms)
                self.slow += 1
                self._other(connection, event, at_ms)
        finally:
            if kind is not None:
                stream.next_seq = expected
            while touched:
                self._fold(connection, touched.pop(), at_ms)
            connection.tail = bytearray(data[position:]) if position < end else b""
            whole = 4 if end - position < 4 else 4 + _length(data, position)[0]
            connection.frame_bytes = whole

    def _fold(self, connection: Connection, stream: Stream, at_ms: int) -> None:
        """The tokens of one stream that came in this read join its run."""
        texts, kind = stream.fresh, stream.fresh_kind
        if kind is None:
            return
        stream.fresh, stream.fresh_kind = _NOTHING, None
        self.folds += 1
        lengths = list(map(len, texts))
        count, longest = len(texts), max(lengths)
        first_seq = stream.next_seq = stream.next_seq - count
        if longest > limits.TEXT_BYTES_MAX or first_seq + count > 2**32:
            # A frame may be a little longer than a text may: the slow way refuses the one that is.
            for at, text in enumerate(texts):
                event = kind(stream.begin.number, first_seq + at, text)
                self._handlers.offer(connection, event, at_ms)
            return
        if stream.connection is not connection:
            self._core.produces(connection, stream)
        self._core.take_tokens(
            stream,
            _TEXT_KIND[kind],
            first_seq,
            count,
            bytes(lengths) if longest < 128 else varint_lengths(lengths),
            b"".join(texts),
            at_ms,
        )

    def _run(self, connection: Connection, run: wire.Run, at_ms: int) -> bool:
        """Tokens that waited in a client join their stream. False where a rule must decide.

        As nearly all: they follow what is known of it, and the length of each is one byte.
        """
        stream, lengths = connection.producer.streams.get(run.stream), run.lengths
        if stream is None or not lengths.isascii():
            return False
        if stream.fresh_kind is not None:
            self._fold(connection, stream, at_ms)
        core, count = self._core, len(lengths)
        if (
            run.seq != stream.next_seq
            or run.kind not in _RUN_KINDS
            or not 0 < sum(lengths) == len(run.text) <= limits.TEXT_BYTES_MAX
            or run.seq + count > 2**32
            or stream.terminal
            or (core.disk_full and core.is_dropping)
        ):
            return False
        self.slow += 1
        if stream.connection is not connection:
            core.produces(connection, stream)
        core.take_tokens(stream, run.kind, run.seq, count, lengths, run.text, at_ms)
        return True

    def _other(self, connection: Connection, message: wire.FromAgent, at_ms: int) -> None:
        if isinstance(message, wire.Resume):
            self._resume.take_up(connection, message, at_ms)
        elif isinstance(message, wire.Drain):
            self._turn_commit.drain(connection, message)
        elif isinstance(message, wire.Hello):
            raise ProtocolError("not_hello", "Hello came twice", "Hello", "an event")
        else:
            self._handlers.offer(connection, message, at_ms)

    def _illegal(self, connection: Connection, body: bytes, error: Exception) -> None:
        """A frame whose body is no message: refuse that event, or close (`protocol_errors.py`
        decides).
        """
        answer = explain(body, error)
        if isinstance(answer, wire.Error):
            raise _broken(answer) from None
        self._core.counters.protocol_errors[answer.code] += 1
        self._core.counters.discarded["refused"] += 1
        self._handlers.passes(connection, answer.stream, answer.seq)
        connection.post(encode(answer))

    @staticmethod
    def _checked(length: int) -> int:
        if length > limits.FRAME_BYTES_MAX:
            raise ProtocolError(
                "frame_too_long", "a frame is longer than is taken", length, limits.FRAME_BYTES_MAX
            )
        return length


def _broken(answer: wire.Refused | wire.Error) -> ProtocolError:
    assert isinstance(answer, wire.Error)
    return ProtocolError(answer.code, answer.message, answer.got, answer.limit)
