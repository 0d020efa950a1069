"""A directory that comes from a disk of the other kind: a start gives all its names their form."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from unit.disk.case_blind import CaseBlindDisk

from walld.disk.base import Entry
from walld.disk.folded import FoldedDisk, strays_of
from walld.disk.lock import Owner
from walld.disk.lock_record import LOCK_NAME, LockRecord, lock_record
from walld.disk.real import RealDisk
from walld.recovery.name_forms import rename_to_disk_form

PLAIN = [
    "partials/1/Chat-1/R1",
    "partials/1/Chat-1/r2",
    "partials/1/low/R3",
    "sessions/1/Chat-2/events.jsonl",
    "sessions/.1+Chat-3.delete",
    "quarantine/partials+1+Chat-4+R",
]
FOLDED = [
    "partials/1/@chat-1/@r1",
    "partials/1/@chat-1/r2",
    "partials/1/low/@r3",
    "sessions/1/@chat-2/events.jsonl",
    "sessions/.1+@chat-3.delete",
    "quarantine/partials+1+@chat-4+@r",
]


class Killed(BaseException):
    """At a rename."""


class Renames:
    """At rename number `at` of a disk: `what` is raised."""

    def __init__(self, disk: RealDisk, at: int, what: BaseException) -> None:
        self._rename, self._left, self._what = disk.rename, at, what
        disk.rename = self  # type: ignore[method-assign,assignment]

    def __call__(self, path: str, new_path: str) -> None:
        self._left -= 1
        if self._left == 0:
            raise self._what
        self._rename(path, new_path)


def make(root: Path, paths: list[str]) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"x")


def names(root: Path) -> list[str]:
    found = (path for path in root.rglob("*") if path.is_file() and path.name != LOCK_NAME)
    return sorted(str(path.relative_to(root)) for path in found)


def own(root: Path, *, is_case_blind: bool) -> Owner:
    (root / LOCK_NAME).write_bytes(lock_record(LockRecord(1, b"l" * 16, is_folded=True)))
    owner = Owner(str(root), b"l" * 16)
    owner.is_case_blind = is_case_blind
    return owner


def version(root: Path) -> bytes:
    return (root / LOCK_NAME).read_bytes()[:7]


@pytest.mark.parametrize("is_blind", [True, False])
@pytest.mark.parametrize("killed_at", range(1, 8))
def test_it_is_killed_at_any_rename_and_goes_on(
    tmp_path: Path, is_blind: bool, killed_at: int
) -> None:
    came, wanted = (PLAIN, FOLDED) if is_blind else (FOLDED, PLAIN)
    make(tmp_path, came)
    owner = own(tmp_path, is_case_blind=is_blind)
    kind = CaseBlindDisk if is_blind else RealDisk
    with kind(str(tmp_path)) as below:
        Renames(below, killed_at, Killed())
        if killed_at <= 6:  # so many names have to change
            with pytest.raises(Killed):
                rename_to_disk_form(FoldedDisk(below, is_folded=is_blind), owner)
            assert version(tmp_path) == b"walld 2"
    with kind(str(tmp_path)) as below:
        strays = strays_of(below, is_folded=is_blind)
        between = FoldedDisk(below, is_folded=is_blind, strays=strays)
        for path in PLAIN:
            between.open(path).close()  # who only reads finds each
        disk = FoldedDisk(below, is_folded=is_blind)
        rename_to_disk_form(disk, owner)
        assert names(tmp_path) == sorted(wanted)
        assert not disk.strays
        for path in PLAIN:
            disk.open(path).close()
    assert version(tmp_path) == (b"walld 2" if is_blind else b"walld 1")
    owner.close()


@pytest.mark.parametrize("is_blind", [True, False])
def test_what_cannot_be_renamed_is_used_where_it_is(tmp_path: Path, is_blind: bool) -> None:
    make(tmp_path, PLAIN if is_blind else FOLDED)
    owner = own(tmp_path, is_case_blind=is_blind)
    with (CaseBlindDisk if is_blind else RealDisk)(str(tmp_path)) as below:
        Renames(below, 3, OSError(errno.EIO, "an error"))
        disk = FoldedDisk(below, is_folded=is_blind)
        rename_to_disk_form(disk, owner)
        assert len(disk.strays) == 1
        for path in PLAIN:
            disk.open(path).close()
    assert version(tmp_path) == b"walld 2", "a folded name may be left"
    owner.close()


def test_of_two_forms_of_one_name_the_other_one_is_set_aside(tmp_path: Path) -> None:
    """Somebody has copied from another disk over what was here."""
    make(tmp_path, ["partials/1/@chat/r", "partials/1/Chat/r", "partials/1/Chat/s"])
    owner = own(tmp_path, is_case_blind=True)
    with CaseBlindDisk(str(tmp_path)) as below:
        disk = FoldedDisk(below, is_folded=True)
        rename_to_disk_form(disk, owner)
        assert [one.name for one in disk.list_dir("partials/1")] == ["Chat"]
    aside = "quarantine/partials+1+@chat"
    assert names(tmp_path) == ["partials/1/@chat/r", f"{aside}/r", f"{aside}/s"]
    owner.close()


def test_what_cannot_be_listed_may_have_folded_names_still(tmp_path: Path) -> None:
    make(tmp_path, FOLDED)
    owner = own(tmp_path, is_case_blind=False)
    with RealDisk(str(tmp_path)) as below:
        listed = below.list_dir

        def list_dir(path: str) -> list[Entry]:
            if path == "sessions/1":
                raise OSError(errno.EIO, "an error", path)
            return listed(path)

        below.list_dir = list_dir  # type: ignore[method-assign]
        rename_to_disk_form(FoldedDisk(below, is_folded=False), owner)
        assert version(tmp_path) == b"walld 2"
        below.list_dir = listed  # type: ignore[method-assign]
        rename_to_disk_form(FoldedDisk(below, is_folded=False), owner)
    assert version(tmp_path) == b"walld 1"
    assert names(tmp_path) == sorted(PLAIN)
    owner.close()
