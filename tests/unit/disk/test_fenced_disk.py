"""Who is not the owner of a directory any more changes none of its names."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from walld.disk.base import Disk
from walld.disk.fenced import FencedDisk
from walld.disk.real import RealDisk
from walld.errors import TakenOver

CHANGES: dict[str, Callable[[FencedDisk], object]] = {
    "create": lambda disk: disk.create("new"),
    "reopen": lambda disk: disk.reopen("file"),
    "replace": lambda disk: disk.replace("file", b"new"),
    "swap": lambda disk: disk.swap("file", b"new"),
    "unlink": lambda disk: disk.unlink("file"),
    "rename": lambda disk: disk.rename("file", "new"),
    "link": lambda disk: disk.link("file", "new"),
    "make_dir": lambda disk: disk.make_dir("new"),
    "remove_dir": lambda disk: disk.remove_dir("dir"),
    "free_bytes": lambda disk: disk.free_bytes(),
}
HARMLESS = {"open", "expect", "removed", "sync_dir", "list_dir", "is_removed"}


@pytest.mark.parametrize("verb", CHANGES)
def test_each_verb_that_changes_something_looks_first(tmp_path: Path, verb: str) -> None:
    def there() -> list[tuple[str, bytes]]:
        files = ((path.name, path) for path in sorted(tmp_path.iterdir()))
        return [(name, path.read_bytes() if path.is_file() else b"dir") for name, path in files]

    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "dir").mkdir()
    tmp_path.chmod(0o700)
    is_owner = [False]
    with RealDisk(str(tmp_path)) as bare:
        disk, before = FencedDisk(bare, lambda: is_owner[0]), there()
        with pytest.raises(TakenOver, match="another daemon has raised the epoch") as raised:
            CHANGES[verb](disk)
        assert (raised.value.errno, there()) == (errno.ESTALE, before)
        assert disk.open("file").read_at(10, 0) == b"old"
        is_owner[0] = True
        CHANGES[verb](disk)
        assert verb in ("reopen", "free_bytes") or there() != before


def test_no_verb_is_left_out() -> None:
    """A new one either looks, or is named here among those that change nothing."""
    verbs = {name for name in vars(Disk) if name[0] != "_"}
    assert verbs == HARMLESS | CHANGES.keys()
