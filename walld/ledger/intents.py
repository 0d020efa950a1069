"""Intent notes: deletes and forks that must not stay half done.

Owns: the notes sessions/.<uid>+<session>.<what> (FORMAT.md). A note is durable before
the first step, and goes, durably, behind the last; a start finishes what has one. Refuses: the
steps themselves (`daemon/session_store/open_sessions.py`, `daemon/startup/finish_intents.py`).

Invariants
- U1 A delete that has begun ends: nothing of what it left, file or line of the log, is served by a
  later start. A session of that name that is begun behind it is not concerned: its lines stand in
  streams of higher numbers, and its files come once the note says that the old ones are gone.
- U2 Of a fork without events no artifact stays that came with it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol
from zlib import crc32

import msgspec

from walld.disk.base import NO_ROOM
from walld.errors import FormatError
from walld.ledger.names import SESSIONS_DIR, is_temporary, session_dir

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walld.disk.base import Disk

__all__ = ["DELETE", "FORK", "Intent", "IntentStore", "Room"]

DELETE: Final = "delete"
FORK: Final = "fork"
_NOTE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of a fork that brings some 200,000 artifacts; what is longer is none of walld's."""
_ENDS: Final = (f".{DELETE}", f".{FORK}")


class Intent(msgspec.Struct, frozen=True):
    """A note. erase: the files are there still. log, until_no: in the log of this uuid, hex, the
    streams of its lines up to that number are done with. artifacts: SHA-256, hex, that a fork
    brings.
    """

    what: str
    uid: int
    session_id: str
    erase: bool = False
    log: str = ""
    until_no: int = 0
    artifacts: list[str] = []

    @property
    def key(self) -> tuple[int, str]:
        """Whose."""
        return self.uid, self.session_id


_decode = msgspec.json.Decoder(Intent).decode


class Room(Protocol):
    """What is kept aside for a full disk (`disk/reserve.py`)."""

    @property
    def is_spent(self) -> bool:
        """It was given to the disk, by whomever, and is not put aside again."""

    def spend(self) -> bool:
        """Give it to the disk; False where there is none."""

    def make(self) -> bool:
        """Keep it aside again; True where it is there afterwards."""


class IntentStore:
    """The notes below one data directory."""

    def __init__(self, disk: Disk, room: Room | None = None) -> None:
        """room: for the note of a delete, which makes more than it takes."""
        self._disk = disk
        self._room = room

    def note(self, note: Intent) -> None:
        """Durable when it returns; in the place of an earlier one of the same."""
        try:
            self._write(note)
        except OSError as error:
            is_full = note.what == DELETE and error.errno in NO_ROOM
            if not is_full or self._room is None or not self._room.spend():
                raise
            self._write(note)

    def _write(self, note: Intent) -> None:
        # An id may hold half a character, which this JSON does not.
        text = msgspec.json.encode(msgspec.structs.replace(note, session_id=_as_hex(note)))
        self._disk.replace(_path(note), text + f" {crc32(text):08x}\n".encode())

    def earlier(self, note: Intent) -> Intent | None:
        """The one that stands in its place."""
        with suppress(FileNotFoundError, FormatError):
            return self._read(_path(note))
        return None

    def drop(self, note: Intent) -> None:
        """It is done, durably; also where an earlier try went as far as the unlink."""
        with suppress(FileNotFoundError):
            self._disk.unlink(_path(note))
        with suppress(FileNotFoundError):
            self._disk.sync_dir(SESSIONS_DIR)

    @property
    def has_spent(self) -> bool:
        """The room is to be put aside again."""
        return self._room is not None and self._room.is_spent

    def put_aside(self) -> None:
        """The room that a note was given, or anything else, once the disk has as much again."""
        if self._room is not None:
            self._room.make()

    def notes(self) -> Iterator[Intent | FormatError]:
        """All of them. What is damaged is told, and stays."""
        for entry in self._disk.list_dir(SESSIONS_DIR):
            if entry.kind == "file" and entry.name[0] == "." and entry.name.endswith(_ENDS):
                try:
                    yield self._read(f"{SESSIONS_DIR}/{entry.name}")
                except FileNotFoundError:
                    continue  # done since it was listed
                except FormatError as error:
                    yield error

    def sweep(self) -> set[str]:
        """Remove notes that were never finished. For the owner's start. Names of what was there."""
        names = set()
        for entry in self._disk.list_dir(SESSIONS_DIR):
            names.add(entry.name)
            if entry.kind == "file" and is_temporary(entry.name):
                self._disk.unlink(f"{SESSIONS_DIR}/{entry.name}")
        return names

    def _read(self, path: str) -> Intent:
        file = self._disk.open(path)
        try:
            content = file.read_at(_NOTE_BYTES_MAX, 0)
        finally:
            file.close()
        text, _, crc = content.rpartition(b" ")
        try:
            if crc != f"{crc32(text):08x}\n".encode():
                raise FormatError(f"{path}: its crc does not match")
            note = _decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise FormatError(f"{path}: {error}") from None
        return msgspec.structs.replace(note, session_id=_from_hex(note))


def _path(note: Intent) -> str:
    name = session_dir(*note.key).rpartition("/")[2]
    return f"{SESSIONS_DIR}/.{note.uid}+{name}.{note.what}"


def _as_hex(note: Intent) -> str:
    return note.session_id.encode("utf-8", "surrogatepass").hex()


def _from_hex(note: Intent) -> str:
    try:
        return bytes.fromhex(note.session_id).decode("utf-8", "surrogatepass")
    except ValueError as error:
        raise FormatError(f"the name of a session in a note: {error}") from None
