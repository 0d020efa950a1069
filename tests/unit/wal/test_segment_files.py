"""Segment files on a real disk: what each job does, and what it never does."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from wal_files import LOG, batch_of

from walld.disk.medium import Storage
from walld.disk.real import RealDisk, RealFile
from walld.disk.simulated import SimulatedDisk
from walld.wal.layout import SEGMENT_HEADER_BYTES, segment_name
from walld.wal.log_scan import LogScan
from walld.wal.segment_files import SegmentFiles, SegmentGone


class CountingDisk(RealDisk):
    """Notes directory syncs, and lets a write take only a part."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.synced_dirs: list[str] = []
        self.takes: list[int] = []
        """Bytes that the coming writes take at most."""

    def sync_dir(self, path: str) -> None:
        self.synced_dirs.append(path)
        super().sync_dir(path)

    def create(self, path: str) -> RealFile:
        disk, made = self, super().create(path)

        class Partly(RealFile):
            def write_at(self, data: bytes, offset: int) -> int:
                most = disk.takes.pop(0) if disk.takes else len(data)
                return super().write_at(data[:most], offset)

        return Partly(self, path, made._fd)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[CountingDisk]:
    with CountingDisk(str(tmp_path / "data")) as disk:
        disk.make_dir("wal")
        disk.synced_dirs.clear()
        yield disk


@pytest.fixture
def files(disk: CountingDisk) -> Iterator[SegmentFiles]:
    made = SegmentFiles(disk, LOG)
    yield made
    made.close()


def path_of(disk: RealDisk, segment_id: int) -> Path:
    return Path(disk.root) / "wal" / segment_name(segment_id)


def test_what_is_written_scans(files: SegmentFiles, disk: CountingDisk) -> None:
    files.create(1, 0, epoch=1, again=False)
    batch = batch_of(1, [b"body"])
    files.write(1, batch, 0, SEGMENT_HEADER_BYTES)
    ((segment_id, found),) = list(LogScan(disk, LOG))
    assert (segment_id, found.batch_no, found.offset) == (1, 1, SEGMENT_HEADER_BYTES)
    assert files.read(1, SEGMENT_HEADER_BYTES + batch.offsets[0], 4) == b"body"
    assert path_of(disk, 1).stat().st_mode & 0o777 == 0o600


def test_a_write_that_takes_a_part_goes_on_behind_it(
    files: SegmentFiles, disk: CountingDisk
) -> None:
    disk.takes = [30, 10]
    files.create(1, 0, epoch=1, again=False)
    disk.takes = [7, 1, 20]
    files.write(1, batch_of(1, [b"body" * 50]), 0, SEGMENT_HEADER_BYTES)
    assert [found.batch_no for _, found in LogScan(disk, LOG)] == [1]


def test_a_write_that_takes_nothing_is_an_error_not_a_loop(
    files: SegmentFiles, disk: CountingDisk
) -> None:
    files.create(1, 0, epoch=1, again=False)
    disk.takes = [10, 0]
    with pytest.raises(OSError, match="took 10 of") as caught:
        files.write(1, batch_of(1, [b"body"]), 0, SEGMENT_HEADER_BYTES)
    assert caught.value.errno == errno.EIO


def test_a_segment_that_cannot_get_its_header_leaves_no_file(
    files: SegmentFiles, disk: CountingDisk
) -> None:
    disk.takes = [10, 0]
    with pytest.raises(OSError, match="took 10"):
        files.create(1, 0, epoch=1, again=False)
    assert not path_of(disk, 1).exists()


def test_a_segment_is_never_made_over_another(files: SegmentFiles, disk: CountingDisk) -> None:
    path_of(disk, 1).write_bytes(b"somebody's")
    with pytest.raises(FileExistsError):
        files.create(1, 0, epoch=1, again=False)
    assert path_of(disk, 1).read_bytes() == b"somebody's"


def test_the_name_of_a_new_segment_is_synced_with_its_first_bytes_and_once(
    files: SegmentFiles, disk: CountingDisk
) -> None:
    files.create(1, 0, epoch=1, again=False)
    files.create(2, 0, epoch=1, again=False)
    assert disk.synced_dirs == []
    files.sync([1])
    assert disk.synced_dirs == ["wal"]
    files.sync([1, 2])
    assert disk.synced_dirs == ["wal", "wal"]
    files.sync([1, 2, 77])
    assert disk.synced_dirs == ["wal", "wal"], "one that is gone is no error"


@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_synced_bytes_that_no_start_would_find_are_an_error(
    files: SegmentFiles, disk: CountingDisk, change: str
) -> None:
    files.create(1, 0, epoch=1, again=False)
    path_of(disk, 1).unlink()
    if change == "replaced":
        path_of(disk, 1).write_bytes(b"another file")
    with pytest.raises(SegmentGone) as caught:
        files.sync([1])
    assert isinstance(caught.value, OSError)


def test_a_short_read_says_how_short(files: SegmentFiles) -> None:
    files.create(1, 0, epoch=1, again=False)
    with pytest.raises(OSError, match="4 of 10 bytes at 60") as caught:
        files.read(1, 60, 10)
    assert caught.value.errno == errno.EIO


def test_a_write_is_taken_back(files: SegmentFiles, disk: CountingDisk) -> None:
    files.create(1, 0, epoch=1, again=False)
    files.write(1, batch_of(1, [b"body"]), 0, SEGMENT_HEADER_BYTES)
    files.cut(1, SEGMENT_HEADER_BYTES)
    assert path_of(disk, 1).stat().st_size == SEGMENT_HEADER_BYTES


def test_unlinked_is_closed_first_and_durable(files: SegmentFiles, disk: CountingDisk) -> None:
    before = len(os.listdir("/proc/self/fd"))
    files.create(1, 0, epoch=1, again=False)
    files.unlink(1)
    assert not path_of(disk, 1).exists()
    assert disk.synced_dirs == ["wal"]
    assert len(os.listdir("/proc/self/fd")) == before
    files.unlink(1)
    assert disk.synced_dirs == ["wal"], "it was gone already"


def test_one_of_an_earlier_daemon_is_read_and_goes(files: SegmentFiles, disk: CountingDisk) -> None:
    files.create(1, 0, epoch=1, again=False)
    files.close()
    again = SegmentFiles(disk, LOG)
    again.adopt(1)
    assert again.read(1, 0, 8) == b"walldwal"
    again.unlink(1)
    assert not path_of(disk, 1).exists()


def test_an_unreadable_one_is_set_aside(files: SegmentFiles, disk: CountingDisk) -> None:
    files.create(1, 0, epoch=1, again=False)
    files.set_aside(1)
    assert not path_of(disk, 1).exists()
    assert (Path(disk.root) / "quarantine" / segment_name(1)).exists()
    assert disk.synced_dirs[-2:] == ["quarantine", "wal"], "there before it is not here"


@pytest.mark.parametrize(
    "keep",
    [
        lambda files: files.copy_aside(1, SEGMENT_HEADER_BYTES, 8),
        lambda files: files.note_missing(3, 5, "missing"),
    ],
)
@pytest.mark.parametrize("seed", range(8))
def test_a_copy_whose_name_was_not_durable_yet_is_when_it_is_kept_again(
    keep: Callable[[SegmentFiles], None], seed: int
) -> None:
    """The process that made it was killed between the rename and the sync of quarantine/."""
    storage = Storage(Random(seed))
    files = SegmentFiles(SimulatedDisk(storage), LOG)
    for name in ("wal", "quarantine"):
        files.disk.make_dir(name)
    files.create(1, 0, 1)
    files.write(1, batch_of(1, [b"words"]), 0, SEGMENT_HEADER_BYTES)
    files.sync([1])
    storage.fail = lambda verb, path: errno.EIO if (verb, path) == ("sync_dir", "quarantine") else 0
    with pytest.raises(OSError, match="Input/output error"):
        keep(files)
    (kept,) = storage.folder("quarantine").entries
    storage.kill()

    storage.fail = lambda _verb, _path: 0
    keep(SegmentFiles(SimulatedDisk(storage), LOG))
    storage.cut_power()

    assert list(storage.folder("quarantine").entries) == [kept]
