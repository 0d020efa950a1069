"""The file `made` and a row of another log, as the first build that had them wrote them."""

from __future__ import annotations

from pathlib import Path

from ledger_world import digest_of

from walld.disk.real import RealDisk
from walld.recovery.other_logs import Made, read_made, rows

V1 = Path(__file__).with_name("other_log_v1")


def test_the_files_are_those_that_were_written_then() -> None:
    assert digest_of(V1) == "f97b82b42c9e1b739ddf2a38a5ccb310c4bda2db0ca7ea1dff7b2d9ead0e2115"


def test_they_are_read_as_they_were() -> None:
    with RealDisk(str(V1), read_only=True) as disk:
        assert read_made(disk) == Made(1_795_000_000_000, ["0b" * 16], [(1000, ["0a" * 16])])
        assert rows(disk) == {1000}
