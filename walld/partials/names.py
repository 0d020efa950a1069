"""Checks whose a partial is: header and items against its file name.

Owns: that check, and the name it gets in quarantine/. Refuses: files (`store.py`), what else the
items mean (`replies/`).

A file may be moved, copied or written back to another's place. Served there, it would be somebody
else's reply; resolved, it would take that one with it; counted there, it would hide what the log
still has of its own. So the header, which is all that a start reads, has the hash of its names.
"""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from walld_client.paths import path_name
from walld_client.wire import messages as wire

from walld.errors import FormatError, Misplaced
from walld.wal.records import Begin, Happened

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from walld.wal.records import Item

__all__ = [
    "PLACE_BYTES",
    "PartialOwner",
    "check_names",
    "fitting",
    "misplaced",
    "name_aside",
    "own_names",
    "place_of",
    "session_of",
    "whose",
]

PLACE_BYTES = 16
_NAME_BYTES_MAX: Final = 255 - len("..note.tmp")
"""Of a name in quarantine/: its note, and the temporary file of that, have to fit Linux too."""
_COPY_BYTES: Final = len(".999999")
_HASH_DIGITS: Final = 16


class PartialOwner(NamedTuple):
    """Who may go on with a partial, and where: its producer, the number it has there, the session.

    A stream id alone is no leave to: two processes may each have a reply of that name.
    """

    producer: bytes
    number: int
    session_id: str


def whose(items: Sequence[Item], session_name: str) -> PartialOwner | None:
    """Of a partial that stands under that name; items: all of it, or its Begin alone. None where
    they do not tell: there is no Begin, or it was moved to a session of which only a hash is there.
    """
    begin = items[0] if items else None
    if not isinstance(begin, Begin):
        return None
    for session_id in (session_of(begin, items), session_name):  # a plain id is its own name
        if path_name(session_id) == session_name:
            return PartialOwner(begin.producer, begin.number, session_id)
    return None


def place_of(session_name: str, stream_name: str) -> bytes:
    """What the header of the partial of these names has to say."""
    return sha256(f"{session_name}/{stream_name}".encode("ascii")).digest()[:PLACE_BYTES]


def name_aside(path: str, taken: Container[str] = ()) -> str:
    """The name of a partial in quarantine/.

    An id may end in ".note": what is kept of it must not pass for the note about another file, nor
    the note about that be written over it.
    """
    base = fitting(path.replace("/", "+"))
    name, copy = base, 1
    while name in taken or name.endswith(".note"):
        copy += 1
        name = f"{base}.{copy}"
    return name


def fitting(name: str) -> str:
    """A file name as it is, or its beginning and a hash of it all where it is too long for what is
    put behind it. walld makes none that long, but a disk may hold any.
    """
    raw = os.fsencode(name)
    if len(raw) <= _NAME_BYTES_MAX - _COPY_BYTES:
        return name
    kept = raw[: _NAME_BYTES_MAX - _COPY_BYTES - _HASH_DIGITS - 1]
    return f"{os.fsdecode(kept)}~{sha256(raw).hexdigest()[:_HASH_DIGITS]}"


def check_names(path: str, items: list[Item], *, is_hurt: bool) -> None:
    """Misplaced where the items of the partial at `path` are of other names, FormatError if none.

    is_hurt: damage took some of it, maybe the Move: its session's name is then all that tells of
    that, and is believed.
    """
    found = own_names(items)
    if found is None:
        raise FormatError(f"{path}: its first item is no Begin: nothing says whose it is")
    _, uid, session, stream = path.split("/")
    if found != (int(uid), session if not is_hurt else found[1], stream):
        raise misplaced(path, found)


def own_names(items: list[Item]) -> tuple[int, str, str] | None:
    """Uid, session name and stream name by the items, None where they do not begin with a Begin."""
    begin = items[0] if items else None
    if not isinstance(begin, Begin):
        return None
    return begin.uid, path_name(session_of(begin, items)), path_name(begin.stream_id)


def session_of(begin: Begin, items: Sequence[Item]) -> str:
    """Where its last Move has brought a reply."""
    for item in reversed(items):
        if isinstance(item, Happened) and isinstance(item.event, wire.Move):
            return item.event.session_id
    return begin.session_id


def misplaced(path: str, names: tuple[int, str, str] | None) -> Misplaced:
    """The error about it. names: by its items; None where those do not tell."""
    where = "/".join(map(str, names)) if names is not None else None
    belongs = f"in {path.split('/')[0]}/{where}" if where is not None else "somewhere else"
    return Misplaced(
        f"{path}: it belongs {belongs}: it was moved or copied; it is kept, `walld dump` shows "
        "what it holds"
    )
