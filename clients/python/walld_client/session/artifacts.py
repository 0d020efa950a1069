"""Artifacts: content too long for an event, stored by its SHA-256.

Owns: uploading in pieces, reading back. Refuses: what takes their place in a payload
(`truncation.py`), where they are kept (the daemon's), sockets.
"""

from __future__ import annotations

import errno
import os
import re
import reprlib
import stat
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

from walld_client.argument_checks import Source
from walld_client.encoding import wtf8
from walld_client.errors import Refused, Unavailable
from walld_client.limits import (
    ARTIFACT_CHUNK_BYTES,
    PAYLOAD_BYTES_MAX,
)
from walld_client.query.requests import decode_bool, decode_bytes
from walld_client.recovered.provider import set_apart
from walld_client.session.entries import read_json
from walld_client.session.truncation import (
    CALLS,
    JSON,
    OF_A_CALL,
    fit,
    held_of,
    named_in,
    preview_of,
)
from walld_client.steps import Asked, Done, Steps
from walld_client.wire import messages

__all__ = ["fitted", "is_same", "read", "resolved", "resolved_turns", "upload"]

_K = TypeVar("_K")
_OFFSET_TRIES = 16
_DIGEST = re.compile("[0-9a-f]{64}")
_LOST = ("artifact_missing", "artifact_changed")


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
    if kind.startswith("text/") or kind == JSON:
        described["preview"] = preview_of((yield Done(lambda: made.piece(0))))
    return described


def read(session_id: str, digest: str) -> Steps[bytes]:
    """The artifact's bytes, verified by the daemon."""
    if not isinstance(digest, str) or _DIGEST.fullmatch(digest.lower()) is None:
        raise ValueError(f"sha256 is {reprlib.repr(digest)}, must be 64 hex digits")
    raw = bytes.fromhex(digest)
    answer = yield Asked(lambda request_id: messages.GetArtifact(request_id, session_id, raw))
    return decode_bytes(answer)


def fitted(
    session_id: str,
    payload: dict[str, Any],
    type: str,  # noqa: A002
    bytes_max: int = PAYLOAD_BYTES_MAX,
    own: str | None = None,
    kept: str | None = None,
) -> Steps[bytes]:
    """The payload as JSON text that fits an entry; what is too long of it is put beside it."""
    text, beside = fit(payload, type, bytes_max, own, kept)
    for held in beside:
        yield from _put(session_id, _Held(held))
    return text


def is_same(session_id: str, content: Any, known: Any) -> Steps[bool]:
    """Is it what an entry has as `known`, itself or by the artifact that stands for it?

    content: as JSON has it. Only JSON is read, which says the same value in many ways.
    """
    named = None if content == known else named_in(known)
    if named is None:
        return bool(content == known)
    held, kind = held_of(content)
    if named.get("media_type") != kind:
        return False
    if named.get("sha256") == sha256(held).hexdigest():
        return True
    found = {"content": known}
    if kind == JSON:
        yield from _resolve(session_id, found, found)
    return bool(found["content"] == content)


def resolved(
    session_id: str, message: dict[str, Any], for_provider: bool = False
) -> Steps[dict[str, Any]]:
    """A message with what of it was put beside the session: its content, its calls and results.

    What only looks so is the application's own. for_provider: a result has the name of its artifact
    beside it, for what is sent of a long one says where the whole is. Where an artifact is lost the
    rest of a session is not: the message says so in `_artifact_lost` and keeps what names it.
    """
    message = dict(message)
    lost = yield from _resolve(session_id, message, ("content", *CALLS))
    for name in CALLS:
        if isinstance(calls := message.get(name), list):
            message[name] = [dict(one) if isinstance(one, dict) else one for one in calls]
            for call in message[name]:
                if isinstance(call, dict):
                    if for_provider and (named := named_in(call.get("result"))) is not None:
                        call["_result_sha256"] = named.get("sha256")
                    lost = (yield from _resolve(session_id, call, OF_A_CALL)) or lost
    return message | {"_artifact_lost": lost} if lost else message


def resolved_turns(session_id: str, turns: list[dict[str, Any]]) -> Steps[list[dict[str, Any]]]:
    """The same of a transcript: its messages, and the tools of each turn."""
    for turn in turns:
        for said in turn.get("messages") or ():
            for name in ("message", "edited"):
                if isinstance(said.get(name), dict):
                    said[name] = set_apart((yield from resolved(session_id, said[name])))
        for tool in turn.get("tools") or ():
            observed = dict(enumerate(tool.get("observations") or ()))
            lost = yield from _resolve(session_id, observed, tuple(observed))
            tool["observations"] = list(observed.values())
            lost = (yield from _resolve(session_id, tool, OF_A_CALL)) or lost
            if lost:
                tool["_artifact_lost"] = lost
    return turns


def _resolve(session_id: str, holder: dict[_K, Any], names: Iterable[_K]) -> Steps[str | None]:
    """Fields that an artifact stands for get what it holds. Returns why one is lost."""
    lost = None
    for name in names:
        named = named_in(holder.get(name))
        digest = None if named is None else named.get("sha256")
        if named is None or not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
            continue
        try:
            # What a sub-agent said last stands beside its own session.
            where = named.get("session")
            held = yield from read(where if isinstance(where, str) else session_id, digest)
        except Refused as refused:
            if refused.code not in _LOST:
                raise
            lost = refused.code
            continue
        with suppress(ValueError):  # no JSON, though it was called that
            is_json = named.get("media_type") == JSON
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
