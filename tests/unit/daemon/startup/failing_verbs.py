"""Each verb of a disk that a start uses, failing when told to.

Owns: counting the verbs of a real disk and making one of them, or all that are like it, fail.
Refuses: a daemon (`virtual_daemon.py`), what has to come of it.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from walld.disk.real import RealDisk, RealFile

__all__ = ["Verbs"]

_OF_DISK = (
    "create open reopen unlink rename link make_one_dir remove_dir sync_dir list_dir free_bytes"
)
_OF_FILE = "write_at read_at size truncate sync same_file"


class Verbs:
    """Every verb that is carried out from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[tuple[str, str]] = []
        """(verb, path) of each."""
        self.fails_at = -1
        self.lasts = False
        """All that are like it fail from then on."""
        self.number = 0
        self._stuck: tuple[str, str] | None = None
        for owner, names in ((RealDisk, _OF_DISK), (RealFile, _OF_FILE)):
            for name in names.split():
                monkeypatch.setattr(owner, name, self._watched(name, getattr(owner, name)))

    def _watched(self, name: str, whole: Any) -> Any:
        def verb(me: Any, *given: Any) -> Any:
            path = me.path if isinstance(me, RealFile) else (str(given[0]) if given else "")
            self.told.append((name, path))
            if len(self.told) - 1 == self.fails_at and self.lasts:
                self._stuck = (name, path)
            if len(self.told) - 1 == self.fails_at or (name, path) == self._stuck:
                if name == "sync":
                    me._poisoned = True
                raise OSError(self.number, os.strerror(self.number), path)
            return whole(me, *given)

        return verb

    def fail(self, at: int, number: int, *, lasts: bool = False) -> None:
        """The verb with that index, counted from now."""
        self.told.clear()
        self.fails_at, self.number, self.lasts, self._stuck = at, number, lasts, None
