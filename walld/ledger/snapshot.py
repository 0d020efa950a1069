"""Snapshots: a session's fold on disk, so that a reader need not fold all events.

Owns: the file `snapshot`: a base and the increments behind it (FORMAT.md, "Snapshot"). Refuses:
what the bytes mean (`sessions/`), when one is due.

Never the truth: it is rebuilt from the events. So nothing of it is synced, a file that cannot be
read is none, and what is damaged or torn ends it there. A sync of each base held up those of the
log: with 64 sessions and 5 ms a sync the thread of the files did nothing else.

Invariant O1: what `read` gives was written as it is, up to some increment, with none left out.
"""

from __future__ import annotations

import errno
import struct
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from walld.errors import SharedFile
from walld.ledger.files import write_whole
from walld.ledger.names import SNAPSHOT_FILE, session_dir
from walld.limits import LEDGER_BYTES_MAX

if TYPE_CHECKING:
    from walld.disk.base import Disk, File

__all__ = [
    "INCREMENT_BYTES",
    "SNAPSHOT_HEADER_BYTES",
    "SNAPSHOT_MAGIC",
    "SNAPSHOT_VERSION",
    "Snapshot",
    "SnapshotStore",
]

SNAPSHOT_MAGIC: Final = b"walldsnp"
SNAPSHOT_VERSION: Final = 1
_KNOWN_MAX: Final = 4096
"""Files whose end is remembered. Beyond, all are forgotten: it costs each of them one walk."""

_DUE_SHARE: Final = 12
_DUE_BYTES: Final = 32 * 1024
"""Increments are due to become part of a base above that share of it: who opens the session adds
them one by one, and writing a base costs as many bytes as the session has entries."""

_DELTA_BYTES_MAX: Final = 2 * LEDGER_BYTES_MAX
"""The last increment, of all lines that there can be: behind that nothing is read."""
_DEFLATED: Final = 1
"""A flag: the base is a stream of zlib (RFC 1950)."""
_DEFLATED_BYTES_MAX: Final = 1 << 20
"""A longer base, of 20,000 events and more, is not: who opens the session has to inflate it: 2.4 ms
a MiB (65,536 hashes and seqs) of the 20 that there are, and an entry takes up to 65 bytes."""

_header = struct.Struct("<8sHHIQQQI")  # + u32 header CRC
_frame = struct.Struct("<QQII")  # + u32 CRC
_crc = struct.Struct("<I")
SNAPSHOT_HEADER_BYTES: Final = _header.size + _crc.size
_NO_FILE: Final = (errno.EINVAL, errno.ELOOP, errno.EISDIR)
"""Of what is called like a snapshot and is no file."""
INCREMENT_BYTES: Final = _frame.size + _crc.size


class Snapshot(NamedTuple):
    """All events up to covers_seq, whose lines end at covers_offset.

    It was written when those were durable: a file of events that ends before that is damaged.
    is_due: the increments outgrow their share; the next write should be a base.
    """

    base: bytes
    deltas: list[bytes]
    covers_seq: int
    covers_offset: int
    is_due: bool


class _End(NamedTuple):
    """Where the next increment goes."""

    offset: int
    base_end: int
    covers_seq: int
    covers_offset: int

    @property
    def has_base(self) -> bool:
        return self.base_end > SNAPSHOT_HEADER_BYTES

    @property
    def is_due(self) -> bool:
        return self.offset - self.base_end > max(self.base_end // _DUE_SHARE, _DUE_BYTES)


class SnapshotStore:
    """The snapshots below one data directory."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._ends: dict[str, _End] = {}

    def write_base(
        self, uid: int, session_id: str, covers_seq: int, covers_offset: int, base: bytes
    ) -> None:
        """A new snapshot without increments; the old one is replaced."""
        path = _path(uid, session_id)
        self._ends.pop(path, None)
        content = _packed(covers_seq, covers_offset, base)
        self._disk.make_dir(path.rpartition("/")[0])
        self._disk.swap(path, content)
        self._remember(path, _End(len(content), len(content), covers_seq, covers_offset))

    def write_end(self, uid: int, session_id: str, covers_seq: int) -> None:
        """Nothing but how far the session went, durably: of a file that has lost its end."""
        path = _path(uid, session_id)
        self._disk.make_dir(path.rpartition("/")[0])
        self._disk.replace(path, _packed(covers_seq, 0, b""))

    def add_increment(
        self,
        uid: int,
        session_id: str,
        covers_seq: int,
        covers_offset: int,
        delta: bytes,
        *,
        follows: int,
    ) -> bool:
        """What came behind the snapshot's end. False: write a base, there is none or it is due.

        follows: the seq behind which the delta begins. Nothing is added where the snapshot does not
        end there: what was read of it a while ago may have been less, or more.
        """
        assert covers_seq > follows, (covers_seq, follows)
        path = _path(uid, session_id)
        try:
            file = self._disk.reopen(path)
        except (FileNotFoundError, SharedFile):
            self._ends.pop(path, None)
            return False
        except OSError as error:
            if error.errno not in _NO_FILE:
                raise
            self._ends.pop(path, None)
            return False  # a link, or a pipe: a base takes its place
        try:
            # Forgotten until it is written: a write that fails leaves what a walk has to find.
            end = self._ends.pop(path, None)
            size = file.size()
            if end is None or end.offset != size:
                end = _walk(file, size, [])
                if end is not None and end.offset < size:
                    file.truncate(end.offset)
            if end is None or end.covers_seq != follows or not end.has_base:
                return False
            fixed = _frame.pack(covers_seq, covers_offset, len(delta), crc32(delta))
            frame = fixed + _crc.pack(crc32(fixed, end.base_end)) + delta
            write_whole(file, frame, end.offset)
        finally:
            file.close()
        end = _End(end.offset + len(frame), end.base_end, covers_seq, covers_offset)
        self._remember(path, end)
        return not end.is_due

    def read(self, uid: int, session_id: str) -> Snapshot | None:
        """As far as it is whole; None where there is nothing. Never an error (O1)."""
        path = _path(uid, session_id)
        with suppress(OSError):
            file = self._disk.open(path)
            try:
                size = file.size()
                deltas: list[bytes] = []
                end = _walk(file, size, deltas)
                if end is None or not end.has_base:
                    return None
                stored = file.read_at(end.base_end - SNAPSHOT_HEADER_BYTES, SNAPSHOT_HEADER_BYTES)
                header = file.read_at(_header.size, 0)
            finally:
                file.close()
            base = _base(header, stored)
            if base is not None:
                return Snapshot(base, deltas, end.covers_seq, end.covers_offset, end.is_due)
        return None

    def covers(self, uid: int, session_id: str) -> int:
        """The seq up to which its session's lines were durable when it was written; 0: no word.

        Told also where the base is damaged: the header has a crc of its own.
        """
        with suppress(OSError):
            file = self._disk.open(_path(uid, session_id))
            try:
                end = _walk(file, file.size(), [])
            finally:
                file.close()
            return 0 if end is None else end.covers_seq
        return 0

    def remove(self, uid: int, session_id: str) -> None:
        """Forget it: the events are folded again. Fine where there is none."""
        path = _path(uid, session_id)
        self._ends.pop(path, None)
        with suppress(FileNotFoundError):
            self._disk.unlink(path)

    def _remember(self, path: str, end: _End) -> None:
        if len(self._ends) >= _KNOWN_MAX:
            self._ends.clear()
        self._ends[path] = end


def _packed(covers_seq: int, covers_offset: int, base: bytes) -> bytes:
    flags = 0
    if len(base) <= _DEFLATED_BYTES_MAX:
        deflated = zlib.compress(base, 1)
        if len(deflated) < len(base):
            base, flags = deflated, _DEFLATED
    fixed = _header.pack(
        SNAPSHOT_MAGIC,
        SNAPSHOT_VERSION,
        flags,
        SNAPSHOT_HEADER_BYTES,
        covers_seq,
        covers_offset,
        len(base),
        crc32(base),
    )
    return fixed + _crc.pack(crc32(fixed)) + base


def _base(header: bytes, stored: bytes) -> bytes | None:
    """The base that was written, None where these bytes are not it."""
    _, _, flags, *_, base_crc = _header.unpack(header)
    if crc32(stored) != base_crc:
        return None
    if not flags & _DEFLATED:
        return stored
    stream = zlib.decompressobj()
    try:
        base = stream.decompress(stored, _DEFLATED_BYTES_MAX)
    except zlib.error:
        return None
    return base if stream.eof else None


def _path(uid: int, session_id: str) -> str:
    return f"{session_dir(uid, session_id)}/{SNAPSHOT_FILE}"


def _walk(file: File, size: int, deltas: list[bytes]) -> _End | None:
    """Past all increments that are whole, which it adds to `deltas`. None without a header."""
    fixed = file.read_at(SNAPSHOT_HEADER_BYTES, 0)
    if len(fixed) < SNAPSHOT_HEADER_BYTES or fixed[_header.size :] != _crc.pack(
        crc32(fixed[: _header.size])
    ):
        return None
    magic, version, flags, header_bytes, covers_seq, covers_offset, base_bytes, _ = _header.unpack(
        fixed[: _header.size]
    )
    base_end = SNAPSHOT_HEADER_BYTES + base_bytes
    known = (SNAPSHOT_MAGIC, SNAPSHOT_VERSION, SNAPSHOT_HEADER_BYTES)
    if (magic, version, header_bytes) != known or flags & ~_DEFLATED or base_end > size:
        return None
    end = _End(base_end, base_end, covers_seq, covers_offset)
    increments = file.read_at(
        max(base_bytes // _DUE_SHARE, _DUE_BYTES) + _DELTA_BYTES_MAX, base_end
    )
    at = 0
    while at + INCREMENT_BYTES <= len(increments):
        fixed = increments[at : at + _frame.size]
        expected = _crc.pack(crc32(fixed, base_end))
        covers_seq, covers_offset, delta_bytes, delta_crc = _frame.unpack(fixed)
        at += INCREMENT_BYTES
        delta = increments[at : at + delta_bytes]
        if increments[at - _crc.size : at] != expected or crc32(delta) != delta_crc:
            break
        if covers_seq <= end.covers_seq:
            break
        at += delta_bytes
        deltas.append(delta)
        end = _End(base_end + at, base_end, covers_seq, covers_offset)
    return end
