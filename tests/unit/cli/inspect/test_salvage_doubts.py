"""What salvage could not look at is said, and nothing of it is proven by the new directory."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from damaged_directory import LOG, DamagedDirectory, begin, row, snapshot, text, two_replies
from virtual_daemon import Home, living, recovered, run

from walld.cli import main
from walld.cli.inspect.offline import find
from walld.disk.lock_record import LockRecord, lock_record
from walld.disk.real import RealDisk
from walld.partials.tombstone_file import done_with
from walld.wal.layout import Flag

pytestmark = pytest.mark.usefixtures("no_daemon_writes_it")


def no_log(made: DamagedDirectory) -> None:
    for path in (made.path / "wal").iterdir():
        path.unlink()


def no_wal(made: DamagedDirectory) -> None:
    shutil.rmtree(made.path / "wal")


def a_directory_for_a_segment(made: DamagedDirectory) -> None:
    made.file(2).unlink()
    made.file(2).mkdir()


def a_link_for_a_segment(made: DamagedDirectory) -> None:
    made.file(2).rename(made.path / "elsewhere")
    made.file(2).symlink_to(made.path / "elsewhere")


def a_name_of_no_segment(made: DamagedDirectory) -> None:
    made.file(2).rename(made.path / "wal/2.wal")


def a_file_for_quarantine(made: DamagedDirectory) -> None:
    (made.path / "quarantine").rmdir()
    (made.path / "quarantine").write_bytes(b"x")


def a_file_for_sessions(made: DamagedDirectory) -> None:
    (made.path / "sessions").write_bytes(b"x")


def a_list_that_is_a_directory(made: DamagedDirectory) -> None:
    (made.path / "partials/.gone").mkdir()


def a_damaged_list(made: DamagedDirectory) -> None:
    with RealDisk(str(made.path)) as disk:
        assert done_with(disk, LOG, [7], [], is_all=False) == ([], True)
    path = made.path / "partials/.gone"
    path.write_bytes(path.read_bytes().replace(b"7 7", b"6 6"))


@pytest.mark.parametrize(
    "spoil",
    [
        no_log,
        no_wal,
        a_directory_for_a_segment,
        a_link_for_a_segment,
        a_name_of_no_segment,
        a_file_for_quarantine,
        a_file_for_sessions,
        a_list_that_is_a_directory,
        a_damaged_list,
    ],
)
def test_what_it_could_not_look_at_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Callable[[DamagedDirectory], None]
) -> None:
    made = two_replies(DamagedDirectory(tmp_path / "old"))
    (made.path / "LOCK").write_bytes(lock_record(LockRecord(1, LOG, had_log=True)))
    made.partial(7, begin("s7"), text(1, "x"))
    spoil(made)
    made.close()
    before = snapshot(made.path)
    assert main(["fsck", str(made.path)]) == 2
    capsys.readouterr()
    new = tmp_path / "data"
    assert main(["salvage", str(made.path), "--to", str(new), "--json"]) == 1
    account: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert len(account["doubts"]) == 1
    assert snapshot(made.path) == before
    assert account["doubts"][0] in (new / "quarantine/salvage").read_text()
    assert find(str(new)).doubts

    async def main_walld() -> None:
        async with living(Home(tmp_path)) as virtual:
            assert await recovered(virtual, "s7") is not None
            assert virtual.daemon.status.doubt is not None

    run(main_walld)


def test_a_directory_in_quarantine_is_not_taken_and_that_is_said(tmp_path: Path) -> None:
    """Somebody moved it there with all that it has: the new directory knows nothing of that."""
    made = two_replies(DamagedDirectory(tmp_path / "old"))
    made.partial(7, begin("s7"), text(1, "x"))
    (made.path / "partials").rename(made.path / "quarantine/partials")
    (made.path / "partials").mkdir()
    made.close()
    assert find(str(made.path)).doubts
    new = tmp_path / "data"
    assert main(["salvage", str(made.path), "--to", str(new)]) == 1
    assert "quarantine/partials" in (new / "quarantine/salvage").read_text()
    assert find(str(new)).doubts


def test_a_start_keeps_a_damaged_list_apart(tmp_path: Path) -> None:
    """A reply that was resolved may come back with it: nobody is told "nothing" meanwhile."""
    made = two_replies(DamagedDirectory(tmp_path / "data"))
    a_damaged_list(made)
    made.close()
    assert any("partials/.gone" in doubt for doubt in find(str(made.path)).doubts)

    async def main_walld() -> None:
        for _ in range(2):
            async with living(Home(tmp_path)) as virtual:
                assert virtual.daemon.status.doubt is not None
                assert (made.path / "quarantine/partials+.gone").exists()

    run(main_walld)


@pytest.mark.parametrize(
    "spoil", [a_directory_for_a_segment, a_link_for_a_segment, a_name_of_no_segment]
)
def test_what_stands_in_a_segments_place_speaks_against_nothing(
    tmp_path: Path, spoil: Callable[[DamagedDirectory], None]
) -> None:
    """For everybody: nothing that it may have held is proven never to have been."""
    made = two_replies(DamagedDirectory(tmp_path / "data"))
    spoil(made)
    made.close()
    assert find(str(made.path)).doubts
    assert main(["fsck", str(made.path)]) == 2
    assert main(["dump", "--data", str(made.path)]) == 0

    async def main_walld() -> None:
        for _ in range(2):
            async with living(Home(tmp_path)) as virtual:
                assert virtual.daemon.status.doubt is not None
                await anyio.sleep(900)
                assert virtual.daemon.status.status()["state"] == "ok"

    run(main_walld)
    assert find(str(made.path)).doubts


def test_partials_are_read_where_the_log_is_gone_with_its_directory(tmp_path: Path) -> None:
    made = two_replies(DamagedDirectory(tmp_path / "data"))
    made.partial(7, begin("s7"), text(1, "x"))
    no_wal(made)
    made.close()
    found = find(str(made.path))
    assert [reply.stream_id for reply in found.replies] == ["s7"]
    assert found.doubts


@pytest.mark.parametrize("spoiled", [True, False])
def test_a_newest_segment_without_a_header_is_no_torn_tail_for_anybody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spoiled: bool
) -> None:
    """But where it is zeros, as power leaves it."""
    made = two_replies(DamagedDirectory(tmp_path / "data"))
    made.segment()
    made.batch(row(9, 0, 1, begin("s9"), text(1, "x"), flags=Flag.BEGIN))
    made.close()
    size = made.file().stat().st_size
    made.file().write_bytes(b"?" * size if spoiled else bytes(size))
    assert bool(find(str(made.path)).doubts) is spoiled
    assert main(["fsck", str(made.path)]) == 1
    new = tmp_path / "new" / "data"
    assert main(["salvage", str(made.path), "--to", str(new)]) == 1
    assert (new / "quarantine/salvage").exists() is spoiled
    capsys.readouterr()

    async def main_walld() -> None:
        for home in (Home(tmp_path), Home(tmp_path / "new")):
            async with living(home) as virtual:
                assert (virtual.daemon.status.doubt is not None) is spoiled

    run(main_walld)


class _Stopped(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), _Stopped()])
def test_one_that_was_cut_short_anywhere_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Killed, or without room: a daemon on what is there would call the rest "nothing"."""
    made = DamagedDirectory(tmp_path / "old")
    two_replies(made)
    made.close()
    steps = [0, 0]  # done, allowed

    def stops(name: str) -> None:
        verb = getattr(RealDisk, name)

        def step(disk: RealDisk, *given: Any) -> Any:
            if "new" in disk.root:
                steps[0] += 1
                if steps[0] > steps[1]:
                    raise error
            return verb(disk, *given)

        monkeypatch.setattr(RealDisk, name, step)

    for name in ("make_dir", "replace", "unlink", "sync_dir"):
        stops(name)
    for allowed in range(100):
        steps[:] = [0, allowed]
        new = tmp_path / f"new{allowed}"
        try:
            code = main(["salvage", str(made.path), "--to", str(new)])
        except _Stopped:
            code = 66
        steps[1] = 10**6
        if code == 0:
            assert not list((new / "quarantine").iterdir())
            assert len(find(str(new)).replies) == 2
            assert not find(str(new)).doubts
            assert allowed > 5
            return
        assert code == 66
        if (new / "wal").exists() or (new / "partials").exists():
            found = find(str(new))
            assert found.doubts or len(found.replies) == 2
    raise AssertionError("it never ended")


def test_what_found_no_room_says_what_to_do_and_so_does_who_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not removed: of a disk that dies it may be all that anybody reads of it again."""
    made = two_replies(DamagedDirectory(tmp_path / "old"))
    made.close()
    command = ["salvage", str(made.path), "--to", str(tmp_path / "new")]

    def full(_disk: RealDisk, path: str, data: bytes) -> None:
        if path.startswith("partials/"):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        replace(_disk, path, data)

    replace = RealDisk.replace
    with monkeypatch.context() as patch:
        patch.setattr(RealDisk, "replace", full)
        assert main(command) == 66
    error = capsys.readouterr().err
    assert "No space left on device" in error
    assert f"{tmp_path / 'new'} holds what a salvage took that did not come to its end" in error
    assert "remove it to begin anew" in error
    assert main(command) == 64
    assert "remove it to begin anew, or name another place" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "new")
    assert main(command) == 0
    assert main(command) == 64
    assert "remove it" not in capsys.readouterr().err, "this one is whole"


def test_one_that_finds_no_room_for_its_first_word_leaves_the_place_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without that word a daemon there would call all that was not taken "nothing"."""
    two_replies(DamagedDirectory(tmp_path / "old")).close()
    command = ["salvage", str(tmp_path / "old"), "--to", str(tmp_path / "new")]

    def full(_disk: RealDisk, path: str, _data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    with monkeypatch.context() as patch:
        patch.setattr(RealDisk, "replace", full)
        assert main(command) == 66
    assert "No space left on device" in capsys.readouterr().err
    assert not list((tmp_path / "new").iterdir())
    assert main(command) == 0


def test_one_that_was_killed_at_its_first_word_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`quarantine/` and the word in it are two names: whichever stands there says so."""
    two_replies(DamagedDirectory(tmp_path / "old")).close()
    steps = [0, 0]  # done, allowed

    def stops_behind(name: str) -> None:
        verb = getattr(RealDisk, name)

        def step(disk: RealDisk, *given: str) -> Any:
            done = verb(disk, *given)
            steps[0] += 1
            if steps[0] == steps[1]:
                raise _Stopped
            return done

        monkeypatch.setattr(RealDisk, name, step)

    for name in ("make_one_dir", "rename", "sync_dir"):
        stops_behind(name)
    for allowed in range(1, 10):
        home = Home(tmp_path / str(allowed))
        command = ["salvage", str(tmp_path / "old"), "--to", str(home.data)]
        steps[:] = [0, allowed]
        with pytest.raises(_Stopped):
            main(command)
        steps[1] = 0
        assert main(command) == 64, "this place is taken"

        async def main_walld(home: Home = home) -> None:
            for _ in range(2):
                async with living(home) as virtual:
                    assert virtual.daemon.status.doubt is not None

        run(main_walld)
