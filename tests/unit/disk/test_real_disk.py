"""The verbs on a real kernel: links, paths that lead out (D1), modes (D2), a failed sync (D3)."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from walld.disk.base import LINK_REFUSED, Disk, Entry, File
from walld.disk.real import RealDisk
from walld.errors import SharedFile, UnsafePath


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[RealDisk]:
    with RealDisk(str(tmp_path / "root")) as found:
        yield found


def put(disk: RealDisk, path: str, content: bytes = b"x") -> None:
    file = disk.create(path)
    assert file.write_at(content, 0) == len(content)
    file.close()


def test_it_is_a_disk(disk: RealDisk) -> None:
    as_disk: Disk = disk
    as_file: File = disk.create("x")
    assert as_disk.root.endswith("root")
    assert as_file.path == "x"
    as_file.close()


def test_a_file_that_has_another_name_is_read_and_never_written(disk: RealDisk) -> None:
    put(disk, "x", b"both")
    disk.link("x", "y")
    disk.open("x").close()
    with pytest.raises(SharedFile) as refused:
        disk.reopen("x")
    assert (refused.value.errno, refused.value.filename) == (errno.EMLINK, "x")
    disk.unlink("y")
    disk.reopen("x").close()


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
def test_modes_do_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        with RealDisk(str(tmp_path / "a" / "root")) as disk:
            disk.make_dir("one/two")
            put(disk, "one/two/file")
            disk.replace("one/state", b"y")
    finally:
        os.umask(old)
    modes = {
        str(path.relative_to(tmp_path)): stat.S_IMODE(path.lstat().st_mode)
        for path in tmp_path.rglob("*")
    }
    assert modes == {
        "a": 0o700,
        "a/root": 0o700,
        "a/root/one": 0o700,
        "a/root/one/two": 0o700,
        "a/root/one/two/file": 0o600,
        "a/root/one/state": 0o600,
    }


def test_nothing_is_inherited_by_a_child(disk: RealDisk) -> None:
    file = disk.create("x")
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
        if target.startswith(disk.root):
            assert not os.get_inheritable(int(name)), target
    file.close()


def test_reading_and_writing_at_offsets(disk: RealDisk) -> None:
    file = disk.create("x")
    assert file.write_at(b"world", 6) == 5
    assert file.write_at(b"hello ", 0) == 6
    assert file.read_at(100, 0) == b"hello world"
    assert file.read_at(5, 6) == b"world"
    assert file.read_at(5, 11) == b""
    assert file.size() == 11
    file.truncate(5)
    file.sync()
    assert file.read_at(100, 0) == b"hello"
    file.close()
    file.close()
    again = disk.open("x")
    assert again.read_at(9, 1) == b"ello"
    with pytest.raises(OSError, match="x"):
        again.write_at(b"no", 0)
    again.close()


def test_reading_out_of_the_page_cache(disk: RealDisk) -> None:
    """The same bytes, or None: never fewer, never an error."""
    file = disk.create("x")
    file.write_at(b"hello world", 0)
    assert file.read_cached(5, 6) in (b"world", None), "None where the file system cannot"
    assert file.read_cached(6, 6) is None, "beyond the end"
    file.close()
    assert file.read_cached(5, 6) is None


def test_create_is_exclusive(disk: RealDisk) -> None:
    put(disk, "x")
    with pytest.raises(FileExistsError) as caught:
        disk.create("x")
    assert caught.value.filename == "x"


def test_links_and_fifos_are_refused(disk: RealDisk, tmp_path: Path) -> None:
    root = Path(disk.root)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (root / "link").symlink_to(outside / "secret")
    (root / "dir").symlink_to(outside)
    (root / "dangling").symlink_to(outside / "new")
    os.mkfifo(root / "fifo")
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the errno is what is asserted
        disk.open("link")
    assert caught.value.errno == errno.ELOOP
    for call in (
        lambda: disk.open("dir/secret"),
        lambda: disk.create("dir/new"),
        lambda: disk.make_dir("dir/new"),
        lambda: disk.make_dir("dir"),
        lambda: disk.unlink("dir/secret"),
        lambda: disk.sync_dir("dir"),
        lambda: disk.replace("dir/secret", b""),
        lambda: disk.open("fifo"),
        lambda: disk.create("dangling"),
        lambda: disk.open("dangling"),
    ):
        with pytest.raises(OSError):  # noqa: PT011
            call()
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    kinds = {entry.name: entry.kind for entry in disk.list_dir("")}
    assert kinds == {"dangling": "other", "dir": "other", "fifo": "other", "link": "other"}


@pytest.mark.parametrize(
    "path", ["..", "../x", "/etc/passwd", "a/../../x", "a//b", ".", "a/", "\0"]
)
def test_paths_that_are_not_plain_names_are_refused(disk: RealDisk, path: str) -> None:
    verbs = disk.open, disk.create, disk.stat, disk.unlink, disk.make_dir, disk.sync_dir
    for call in (*verbs, disk.list_dir):
        with pytest.raises(UnsafePath):
            call(path)
    with pytest.raises(UnsafePath):
        disk.open("")


def test_a_way_over_a_directory_that_was_removed_beneath_walld_says_so(disk: RealDisk) -> None:
    disk.expect("d")
    for call in (disk.open, disk.stat):
        with pytest.raises(OSError, match="d/ was removed beneath walld"):
            call("d/e/x")


def test_replace_is_whole_and_leaves_no_temporary(disk: RealDisk) -> None:
    disk.make_dir("d")
    put(disk, "d/.x.tmp", b"left by a crash")
    disk.replace("d/x", b"one")
    disk.replace("d/x", b"two" * 100_000)
    assert disk.list_dir("d") == [Entry("x", "file", 300_000)]


def test_a_second_name_leads_to_the_same_file(disk: RealDisk, tmp_path: Path) -> None:
    disk.make_dir("a")
    disk.make_dir("b")
    disk.create("a/f").write_at(b"bytes", 0)
    disk.link("a/f", "b/g")
    disk.sync_dir("b")
    assert disk.open("b/g").read_at(9, 0) == b"bytes"
    assert (tmp_path / "root/a/f").samefile(tmp_path / "root/b/g")
    with pytest.raises(FileExistsError):
        disk.link("a/f", "b/g")
    with pytest.raises(FileNotFoundError):
        disk.link("a/none", "b/h")
    disk.unlink("a/f")
    assert disk.open("b/g").read_at(9, 0) == b"bytes"
    (tmp_path / "root/a/planted").symlink_to("/etc/passwd")
    disk.link("a/planted", "b/planted")
    with pytest.raises(OSError, match="planted"):
        disk.open("b/planted")
    with pytest.raises(PermissionError) as error:
        disk.link("a", "b/directory")
    assert error.value.errno in LINK_REFUSED


def test_a_replace_that_fails_leaves_the_old_file(disk: RealDisk) -> None:
    disk.replace("x", b"old")
    script = """
        import resource, signal, sys
        from walld.disk.real import RealDisk
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        with RealDisk(sys.argv[1]) as disk:
            try:
                disk.replace("x", bytes(5000))
            except OSError as error:
                print(error.errno, error.filename)
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), disk.root],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == [str(errno.EFBIG), ".x.tmp"]
    assert disk.list_dir("") == [Entry("x", "file", 3)]


def test_directories(disk: RealDisk) -> None:
    disk.make_dir("a/b/c")
    disk.make_dir("a/b/c")
    assert disk.remove_dir("a/b") is False
    assert disk.remove_dir("a/b/c") is True
    assert disk.remove_dir("a/b/c") is False
    assert disk.list_dir("a") == [Entry("b", "dir", 0)]
    assert disk.list_dir("nowhere") == []
    disk.make_dir("a/b/c")
    put(disk, "a/b/c/x")
    disk.rename("a/b/c/x", "a/y")
    disk.sync_dir("a")
    disk.sync_dir("")
    disk.unlink("a/y")
    with pytest.raises(FileNotFoundError):
        disk.unlink("a/y")
    with pytest.raises(FileNotFoundError):
        disk.sync_dir("gone")
    put(disk, "file")
    with pytest.raises(NotADirectoryError):
        disk.make_dir("file")
    assert disk.free_bytes() > 0


@pytest.mark.parametrize("major", [0, 8], ids=["on no disk", "on a disk"])
def test_a_file_knows_when_its_name_leads_elsewhere(
    disk: RealDisk, major: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked by opening it where a server may have it, by a stat where no other machine can."""
    monkeypatch.setattr(os, "major", lambda _device: major)
    disk.make_dir("d")
    first, second = disk.create("d/x"), disk.create("d/y")
    assert first.same_file()
    disk.rename("d/y", "d/x")
    assert not first.same_file(), "replaced"
    assert not second.same_file(), "moved from its path"
    third = disk.create("d/z")
    disk.unlink("d/z")
    assert not third.same_file(), "unlinked"
    fourth = disk.create("d/w")
    os.rename(Path(disk.root) / "d", Path(disk.root) / "e")
    assert not fourth.same_file(), "its directory is gone"
    (Path(disk.root) / "d").symlink_to("e")
    assert not fourth.same_file(), "a link leads there, which no start follows"
    for file in (first, second, third, fourth):
        file.close()


def test_a_file_is_never_synced_after_a_failed_sync(disk: RealDisk) -> None:
    file = disk.create("x")
    os.close(file._fd)  # the one failure of fdatasync that needs no broken disk
    with pytest.raises(OSError) as caught:  # noqa: PT011
        file.sync()
    assert (caught.value.errno, caught.value.filename) == (errno.EBADF, "x")
    with pytest.raises(AssertionError):
        file.sync()
    file._fd = -1


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777, 0o1777])
def test_a_root_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(mode)
    with pytest.raises(UnsafePath, match=f"{mode:04o}") as caught:
        RealDisk(str(root))
    assert f"{mode & ~0o022:04o}" in str(caught.value)
    with RealDisk(str(root), read_only=True) as disk:
        assert disk.list_dir("") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_root_of_somebody_else_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    os.chown(root, 12345, 12345)
    with pytest.raises(UnsafePath, match="uid 12345, not to 0"):
        RealDisk(str(root))


def test_a_root_that_is_a_link_is_followed_once(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    with RealDisk(str(tmp_path / "link")) as disk:
        put(disk, "x")
        (tmp_path / "link").unlink()
        assert disk.list_dir("") == [Entry("x", "file", 1)]
    assert (tmp_path / "real" / "x").exists()


def test_a_reader_writes_nothing(tmp_path: Path, disk: RealDisk) -> None:
    disk.make_dir("d")
    put(disk, "d/x", b"content")
    with RealDisk(disk.root, read_only=True) as reader:
        for call in (
            lambda: reader.create("new"),
            lambda: reader.replace("d/x", b""),
            lambda: reader.unlink("d/x"),
            lambda: reader.rename("d/x", "d/y"),
            lambda: reader.make_dir("new"),
            lambda: reader.remove_dir("d"),
            lambda: reader.sync_dir("d"),
        ):
            with pytest.raises(PermissionError, match="reading only"):
                call()
        file = reader.open("d/x")
        assert file.read_at(99, 0) == b"content"
        with pytest.raises(OSError):  # noqa: PT011
            file.write_at(b"x", 0)
        file.close()
    with pytest.raises(FileNotFoundError):
        RealDisk(str(tmp_path / "none"), read_only=True)
    assert not (tmp_path / "none").exists()


def test_a_directory_that_is_expected_and_was_removed_is_not_merely_empty(disk: RealDisk) -> None:
    """Nor is it made again with a file: somebody is to say first that it was removed."""
    disk.make_dir("kept/one")
    disk.expect("kept")
    assert disk.list_dir("kept/none") == []
    assert disk.removed() == []
    disk.remove_dir("kept/one")
    os.rmdir(f"{disk.root}/kept")
    assert disk.removed() == ["kept"]
    for asked in (disk.list_dir, disk.open, disk.unlink, disk.make_dir, disk.sync_dir):
        with pytest.raises(OSError, match=r"kept/ was removed beneath walld") as failed:
            asked("kept/one")
        assert failed.value.errno == errno.ESTALE
    with pytest.raises(OSError, match="was removed beneath"):
        disk.list_dir("kept")
    with pytest.raises(FileNotFoundError):
        disk.open("others/one")
    disk.make_dir("kept")
    assert (disk.removed(), disk.list_dir("kept")) == ([], [])
