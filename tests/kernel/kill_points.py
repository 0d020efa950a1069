"""`python -m kernel.kill_points`: the kernel kills the daemon as it enters a call, here and there.

    --count N    kills
    --seed S     of the first

Each call that changes the disk, at each of the times a history makes it, in turn. As
`crash/processes/test_killed_at_each_call.py` does it for a dozen of them with agents that do what a
test writes, here with agents under load, and everything compared.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from random import Random
from typing import Final

from .traced import Fault, command

__all__ = ["main", "points"]

_CALLS: Final = {
    "pwrite64": 30,
    "fdatasync": 14,
    "fsync": 16,
    "openat": 40,
    "unlinkat": 8,
    "renameat": 3,
    "mkdirat": 5,
    "fchmod": 5,
    "close": 40,
}
"""How many of each a history makes, about, in each of its threads."""


def points() -> list[Fault]:
    """All of them, in an order in which any number is a fair share."""
    found = [
        Fault((f"{call}:signal=KILL:when={at}",))
        for call, times in _CALLS.items()
        for at in range(1, times + 1)
    ]
    Random("points").shuffle(found)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    return command("kill_points", points(), arguments, 600)


if __name__ == "__main__":
    sys.exit(main())
