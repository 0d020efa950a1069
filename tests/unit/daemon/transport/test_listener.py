"""The socket agents connect to: claimed only where nobody else's is taken away."""

from __future__ import annotations

import grp
import os
import shutil
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from walld.daemon.transport import listener
from walld.daemon.transport.listener import SocketFile
from walld.errors import ConfigError, UnsafePath


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "s")


def test_it_listens_with_the_mode_it_was_given(path: str) -> None:
    bound = listener.bind(path, 0o620, None)
    assert stat.S_IMODE(os.lstat(path).st_mode) == 0o620
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(path)
    assert not bound.getblocking()
    bound.close()


def test_nobody_gets_in_before_it_has_its_mode(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there from bind(2) on, with what the umask leaves."""
    chmod, before = os.chmod, list[int]()

    def seen(name: str, mode: int) -> None:
        before.append(stat.S_IMODE(os.lstat(name).st_mode))
        chmod(name, mode)

    monkeypatch.setattr(listener.os, "chmod", seen)
    as_it_was = os.umask(0)
    try:
        listener.bind(path, 0o660, None).close()
        assert os.umask(0) == 0, "the umask is what it was"
    finally:
        os.umask(as_it_was)
    assert before == [0o600]


def test_its_folder_is_made_for_the_owner_alone(tmp_path: Path) -> None:
    bound = listener.bind(str(tmp_path / "run" / "walld" / "s"), 0o600, None)
    assert stat.S_IMODE((tmp_path / "run" / "walld").stat().st_mode) & 0o077 == 0
    bound.close()


def test_a_file_where_the_folder_belongs_is_named(tmp_path: Path) -> None:
    """ "File exists" would be no reason to whoever reads it."""
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="is no directory: name another path") as refused:
        listener.bind(str(tmp_path / "file" / "s"), 0o600, None)
    assert refused.value.filename == str(tmp_path / "file")
    listener.make_folder(str(tmp_path))


def test_a_stale_socket_is_replaced(path: str) -> None:
    """Its daemon was killed: nobody answers."""
    stale = listener.bind(path, 0o600, None)
    stale.close()
    bound = listener.bind(path, 0o600, None)
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(path)
    bound.close()


def test_whoever_answers_keeps_it(path: str) -> None:
    bound = listener.bind(path, 0o600, None)
    inode = os.lstat(path).st_ino
    with pytest.raises(OSError, match="another process answers"):
        listener.bind(path, 0o600, None)
    assert os.lstat(path).st_ino == inode
    bound.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to somebody else")
def test_a_socket_of_somebody_else_is_never_removed(path: str) -> None:
    """Nobody answers at it either: it may be of a daemon of his that comes back."""
    listener.bind(path, 0o600, None).close()
    os.chown(path, 61001, -1)
    inode = os.lstat(path).st_ino
    with pytest.raises(UnsafePath, match="a socket of uid 61001"):
        listener.bind(path, 0o600, None)
    assert os.lstat(path).st_ino == inode


@pytest.mark.parametrize("what", ["file", "folder", "link"])
def test_what_is_no_socket_is_never_removed(path: str, what: str) -> None:
    if what == "file":
        Path(path).write_text("precious")
    elif what == "folder":
        Path(path).mkdir()
    else:
        Path(path).symlink_to("/nowhere")
    with pytest.raises(UnsafePath, match="no socket"):
        listener.bind(path, 0o600, None)
    assert os.path.lexists(path)


def test_a_folder_that_everybody_writes_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(UnsafePath, match="mode 0777"):
        listener.bind(str(folder / "s"), 0o600, None)
    folder.chmod(0o1777)  # sticky: nobody can put another socket in our place
    listener.bind(str(folder / "s"), 0o600, None).close()


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_every_folder_of_the_way_is_looked_at_before_one_is_made(tmp_path: Path, mode: int) -> None:
    shared = tmp_path / "some one's"
    shared.mkdir()
    shared.chmod(mode)
    with pytest.raises(UnsafePath, match=f"mode {mode:04o}.*chmod go-w '.*', or give another --so"):
        listener.bind(str(shared / "run" / "s"), 0o600, None)
    assert not (shared / "run").exists()
    shared.chmod(0o755)
    (tmp_path / "here").symlink_to("some one's/../some one's")
    listener.bind(str(tmp_path / "here" / "run" / "s"), 0o600, None).close()


def test_links_in_a_circle_are_no_way(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        listener.bind(str(tmp_path / "a" / "s"), 0o600, None)


def test_a_passed_socket_in_a_folder_that_others_write_is_taken_with_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The unit says where it is, and it is open."""
    path = str(tmp_path / "s")
    for mode, lines in ((0o700, 0), (0o770, 1)):
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(path)
            opened.listen()
            tmp_path.chmod(mode)
            SocketFile.passed(opened.detach()).listener.close()
        os.unlink(path)
        said = [line for line in caplog.messages if "the service manager's socket" in line]
        assert len(said) == lines


@pytest.mark.parametrize(
    "address", [b"\0walld-test-%d" % os.getpid(), b""], ids=["abstract", "bound to nothing"]
)
def test_a_passed_socket_that_has_no_folder_is_none_of_the_working_directory(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    address: bytes,
) -> None:
    """Abstract, or bound to nothing."""
    tmp_path.chmod(0o777)
    monkeypatch.chdir(tmp_path)
    passed = socket.socket(socket.AF_UNIX)
    if address:
        passed.bind(address)
    SocketFile.passed(passed.detach()).listener.close()
    assert caplog.messages == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder to somebody else")
def test_in_a_user_namespace_the_folders_above_may_be_of_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root outside of it is 65534 there; the socket's own folder must be walld's all the same."""
    above = tmp_path / "above"
    own = above / "own"
    own.mkdir(parents=True)
    own.chmod(0o700)
    os.chown(above, 65534, 65534)
    with pytest.raises(UnsafePath, match=r"uid 65534 \(nobody\), not to 0"):
        listener.bind(str(own / "s"), 0o600, None)
    monkeypatch.setattr("walld_client.link.path_walk.has_all_uids", lambda: False)
    listener.bind(str(own / "s"), 0o600, None).close()
    with pytest.raises(UnsafePath, match="not mapped in this user namespace"):
        listener.bind(str(above / "s"), 0o600, None)
    above.chmod(0o1777)  # as /tmp has it
    listener.bind(str(own / "s"), 0o600, None).close()
    above.chmod(0o775)
    with pytest.raises(UnsafePath, match="65534"):
        listener.bind(str(own / "s"), 0o600, None)


def test_a_group_that_does_not_exist_leaves_no_socket(path: str) -> None:
    with pytest.raises(ConfigError, match="no-such-group-here"):
        listener.bind(path, 0o660, "no-such-group-here")
    assert not os.path.lexists(path)


def test_only_ones_own_socket_is_removed_at_the_end(path: str) -> None:
    ours = SocketFile.bound(path, 0o600, None)
    os.rename(path, path + ".moved")
    other = SocketFile.bound(path, 0o600, None)
    ours.close()
    assert os.path.lexists(path)
    other.close()
    assert not os.path.lexists(path)
    assert ours.listener.fileno() == other.listener.fileno() == -1


def test_what_others_make_while_it_is_bound_has_the_mode_they_ask_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is bound anew beside the threads that write: a umask is theirs, too."""
    file = SocketFile.bound(str(tmp_path / "s"), 0o600, None)
    os.unlink(tmp_path / "s")
    chmod = os.chmod

    def beside(*asked: Any) -> None:
        (tmp_path / "made").mkdir(mode=0o700)
        chmod(*asked)

    monkeypatch.setattr(listener.os, "chmod", beside)
    monkeypatch.setattr(listener.os, "umask", lambda _: pytest.fail("of every thread"))
    before = file.listener
    assert file.look() is file.listener is not before
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o700
    before.close()
    file.close()


def test_a_number_that_is_used_again_is_no_file_of_ours(path: str) -> None:
    """File systems give the number of a removed file to the next one made."""
    ours = SocketFile.bound(path, 0o600, None)
    for _ in range(20):
        os.unlink(path)
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(path)
            other.listen()
            assert ours.look() is None
            assert "another process answers" in str(ours.trouble)
    before = ours.listener
    assert ours.look() is not None, "nobody answers there any more"
    assert ours.trouble is None
    before.close()
    ours.close()


def test_of_folders_the_last_one_alone_is_made_again(tmp_path: Path) -> None:
    ours = SocketFile.bound(str(tmp_path / "run" / "walld" / "s"), 0o600, None)
    shutil.rmtree(tmp_path / "run")
    assert ours.look() is None
    assert "cannot be bound anew: [Errno 2]" in str(ours.trouble)
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    before = ours.listener
    assert ours.look() is not None
    assert stat.S_IMODE((tmp_path / "run" / "walld").stat().st_mode) == 0o700
    before.close()
    ours.close()


def test_a_folder_that_became_unsafe_gets_no_socket(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ours = SocketFile.bound(str(folder / "s"), 0o600, None)
    os.unlink(folder / "s")
    folder.chmod(0o777)
    assert ours.look() is None
    assert "mode 0777" in str(ours.trouble)
    assert list(folder.iterdir()) == []
    ours.close()


def test_one_that_was_passed_and_never_seen_is_no_trouble(path: str) -> None:
    """Its path is one of the manager's mounts."""
    passed = socket.socket(socket.AF_UNIX)
    passed.bind(path)
    os.unlink(path)
    ours = SocketFile.passed(passed.detach())
    assert (ours.look(), ours.trouble) == (None, None)
    ours.close()
    for address in (b"\0walld-test-%d" % os.getpid(), b""):  # abstract; bound to nothing
        passed = socket.socket(socket.AF_UNIX)
        if address:
            passed.bind(address)
        ours = SocketFile.passed(passed.detach())
        assert (ours.look(), ours.trouble) == (None, None)
        ours.close()


def test_one_that_was_passed_is_taken_as_it_is(path: str) -> None:
    passed = socket.socket(socket.AF_UNIX)
    passed.bind(path)
    passed.listen()
    adopted = listener.adopt(os.dup(passed.fileno()))
    passed.close()
    assert not adopted.getblocking()
    assert adopted.getsockname() == path
    adopted.close()
    assert os.path.lexists(path), "it belongs to the service manager"


@pytest.fixture
def group() -> Iterator[str]:
    """One that is not this process's own, where that may be had."""
    others = [one for one in grp.getgrall() if one.gr_gid not in (os.getegid(), 65534)]
    if os.geteuid() == 0:
        yield others[0].gr_name
    else:
        yield grp.getgrgid(os.getegid()).gr_name


def access(folder: Path) -> tuple[int, int]:
    found = folder.stat()
    return found.st_gid, stat.S_IMODE(found.st_mode)


def test_a_folder_that_is_made_lets_the_group_of_the_socket_pass(
    tmp_path: Path, group: str
) -> None:
    """At a start and when it is made again, whatever the umask."""
    folder = tmp_path / "run"
    gid = grp.getgrnam(group).gr_gid
    before = os.umask(0o077)
    try:
        ours = SocketFile.bound(str(folder / "s"), 0o660, group)
        assert access(folder) == (gid, 0o750)
        shutil.rmtree(folder)
        first = ours.listener
        assert ours.look() is not None
        assert access(folder) == (gid, 0o750)
    finally:
        os.umask(before)
    first.close()
    ours.close()


def test_a_folder_that_was_there_stays_as_it_was(tmp_path: Path, group: str) -> None:
    before = access(tmp_path)
    SocketFile.bound(str(tmp_path / "s"), 0o660, group).close()
    assert access(tmp_path) == before


def test_a_group_that_cannot_pass_is_said(
    tmp_path: Path, group: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of folders above too; once, and it is over when the way is open. tmp_path's own are not
    looked at: pytest makes them for one user.
    """
    walk = listener.walk
    inside = str(tmp_path)
    monkeypatch.setattr(
        listener, "walk", lambda way: [one for one in walk(way) if one.path.startswith(inside)]
    )
    tmp_path.chmod(0o755)
    folder = tmp_path / "run"
    ours = SocketFile.bound(str(folder / "s"), 0o660, group)
    gid = grp.getgrnam(group).gr_gid
    assert (ours.look(), ours.trouble) == (None, None)
    for shut, mode in ((folder, 0o700), (folder, 0o705), (tmp_path, 0o700)):
        as_it_was = stat.S_IMODE(shut.stat().st_mode)
        shut.chmod(mode)
        for _ in range(2):
            assert ours.look() is None
            assert f"its group {gid} cannot pass through {shut} of" in str(ours.trouble)
            assert f"mode {mode:04o}" in str(ours.trouble)
        shut.chmod(as_it_was)
        assert (ours.look(), ours.trouble) == (None, None)
    said = [line for line in caplog.messages if "cannot pass" in line]
    assert len(said) == 3
    ours.close()


def test_without_a_group_nobody_is_shut_out(path: str) -> None:
    ours = SocketFile.bound(path, 0o600, None)
    os.chmod(os.path.dirname(path), 0o700)
    assert (ours.look(), ours.trouble) == (None, None)
    ours.close()
