"""Remembers deleted sessions, so that clients are not told that they are lost.

Owns: the file sessions/.deleted (FORMAT.md), a count of all deletes, of the last thousand the
session's name, hashed, and how far the last thousand replies were that went with one. Refuses: the
delete (`daemon/session_store/open_sessions.py`), what was told of a session
(`daemon/api/sync_tokens.py`), or of a reply (`engine/resume.py`).

It is read once, and written whole before a delete is answered. Where it cannot be read nothing is
known of the deletes before.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from zlib import crc32

import msgspec

from walld.ledger.names import DELETED_FILE, SESSIONS_DIR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from walld.disk.base import Disk

__all__ = ["Deleted"]

_log = logging.getLogger("walld.sessions")
_PATH: Final = f"{SESSIONS_DIR}/{DELETED_FILE}"
_NEWEST_MAX: Final = 1024
_REPLIES_MAX: Final = 1024
_BYTES_MAX: Final = 256 * 1024
_COUNT_MAX: Final = 1 << 60


class _File(msgspec.Struct):
    """count: all deletes so far. newest: (which of them, whose). unknown: of those up to this one
    nothing is known. replies: (uid, producer, its number, last seq).
    """

    count: int
    unknown: int
    newest: list[tuple[int, str]]
    replies: list[tuple[int, bytes, int, int]] = []


_DAMAGED: Final = _File(1 << 53, 1 << 53, [])
"""Whatever there was; counts go on where no daemon has come."""


class Deleted:
    """The deletes of one data directory. `load` before anything else."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._by_name: dict[str, int] = {}
        self._unknown = 0
        self.count = 0
        """How many have begun."""
        self.replies: dict[tuple[int, bytes, int], int] = {}
        """The last seq of those that went, by uid, producer and its number."""

    def load(self) -> None:
        """Read what earlier daemons noted. OSError."""
        try:
            file = self._disk.open(_PATH)
        except FileNotFoundError:
            return
        try:
            text, _, crc = file.read_at(_BYTES_MAX, 0).rpartition(b" ")
        finally:
            file.close()
        found = _DAMAGED
        if crc == f"{crc32(text):08x}\n".encode():
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                found = msgspec.json.decode(text, type=_File)
        if not 0 <= found.unknown <= found.count <= _COUNT_MAX:
            found = _DAMAGED
        if found is _DAMAGED:
            _log.error("%s does not verify: which sessions were deleted is not known", _PATH)
        self._by_name = {name: number for number, name in sorted(found.newest)}
        self.count, self._unknown = found.count, found.unknown
        self.replies = {(uid, whose, no): seq for uid, whose, no, seq in found.replies}

    def begin(self) -> int:
        """A delete begins, in the step that lets nobody append any more: its number."""
        self.count += 1
        return self.count

    def ended(
        self,
        number: int,
        uid: int,
        session_id: str,
        replies: Mapping[tuple[int, bytes, int], int] | None = None,
    ) -> None:
        """Nothing of it can be read back, of these replies neither. Durable. OSError."""
        self._by_name.pop(name := _hashed(uid, session_id), None)
        self._by_name[name] = number
        while len(self._by_name) > _NEWEST_MAX:
            oldest = next(iter(self._by_name))
            self._unknown = max(self._unknown, self._by_name.pop(oldest))
        newest = [(number, name) for name, number in self._by_name.items()]
        for whose, last_seq in (replies or {}).items():
            self.replies.pop(whose, None)
            self.replies[whose] = last_seq
        while len(self.replies) > _REPLIES_MAX:
            del self.replies[next(iter(self.replies))]
        went = [(*whose, last_seq) for whose, last_seq in self.replies.items()]
        text = msgspec.json.encode(_File(self.count, self._unknown, newest, went))
        self._disk.make_dir(SESSIONS_DIR)
        self._disk.replace(_PATH, text + f" {crc32(text):08x}\n".encode())

    def since(self, count: int, uid: int, session_id: str) -> bool:
        """That session was deleted when there had been `count` deletes, or later; or nobody knows.

        A count that this directory has not reached is of another, or of a later time of this one.
        """
        number = self._by_name.get(_hashed(uid, session_id), 0)
        return count < max(number, self._unknown)


def _hashed(uid: int, session_id: str) -> str:
    text = f"{uid} ".encode() + session_id.encode("utf-8", "surrogatepass")
    return sha256(text).hexdigest()[:32]
