"""The end of a log is made durable by a start, also where an earlier sync of it had failed."""

from __future__ import annotations

import errno
from random import Random

import pytest
from wal_files import LOG, batch_of

from walld.disk.medium import PROFILES, Storage
from walld.disk.simulated import SimulatedDisk
from walld.recovery.tail_fsync import resync
from walld.wal.layout import SEGMENT_HEADER_BYTES
from walld.wal.log_scan import LogScan
from walld.wal.segment_files import SegmentFiles


def written(medium: Storage, batches: int) -> list[int]:
    """A segment whose sync failed, by a process that was killed then. Offsets of its batches."""
    disk = SimulatedDisk(medium)
    disk.make_dir("wal")
    files = SegmentFiles(disk, LOG)
    files.create(1, 0, 1)
    offsets, offset = [], SEGMENT_HEADER_BYTES
    for number in range(1, batches + 1):
        batch = batch_of(number, [b"body of %d" % number])
        files.write(1, batch, 0, offset)
        offsets.append(offset)
        offset += len(batch)
    medium.fail = lambda verb, _path: errno.EIO if verb == "sync" else 0
    with pytest.raises(OSError, match="Input/output"):
        files.sync([1])
    medium.fail = lambda _verb, _path: 0
    medium.kill()
    return offsets


def found(medium: Storage) -> list[int]:
    return [batch.batch_no for _, batch in LogScan(SimulatedDisk(medium), LOG)]


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_what_a_failed_sync_dropped_is_durable_after_the_next_start(profile: str) -> None:
    for seed in range(20):
        medium = Storage(Random(seed), PROFILES[profile])
        offsets = written(medium, 3)
        assert resync(SimulatedDisk(medium), LOG, {1: [0, *offsets]}) == []
        medium.cut_power()
        assert found(medium) == [1, 2, 3]


def test_a_sync_alone_is_no_proof() -> None:
    medium = Storage(Random(1), PROFILES["ext4"])
    written(medium, 3)
    assert resync(SimulatedDisk(medium), LOG, {1: []}) == []
    assert found(medium) == [1, 2, 3], "the page cache has it"
    medium.cut_power()
    assert found(medium) == []


def test_no_byte_changes_and_what_does_not_verify_is_left_alone() -> None:
    medium = Storage(Random(1), PROFILES["ext4"])
    offsets = written(medium, 3)
    before = medium.files()
    assert resync(SimulatedDisk(medium), LOG, {1: [0, *offsets]}) == []
    assert medium.files() == before
    medium.node("wal/00000000000000000001.wal").data[offsets[1] + 40] ^= 1
    spoilt = medium.files()
    assert resync(SimulatedDisk(medium), LOG, {1: [0, *offsets]}) == [1]
    assert medium.files() == spoilt


def test_a_disk_that_fails_again_is_said_and_one_that_is_gone_is_not() -> None:
    medium = Storage(Random(1), PROFILES["ext4"])
    offsets = written(medium, 2)
    medium.fail = lambda verb, _path: errno.EIO if verb == "sync" else 0
    assert resync(SimulatedDisk(medium), LOG, {1: offsets, 2: []}) == [1]
