"""The file `ages`, as the first build that had it wrote it."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from walld.disk.real import RealDisk
from walld.partials.ages import HOLD_MS, read_ages

V1 = Path(__file__).with_name("ages_v1")
LOOK_MS = 600_000


def test_the_file_is_the_one_that_was_written_then() -> None:
    assert (
        sha256((V1 / "ages").read_bytes()).hexdigest()
        == "edae602a1f2c9b9704599c005d960d93fdf585843432392d9c25f63cdc9b969e"
    )


def test_it_is_read_as_it_was() -> None:
    """Two looks after the first, at the last of which the wall clock had stepped by an hour."""
    with RealDisk(str(V1), read_only=True) as disk:
        ages = read_ages(disk)
    assert ages.running_ms == 2 * LOOK_MS
    assert ages.past(0) == []
    ages.running_ms += HOLD_MS
    old, new = (0, "chat-1", "st-1"), (1000, "h~" + "0a" * 20, "st-2")
    assert ages.past(0) == [old, new]
    assert ages.past(HOLD_MS + 1) == [old]
