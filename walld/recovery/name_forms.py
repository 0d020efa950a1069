"""Renames files of a data directory to the form that its disk wants, at a start.

Owns: the renaming, in an order that a kill leaves readable, and what becomes of a file whose place
is taken. Refuses: the forms, and how both are read meanwhile (`disk/folded.py`).

A directory that was on a disk that looks at case has names as they are, one that comes from a disk
that does not has folded ones. LOCK says that folded names may be there before the first one is, and
until the last is gone: a start that is killed between is followed by one that goes on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from walld.disk.folded import each_stray, fold
from walld.partials.names import name_aside
from walld.wal.layout import QUARANTINE_DIR

if TYPE_CHECKING:
    from walld.disk.base import Disk
    from walld.disk.folded import FoldedDisk
    from walld.disk.lock import Owner

__all__ = ["rename_to_disk_form"]

_log = logging.getLogger("walld.recovery")


def rename_to_disk_form(disk: FoldedDisk, owner: Owner) -> None:
    """For the owner's start, before it reads anything; blocks. OSError of LOCK, or of a sync.

    What cannot be renamed is read and written where it is.
    """
    if owner.is_case_blind:
        text = "%s: this disk does not look at case: a capital in a file name is written as @ and "
        _log.info(text + "its small letter", disk.root)
    renaming = _Renaming(disk.below, is_folded=disk.is_folded)
    is_all = each_stray(disk.below, renaming.met, is_folded=disk.is_folded)
    renaming.sync()
    disk.strays = renaming.strays
    if renaming.count:
        where = "does not look" if disk.is_folded else "looks"
        text = "%d names with capitals have the form of a disk that %s at case now"
        _log.warning(text, renaming.count, where)
    if is_all and not disk.is_folded and not disk.strays:
        owner.says_unfolded()


class _Renaming:
    """One look at all of them."""

    def __init__(self, disk: Disk, *, is_folded: bool) -> None:
        self._disk = disk
        self._is_folded = is_folded
        self._changed: set[str] = set()
        self.strays: set[str] = set()
        """Which could not be renamed."""
        self.count = 0

    def met(self, folder: str, name: str, wanted: str, is_double: bool) -> str | None:
        """The name by which it is there now; None: in quarantine/."""
        path = f"{folder}/{name}"
        try:
            if is_double:
                self._set_aside(path)
                return None
            self._disk.rename(path, f"{folder}/{wanted}")
        except OSError as error:
            _log.error("%s: cannot be renamed to %s: %s", path, wanted, error.strerror)
            self.strays.add(path)
            return name
        self._changed.add(folder)
        self.count += 1
        return wanted

    def _set_aside(self, path: str) -> None:
        """It was copied beside the one that is here: which of them is right, nobody knows."""
        self._disk.make_dir(QUARANTINE_DIR)
        taken = {entry.name for entry in self._disk.list_dir(QUARANTINE_DIR)}
        aside = name_aside(fold(path) if self._is_folded else path, taken)
        self._disk.rename(path, f"{QUARANTINE_DIR}/{aside}")
        self._changed |= {path.rpartition("/")[0], QUARANTINE_DIR}
        _log.error("%s: is there in two forms: moved to %s/%s", path, QUARANTINE_DIR, aside)

    def sync(self) -> None:
        """The new names survive a loss of power: nothing is told of them before."""
        for folder in sorted(self._changed):
            self._disk.sync_dir(folder)
