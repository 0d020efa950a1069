"""Any byte of LOCK is damaged, or it is cut anywhere: the log is whole, so nothing comes of it.

Not a false "nothing", not a second log in the directory, and never in silence.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from damaged_directory import LOG, UID, DamagedDirectory, begin, row, text
from walld_client.query import offline

from walld.cli import main
from walld.cli.inspect.offline import find
from walld.disk.lock_record import LOCK_BYTES, LOCK_NAME, LockRecord, lock_record
from walld.disk.real import RealDisk
from walld.errors import FormatError
from walld.partials.store import PartialStore
from walld.recovery.directory_lock import own
from walld.recovery.startup_recovery import recover_storage
from walld.wal.layout import Flag

EPOCH = 1
TOLD = LockRecord(EPOCH, LOG, had_log=True, synced_no=2, first_no=1, had_dirs=True)
RECORD = lock_record(TOLD)


def damages() -> Iterator[tuple[str, bytes]]:
    for at in range(len(RECORD.rstrip(b" "))):
        flipped = bytes([RECORD[at] ^ 1 << 3])  # of the version's digit: a newer one
        yield f"byte {at}", RECORD[:at] + flipped + RECORD[at + 1 :]
    for length in range(len(RECORD.rstrip(b" "))):
        yield f"cut to {length}", RECORD[:length]
    yield "zeros", bytes(LOCK_BYTES)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    made = DamagedDirectory(tmp_path / "whole")
    (made.path / "sessions").mkdir()
    made.segment()
    made.batch(row(1, 0, 1, begin(), text(1, "x"), flags=Flag.BEGIN))
    made.segment()
    made.batch(row(2, 0, 1, begin("s2", "other"), text(1, "y"), flags=Flag.BEGIN))
    made.close()
    return made.path


def test_a_start_goes_on_in_its_log_or_says_what_to_do(
    tmp_path: Path, whole: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    shutil.copytree(whole, data)
    refused = []
    for name, damaged in damages():
        (data / LOCK_NAME).write_bytes(damaged)
        assert offline.has_partial(str(data), UID, "chat") is None, name
        assert (main(["fsck", str(data)]) > 0) is (damaged != RECORD), name
        caplog.clear()
        with RealDisk(str(data)) as disk:
            try:
                owner = own(str(data), disk)
            except FormatError as error:
                refused.append((name, str(error)))
                assert (data / LOCK_NAME).read_bytes() == damaged
                continue
            recovered = recover_storage(
                disk, PartialStore(disk), owner.log_uuid, owner.epoch, owner.lock_before
            )
            owner.close()
        assert (owner.log_uuid, sorted(recovered.streams), recovered.doubt) == (
            LOG,
            [1, 2],
            None,
        ), name
        assert owner.epoch > EPOCH, name
        is_said = any("LOCK" in record.message for record in caplog.records)
        assert is_said is bool(damaged) or damaged == RECORD, name
        assert not list((data / "quarantine").iterdir()), name
    assert {name for name, _ in refused} == {"byte 6"}, "the version"
    assert all("remove LOCK where none did" in why for _, why in refused)


def test_without_a_daemon_the_replies_are_read_whatever_stands_in_lock(whole: Path) -> None:
    for name, damaged in damages():
        (whole / LOCK_NAME).write_bytes(damaged)
        assert [one.stream_id for one in find(str(whole)).replies] == ["s1", "s2"], name
