"""One entry of the directory that is not what it has to be is no reason not to start (P9)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from damaged_directory import LOG, DamagedDirectory, begin, row, text
from virtual_daemon import Home, living, recovered, run, text_of

from walld.cli import main
from walld.cli.inspect.offline import find
from walld.disk.real import RealDisk
from walld.partials.store import PartialStore
from walld.recovery.startup_recovery import recover_storage
from walld.wal.layout import Flag


def no_directory(path: Path) -> None:
    path.rmdir()
    path.write_bytes(b"kept")


def dangling(path: Path) -> None:
    path.rmdir()
    path.symlink_to("/nowhere")


@pytest.mark.parametrize("spoil", [no_directory, dangling])
@pytest.mark.parametrize("name", ["quarantine", "partials"])
def test_what_is_no_directory_is_no_reason_not_to_start(
    tmp_path: Path, name: str, spoil: Callable[[Path], None]
) -> None:
    """P9: it is kept, and "nothing" is not proven while it lies there."""
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 1, begin(), text(1, "x"), flags=Flag.BEGIN))
    made.close()
    spoil(made.path / name)
    with RealDisk(str(made.path)) as disk:
        for _ in range(2):
            storage = recover_storage(disk, PartialStore(disk), LOG)
            assert list(storage.streams) == [1]
            assert storage.doubt is not None
    assert [one.name for one in (made.path / "quarantine").iterdir()] == [f"not-a-directory.{name}"]
    assert (made.path / "partials").is_dir()


def test_one_that_a_kill_has_left_half_set_aside_is_kept(tmp_path: Path) -> None:
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.close()
    no_directory(made.path / "quarantine")
    (made.path / "quarantine").rename(made.path / "quarantine.away")
    with RealDisk(str(made.path)) as disk:
        assert recover_storage(disk, PartialStore(disk), LOG).doubt is not None
    assert (made.path / "quarantine/not-a-directory.quarantine").read_bytes() == b"kept"


def test_a_residue_that_cannot_be_renamed_is_met_again(tmp_path: Path) -> None:
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 1, begin(), text(1, "x"), flags=Flag.BEGIN))
    made.segment()
    made.close()
    made.file(2).write_bytes(b"")
    made.file(2).with_name(f"{made.file(2).name}.residue").mkdir()
    with RealDisk(str(made.path)) as disk:
        for _ in range(2):
            assert list(recover_storage(disk, PartialStore(disk), LOG).streams) == [1]
    assert made.file(2).exists()


@pytest.mark.parametrize("spoil", [no_directory, dangling])
def test_nor_is_what_stands_in_the_place_of_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Callable[[Path], None]
) -> None:
    """What is kept beside it is served, with a daemon and without, and salvaged."""
    made = DamagedDirectory(tmp_path / "data")
    made.partial(1, begin(), text(1, "x"))
    made.close()
    spoil(made.path / "wal")
    assert main(["fsck", str(made.path)]) == 2
    assert "wal: is no segment" in capsys.readouterr().out
    assert main(["salvage", str(made.path), "--to", str(tmp_path / "new")]) == 1
    for data in (made.path, tmp_path / "new"):
        found = find(str(data))
        assert [text_of(one) for one in found.replies] == [b"x"]
        assert found.doubts

    async def main_walld() -> None:
        for _ in range(2):
            async with living(Home(tmp_path)) as virtual:
                assert text_of(await recovered(virtual, "s1")) == b"x"
                assert virtual.daemon.status.doubt is not None

    run(main_walld)
    kept = {one.name for one in (made.path / "quarantine").iterdir()}
    assert kept == {"not-a-directory.wal", "wal"}
