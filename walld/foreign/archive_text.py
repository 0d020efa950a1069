"""The text of an archived session, which is a file of its own (FORMAT.md, "Archive").

Owns: its lines: a header, the session's lines byte for byte, the artifacts that they name, an end
that counts and hashes all before it. Refuses: compressing and files (the command line), what the
session's lines mean (`own.py`).

Invariant: a text that is cut, changed or put together from two is a FormatError before any of it is
used: `read` looks at all of it.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Any, Final, NamedTuple

from walld.errors import FormatError
from walld.sessions.state.artifacts import artifacts_of
from walld.sessions.state.entries import line_event

__all__ = ["VERSION", "Archive", "artifacts", "read", "text"]

VERSION: Final = 1
_LEDGER_VERSION: Final = 1
_PIECE_BYTES: Final = 192 * 1024
"""Of an artifact in one line."""
_ARTIFACT: Final = b'{"artifact":'
"""What such a line begins with; a session's own begins with its seq."""


class Archive(NamedTuple):
    """lines: the header and the session's own, as an import takes them. artifacts: their hashes."""

    session_id: str
    last_seq: int
    lines: list[bytes]
    artifacts: list[str]


def text(
    session_id: str, last_seq: int, lines: Iterable[bytes], artifact: Callable[[str], bytes]
) -> Iterator[bytes]:
    """The lines of the file. artifact: the bytes of that SHA-256 in hex."""
    hashed, count = sha256(), 0
    for line in _content(session_id, last_seq, lines, artifact):
        hashed.update(line)
        count += 1
        yield line
    yield _line({"end": {"lines": count, "sha256": hashed.hexdigest()}})


def _content(
    session_id: str, last_seq: int, lines: Iterable[bytes], artifact: Callable[[str], bytes]
) -> Iterator[bytes]:
    yield _line(
        {"walld": _LEDGER_VERSION, "last_seq": last_seq, "archive": VERSION, "session": session_id}
    )
    named: dict[str, None] = {}
    for line in lines:
        event = line_event(line)
        named.update((digest, None) for digest, _ in artifacts_of(event.type, event.payload))
        yield line
    for digest in named:
        held = artifact(digest)
        for offset in range(0, max(len(held), 1), _PIECE_BYTES):
            piece = b64encode(held[offset : offset + _PIECE_BYTES]).decode("ascii")
            yield _line({"artifact": digest, "offset": offset, "size": len(held), "data": piece})


def read(lines: Iterable[bytes]) -> Archive:
    """What an archive holds; FormatError where it is not whole, or of a later walld."""
    rest = _checked(lines)
    header = _header(next(rest, b""))
    own, found = [_line(header)], list[str]()
    last: bytes | None = None
    pieces = _Pieces()
    for line in rest:
        if line.startswith(_ARTIFACT):
            found += [digest for digest, _ in pieces.take(_object(line))]
        else:
            own.append(line)
            last = line
    pieces.end()
    seq = 0 if last is None else _object(last).get("seq")
    if seq != header["last_seq"]:
        raise FormatError(f"an archive of events up to {header['last_seq']} ends with {seq!r:.40}")
    return Archive(header["session"], header["last_seq"], own, found)


def artifacts(lines: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """Hash and bytes of each artifact, one after the other; FormatError as of `read`."""
    pieces = _Pieces()
    for line in _checked(lines):
        if line.startswith(_ARTIFACT):
            yield from pieces.take(_object(line))
    pieces.end()


class _Pieces:
    """Artifacts of which the pieces come in order."""

    def __init__(self) -> None:
        self._digest = ""
        self._held = bytearray()

    def take(self, piece: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
        """The artifact, where this is the last piece of it."""
        try:
            digest, offset, size = piece["artifact"], piece["offset"], piece["size"]
            data = b64decode(piece["data"], validate=True)
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"a piece of an artifact is none: {error!r:.80}") from None
        if offset != len(self._held) or (offset and digest != self._digest):
            raise FormatError(
                f"artifact {digest!r:.70}: a piece from {offset!r:.20} on stands where one of"
                f" {self._digest or 'another'} from {len(self._held)} on was to come"
            )
        self._digest = digest
        self._held += data
        if len(self._held) != size:
            return
        found = sha256(self._held).hexdigest()
        if found != digest:
            raise FormatError(f"artifact {digest!r:.70}: SHA-256 of its {size} bytes is {found}")
        whole, self._held = bytes(self._held), bytearray()
        yield digest, whole

    def end(self) -> None:
        """FormatError where the last one is not whole."""
        if self._held:
            raise FormatError(f"artifact {self._digest:.70} ends after {len(self._held)} bytes")


def _checked(lines: Iterable[bytes]) -> Iterator[bytes]:
    """All but the end, which must be right about them."""
    hashed, count, held = sha256(), 0, None
    for line in lines:
        if held is not None:
            hashed.update(held)
            count += 1
            yield held
        held = line
    wanted = {"lines": count, "sha256": hashed.hexdigest()}
    end = None if held is None or not held.endswith(b"\n") else _object(held).get("end")
    if end != wanted:
        raise FormatError(
            f"an archive that is cut or changed: its end says {end!r:.120}, not {wanted}"
        )


def _header(line: bytes) -> dict[str, Any]:
    found = _object(line)
    version, session, last_seq = (found.get(name) for name in ("archive", "session", "last_seq"))
    if version is None:
        raise FormatError("no archive of a session: its first line names none")
    if version != VERSION or found.get("walld") != _LEDGER_VERSION:
        raise FormatError(
            f"archive: version {version!r:.40} of lines {found.get('walld')!r:.40}, known is"
            f" {VERSION} of {_LEDGER_VERSION}"
        )
    if not isinstance(session, str) or not session or not isinstance(last_seq, int):
        raise FormatError(f"an archive of no session: {session!r:.80} up to {last_seq!r:.40}")
    return found


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise FormatError(f"a line of an archive is no JSON object: {line[:60]!r}")
    return found


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"
