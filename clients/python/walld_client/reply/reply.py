"""One reply: the calls an application makes while it streams.

Owns: the meaning of each call, the first-terminal-wins rule, and the short way of a token.
Refuses: waiting. Every call returns at once, with the seq it used, or 0 where nothing was sent.

A call raises ValueError or TypeError for what only a mistake in the program can cause (an id that
is not one, a text that is not a str, a release before the end); never for the daemon's sake.

The short way: with the connection flowing, a token is one Struct.pack, one append to the ring and
one send(2), under the link's lock. All else (redact, info, length, a daemon that is away, a fork,
the chores) is decided on the long way (`send.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from walld_client.argument_checks import SECONDS
from walld_client.encoding import event_frames, value_encoding
from walld_client.encoding.event_frames import ID, pack_token
from walld_client.encoding.model_words import MODEL_CALL
from walld_client.encoding.redaction import redacted_json
from walld_client.errors import Refused
from walld_client.ids import Entry, checked_id, id_in
from walld_client.limits import NAME_BYTES_MAX, SHORT_TEXT_BYTES_MAX, TIMEOUT_SECONDS
from walld_client.link import process
from walld_client.link.ack_handler import DRAIN_LEVELS
from walld_client.link.connection import NOSIGNAL
from walld_client.link.fork_flag import is_owner
from walld_client.link.link import Link
from walld_client.link.stream import Stream
from walld_client.reply.model_checks import checked_facts
from walld_client.reply.open_calls import OpenCalls
from walld_client.reply.send import release, say, say_arguments, say_reasoning, say_text
from walld_client.reply.terminal_events import app_error, message_of, reason_text, safe_error
from walld_client.wire import messages
from walld_client.wire.messages import Event

__all__ = ["Reply", "ReplyBase", "check_drain", "check_refused", "open_calls_of"]

# Spelled out in the short way, where a global costs more than a constant.
assert (SHORT_TEXT_BYTES_MAX, event_frames.TOKEN_OVERHEAD_BYTES) == (1024, 19)


class ReplyBase:
    """What a reply offers in blocking and asyncio programs alike; made by `Client.reply`."""

    __slots__ = ("__weakref__", "_auto_release", "_link", "_open_calls", "_redact", "_stream")

    def __init__(
        self,
        link: Link,
        stream: Stream,
        redact: Callable[[str], str] | None,
        auto_release: bool,
    ) -> None:
        self._link = link
        self._stream = stream
        self._redact = redact
        self._auto_release = auto_release
        self._open_calls = OpenCalls()

    # --- who it is, how far it is ---

    @property
    def stream_id(self) -> str:
        """The id to stamp on the message when the application saves it."""
        return self._stream.stream_id

    @property
    def session_id(self) -> str:
        """The session it belongs to now."""
        return self._stream.session_id

    @property
    def turn_id(self) -> str | None:
        """The turn it answers, if it was given one."""
        return self._stream.start.turn_id

    @property
    def sent_seq(self) -> int:
        """Highest seq the kernel has taken for the daemon at hand; -1 if not even the start.

        After a daemon's death it falls back to what is known synced, until the rest is resent.
        """
        return self._link.sent_seq(self._stream)

    @property
    def durable_seq(self) -> int:
        """Every event up to this seq is known synced: it survives the loss of power. -1 if none.

        It stops for good below the first event that is a gap, or may be one: dropped, because the
        client's memory for events was full (`stats().dropped`); taken by a daemon that went away
        when that memory had let go of it (`unheld`); refused (`refused`). What came later may be
        safe as well, this number does not say so; `drain` waits for what can still arrive.
        """
        process.check_fork()
        link = self._link
        with link.mutex:
            if link.connected and not link.held:
                with link:
                    link.hear()
            return self._stream.durable

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.stream_id!r} of session {self.session_id!r}>"

    # --- text ---

    def token(self, text: str, **info: Any) -> int:
        """A piece of the reply's text. Returns its seq (the last one, if it had to be split)."""
        try:
            payload = text.encode()
        except (UnicodeEncodeError, AttributeError):
            return self._text(event_frames.TOKEN, text, info)
        length = len(payload)
        if info or length > 1024 or not is_owner[0]:
            return self._text(event_frames.TOKEN, text, info)
        stream = self._stream
        link = self._link
        with link.mutex:  # not acquire() and release(): a Ctrl-C between them would lock for ever
            if not link.held:
                link.held = True  # as Link.__enter__, spelled out
                try:
                    if link.flowing and not stream.long_way_only:
                        seq = stream.next_seq
                        prefix = stream.token_prefix
                        frame = pack_token(length + 15, prefix, seq, 0xC5, length) + payload
                        try:
                            stream.next_seq = seq + 1
                            link.remember(frame)
                            taken = link.send(frame, NOSIGNAL)
                        except OSError as error:
                            link.send_failed(stream, error)
                            return seq
                        if taken != length + 19:
                            link.took_part(stream, taken)
                        elif seq >= stream.chores_seq:
                            link.do_chores(stream)
                        return seq
                except BaseException:
                    link.interrupted()  # a signal's exception: nobody knows what the kernel took
                    raise
                finally:
                    link.held = False
                    if link.deferred:
                        link.run_deferred()
        return self._text(event_frames.TOKEN, text, info)

    def reasoning(self, text: str, **info: Any) -> int:
        """A piece of the model's reasoning: kept, never sent back to a provider."""
        seq = 0 if info else say_reasoning(self._link, self._stream, text)
        return seq or self._text(event_frames.REASONING, text, info)

    # --- tools ---

    def tool(
        self,
        name: str,
        arguments: object = None,
        *,
        call_id: str | Entry | None = None,
        **info: Any,
    ) -> int:
        """A tool call. Without `call_id` it is "<stream>:<seq>".

        The same one again updates it, until its result, `finish` or `step`; then it is another.
        """
        call_id = id_in(call_id, "call_id") if call_id else None
        name = value_encoding.clean(name, NAME_BYTES_MAX)
        encoded, true_bytes = None, 0
        if arguments is not None:
            encoded, true_bytes = self._cut_text(arguments, is_json=True)
        about = value_encoding.info_bytes(info)

        def made(seq: int) -> Event:
            own_id = call_id or f"{self.stream_id}:{seq}"
            self._open_calls.add(own_id, name, seq, info.get("given_id"))
            return messages.Tool(ID, ID, own_id, name, encoded, about, true_bytes)

        return self._say(made)

    def tool_arguments(self, delta: str, *, call_id: str | Entry) -> int:
        """The next piece of a call's JSON arguments, as the provider streams them."""
        if seq := say_arguments(self._link, self._stream, call_id, delta):
            return seq
        call_id = id_in(call_id, "call_id")
        events = [messages.ToolArguments(ID, ID, call_id, piece) for piece in self._pieces(delta)]
        return say(self._link, self._stream, events)

    def tool_result(
        self,
        result: object,
        *,
        call_id: str | Entry | None = None,
        name: str | None = None,
        failed: bool = False,
        **info: Any,
    ) -> int:
        """What a tool gave back: a str as it is, anything else as JSON.

        Without `call_id` it belongs to the newest open call of that name, or, where no name is
        given either, to the one open call; else it stands alone.
        """
        call_id = id_in(call_id, "call_id") if call_id else None
        name = value_encoding.clean(name, NAME_BYTES_MAX) if name else None
        is_json = not isinstance(result, str)
        encoded, true_bytes = self._cut_text(result, is_json)
        about = value_encoding.info_bytes(info)

        def made(_seq: int) -> Event:
            calls = self._open_calls
            own_id = calls.by_id(call_id, name) if call_id else calls.newest(name)
            own_name = self._open_calls.close(own_id)
            return messages.ToolResult(
                ID,
                ID,
                own_id,
                name or own_name,
                encoded,
                is_json,
                failed,
                about,
                true_bytes,
            )

        return self._say(made)

    # --- the shape of the run ---

    def step(self, **info: Any) -> int:
        """From here on it is the next assistant message of the same run."""
        about = value_encoding.info_bytes(info)
        self._open_calls.next_step()
        return self._say(messages.Step(ID, ID, about))

    def event(self, kind: str, payload: object = None) -> int:
        """The application's own event, kept in order, never part of the text."""
        encoded, true_bytes = value_encoding.payload_bytes(payload, self._link.acks.text_bytes_max)
        kind = value_encoding.clean(kind, NAME_BYTES_MAX)
        return self._say(messages.Custom(ID, ID, kind, encoded, true_bytes))

    def model_call(
        self,
        *,
        model: str | None = None,
        provider: str | None = None,
        request_id: str | None = None,
        usage: Mapping[str, float] | None = None,
        tools_hash: str | None = None,
        status: str | None = None,
        error_class: str | None = None,
    ) -> int:
        """What is known of the model's call whose answer this step is, as often as more is known.

        usage: numbers by name, from 0: `input_tokens`, `output_tokens`, say; a name that comes
        again has the later number. tools_hash: `walld_client.tools_hash(tools)`. status: complete |
        partial | cancelled | error. error_class: provider | rate_limit | context_length |
        content_filter | timeout | cancelled | invalid_output | other. What is not said follows from
        how the reply ends. In a session it outlives the reply, as an entry of type `model_call`.
        ValueError, TypeError.
        """
        about = {
            "model": model,
            "provider": provider,
            "request_id": request_id,
            "usage": usage,
            "tools_hash": tools_hash,
            "status": status,
            "error_class": error_class,
        }
        return self.event(MODEL_CALL, checked_facts(about))

    def retry(self, reason: str | None = None, *, step: bool = False) -> int:
        """What came before is a finished attempt, kept apart; the text starts again.

        step: only the step under way is done again; the steps before it, with their calls and
        results, stand.
        """
        self._stream.failure = self._stream.is_whole = None
        self._open_calls.retry(step=step)
        return self._say(messages.Retry(ID, ID, reason_text(reason, self._redact), bool(step)))

    def move(self, session_id: str) -> int:
        """The reply belongs to another session from here on."""
        session_id = checked_id(session_id, "session_id")

        def made(_seq: int) -> Event:
            self._link.registry.move(self._stream, session_id)
            return messages.Move(ID, ID, session_id)

        return self._say(made)

    def finish(self, reason: str | None = None) -> int:
        """The provider's own terminal marker was seen."""
        self._open_calls.finish()
        return self._say(messages.Finish(ID, ID, reason_text(reason, self._redact)))

    # --- terminals: the first one wins ---

    def end(self, finish_reason: str | None = None) -> int:
        """The reply is whole and the application's copy is safe: walld may forget it.

        0 where it is known not to be whole (`adapters.tee` saw its stream fail, and nobody has
        tried again): then it is errored, and stays.
        """
        if self._fails():
            return 0
        end = messages.End(ID, ID, True, reason_text(finish_reason, self._redact), None)
        return self._end(end, released=self._auto_release)

    def cancel(self, reason: str | None = None) -> int:
        """The run was stopped. What it said stays until it is released or resolved."""
        return self._end(messages.End(ID, ID, False, None, reason_text(reason, self._redact)))

    def error(self, message: str, *, kind: str | None = None, detail: Any = None) -> int:
        """The run failed. What it said stays until it is released or resolved."""
        return self._end(app_error(message, kind, detail, self._redact))

    def release(self) -> int:
        """The application's copy is safe. Legal after any terminal; ValueError before one."""
        return release(self._link, self._stream)

    # --- leaving ---

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Complete, not released; an error; or a cancel, also of a teed stream that was left."""
        if exc_type is None:
            if self._stream.terminal or self._fails():
                return
            if self._stream.is_whole is not None and not self._stream.is_whole():
                self.cancel("the stream was left before its end")
            else:
                self._end(messages.End(ID, ID, True))
        elif issubclass(exc_type, Exception) and exc_type.__name__ != "CancelledError":
            said = safe_error(message_of(exc), exc_type.__name__, None, self._redact)
            known = self._stream.failure or said  # an adapter may know more of the same
            self._end(known if known.message == said.message != "" else said)
        else:
            self.cancel(f"cancelled: {exc_type.__name__}")

    def __del__(self) -> None:
        # Runs anywhere, also inside a send: no lock may be taken. The I/O thread does the rest.
        try:
            stream = self._stream
            if stream.released or stream.inherited:
                return
            self._link.unowned.append(stream)
            if not stream.terminal:
                process.io_thread().wake()
        except Exception:
            return

    # --- within ---

    def _say(self, *events: Event | Callable[[int], Event]) -> int:
        return say(self._link, self._stream, events)

    def _end(self, event: Event, released: bool = False) -> int:
        self._stream.is_whole = None
        return say(self._link, self._stream, [event], terminal=True, released=released)

    def _fail_at_end(self, message: str, *, kind: str | None = None, detail: Any = None) -> None:
        """As `error`, but said only when the reply is left; `retry` takes it back.

        For an adapter, which sees that an answer is cut and not whether it will be asked for again.
        """
        self._stream.failure = safe_error(message, kind, detail, self._redact)

    def _fails(self) -> bool:
        """End it errored, if it is known to have failed."""
        failure = self._stream.failure
        if failure is not None:
            self._end(failure)
        return failure is not None

    def _text(self, tag: int, text: str, info: dict[str, Any]) -> int:
        pieces = self._pieces(text)
        return say_text(self._link, self._stream, tag, pieces, value_encoding.info_bytes(info))

    def _pieces(self, text: str) -> list[bytes]:
        """Redacted text as bytes, in pieces that fit an event."""
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, got {type(text).__name__}")
        encoded = value_encoding.text_bytes(text if self._redact is None else self._redact(text))
        bytes_max = self._link.acks.text_bytes_max
        if len(encoded) <= bytes_max:
            return [encoded]
        pieces = [value_encoding.cut(encoded, bytes_max)]
        at = len(pieces[0])
        while at < len(encoded):
            pieces.append(value_encoding.cut(encoded[at : at + bytes_max + 4], bytes_max))
            at += len(pieces[-1])
        return pieces

    def _cut_text(self, value: object, is_json: bool) -> tuple[bytes, int]:
        """Arguments or a result as bytes that fit an event; the true length if they were cut."""
        encoded = value_encoding.json_bytes(value)
        if self._redact is not None:
            text = encoded.decode("utf-8", "surrogatepass")
            said = redacted_json(text, self._redact) if is_json else self._redact(text)
            encoded = value_encoding.text_bytes(said)
        bytes_max = self._link.acks.text_bytes_max
        if len(encoded) <= bytes_max:
            return encoded, 0
        return value_encoding.cut(encoded, bytes_max), len(encoded)


class Reply(ReplyBase):
    """A reply in a program without an event loop: its drain blocks."""

    __slots__ = ()

    def drain(self, timeout: float = TIMEOUT_SECONDS, level: str = "written") -> bool:
        """Wait until all that was sent so far is at `level`. False: not within `timeout`, or an
        event of it was refused. Refused: all of it was, its stream_id is in use.

        True says nothing of events that were dropped: `durable_seq` does.
        """
        check_drain(timeout, level)
        check_refused(self._stream)
        reached: list[bool] = []
        told = threading.Event()

        def done(ok: bool) -> None:
            reached.append(ok)
            told.set()

        drain_id = self._link.drain(level, done)
        if not process.io_thread().wait(told, timeout):
            self._link.forget_drain(drain_id)
        check_refused(self._stream)
        return bool(reached and reached[0]) and self._stream.refusal is None


def open_calls_of(reply: ReplyBase) -> OpenCalls:
    """The calls it has said, for the journal of its turn."""
    return reply._open_calls


def check_drain(timeout: float, level: str) -> None:
    """Raises TypeError or ValueError for what is no timeout, or for a level there is not."""
    SECONDS.of(timeout, "timeout")
    if level not in DRAIN_LEVELS:
        raise ValueError(f"level must be one of {', '.join(DRAIN_LEVELS)}, got {level!r}")


def check_refused(stream: Stream) -> None:
    """Raises Refused where a daemon took nothing of it."""
    if stream.refusal is not None and 0 in stream.refused:
        what = f"reply {stream.stream_id!r} was refused, nothing of it is kept: release or resolve"
        raise Refused(*stream.refusal, f"{what} what has its stream_id, or give it another one")
