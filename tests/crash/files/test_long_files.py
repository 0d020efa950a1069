"""A disk can make a file a TiB long: nothing reads one whole that its own words do not bound."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from daemon_process import MakeDaemon
from damaged_directory import LOG, DamagedDirectory, begin, text

from walld.cli import main
from walld.disk.real import RealDisk
from walld.errors import FormatError
from walld.partials import tombstone_file
from walld.partials.tombstone_file import GONE_PATH, done_with, read_gone, write_down

TIB = 1 << 40


@pytest.fixture
def made(tmp_path: Path) -> DamagedDirectory:
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.close()
    return made


def _long(path: Path) -> None:
    path.touch(mode=0o600)
    os.truncate(path, TIB)


def test_a_list_of_any_length_is_a_damaged_one(made: DamagedDirectory) -> None:
    _long(made.path / GONE_PATH)
    with RealDisk(str(made.path)) as disk:
        with pytest.raises(
            FormatError, match=f"{TIB} bytes, limit {tombstone_file.GONE_BYTES_MAX}"
        ):
            read_gone(disk, LOG)
        assert done_with(disk, LOG, [7], [], is_all=True) == ([], True)
        assert (made.path / "quarantine/partials+.gone").stat().st_size == TIB
        write_down(disk, LOG, [7])
        assert read_gone(disk, LOG) == [(7, 7)]


def test_none_is_written_that_would_not_be_read(
    made: DamagedDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written down before stays, and no segment goes."""
    with RealDisk(str(made.path)) as disk:
        write_down(disk, LOG, [7])
        monkeypatch.setattr(
            tombstone_file, "GONE_BYTES_MAX", (made.path / GONE_PATH).stat().st_size
        )
        with pytest.raises(OSError, match="limit") as refused:
            write_down(disk, LOG, [9])
        assert refused.value.errno == errno.EFBIG
        assert read_gone(disk, LOG) == [(7, 7)]


def test_every_command_says_so(
    made: DamagedDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _long(made.path / GONE_PATH)
    data, new = str(made.path), str(tmp_path / "new")
    codes = {"fsck": 2, "recover": 1}
    for command in (["fsck", data], ["recover", "chat", "--data", data]):
        assert main(command) == codes[command[0]], command
        assert f"{TIB} bytes" in "".join(capsys.readouterr())
    assert main(["salvage", data, "--to", new]) == 2, "there is nothing to take, and a doubt"
    assert f"{TIB} bytes" in (tmp_path / "new/quarantine/salvage").read_text()


def test_a_start_goes_on(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon().start()
    daemon.restart()
    _long(daemon.data / GONE_PATH)
    daemon.restart()
    assert (daemon.data / "quarantine/partials+.gone").exists()


def test_dump_of_a_partial_reads_what_its_header_bounds(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    with RealDisk(str(made.path)) as made.disk:
        path = made.partial(1, begin(), text(1, "x"))
    os.truncate(path, TIB)
    for command in (["dump", "--json", str(path)], ["dump", "--json", "--data", str(made.path)]):
        assert main(command) == 1
        assert f"length at offset 112 is {TIB}" in capsys.readouterr().out
