"""`walld fsck` on real files: what it says of every kind of damage, and what it leaves alone."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_process import environment
from damaged_directory import (
    LOG,
    UID,
    DamagedDirectory,
    begin,
    flip,
    row,
    snapshot,
    text,
    two_replies,
)

from walld.cli import main
from walld.cli.inspect import directory_scan
from walld.disk.base import Disk, Entry
from walld.disk.real import RealDisk, RealFile
from walld.partials.store import PartialStore
from walld.recovery.quarantine import rename_residue
from walld.recovery.startup_recovery import recover_storage
from walld.wal.layout import Flag, Settled
from walld.wal.verdict import TORN

pytestmark = pytest.mark.usefixtures("no_daemon_writes_it")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[DamagedDirectory]:
    directory = DamagedDirectory(tmp_path / "data")
    yield directory
    directory.close()


def fsck(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """Exit code and report; the text is asked for too, and nothing may change by it."""
    before = snapshot(path)
    code = main(["fsck", str(path)])
    shown = capsys.readouterr().out
    assert shown.isascii()
    assert main(["fsck", str(path), "--json"]) == code
    report = json.loads(capsys.readouterr().out)
    assert shown.splitlines()[0] == f"{path}: {report['state']}"
    assert snapshot(path) == before
    assert ("clean", "torn", "corrupt")[code] == report["state"]
    return code, report


def test_a_whole_directory_is_clean(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    two_replies(made)
    made.partial(9, begin("s9", "nine"), text(1, "kept"))
    code, report = fsck(made.path, capsys)
    assert code == 0
    assert (report["damage"], report["partials"], report["lock"]) == ([], 1, None)
    assert (report["segments"], report["last_batch"], report["synced_batch"]) == (2, 6, 5)


def test_what_a_synced_hole_cost_is_named_by_stream_and_seq(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    two_replies(made)
    made.flip(2, 0)
    code, report = fsck(made.path, capsys)
    (damage,) = report["damage"]
    segment, offset, length = made.places[2]
    assert code == 2
    assert (damage["segment"], damage["offset"], damage["length"]) == (segment, offset, length)
    assert (damage["reason"], damage["first_batch"], damage["last_batch"]) == ("header", 2, 2)
    lost = {one["stream_no"]: one for one in damage["lost"]}
    assert lost[1] == {
        "stream_no": 1,
        "uid": UID,
        "session_id": "chat",
        "stream_id": "s1",
        "first_seq": 3,
        "last_seq": 3,
        "ledger_after": None,
    }
    assert damage["open_streams"] == 1, "stream 3, whose tombstone stood there"


def test_a_lost_beginning_leaves_the_number(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    two_replies(made)
    made.flip(1, 0)
    code, report = fsck(made.path, capsys)
    assert code == 2
    (lost,) = report["damage"][0]["lost"]
    assert (lost["stream_no"], lost["stream_id"]) == (1, None)
    assert (lost["first_seq"], lost["last_seq"]) == (0, 2)


@pytest.mark.parametrize("left", [None, 0, 40])
def test_an_oldest_segment_that_is_gone_is_missed_by_what_stands_behind_it(
    left: int | None, made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    """No number is missing: what was in it might have been released. Its streams say better.

    Where something is left of it one is; a start renames that.
    """
    two_replies(made)
    oldest = made.file(1)
    oldest.unlink() if left is None else os.truncate(oldest, left)
    for reason in ("beginning" if left is None else "residue", "beginning"):
        code, report = fsck(made.path, capsys)
        assert code == 2
        damage = report["damage"][-1]
        assert (damage["verdict"], damage["reason"]) == ("corrupt", reason)
        lost = {(one["stream_no"], one["first_seq"], one["last_seq"]) for one in damage["lost"]}
        of_second = {(2, 0, 1)} if reason == "residue" else set()
        assert lost == {(1, 0, 5)} | of_second, "of stream 2 nothing synced is left"
        with RealDisk(str(made.path)) as disk:
            recovered = recover_storage(disk, PartialStore(disk), LOG)
            for residue in recovered.residues:
                rename_residue(disk, residue)
        # A start says it too, and settles nothing: it is so as long as those records stand there.
        assert (made.path / "quarantine" / "stream-1").exists()


def test_a_partial_or_a_tombstone_stands_for_a_beginning(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    two_replies(made)
    made.batch(row(2, 3, 3, flags=Flag.RELEASED))
    made.partial(1, begin(), text(1, "kept"), last_seq=7)
    made.file(1).unlink()
    assert fsck(made.path, capsys)[0] == 0


def test_a_beginning_in_a_torn_batch_is_torn(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    """As power leaves it; and still torn when a later start has settled it and gone on."""
    made.segment()
    made.batch(row(1, 0, 1, begin(), text(1, "x"), flags=Flag.BEGIN))
    made.segment()
    made.batch(row(1, 2, 2, text(2, "y")))
    content = made.file(1).read_bytes()
    os.truncate(made.file(1), 64)
    assert fsck(made.path, capsys)[0] == 2, "its number is known to be synced"
    made.file(1).write_bytes(content)
    made.segment()
    made.settle(Settled(1, 64, 1, 1, TORN))
    made.batch(row(1, 3, 3, text(3, "z")))
    os.truncate(made.file(1), 64)
    assert fsck(made.path, capsys)[0] == 0, "settled"


def test_a_beginning_that_is_carried_while_it_is_looked_for_is_not_lost(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a daemon: its segment goes between the list and the look, the copy comes behind."""
    two_replies(made)

    def carried(disk: Disk) -> Iterator[object]:
        monkeypatch.setattr(directory_scan, "partials", real)
        made.segment()
        made.batch(row(1, 0, 3, begin(), text(1, "Hel", "lo ", "wor"), flags=Flag.BEGIN))
        made.batch(row(2, 0, 1, begin("s2", "other"), text(1, "zwei"), flags=Flag.BEGIN))
        return real(disk)

    real = directory_scan.partials
    made.file(1).unlink()
    monkeypatch.setattr(directory_scan, "partials", carried)
    assert main(["fsck", str(made.path)]) == 0
    assert capsys.readouterr().out.startswith(f"{made.path}: clean")


def test_of_a_bad_payload_the_records_that_verify_are_counted(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    two_replies(made)
    made.flip(3, -3)
    code, report = fsck(made.path, capsys)
    (damage,) = report["damage"]
    assert code == 2
    assert (damage["reason"], damage["records"], damage["records_verify"]) == ("payload", 2, 1)
    lost = {(one["stream_id"], one["first_seq"], one["last_seq"]) for one in damage["lost"]}
    assert lost == {("s1", 4, 5), (None, 0, 1)}


def test_a_torn_tail_is_one(made: DamagedDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    two_replies(made)
    size = made.file().stat().st_size
    os.truncate(made.file(), size - 5)
    code, report = fsck(made.path, capsys)
    (damage,) = report["damage"]
    assert code == 1
    assert (damage["verdict"], damage["reason"], damage["first_batch"]) == ("torn", "short", 6)
    assert [one["stream_id"] for one in damage["lost"]] == ["s2"], "its directory still says"


def test_every_length_of_a_log_is_clean_or_torn(
    tmp_path: Path, made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is cut off the end of a log whose end was never synced is no damage."""
    made.segment()
    made.batch(row(1, 0, 2, begin(), text(1, "Hel", "lo "), flags=Flag.BEGIN))
    made.batch(row(1, 3, 3, text(3, "wor")))
    made.batch(row(1, 4, 4, text(4, "ld")), row(2, 0, 0, begin("s2"), flags=Flag.BEGIN))
    path, content = made.file(), made.file().read_bytes()
    ends = {0, 64, *(offset + length for _, offset, length in made.places.values())}
    for size in range(len(content), -1, -1):
        path.write_bytes(content[:size])
        code = main(["fsck", str(made.path)])
        assert capsys.readouterr().err == "", size
        assert code == (0 if size in ends and size else 1), size


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.sweep)])
def test_a_flipped_bit_of_what_is_synced_is_two(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str], every: int
) -> None:
    two_replies(made)
    last_at = made.places[6][1]
    for segment_id in (1, 2):
        path = made.file(segment_id)
        content = path.read_bytes()
        for byte in range(0, len(content), every):
            path.write_bytes(
                content[:byte] + bytes([content[byte] ^ 1 << byte % 8]) + content[byte + 1 :]
            )
            expected = 1 if segment_id == 2 and byte >= last_at else 2
            assert main(["fsck", str(made.path)]) == expected, (segment_id, byte)
            assert capsys.readouterr().err == ""
        path.write_bytes(content)
    assert main(["fsck", str(made.path)]) == 0


@pytest.mark.parametrize("page", [0, 1, 2])
def test_a_page_of_zeros_in_the_middle_is_corrupt(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str], page: int
) -> None:
    made.segment()
    made.batch(row(1, 0, 0, begin(), flags=Flag.BEGIN))
    for seq in range(1, 80):
        made.batch(row(1, seq, seq, text(seq, "x" * 120)))
    content = bytearray(made.file().read_bytes())
    assert len(content) > 3 * 4096
    content[page * 4096 : page * 4096 + 4096] = bytes(4096)
    made.file().write_bytes(content)
    code, report = fsck(made.path, capsys)
    assert code == 2
    lost = [one for item in report["damage"] for one in item["lost"]]
    assert lost
    assert all(one["stream_no"] == 1 for one in lost)


def test_a_segment_that_is_gone_is_corrupt(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    two_replies(made)
    made.segment()
    made.batch(row(2, 3, 3, text(3, "!")))
    made.file(2).unlink()
    code, report = fsck(made.path, capsys)
    (damage,) = report["damage"]
    assert (code, damage["segment"], damage["reason"]) == (2, 0, "missing")
    assert {one["stream_id"] for one in damage["lost"]} == {"s2"}
    assert damage["open_streams"] == 1, "what stream 1 said last left no trace"


def test_a_segment_short_of_its_header_is_torn(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    two_replies(made)
    made.file(3).write_bytes(b"walldwal")
    code, report = fsck(made.path, capsys)
    assert (code, report["damage"][0]["reason"]) == (1, "residue")


def test_what_a_start_has_reported_does_not_count_again(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    two_replies(made)
    made.flip(2, 0)
    (code, before) = fsck(made.path, capsys)
    assert code == 2
    damage = before["damage"][0]
    made.segment()
    made.settle(Settled(damage["segment"], damage["offset"], 2, 2, 2))
    code, report = fsck(made.path, capsys)
    assert (code, report["damage"], report["settled"]) == (0, [], 1)


@pytest.mark.parametrize("at", [9, 60, -1])
def test_a_partial_that_does_not_verify_is_corrupt(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str], at: int
) -> None:
    made.segment()
    path = made.partial(1, begin(), text(1, "kept"))
    flip(path, at if at >= 0 else path.stat().st_size + at)
    code, report = fsck(made.path, capsys)
    assert code == 2
    (damaged,) = report["partials_damaged"]
    assert damaged["path"] == f"partials/{UID}/chat/s1"
    assert report["partials"] == 0


def test_a_gap_in_front_of_a_kept_part_is_none(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    """The beginning of a kept reply is in its partial, not in the log."""
    made.segment()
    made.batch(row(2, 0, 0, begin("s2"), flags=Flag.BEGIN))
    made.batch(row(2, 1, 1, text(1, "a")))
    made.batch(row(2, 2, 2, text(2, "b")), row(1, 10, 10, text(10, "later")))
    made.partial(1, begin(), text(1, "kept"), last_seq=9)
    made.flip(2, 0)
    code, report = fsck(made.path, capsys)
    assert code == 2
    assert [one["stream_no"] for one in report["damage"][0]["lost"]] == [2]


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"", 1), (bytes(128), 1), (b"walld 1\nepoch x", 1), (b"walld 9\nwhat it says", 2)],
)
def test_a_lock_that_is_no_record_is_said(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str], content: bytes, code: int
) -> None:
    two_replies(made)
    (made.path / "LOCK").write_bytes(content)
    assert fsck(made.path, capsys)[0] == code


def test_a_lock_that_names_another_log_is_corrupt_and_the_log_is_read(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    two_replies(made)
    lock = made.path / "LOCK"
    lock.write_bytes(lock.read_bytes().replace(b"4c4c", b"4c4d", 1))
    code, report = fsck(made.path, capsys)
    assert (code, report["damage"], report["last_batch"]) == (2, [], 6)
    lock.unlink()
    code, report = fsck(made.path, capsys)
    assert (code, report["lock"]) == (0, "there is no LOCK")


def test_what_lies_beside_is_counted(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    two_replies(made)
    made.partial(9, begin("s9", "nine"))
    (made.path / "quarantine/stream-7").write_bytes(b"bytes")
    (made.path / "quarantine/stream-7.note").write_bytes(b"why")
    (made.path / f"partials/{UID}/nine/.s8.tmp").write_bytes(b"half")
    (made.path / "wal/00000000000000000009.wal.residue").write_bytes(b"")
    code, report = fsck(made.path, capsys)
    assert code == 0
    assert (report["quarantine_files"], report["quarantine_bytes"]) == (1, 8)
    assert report["temporary"] == [f"partials/{UID}/nine/.s8.tmp"]
    assert report["residues"] == 1


def test_what_an_agent_named_reaches_no_terminal_raw(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    made.segment()
    made.batch(row(1, 0, 0, begin("a\x1b[2J\u202eb", "\x07"), flags=Flag.BEGIN))
    made.batch(row(1, 1, 1, text(1, "a")))
    made.batch(row(1, 2, 2, text(2, "b")))
    made.flip(2, 0)
    code, _ = fsck(made.path, capsys)
    assert code == 2
    main(["fsck", str(made.path)])
    shown = capsys.readouterr().out
    assert "\\x1b[2J\\u202eb" in shown
    assert "\x1b" not in shown


def test_a_wrong_directory_is_one_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fsck", str(tmp_path)]) == 66
    assert "holds no data of walld" in capsys.readouterr().err
    assert main(["fsck", str(tmp_path / "nowhere")]) == 66
    assert "No such file" in capsys.readouterr().err
    assert main(["fsck"]) == 64


def test_a_segment_that_cannot_be_read_is_two(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    two_replies(made)
    opened = RealDisk.open

    def failing(disk: RealDisk, path: str) -> RealFile:
        if path.startswith("wal/"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return opened(disk, path)

    monkeypatch.setattr(RealDisk, "open", failing)
    code, report = fsck(made.path, capsys)
    assert code == 2
    assert {item["verdict"] for item in report["damage"]} == {"unreadable"}


def test_a_write_under_way_is_not_called_torn(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is read when half of a batch stands in it; the other half comes while it waits."""
    two_replies(made)
    content = made.file().read_bytes()
    made.file().write_bytes(content[:-9])

    class Clock:
        def sleep(self, _seconds: float) -> None:
            made.file().write_bytes(content)

    monkeypatch.setattr(directory_scan, "time", Clock())
    assert main(["fsck", str(made.path)]) == 0


def test_a_bar_on_a_terminal_and_nowhere_else(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    two_replies(made)
    assert main(["fsck", str(made.path)]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(directory_scan, "PROGRESS_BYTES_MIN", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["fsck", str(made.path)]) == 0
    shown = capsys.readouterr().err
    assert "reading the log [" in shown
    assert shown.endswith("\r"), "it is taken away again"


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    """48 MiB of one stream's log under an address space that could not hold it."""
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 0, begin(), flags=Flag.BEGIN))
    body = "x" * 100
    for seq in range(1, 200):
        made.batch(row(1, seq * 2000 - 1999, seq * 2000, text(0, *[body] * 2000)))
    made.flip(100, 300)
    made.close()
    code = (
        "import sys, resource, tracemalloc; from walld.cli import main; tracemalloc.start();"
        f"code = main(['fsck', {str(made.path)!r}]);"
        "print(tracemalloc.get_traced_memory()[1], file=sys.stderr); sys.exit(code)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2, ran.stderr
    assert made.file().stat().st_size > 35 << 20
    assert int(ran.stderr) < 18 << 20, "of which the modules take some"


def test_a_lock_that_cannot_be_read_is_said(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    two_replies(made)
    (made.path / "LOCK").unlink()
    (made.path / "LOCK").mkdir()
    code, report = fsck(made.path, capsys)
    assert code == 2
    assert "LOCK cannot be read" in report["lock"]
    assert report["segments"] == 2
    assert not report["damage"]


@pytest.mark.parametrize("name", ["18446744073709551615.wal", "00000000000000000009.wal"])
def test_what_is_called_like_a_segment_and_is_none_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    made = two_replies(DamagedDirectory(tmp_path / "data"))
    made.close()
    if name.startswith("0"):
        (made.path / "wal" / name).mkdir()
    else:
        (made.path / "wal" / name).write_bytes(b"what")
    assert main(["fsck", str(made.path)]) == 2
    assert f"wal/{name}: is no segment" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["partials", "quarantine"])
def test_a_directory_that_cannot_be_listed_is_told_of(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    made = two_replies(DamagedDirectory(tmp_path / "data"))
    made.close()
    list_dir = RealDisk.list_dir

    def failing(disk: RealDisk, path: str) -> list[Entry]:
        if path == name:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return list_dir(disk, path)

    monkeypatch.setattr(RealDisk, "list_dir", failing)
    assert main(["fsck", str(made.path)]) == 2
    assert f"{name}" in capsys.readouterr().out
    assert main(["recover", "nobody's", "--data", str(made.path)]) == 1, "nothing is not proven"
