"""Bytes that are too many for an event: put beside the session, named by their SHA-256.

Owns: uploading in pieces, reading back, and what takes the place of content that is too long.
Refuses: where they are kept (the daemon's), sockets.

A payload above the limit gives up its longest field to an artifact until it fits; the field then
holds {"_artifact": {sha256, size, media_type, preview}}. A field that is a text to whoever reads
the event (what was observed, a summary, a reason) stays one, its beginning, and `_artifact` stands
beside it. Ids and names give nothing up.
"""

from __future__ import annotations

import errno
import os
import re
import reprlib
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

from walld_client import opaque, wtf8
from walld_client.entries import json_text, read_json
from walld_client.errors import Refused, Unavailable
from walld_client.given import Source
from walld_client.limits import (
    APPEND_BYTES_MAX,
    ARTIFACT_CHUNK_BYTES,
    PAYLOAD_BYTES_MAX,
    PREVIEW_CHARS_MAX,
)
from walld_client.requests import decode_bool, decode_bytes
from walld_client.steps import Asked, Done, Steps
from walld_client.wire import messages

__all__ = ["fit", "fitted", "read", "resolved", "resolved_turns", "shares", "upload"]

_K = TypeVar("_K")
_OFFSET_TRIES = 16
_DIGEST = re.compile("[0-9a-f]{64}")
_LOST = ("artifact_missing", "artifact_changed")
_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"


class _Pieces(Protocol):
    """The bytes of an artifact, read a piece at a time."""

    size: int
    digest: bytes

    def piece(self, offset: int) -> bytes:
        """At most a chunk from there on."""


class _Held:
    """Bytes in memory."""

    def __init__(self, held: bytes) -> None:
        self._held = held
        self.size = len(held)
        self.digest = sha256(held).digest()

    def piece(self, offset: int) -> bytes:
        return self._held[offset : offset + ARTIFACT_CHUNK_BYTES]


class _File:
    """A file of the application's, read twice: once for its hash. One that changes is refused."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        with _opened(path) as file:
            hashed = sha256()
            self.size = 0
            while chunk := file.read(ARTIFACT_CHUNK_BYTES):
                hashed.update(chunk)
                self.size += len(chunk)
        self.digest = hashed.digest()

    def piece(self, offset: int) -> bytes:
        with _opened(self._path) as file:
            file.seek(offset)
            return file.read(min(ARTIFACT_CHUNK_BYTES, max(self.size - offset, 0)))


def _opened(path: str | os.PathLike[str]) -> BinaryIO:
    """The file, to be read. ValueError where it is none: a pipe would be waited for, a device read
    to an end that it has not; neither gives the same bytes twice.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(mode := os.fstat(fd).st_mode):
        return open(fd, "rb")
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise ValueError(f"{os.fspath(path)!r} is no file: an artifact is bytes or a regular file")


def upload(
    session_id: str,
    source: Source,
    media_type: str | None = None,
    name: str | None = None,
) -> Steps[dict[str, Any]]:
    """Put bytes, or the file of that path, beside the session. Returns what names them."""
    made: _Pieces
    if isinstance(source, (bytes, bytearray, memoryview)):
        made = _Held(bytes(source))
    else:
        path = source
        made = yield Done(lambda: _File(path))
        name = Path(path).name if name is None else name
    yield from _put(session_id, made)
    kind = media_type or "application/octet-stream"
    described: dict[str, Any] = {"sha256": made.digest.hex(), "size": made.size, "media_type": kind}
    if name is not None:
        described["name"] = wtf8.scrub(name)
    if kind.startswith("text/") or kind == _JSON:
        described["preview"] = _preview((yield Done(lambda: made.piece(0))))
    return described


def read(session_id: str, digest: str) -> Steps[bytes]:
    """The artifact's bytes, verified by the daemon."""
    if not isinstance(digest, str) or _DIGEST.fullmatch(digest.lower()) is None:
        raise ValueError(f"sha256 is {reprlib.repr(digest)}, must be 64 hex digits")
    raw = bytes.fromhex(digest)
    answer = yield Asked(lambda request_id: messages.GetArtifact(request_id, session_id, raw))
    return decode_bytes(answer)


def fit(
    payload: dict[str, Any],
    type: str = "",  # noqa: A002
    bytes_max: int = PAYLOAD_BYTES_MAX,
) -> tuple[bytes, list[bytes]]:
    """The payload as JSON text that fits an entry, and what is to be put beside the session for it.

    ValueError where nothing of a payload that is too long is long itself and may give way.
    """
    text, beside = json_text(payload), list[bytes]()
    if len(text) <= bytes_max:
        return text, beside
    payload = _loose(payload)
    while len(text) > bytes_max:
        holder, name = _longest(payload, type)
        value = holder[name]
        is_text = holder is payload and _TEXTS.get(type) == name and isinstance(value, str)
        held = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else None
        kind = _JSON if held is None else _TEXT
        held = json_text(value) if held is None else held
        is_done = "_artifact" in payload if is_text else _named(value) is not None
        if len(held) < _LONG or is_done:
            raise ValueError(_too_long(payload, type, len(text), name, len(held)))
        digest = sha256(held).hexdigest()
        described = {"sha256": digest, "size": len(held), "media_type": kind}
        described["preview"] = _preview(held)
        named = {"_artifact": described}
        holder |= {name: described["preview"], **named} if is_text else {name: named}
        beside.append(held)
        text = json_text(payload)
    return text, beside


def shares(payloads: list[dict[str, Any]], type: str) -> int:  # noqa: A002
    """How long each of these may be, that all fit one request: shorter than an entry may be where
    that alone makes them fit, by what can give way.
    """
    if sum(len(json_text(payload)) for payload in payloads) <= APPEND_BYTES_MAX:
        return PAYLOAD_BYTES_MAX
    share = min(PAYLOAD_BYTES_MAX, APPEND_BYTES_MAX // len(payloads))
    try:
        for payload in payloads:
            fit(payload, type, share)
    except ValueError:
        return PAYLOAD_BYTES_MAX
    return share


def fitted(
    session_id: str,
    payload: dict[str, Any],
    type: str,  # noqa: A002
    bytes_max: int = PAYLOAD_BYTES_MAX,
) -> Steps[bytes]:
    """The payload as JSON text that fits an entry; what is too long of it is put beside it."""
    text, beside = fit(payload, type, bytes_max)
    for held in beside:
        yield from _put(session_id, _Held(held))
    return text


def resolved(session_id: str, message: dict[str, Any]) -> Steps[dict[str, Any]]:
    """A message with what of it was put beside the session: its content, its calls and results.

    What only looks so is the application's own. Where an artifact is lost the rest of a session is
    not: the message says so in `_artifact_lost` and keeps what names it.
    """
    message = dict(message)
    lost = yield from _resolve(session_id, message, ("content", *_CALLS))
    for name in _CALLS:
        if isinstance(calls := message.get(name), list):
            message[name] = [dict(one) if isinstance(one, dict) else one for one in calls]
            for call in message[name]:
                if isinstance(call, dict):
                    lost = (yield from _resolve(session_id, call, _OF_A_CALL)) or lost
    return message | {"_artifact_lost": lost} if lost else message


def resolved_turns(session_id: str, turns: list[dict[str, Any]]) -> Steps[list[dict[str, Any]]]:
    """The same of a transcript: its messages, and the tools of each turn."""
    for turn in turns:
        for said in turn.get("messages") or ():
            said["message"] = yield from resolved(session_id, said["message"])
        for tool in turn.get("tools") or ():
            observed = dict(enumerate(tool.get("observations") or ()))
            lost = yield from _resolve(session_id, observed, tuple(observed))
            tool["observations"] = list(observed.values())
            lost = (yield from _resolve(session_id, tool, _OF_A_CALL)) or lost
            if lost:
                tool["_artifact_lost"] = lost
    return turns


def _resolve(session_id: str, holder: dict[_K, Any], names: Iterable[_K]) -> Steps[str | None]:
    """Fields that an artifact stands for get what it holds. Returns why one is lost."""
    lost = None
    for name in names:
        named = _named(holder.get(name))
        digest = None if named is None else named.get("sha256")
        if named is None or not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
            continue
        try:
            held = yield from read(session_id, digest)
        except Refused as refused:
            if refused.code not in _LOST:
                raise
            lost = refused.code
            continue
        with suppress(ValueError):  # no JSON, though it was called that
            is_json = named.get("media_type") == _JSON
            holder[name] = read_json(held) if is_json else wtf8.decode(held)
    return lost


def _put(session_id: str, source: _Pieces) -> Steps[None]:
    """All of it. Others who send the same bytes make one upload with this: each goes on from where
    it is, and only refusals in a row that lead back are too many.
    """
    offset, tries = 0, _OFFSET_TRIES
    while True:
        chunk = yield Done(lambda at=offset: source.piece(at))
        if not chunk and source.size > offset:
            raise ValueError(f"the file became shorter while it was read: {offset} bytes")
        given = (session_id, source.digest, source.size, offset, chunk)
        try:
            answer = yield Asked(
                lambda request_id, given=given: messages.PutArtifact(request_id, *given)  # type: ignore[misc]
            )
        except Refused as refused:  # a piece whose answer was lost, or another who sends the same
            if refused.code != "artifact_offset" or not refused.limit.isdigit():
                raise
            at, offset = offset, int(refused.limit)
            tries = tries - 1 if offset <= at else _OFFSET_TRIES
            if tries == 0:
                raise
            continue
        offset, tries = offset + len(chunk), _OFFSET_TRIES
        if decode_bool(answer):
            return
        if offset >= source.size:
            raise Unavailable(f"walld took all {offset} bytes of an artifact and has it not whole")


_MESSAGES = frozenset(("messages", "replacement"))
_CALLS = ("tool_calls", "tool_results")
_OF_A_CALL = ("arguments", "result")
_TEXTS = {
    "observation": "text",
    "branch_summary": "text",
    "compaction": "summary",
    "turn_interrupted": "reason",
}
_KEPT = {
    "message": ("role",),
    "message_edit": ("target",),
    "label": ("target", "text"),
    "branch_summary": ("target",),
    "setting": ("key",),
    "model_change": ("model",),
    "compaction": ("first_kept",),
    "leaf": ("target", "name"),
    "turn_submitted": ("message_id", "attachments", "model", "retry_of", "stream_id"),
    "turn_assistant_started": ("stream_id",),
    "tool_intent": ("call_id", "tool"),
    "tool_decision": ("call_id", "verdict"),
    "tool_finished": ("call_id", "files"),
    "observation": ("call_id",),
    "artifact": ("sha256", "media_type"),
    "lifecycle": ("fingerprint",),
}
"""What is of no use but as it is: who reads it compares it, or looks into it."""
_LONG = 4 * PREVIEW_CHARS_MAX
"""Shorter than that, what would stand for a field is no shorter."""


def _loose(payload: dict[str, Any]) -> dict[str, Any]:
    """A copy whose `_places` may be changed."""
    copy = dict(payload)
    for name, value in payload.items():
        if name == "message" and isinstance(value, dict):
            copy[name] = dict(value)
        elif name in (*_MESSAGES, *_CALLS) and isinstance(value, list):
            copy[name] = [dict(one) if isinstance(one, dict) else one for one in value]
    return copy


def _too_long(payload: dict[str, Any], type: str, size: int, name: str, length: int) -> str:  # noqa: A002
    """Why it does not fit: a field that is kept as it is, or none that is long."""
    said = f"the payload is {size} bytes, limit {PAYLOAD_BYTES_MAX}, and "
    kept = {one: len(json_text(payload[one])) for one in _KEPT.get(type, ()) if one in payload}
    longest = max(kept, key=kept.__getitem__, default=None)
    if longest is not None and kept[longest] > length:
        return f"{said}{longest} of {type}, which no artifact can stand for, is {kept[longest]}"
    return f"{said}no field of it is long ({name!r} is {length}): put it into an artifact"


def _longest(payload: dict[str, Any], type: str) -> tuple[dict[str, Any], str]:  # noqa: A002
    """The place that is to give way: within a call rather than all calls, which folds look at."""

    def length(place: tuple[dict[str, Any], str]) -> int:
        return len(json_text(place[0][place[1]]))

    kept = (*_KEPT.get(type, ()), *(("_artifact",) if type in _TEXTS else ()))
    found = _places(payload)
    places = [(one, name) for one, name in found if one is not payload or name not in kept]
    # Nothing at all may give way: then nothing is long.
    holder, name = max(places, key=length, default=({"payload": None}, "payload"))
    calls = holder[name] if name in _CALLS and holder is payload else None
    if isinstance(calls, list):
        within = [
            (call, field)
            for call in calls
            if isinstance(call, dict)
            for field in _OF_A_CALL
            if field in call and _named(call[field]) is None
        ]
        inner = max(within, key=length, default=None)
        if inner is not None and length(inner) >= _LONG:
            return inner
    return holder, name


def _places(payload: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Where an artifact may stand: fields, and those of messages, which folds look into."""
    for name, value in payload.items():
        if name == "message" and isinstance(value, dict):
            yield from ((value, inner) for inner in value)
        elif name in _MESSAGES and isinstance(value, list):
            for one in value:
                if isinstance(one, dict):
                    yield from ((one, inner) for inner in one)
        else:
            yield payload, name


def _named(value: object) -> Mapping[str, Any] | None:
    """What names the artifact that stands for a value, or None."""
    if isinstance(value, dict) and len(value) == 1:
        named = value.get("_artifact")
        return named if isinstance(named, dict) else None
    return None


def _preview(start: bytes) -> str:
    text = wtf8.decode(opaque.cut(start, 4 * PREVIEW_CHARS_MAX))
    return wtf8.scrub(text)[:PREVIEW_CHARS_MAX]
