"""What of a log may hold lines of sessions, of which, and how many (Y1)."""

from __future__ import annotations

from pathlib import Path

import pytest
from damaged_directory import LOG, DamagedDirectory, begin, row, text

from walld.disk.real import RealDisk
from walld.partials.store import PartialStore
from walld.recovery.possibly_lost_sessions import LogDoubt, doubt_of
from walld.recovery.startup_recovery import recover_storage
from walld.wal.layout import Flag

ONE = (1000, "one")
LONG = ["x" * 100] * 3


def started(made: DamagedDirectory) -> LogDoubt | None:
    with RealDisk(str(made.path)) as disk:
        return doubt_of(disk, recover_storage(disk, PartialStore(disk), LOG))


@pytest.fixture
def made(tmp_path: Path) -> DamagedDirectory:
    """Batch 1 and 2 of a live reply, both synced."""
    found = DamagedDirectory(tmp_path / "data")
    found.segment()
    found.batch(row(1, 0, 3, begin(), text(1, *LONG), flags=Flag.BEGIN))
    found.batch(row(1, 4, 6, text(4, *LONG)))
    found.batch()
    return found


def test_a_whole_log_leaves_none(made: DamagedDirectory) -> None:
    made.close()
    assert started(made) is None
    quarantine = made.path / "quarantine"
    for name in (".x.tmp", "sessions+1+s.0.9", "partials+1+s+r", "partials+1+s+r.note"):
        (quarantine / name).write_bytes(b"x" * 999)
    (quarantine / f"{1:020d}.0.82").write_bytes(b"x" * 82)
    assert started(made) is None, "a segment's header holds no line"


def test_as_many_lines_as_fit_into_what_is_lost(made: DamagedDirectory) -> None:
    made.flip(2, -6)
    made.close()
    doubt = started(made)
    assert doubt is not None
    assert (len(doubt.names), doubt.names == doubt.fresh, doubt.may_return) == (1, True, False)
    assert doubt.lines_max == 3
    assert doubt.is_of(ONE, ())
    assert not doubt.is_of(ONE, doubt.names)
    assert not doubt._replace(beyond=frozenset([ONE])).is_of(ONE, ())
    (made.path / "quarantine" / "batches-7-9").write_bytes(b"")
    more = started(made)
    assert more is not None
    assert more.lines_max == 1 << 17
    assert more._replace(beyond=frozenset([ONE])).is_of(ONE, ())
    assert more.settled_by(ONE) == more.names - more.fresh
