"""walld on a disk whose every sync takes 5 ms longer: `python -m bench.slow_sync serve ...`.

Owns: the delay, for the daemon and for whoever is compared with it. Refuses: all else; the command
line is walld's.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from walld.cli import main

__all__ = ["SYNC_SECONDS", "slowed"]

SYNC_SECONDS = 0.005


def slowed(sync: Callable[[int], None]) -> Callable[[int], None]:
    """A sync that returns 5 ms later."""

    def slow(fd: int) -> None:
        sync(fd)
        time.sleep(SYNC_SECONDS)

    return slow


if __name__ == "__main__":
    os.fsync, os.fdatasync = slowed(os.fsync), slowed(os.fdatasync)
    sys.exit(main())
