"""What an NFS mount has cost: /proc/self/mountstats, before and after.

Owns: reading that file's lines of one mount and taking two readings apart. Refuses: judging the
figures (`quiet.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = ["Operation", "difference", "parse", "reading"]


class Operation(NamedTuple):
    """One kind of RPC: how many were asked for, sent (again counts), and their bytes."""

    asked: int
    sent: int
    bytes_sent: int
    bytes_received: int


_NONE = Operation(0, 0, 0, 0)


def reading(mount: Path) -> dict[str, Operation]:
    """Of a mount of this machine, now."""
    return parse(Path("/proc/self/mountstats").read_text(), str(mount))


def parse(text: str, mount: str) -> dict[str, Operation]:
    """Operations of the mount at that place. KeyError where there is none."""
    found: dict[str, Operation] | None = None
    is_mine = is_table = False
    for line in text.splitlines():
        if line.startswith("device "):
            is_mine, is_table = f" mounted on {mount} with fstype nfs" in line, False
            found = {} if is_mine else found  # of two on one place the later one covers the other
        elif is_mine and line.strip() == "per-op statistics":
            is_table = True
        elif is_mine and is_table and found is not None:
            name, colon, numbers = line.strip().partition(": ")
            values = numbers.split()
            if colon and len(values) >= 5:
                asked, sent, _timeouts, out, back = (int(value) for value in values[:5])
                found[name] = Operation(asked, sent, out, back)
    if found is None:
        raise KeyError(mount)
    return found


def difference(
    before: Mapping[str, Operation], after: Mapping[str, Operation]
) -> dict[str, Operation]:
    """What came between the two; kinds of which there was none are left out."""
    between = {
        name: Operation(*(new - old for new, old in zip(now, before.get(name, _NONE), strict=True)))
        for name, now in after.items()
    }
    return {name: one for name, one in between.items() if one.asked}
