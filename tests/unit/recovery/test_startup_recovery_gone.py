"""What a start makes of synced bytes that are gone: a note, and never "nothing" (P11)."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from damaged_directory import LOG, DamagedDirectory, begin, row, text
from virtual_daemon import Home, Peer, Virtual, living, recovered, run, until
from walld_client.query import offline
from walld_client.wire import messages as wire

from walld.cli import main
from walld.disk.lock import Owner
from walld.disk.lock_record import LOCK_NAME, LockRecord, lock_record, parse_lock
from walld.disk.real import RealDisk
from walld.partials.store import PartialStore
from walld.recovery.directory_lock import own
from walld.recovery.startup_recovery import recover_storage
from walld.wal.layout import Flag

OTHER = b"O" * 16


def three_segments(data: Path) -> DamagedDirectory:
    """Two batches each, synced up to the fifth: of the second segment nothing else tells."""
    made = DamagedDirectory(data)
    for first in (1, 3, 5):
        made.segment()
        for no in (first, first + 1):
            made.batch(row(no, 0, 1, begin(f"s{no}"), text(1, "x"), flags=Flag.BEGIN))
    made.close()
    return made


def no_file(path: Path) -> None:
    path.unlink()
    path.mkdir()


SPOILED: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "emptied": lambda path: os.truncate(path, 0),
    "cut to its header": lambda path: os.truncate(path, 64),
    "cut below its header": lambda path: os.truncate(path, 30),
    "a directory": no_file,
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_what_lay_in_synced_batches_that_are_gone_is_never_nothing(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    """P11: no bytes are left to say it, so a note does, at each start until it is moved away."""
    made = three_segments(tmp_path / "data")
    spoil(made.file(2))
    assert main(["recover", "chat", "--data", str(made.path), "--stream", "s3"]) == 1
    quarantine = made.path / "quarantine"

    async def main_walld() -> None:
        home = Home(tmp_path)
        for _ in range(2):
            async with living(home) as virtual:
                for request, word in (
                    (wire.Recover(1, "all", None, "s3"), "tell of damage"),
                    (wire.List(1, "none"), "tell of damage"),
                    (wire.Sessions(1, ""), "see `walld fsck`"),
                ):
                    with Peer(virtual, "query") as asking:
                        asking.send(request)
                        refused = await asking.hear(wire.Error)
                    assert refused.code == "unreadable"
                    assert word in refused.message
                assert virtual.daemon.status.gap_word == "corrupt"
                await until(lambda: not virtual.daemon.compaction._guard.holds_segments)
            assert main(["recover", "chat", "--data", str(made.path), "--stream", "s3"]) == 1
        for path in quarantine.iterdir():
            path.unlink()
        if made.file(2).is_dir():  # which speaks against "nothing", too
            made.file(2).rmdir()
        async with living(home) as virtual:
            assert await recovered(virtual, "s3") is None
        assert main(["recover", "chat", "--data", str(made.path), "--stream", "s3"]) == 3

    run(main_walld)


def test_a_log_that_is_gone_as_a_whole_is_never_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = three_segments(tmp_path / "data")
    shutil.rmtree(made.path / "wal")
    with RealDisk(str(made.path)) as disk, caplog.at_level(logging.ERROR):
        for _ in range(2):
            storage = recover_storage(disk, PartialStore(disk), LOG)
            assert storage.doubt is not None
            assert storage.met_damage
    assert caplog.text.count("wal/ holds no log") == 1
    assert main(["recover", "chat", "--data", str(made.path), "--stream", "s3"]) == 1


async def _say_one_thing(home: Home) -> None:
    """And have it synced, so that LOCK knows of a log."""
    async with living(home) as virtual:
        with Peer(virtual) as agent:
            agent.send(wire.Start(1, 0, "r", "s"), wire.Token(1, 1, b"one"))
            await agent.drain("synced")


@pytest.mark.parametrize("gone", [("wal",), ("wal", "partials"), ("wal/*",)])
def test_a_log_that_was_synced_once_cannot_be_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], gone: tuple[str, ...]
) -> None:
    """P11: LOCK knows of it, whatever else was removed."""

    async def main_walld() -> None:
        home = Home(tmp_path)
        await _say_one_thing(home)
        for name in gone:
            if name == "wal/*":
                for path in (home.data / "wal").iterdir():
                    path.unlink()
            else:
                shutil.rmtree(home.data / name)
        if "partials" not in gone:
            shutil.rmtree(home.data / "partials")
            (home.data / "partials").mkdir()
        if gone == ("wal/*",):
            uid = os.getuid()
            assert offline.has_partial(str(home.data), uid, "s") is None
            assert main(["recover", "s", "--data", str(home.data)]) == 1
        if gone != ("wal", "partials"):
            assert main(["fsck", str(home.data)]) == 2
            assert "there was one" in capsys.readouterr().out
        for _ in range(2):
            async with living(home) as virtual:
                assert virtual.daemon.status.doubt is not None
                assert (home.data / "quarantine" / "wal").exists()

    run(main_walld)


def only_residue(wal: Path) -> None:
    (wal / f"{7:020d}.wal.residue").write_bytes(b"abc")
    next(wal.glob("*.wal")).unlink()


def of_another_log(wal: Path) -> None:
    other = DamagedDirectory(wal.parent.parent / "other")
    other.segment()
    other.batch(row(1, 0, 1, begin("foreign"), text(1, "x"), flags=Flag.BEGIN))
    other.close()
    next(wal.glob("*.wal")).write_bytes(other.file(1).read_bytes())


NO_LOG: dict[str, Callable[[Path], object]] = {
    "emptied": lambda wal: os.truncate(next(wal.glob("*.wal")), 0),
    "cut below its header": lambda wal: os.truncate(next(wal.glob("*.wal")), 40),
    "a residue of long ago": only_residue,
    "of another log": of_another_log,
    "zeros": lambda wal: next(wal.glob("*.wal")).write_bytes(bytes(500)),
}


@pytest.mark.parametrize("spoil", NO_LOG.values(), ids=NO_LOG)
def test_what_is_left_of_a_log_must_be_of_it(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    """P11: a name that ends in .wal is no proof of a log, and another log is another's."""

    async def main_walld() -> None:
        home = Home(tmp_path)
        await _say_one_thing(home)
        shutil.rmtree(home.data / "partials")
        (home.data / "partials").mkdir()
        spoil(home.data / "wal")
        assert offline.has_partial(str(home.data), os.getuid(), "s") is None
        assert main(["recover", "s", "--data", str(home.data)]) == 1
        assert main(["fsck", str(home.data)]) == 2
        for _ in range(2):
            async with living(home) as virtual:
                assert virtual.daemon.status.doubt is not None
                assert (home.data / "quarantine" / "wal").exists()
                assert await refused(virtual) == "unreadable"

    async def refused(virtual: Virtual) -> str:
        with Peer(virtual, "query") as asking:
            asking.send(wire.Recover(1, "all", None, "r"))
            return (await asking.hear(wire.Error)).code

    run(main_walld)


def test_a_log_in_the_place_of_another_is_told_by_everyone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two segments agree against LOCK: they are believed, and what LOCK names was taken away."""

    async def main_walld() -> None:
        home = Home(tmp_path)
        await _say_one_thing(home)
        other = Home(tmp_path / "other")
        other.data.parent.mkdir()
        for _ in range(2):
            async with living(other):
                pass
        shutil.rmtree(home.data / "wal")
        shutil.copytree(other.data / "wal", home.data / "wal")
        assert offline.has_partial(str(home.data), os.getuid(), "s") is None
        assert main(["recover", "s", "--data", str(home.data)]) == 1
        assert main(["fsck", str(home.data)]) == 2
        assert main(["salvage", str(home.data), "--to", str(tmp_path / "new")]) == 2
        assert "is lost" in capsys.readouterr().out
        for _ in range(2):
            async with living(home) as virtual:
                assert virtual.daemon.status.doubt is not None
            assert main(["recover", "s", "--data", str(home.data)]) == 1

    run(main_walld)


def test_a_first_start_that_was_killed_has_lost_nothing(tmp_path: Path) -> None:
    """LOCK is there, and no segment: none was ever synced."""

    async def main_walld() -> None:
        home = Home(tmp_path)
        async with living(home):
            pass
        for path in (home.data / "wal").iterdir():
            path.unlink()
        async with living(home) as virtual:
            assert virtual.daemon.status.doubt is None

    run(main_walld)


def test_the_note_says_which_batches_are_gone(tmp_path: Path) -> None:
    made = three_segments(tmp_path / "data")
    made.file(2).unlink()
    with RealDisk(str(made.path)) as disk:
        for _ in range(2):
            recover_storage(disk, PartialStore(disk), LOG)
    (note,) = (made.path / "quarantine").iterdir()
    assert note.name == "batches-3-4"
    assert note.read_text() == "batches 3 to 4 were synced and are lost (missing)\n"


def test_a_note_that_a_full_disk_has_no_room_for_is_written_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K4: without a row of it in the log the damage is met again."""

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    made = three_segments(tmp_path / "data")
    os.truncate(made.file(2), 30)
    with RealDisk(str(made.path)) as disk:
        with monkeypatch.context() as patch:
            patch.setattr(RealDisk, "replace", no_room)
            storage = recover_storage(disk, PartialStore(disk), LOG)
        assert storage.verdict.corrupt
        assert [damage.first_no for damage in storage.verdict.not_kept] == [3]
        assert storage.doubt is not None
        assert storage.residues == [], "its bytes stand nowhere else"
        storage = recover_storage(disk, PartialStore(disk), LOG)
    assert storage.verdict.not_kept == []
    assert [(row.first_no, row.last_no) for row in storage.verdict.late_rows()] == [(3, 4)]
    assert storage.residues == [2]
    kept = {path.name for path in (made.path / "quarantine").iterdir()}
    assert kept == {f"{2:020d}.0.30", "batches-3-4"}, "what is left, and that it was more"


def replaced(tmp_path: Path) -> Path:
    """A data directory whose LOCK names another log than the three segments that lie there."""
    made = three_segments(tmp_path / "data")
    told = LockRecord(1, OTHER, had_log=True, synced_no=2, first_no=1)
    (made.path / LOCK_NAME).write_bytes(lock_record(told))
    return made.path


def test_that_a_log_was_replaced_is_noted_before_lock_names_the_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in between, no start would know of it, and what stood there would be "nothing"."""
    data, write = replaced(tmp_path), Owner._write

    def killed(owner: Owner, record: bytes) -> None:
        write(owner, record)
        raise KeyboardInterrupt

    with RealDisk(str(data)) as disk:
        with monkeypatch.context() as patched:
            patched.setattr(Owner, "_write", killed)
            with pytest.raises(KeyboardInterrupt):
                own(str(data), disk)
        own(str(data), disk).close()
        assert recover_storage(disk, PartialStore(disk), LOG).doubt is not None


def test_lock_names_it_until_that_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = replaced(tmp_path)

    def failing(_disk: RealDisk, path: str, _data: bytes) -> None:
        raise OSError(errno.EIO, "planted", path)

    with RealDisk(str(data)) as disk:
        with monkeypatch.context() as patched:
            patched.setattr(RealDisk, "replace", failing)
            with pytest.raises(OSError, match="planted"):
                own(str(data), disk)
        told = parse_lock((data / LOCK_NAME).read_bytes(), LOCK_NAME)
        assert told is not None
        assert told.log_uuid == OTHER
        owner = own(str(data), disk)
        assert owner.log_uuid == LOG
        owner.close()
        assert (data / "quarantine" / "wal").exists()


def test_a_directory_that_is_gone_is_not_made_again_before_that_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that is killed meanwhile must not keep the next one from missing it."""
    made = three_segments(tmp_path / "data")
    (made.path / "sessions").mkdir()
    shutil.rmtree(made.path / "partials")
    lock = LockRecord(1, LOG, had_log=True, had_dirs=True)

    def failing(_disk: RealDisk, path: str, _data: bytes) -> None:
        raise OSError(errno.EIO, "planted", path)

    with RealDisk(str(made.path)) as disk:
        with monkeypatch.context() as patched:
            patched.setattr(RealDisk, "replace", failing)
            storage = recover_storage(disk, PartialStore(disk), LOG, lock=lock)
        assert (storage.unnoted_dirs, disk.removed()) == (["partials"], ["partials"])
        assert storage.doubt is not None
    with RealDisk(str(made.path)) as disk:
        assert recover_storage(disk, PartialStore(disk), LOG, lock=lock).doubt is not None
        assert disk.removed() == []
    assert (made.path / "quarantine" / "partials").exists()


@pytest.mark.parametrize(
    ("name", "is_live"),
    [
        ("partials", True),
        ("sessions", True),
        ("partials", False),
        ("sessions", False),
        ("wal", False),
    ],
)
def test_a_directory_that_was_moved_to_quarantine_says_itself_that_it_is_gone(
    tmp_path: Path, name: str, *, is_live: bool
) -> None:
    """No note finds room where it lies, and none is missed: nothing may wait for one."""

    async def main_walld() -> None:
        home = Home(tmp_path)

        def move() -> None:
            (home.data / name).rename(home.data / "quarantine" / name)

        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(wire.Start(1, 0, "r", "s"), wire.Token(1, 1, b"one"))
                await agent.drain("synced")
            if is_live:
                move()
                await until((home.data / name).exists)
        if not is_live:
            move()
        for _ in range(2):
            async with living(home) as virtual:
                assert (home.data / name).is_dir()
                await until(lambda: not virtual.daemon._deferred_recovery.holds_segments)
                sessions = virtual.daemon._deferred_recovery._sessions
                doubt = sessions.doubt if name == "sessions" else virtual.daemon.status.doubt
                assert doubt is not None

    run(main_walld)


def test_a_log_that_was_replaced_is_noted_also_where_a_file_stands_for_quarantine(
    tmp_path: Path,
) -> None:
    """P9: no reason not to start."""
    data = replaced(tmp_path)
    shutil.rmtree(data / "quarantine", ignore_errors=True)
    (data / "quarantine").write_bytes(b"x")
    with RealDisk(str(data)) as disk:
        own(str(data), disk).close()
        assert recover_storage(disk, PartialStore(disk), LOG).doubt is not None
    kept = {path.name for path in (data / "quarantine").iterdir()}
    assert kept == {"wal", "not-a-directory.quarantine"}
