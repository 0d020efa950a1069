"""A data directory on a disk, written as a daemon writes it, open to every kind of damage.

Owns: one log with partials and LOCK, and where each batch stands in it. Refuses: a daemon
(`daemon_process.py`) and logs in memory (`wal_files.py`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from walld_client.wire import messages as wire

from walld.disk.lock_record import LockRecord, lock_record
from walld.disk.real import RealDisk
from walld.partials.file import PartialFacts
from walld.partials.store import PartialStore
from walld.replies.merge import seqs_of
from walld.wal.encode import BatchEncoder, settled_batches
from walld.wal.layout import Flag, Settled
from walld.wal.records import (
    Begin,
    Happened,
    Item,
    Owner,
    Text,
    encode_item,
    join_items,
    pack_body,
)
from walld.wal.segment_files import SegmentFiles

__all__ = [
    "LOG",
    "DamagedDirectory",
    "Row",
    "begin",
    "ended",
    "flip",
    "row",
    "snapshot",
    "text",
    "two_replies",
]

LOG = b"L" * 16
UID = os.geteuid()
AT_MS = 1_700_000_000_000
GONE = Owner("another boot", 1, 0, 0)
Row = tuple[int, int, int, int, bytes]


def begin(stream_id: str = "s1", session_id: str = "chat", uid: int = UID) -> Begin:
    return Begin(uid, b"p" * 16, 1, stream_id, session_id, None, None, None, AT_MS, GONE)


def text(first_seq: int, *tokens: str) -> Text:
    encoded = [one.encode("utf-8", "surrogatepass") for one in tokens]
    return Text(first_seq, 5, bytes(map(len, encoded)), b"".join(encoded))


def ended(seq: int) -> Happened:
    return Happened(900, wire.End(1, seq, True, "stop"))


def row(stream_no: int, first_seq: int, last_seq: int, *items: Item, flags: int = 0) -> Row:
    """One record. Without items: a tombstone."""
    body = pack_body(stream_no, join_items([encode_item(one) for one in items])) if items else b""
    return stream_no, first_seq, last_seq, flags, body


class DamagedDirectory:
    """Batches go to the newest segment, each saying that all before it are synced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.disk = RealDisk(str(path))
        for name in ("wal", "partials", "quarantine"):
            self.disk.make_dir(name)
        (path / "LOCK").write_bytes(lock_record(LockRecord(1, LOG)))
        self._files = SegmentFiles(self.disk, LOG)
        self.places: dict[int, tuple[int, int, int]] = {}
        """Batch number -> segment, offset, length."""
        self.segment_id = self.offset = 0

    def segment(self) -> None:
        self.segment_id += 1
        self._files.create(self.segment_id, len(self.places), 1)
        self.offset = 64

    def batch(self, *rows: Row, synced_no: int | None = None) -> int:
        """synced_no: where it does not say that all before it are."""
        builder = BatchEncoder()
        for one in rows:
            builder.add(*one)
        number = len(self.places) + 1
        sealed = builder.seal(number)
        told_no = number - 1 if synced_no is None else synced_no
        self._files.write(self.segment_id, sealed, told_no, self.offset)
        self.places[number] = (self.segment_id, self.offset, len(sealed))
        self.offset += len(sealed)
        return number

    def settle(self, damage: Settled) -> None:
        """What a start writes first: a row about what it has reported."""
        number = len(self.places) + 1
        (sealed,) = settled_batches(number, [damage])
        self._files.write(self.segment_id, sealed, number - 1, self.offset)
        self.places[number] = (self.segment_id, self.offset, len(sealed))
        self.offset += len(sealed)

    def partial(
        self, stream_no: int, *items: Item, last_seq: int | None = None, log_uuid: bytes = LOG
    ) -> Path:
        (first, *_) = items
        assert isinstance(first, Begin)
        until = seqs_of(items[-1])[1] if last_seq is None else last_seq
        facts = PartialFacts(log_uuid, stream_no, AT_MS, AT_MS, 0, until, "agent_lost")
        body = join_items([encode_item(one) for one in items])
        store = PartialStore(self.disk)
        store.write(first.uid, first.session_id, first.stream_id, facts, body)
        return self.path / f"partials/{first.uid}/{first.session_id}/{first.stream_id}"

    def file(self, segment_id: int | None = None) -> Path:
        return self.path / SegmentFiles.path(segment_id or self.segment_id)

    def flip(self, number: int, at: int) -> None:
        """One bit of a batch, at a byte counted from its header; from its end where below 0."""
        segment_id, offset, length = self.places[number]
        flip(self.file(segment_id), offset + (at if at >= 0 else length + at))

    def close(self) -> None:
        self._files.close()
        self.disk.close()


def flip(path: Path, byte: int, bit: int = 4) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 1 << bit
    path.write_bytes(content)


def snapshot(path: Path) -> dict[str, str]:
    """Every file below a directory and what is in it, to see that nothing has changed."""
    files: Iterable[Path] = (one for one in sorted(path.rglob("*")) if one.is_file())
    return {
        str(one.relative_to(path)): hashlib.sha256(one.read_bytes()).hexdigest() for one in files
    }


def two_replies(made: DamagedDirectory) -> DamagedDirectory:
    """Streams 1 and 2 over two segments and six batches; stream 3 is released."""
    made.segment()
    made.batch(
        row(1, 0, 2, begin(), text(1, "Hel", "lo "), flags=Flag.BEGIN),
        row(3, 0, 1, begin("s3", "chat3"), text(1, "bye"), flags=Flag.BEGIN),
    )
    made.batch(row(1, 3, 3, text(3, "wor")), row(3, 2, 2, flags=Flag.RELEASED))
    made.batch(
        row(1, 4, 5, text(4, "ld", "!")),
        row(2, 0, 1, begin("s2", "other"), text(1, "zwei"), flags=Flag.BEGIN),
    )
    made.segment()
    made.batch(row(1, 6, 6, text(6, "."), flags=0))
    made.batch(row(1, 7, 7, ended(7), flags=Flag.TERMINAL))
    made.batch(row(2, 2, 2, text(2, " drei")))
    return made
