"""File names that are as long as a disk has them: nothing put behind one keeps the rest back."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from daemon_process import MakeDaemon
from damaged_directory import DamagedDirectory, begin, text

from walld.cli import main
from walld.disk.real import RealDisk, RealFile
from walld.partials.names import fitting, name_aside
from walld.partials.store import PartialStore

LONG = [b"x" * 255, b"y" * 250, "é".encode() * 127, b"\xff" * 255, b"z" * 240]


@pytest.fixture
def made(tmp_path: Path) -> DamagedDirectory:
    """One reply, which is whole."""
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.partial(1, begin(), text(1, "here"))
    made.close()
    return made


def _plant(folder: Path, name: bytes, content: bytes) -> None:
    folder.mkdir(exist_ok=True, parents=True)
    (folder / os.fsdecode(name)).write_bytes(content)


def _contents(folder: Path) -> list[bytes]:
    return sorted(one.read_bytes() for one in folder.iterdir() if one.suffix != ".note")


def _salvaged(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str], code: int
) -> dict[str, Any]:
    new = made.path.parent / "new"
    assert main(["salvage", str(made.path), "--to", str(new), "--json"]) == code
    account: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (new / "partials/0/chat/s1").exists()
    return account


@pytest.mark.parametrize("place", ["partials/0", "partials/0/chat"])
def test_salvage_takes_them_and_the_rest(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    for name in LONG:
        _plant(made.path / place, name, name[-9:])
    account = _salvaged(made, capsys, 1)
    assert len(account["unread"]) == len(LONG)
    new = made.path.parent / "new/quarantine"
    kept = [content for content in _contents(new) if not content.startswith(b"salvage")]
    assert kept == sorted(name[-9:] for name in LONG)


def test_salvage_takes_what_lies_in_quarantine(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [*LONG, b"x" * 240 + b".note"]
    for name in names:
        _plant(made.path / "quarantine", name, name[:9])
    account = _salvaged(made, capsys, 0)
    assert (account["unread"], len(account["quarantined"])) == ([], len(names))
    new = made.path.parent / "new/quarantine"
    assert _contents(new) == sorted(name[:9] for name in LONG)
    of_note = new / f"{fitting('x' * 240)}.note"
    assert of_note.read_bytes() == b"x" * 9, "the note of a file keeps its place beside it"
    of_long = new / f"{fitting('x' * 255)}.note"
    assert of_long.read_text() == f"from: quarantine/{'x' * 255}\nreason: its name was too long\n"


def test_a_name_that_the_other_disk_does_not_take_is_said(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAT has fewer; what finds no room ends a salvage, as ever."""
    for name in (b"odd", b"plain"):
        _plant(made.path / "quarantine", name, name)
    create = RealDisk.create

    def planted(disk: RealDisk, path: str) -> RealFile:
        if "odd" in path:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return create(disk, path)

    monkeypatch.setattr(RealDisk, "create", planted)
    account = _salvaged(made, capsys, 1)
    assert account["unread"] == ["quarantine/odd: cannot be copied: Invalid argument"]
    new = made.path.parent / "new/quarantine"
    assert (new / "plain").read_bytes() == b"plain"
    assert "odd: cannot be copied" in (new / "salvage").read_text()


def test_a_start_sets_them_aside(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon().start()
    for name in LONG:
        _plant(daemon.data / "partials/0", name, name[-9:])
    for folder in (daemon.data / "partials").iterdir():
        folder.chmod(0o700)
    daemon.restart()
    assert _contents(daemon.data / "quarantine") == sorted(name[-9:] for name in LONG)
    assert not (daemon.data / "partials/0").exists()


def test_a_name_is_cut_only_where_it_has_to_be(made: DamagedDirectory) -> None:
    """Those that walld makes are at most 213 bytes; two that begin alike stay two."""
    longest = "/".join(["partials", "4294967294", "s" * 96, "t" * 96])
    assert name_aside(longest) == longest.replace("/", "+")
    assert fitting("a" * 254 + "b") != fitting("a" * 254 + "c")
    with RealDisk(str(made.path)) as disk:
        for _ in range(3):
            _plant(made.path / "partials/0", b"x" * 255, b"x")
            PartialStore(disk).quarantine(f"partials/0/{'x' * 255}", "again")
    assert _contents(made.path / "quarantine") == [b"x"] * 3
