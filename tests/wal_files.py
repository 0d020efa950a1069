"""Logs in memory for tests: a writer that keeps to FORMAT.md, and a disk to read them from."""

from __future__ import annotations

import errno
from typing import NamedTuple

from walld.disk.base import Entry
from walld.wal.encode import Batch, BatchEncoder
from walld.wal.layout import (
    SegmentHeader,
    pack_segment_header,
    parse_segment_name,
    segment_name,
    segment_seed,
)
from walld.wal.log_scan import LogScan
from walld.wal.scan import ScannedBatch
from walld.wal.verdict import Verdict

LOG = bytes(range(16))


class BytesFile:
    """A file that is a bytes object. `errors`: how many reads fail with EIO before one works."""

    def __init__(self, path: str, content: bytes, errors: int = 0) -> None:
        self.path = path
        self.errors = errors
        self.largest_read = 0
        self._content = content

    def write_at(self, data: bytes, offset: int) -> int:
        raise NotImplementedError

    def read_at(self, length: int, offset: int) -> bytes:
        self.largest_read = max(self.largest_read, length)
        if self.errors:
            self.errors -= 1
            raise OSError(errno.EIO, "planted", self.path)
        return self._content[offset : offset + length]

    def read_cached(self, length: int, offset: int) -> bytes | None:
        return None

    def size(self) -> int:
        return len(self._content)

    def truncate(self, length: int) -> None:
        raise NotImplementedError

    def sync(self) -> None:
        raise NotImplementedError

    def same_file(self) -> bool:
        return True

    def close(self) -> None:
        pass


class BytesDisk:
    """The wal/ of a data directory, for reading. `unreadable`: ids whose reads always fail."""

    root = "memory"

    def __init__(self, files: dict[int, bytes | bytearray]) -> None:
        self.files = files
        self.unreadable: set[int] = set()

    def open(self, path: str) -> BytesFile:
        segment_id = parse_segment_name(path.rpartition("/")[2])
        if segment_id is None or segment_id not in self.files:
            raise FileNotFoundError(errno.ENOENT, "planted", path)
        errors = 1_000_000 if segment_id in self.unreadable else 0
        return BytesFile(path, bytes(self.files[segment_id]), errors)

    def reopen(self, path: str) -> BytesFile:
        raise NotImplementedError

    def list_dir(self, path: str) -> list[Entry]:
        assert path == "wal"
        return [Entry(segment_name(item), "file", 0) for item in sorted(self.files)]

    def create(self, path: str) -> BytesFile:
        raise NotImplementedError

    def replace(self, path: str, data: bytes) -> None:
        raise NotImplementedError

    def swap(self, path: str, data: bytes) -> None:
        raise NotImplementedError

    def unlink(self, path: str) -> None:
        raise NotImplementedError

    def rename(self, path: str, new_path: str) -> None:
        raise NotImplementedError

    def link(self, path: str, new_path: str) -> None:
        raise NotImplementedError

    def make_dir(self, path: str) -> None:
        raise NotImplementedError

    def remove_dir(self, path: str) -> bool:
        raise NotImplementedError

    def expect(self, name: str) -> None:
        pass

    def removed(self) -> list[str]:
        raise NotImplementedError

    def sync_dir(self, path: str) -> None:
        raise NotImplementedError

    def is_removed(self) -> bool:
        return False

    def free_bytes(self) -> int:
        raise NotImplementedError


class Place(NamedTuple):
    """Where a batch was written, and its payload."""

    batch_no: int
    segment_id: int
    offset: int
    length: int
    payload: bytes


def batch_of(batch_no: int, bodies: list[bytes]) -> Batch:
    """One record per body: stream 1, 2, ..., seqs from 0."""
    builder = BatchEncoder()
    for index, body in enumerate(bodies):
        builder.add(index + 1, 0, 1, 0, body)
    return builder.seal(batch_no)


class LogWriter:
    """Writes a log as a daemon would. `files` maps segment id to its bytes, open to damage."""

    def __init__(self) -> None:
        self.files: dict[int, bytes | bytearray] = {}
        self.places: list[Place] = []
        self.next_no = 1
        self._id = 0

    def segment(
        self,
        segment_id: int | None = None,
        next_no: int | None = None,
        *,
        again: bool = False,
        epoch: int = 1,
    ) -> int:
        """Open the next segment; its first batch will be `next_no`."""
        self._id = segment_id or self._id + 1
        self.next_no = next_no or self.next_no
        header = SegmentHeader(LOG, self._id, self.next_no - 1, epoch, again=again)
        self.files[self._id] = bytearray(pack_segment_header(header))
        return self._id

    def go_back(self, segment_id: int, next_no: int) -> None:
        """What is written next goes to the end of that one: its owner is not the newest."""
        self._id, self.next_no = segment_id, next_no

    def put(self, batch: Batch, synced_no: int) -> Place:
        """Write a sealed batch."""
        file = self.files[self._id]
        assert isinstance(file, bytearray)
        offset = len(file)
        file += batch.stamped(synced_no, segment_seed(LOG, self._id), offset)
        place = Place(batch.batch_no, self._id, offset, len(batch), batch.payload)
        self.places.append(place)
        self.next_no = batch.batch_no + 1
        return place

    def batch(self, *bodies: bytes, synced_no: int | None = None) -> Place:
        """Write the next batch. synced_no: all before it, unless given."""
        number = self.next_no
        return self.put(
            batch_of(number, list(bodies)), number - 1 if synced_no is None else synced_no
        )

    def flip(self, segment_id: int, bit: int) -> None:
        """Damage one bit; flip it again to mend it."""
        file = self.files[segment_id]
        assert isinstance(file, bytearray)
        file[bit // 8] ^= 1 << bit % 8

    def read(
        self, attested_no: int = 0, log_uuid: bytes | None = LOG, first_no: int = 0
    ) -> tuple[dict[int, ScannedBatch], Verdict]:
        """Scan and judge: good batches by number."""
        scan = LogScan(BytesDisk(self.files), log_uuid)
        found = {batch.batch_no: batch for _, batch in scan}
        return found, scan.verdict(attested_no, first_no)


def small_log() -> LogWriter:
    """Two segments, seven batches, the last of which is not known to be synced."""
    log = LogWriter()
    log.segment()
    log.batch(b"first", b"second body")
    log.batch(b"x" * 31)
    log.batch()
    log.segment()
    for index in range(4):
        log.batch(b"y" * (7 * index + 1), b"z")
    return log
