"""Which mount a directory lies on, on real mounts, and what its lines of mountinfo mean."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from walld.cli.selftest.mounts import Mount, mount_of, opinion, parse_mounts

LINE = "36 35 98:0 /root {point} {options} shared:1 - {kind} source {more}"


@contextmanager
def memory_at(path: Path) -> Iterator[None]:
    """A tmpfs there. Skips where none can be mounted."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(path)]
    mounted = subprocess.run(command, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def kind_at(path: Path) -> tuple[str, str] | None:
    found = mount_of(str(path))
    return None if found is None else (found.kind, found.point)


def mount(kind: str, more: str = "rw", options: str = "rw") -> Mount:
    line = LINE.format(point="/", kind=kind, options=options, more=more)
    return parse_mounts(line.encode())[36]


@pytest.mark.parametrize(
    ("found", "synced", "word"),
    [
        (mount("ext4"), "yes", "ext4"),
        (mount("ext4", "rw,nobarrier"), "no", "barriers"),
        (mount("ext4", "rw,barrier=0"), "no", "barriers"),
        (mount("xfs", "rw", "ro,relatime"), "no", "read-only"),
        (mount("tmpfs"), "no", "memory"),
        (mount("ramfs"), "no", "memory"),
        (mount("nfs4", "rw,vers=4.2,hard"), "yes", "hard"),
        (mount("nfs", "rw,soft,timeo=50"), "no", "soft"),
        (mount("nfs4", "rw,softerr"), "no", "soft"),
        (mount("nfs4", "rw,vers=4.2"), "not proven", "without `hard`"),
        (mount("overlay", "rw,upperdir=/u"), "not proven", "below"),
        (mount("overlay", "rw,volatile"), "no", "volatile"),
        (mount("fuse.sshfs"), "not proven", "whoever serves it"),
        (mount("9p"), "not proven", "whoever serves it"),
        (None, "not proven", "does not say"),
    ],
)
def test_what_a_mount_says_of_itself(found: Mount | None, synced: str, word: str) -> None:
    seen = opinion(found)
    assert seen.synced == synced
    assert word in seen.why


def test_what_cannot_be_seen_is_warned_of() -> None:
    assert "async" in opinion(mount("nfs4", "rw,hard")).notes[0]
    assert "upperdir" in opinion(mount("overlay")).notes[0]
    assert "was tried on" in opinion(mount("newfs")).notes[0]


@pytest.mark.parametrize("more", ["nolock", "local_lock=all", "local_lock=flock"])
def test_a_lock_that_holds_on_this_machine_alone_is_warned_of(more: str) -> None:
    notes = opinion(mount("nfs", f"rw,hard,{more}")).notes
    assert any("another machine is not kept out" in note for note in notes)
    far = opinion(mount("nfs", "rw,hard,local_lock=none")).notes
    assert not any("another machine" in note for note in far)


def test_a_mount_that_a_later_one_above_it_covers_is_not_the_mount(tmp_path: Path) -> None:
    """The kernel's rule is no rule of texts: the longest mount point is not what is seen."""
    inner = tmp_path / "a/b"
    inner.mkdir(parents=True)
    with memory_at(inner):
        assert kind_at(inner) == ("tmpfs", str(inner))
        with memory_at(tmp_path / "a"):
            inner.mkdir()
            assert kind_at(inner) == ("tmpfs", str(tmp_path / "a"))
    assert kind_at(inner) == kind_at(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["a b", "x\ty", "x\ny", "x\\y", "x\fy", "x\u2028y", "x\x1ey", "x\udcffy", "x - y", "x#y"],
)
def test_a_mount_point_of_any_name_is_found(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.mkdir()
    with memory_at(path):
        assert kind_at(path) == ("tmpfs", str(path))
        (path / "deep").mkdir()
        assert kind_at(path / "deep") == ("tmpfs", str(path))


def test_what_is_no_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        mount_of(str(tmp_path / "nowhere"))
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        mount_of(str(tmp_path / "file"))


def test_lines_of_another_shape_are_left_out() -> None:
    line = LINE.format(point="/a\\040b", kind="xfs", options="rw", more="rw")
    assert parse_mounts(f"a line of another shape\n{line}\n".encode())[36].point == "/a b"
    assert parse_mounts(b"x 35 98:0 / / rw - ext4 source rw\n\n") == {}
