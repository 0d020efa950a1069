"""The protocol of a query connection, without I/O: bytes in, answers out.

Owns: the handshake, request ids, the joining of chunks, and which error becomes which exception.
Refuses: sockets and time; `query.py` (blocking) and `aio_query.py` (asyncio) move the bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import msgspec
from walld_client.errors import Refused, Unavailable, Unsupported
from walld_client.link import process
from walld_client.query.sync_tokens import SyncTokens
from walld_client.version import CLIENT_NAME
from walld_client.wire import framing
from walld_client.wire.messages import (
    OF_ITS_SESSION,
    OF_THIS_MOMENT,
    Answer,
    Attest,
    Error,
    Hello,
    Placed,
    Project,
    Recovered,
    SessionFacts,
    ToQuery,
    Welcome,
)

__all__ = [
    "CANNOT_KNOW",
    "Conversation",
    "Late",
    "NotYet",
    "Stale",
    "decode_bool",
    "decode_bytes",
    "decode_json",
    "decode_lines",
    "decode_page",
    "decode_placed",
    "decode_replies",
    "decode_sessions",
    "decode_view",
    "is_passing",
    "is_unknown",
    "verb_of",
]

_messages = msgspec.msgpack.Decoder(ToQuery)
_replies = msgspec.msgpack.Decoder(list[Recovered])
_T = TypeVar("_T")
_bool = msgspec.msgpack.Decoder(bool)
_bytes = msgspec.msgpack.Decoder(bytes)
_json: msgspec.msgpack.Decoder[bytes | None] = msgspec.msgpack.Decoder(bytes | None)
_lines: msgspec.msgpack.Decoder[list[bytes] | None] = msgspec.msgpack.Decoder(list[bytes] | None)
_page: msgspec.msgpack.Decoder[tuple[list[bytes] | None, bytes]] = msgspec.msgpack.Decoder(
    tuple[list[bytes] | None, bytes]
)
_view: msgspec.msgpack.Decoder[tuple[bytes | None, bytes]] = msgspec.msgpack.Decoder(
    tuple[bytes | None, bytes]
)
_breaks = msgspec.json.Decoder(list[dict[str, Any]])
_placed = msgspec.msgpack.Decoder(list[Placed])
_sessions = msgspec.msgpack.Decoder(list[SessionFacts])


class NotYet(Unavailable):
    """The daemon still reads its log, or what was said before the request.

    Nothing of the request was done: it may be asked again.
    """


class Late(Unavailable):
    """No answer in time, whatever keeps the daemon."""


class Stale(Unavailable):
    """The connection ended before the answer; a kept one may merely have been old."""


class Conversation:
    """One query connection, from Hello to its end. One request at a time.

    What was told of a session is shown here once, before anything is asked about it.
    """

    __slots__ = (
        "_chunks",
        "_id",
        "_rest",
        "_session_id",
        "_shown_id",
        "_sync_tokens",
        "_tag",
        "_unshown",
        "_verb",
        "is_over",
        "said",
        "welcome",
    )

    def __init__(self, sync_tokens: SyncTokens | None = None) -> None:
        self._rest = b""
        self._id = 0
        self._chunks: list[bytes] = []
        self._sync_tokens = sync_tokens or SyncTokens()
        self._unshown = self._sync_tokens.sessions()
        """Whose sync token of before this daemon has not seen."""
        self._session_id: str | None = None
        """Of the request at hand."""
        self._shown_id = 0
        """Of the last sync token that went with a request."""
        self._tag, self._verb = 0, ""
        """Of the request at hand."""
        self.is_over = False
        """The daemon has ended the connection."""
        self.welcome: Welcome | None = None
        self.said: NotYet | None = None
        """What was said last, where it was that."""

    def hello(self) -> bytes:
        """The first bytes to send; then `feed` until `welcome` is there."""
        return framing.encode(
            Hello(
                framing.PROTOCOL_VERSION,
                "query",
                process.producer(),
                self._sync_tokens.log(),
                client=CLIENT_NAME,
            )
        )

    def next_id(self) -> int:
        """The id of the next request; what arrives for another one is passed over."""
        self._id = max(self._id, self._shown_id) + 1
        self._chunks.clear()
        return self._id

    def request(self, make: Callable[[int], msgspec.Struct]) -> bytes:
        """The next request, made for its id. ValueError where no frame holds it."""
        frame = framing.encode(made := make(self.next_id()))
        if len(frame) > framing.FRAME_BYTES_MAX:
            text = f"this {type(made).__name__} request is {len(frame)} bytes"
            raise ValueError(f"{text}, limit {framing.FRAME_BYTES_MAX}: nothing of it was sent")
        self._tag = int(made.__struct_config__.tag or 0)
        self._verb = verb_of(made)
        self._session_id = session_id = getattr(made, "session_id", None)
        if session_id not in self._unshown:
            return frame
        self._unshown.remove(session_id)
        receipt = self._sync_tokens.of(session_id)
        if receipt is None:
            return frame
        self._shown_id = self._id + 1
        return framing.encode(Attest(self._shown_id, session_id, receipt)) + frame

    def _keep(self, receipt: bytes) -> None:
        """Of the request that is answered. One that was not looked at is not lost for it."""
        session_id = self._session_id
        if receipt and session_id is not None and session_id not in self._unshown:
            self._sync_tokens.keep(session_id, receipt)

    def late(self, seconds: float) -> Unavailable:
        """What to raise where no answer came in time."""
        return self.said or Late(f"no answer from walld within {seconds:.3g} s")

    def feed(self, received: bytes) -> bytes | None:
        """The answer, once it is whole.

        Raises Refused or Unavailable where the daemon says so, and Unavailable where what came is
        no answer; after the latter the connection must be closed.
        """
        if not received:
            raise Unavailable("walld closed the connection before it answered")
        try:
            bodies, self._rest = framing.split(self._rest + received)
            for body in bodies:
                answer = self._heard(_messages.decode(body))
                if answer is not None:
                    return answer
        except framing.UNREADABLE as error:
            raise Unavailable(f"walld answered what this client cannot read: {error}") from error
        return None

    def _heard(self, message: Welcome | Answer | Error) -> bytes | None:
        if isinstance(message, Welcome):
            self.welcome = message
        elif isinstance(message, Error):
            is_later = message.code in (*OF_THIS_MOMENT, *OF_ITS_SESSION)
            if is_later and message.id == self._shown_id and self._session_id is not None:
                self._unshown.add(self._session_id)  # it was not looked at: with the next
            if message.id in (0, self._id):
                if message.code in _NOT_YET:
                    self.said = NotYet(_cannot_know(message))
                    raise self.said
                self.said = None
                self.is_over = message.id == 0
                if self.welcome is not None and is_unknown(message, self._tag):
                    told = (message.code, message.got, message.limit)
                    raise Unsupported(self._verb, self.welcome.daemon, *told)
                _raise(message)
        elif message.id == self._id:
            self._chunks.append(message.chunk)
            self.said = None
            if message.last:
                self._keep(message.receipt)
                return b"".join(self._chunks)
        return None


def decode_replies(answer: bytes) -> list[Recovered]:
    """The answer to Recover and List."""
    return _decoded(_replies, answer)


def decode_bool(answer: bytes) -> bool:
    """The answer to HasPartial, Resolve, Delete and PutArtifact."""
    return _decoded(_bool, answer)


def decode_placed(answer: bytes) -> list[Placed]:
    """The answer to Append and Fork."""
    return _decoded(_placed, answer)


def decode_lines(answer: bytes) -> list[bytes] | None:
    """The answer to Events."""
    return _decoded(_lines, answer)


def decode_page(answer: bytes) -> tuple[list[bytes] | None, list[dict[str, Any]]]:
    """The answer to Events that was asked for breaks; an older daemon tells none."""
    try:
        lines, breaks = _page.decode(answer)
    except msgspec.ValidationError:
        return decode_lines(answer), []
    return lines, _decoded_breaks(breaks)


def decode_view(answer: bytes) -> tuple[bytes | None, list[dict[str, Any]]]:
    """The answer to Project that was asked for breaks; an older daemon tells none."""
    try:
        text, breaks = _view.decode(answer)
    except msgspec.ValidationError:
        return decode_json(answer), []
    return text, _decoded_breaks(breaks)


def decode_json(answer: bytes) -> bytes | None:
    """The answer to Project."""
    return _decoded(_json, answer)


def decode_sessions(answer: bytes) -> list[SessionFacts]:
    """The answer to Sessions."""
    return _decoded(_sessions, answer)


def decode_bytes(answer: bytes) -> bytes:
    """The answer to GetArtifact."""
    return _decoded(_bytes, answer)


def _decoded_breaks(text: bytes) -> list[dict[str, Any]]:
    try:
        return _breaks.decode(text)
    except framing.UNREADABLE as error:
        raise Unavailable(f"walld answered what this client cannot read: {error}") from error


def _decoded(decoder: msgspec.msgpack.Decoder[_T], answer: bytes) -> _T:
    try:
        return decoder.decode(answer)
    except framing.UNREADABLE as error:
        raise Unavailable(f"walld answered what this client cannot read: {error}") from error


_NOT_YET = ("recovering", "behind")
CANNOT_KNOW = (*_NOT_YET, "unreadable", "internal")


def is_passing(error: Exception) -> bool:
    """It says nothing of what was asked: it is of this moment, or of the state of a session."""
    if isinstance(error, Refused):
        return error.code in (*OF_THIS_MOMENT, *OF_ITS_SESSION)
    return isinstance(error, Unavailable)


def _cannot_know(error: Error) -> str:
    return f"walld cannot know now: {error.message} (code {error.code})"


_ARGUMENTS_SINCE = {
    "messages": ("unknown", "last", "before"),
    "resume": ("policy",),
    "edit_target": ("role",),
}
"""View -> arguments that older daemons do not know. Any other is the application's mistake."""


def verb_of(request: msgspec.Struct) -> str:
    """What it is called where a daemon does not know it: the view, too, where it is Project."""
    name = type(request).__name__
    return f"{name} {request.name}" if isinstance(request, Project) else name


def is_unknown(error: Error, tag: int) -> bool:
    """The daemon has no such request, no such view, or no such argument of one (PROTOCOL.md, "From
    build to build").

    One of 0.1.0 ends the connection at a tag above 63.
    """
    if error.id == 0:
        return error.code == "malformed" and error.got.startswith(f"tag {tag}:")
    is_tag = error.code == "bad_request" and error.limit.startswith("a request of tag")
    is_argument = error.code == "bad_argument" and any(
        error.message == f"argument {name} cannot be used" and name not in error.limit.split(" | ")
        for name in _ARGUMENTS_SINCE.get(error.got, ())
    )
    return is_tag or is_argument or error.code == "unknown_projection"


def _raise(error: Error) -> NoReturn:
    if error.id and error.code in CANNOT_KNOW:
        raise Unavailable(_cannot_know(error))
    if error.id:
        raise Refused(error.code, error.got, error.limit, error.message)
    raise Unavailable(
        f"walld ended the connection: {error.message} "
        f"(code {error.code}, got {error.got}, limit {error.limit})"
    )
