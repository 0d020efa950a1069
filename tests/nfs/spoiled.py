"""Bugs to plant in the guest's copy of walld: a run that does not see them proves nothing.

Owns: each bug, as one replacement in one file, and the scenario that must fail with it
(`python -m nfs --spoil NAME`). Refuses: planting it (`tree.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["SPOILED", "Bug"]


class Bug(NamedTuple):
    """old stands in `path` exactly once. breaks: scenarios that must fail."""

    breaks: str
    path: str
    old: str
    new: str


SPOILED: Final[Mapping[str, Bug]] = {
    "two-writes": Bug(
        "quiet",
        "walld/wal/segment_files.py",
        "        done = file.write_at(data, offset)\n",
        "        done = file.write_at(data[: len(data) // 2], offset)\n        file.sync()\n",
    ),
    "no-sync": Bug(
        "outage",
        "walld/wal/segment_files.py",
        "            file.sync()\n            if segment_id in self._unnamed:\n",
        "            continue\n            if segment_id in self._unnamed:\n",
    ),
    "sync-believed": Bug(
        "full",
        "walld/disk/real.py",
        "            self._poisoned = True\n            raise\n",
        "            pass\n",
    ),
    "no-lock": Bug(
        "second",
        "walld/disk/lock.py",
        "        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "        fcntl.flock(fd, fcntl.LOCK_UN)\n",
    ),
    "no-fence": Bug(
        "takeover",
        "walld/daemon/storage/writer.py",
        "        if not self._owner.is_owner():\n",
        "        if False:\n",
    ),
    "not-looked": Bug(
        "removed",
        "walld/wal/segment_files.py",
        "            if not file.same_file():\n",
        "            if False:\n",
    ),
    "not-written": Bug(
        "killed",
        "walld/wal/segment_files.py",
        "        self._write_all(self._files[segment_id], data, offset)\n",
        "        assert data\n",
    ),
    "soft-is-hard": Bug(
        "selftest",
        "walld/cli/selftest/mounts.py",
        '    if options & {"soft", "softerr"}:\n',
        "    if not options:\n",
    ),
}
