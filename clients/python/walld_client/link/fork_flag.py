"""A flag that the kernel clears in the child of any fork.

Owns: the page of memory it stands in. Refuses: what is done about a fork (`process.py`).

`os.register_at_fork` speaks of forks that Python makes. uWSGI, mod_wsgi and whatever else forks in
C run none of its hooks, and a token should not pay for a system call to find out. The kernel gives
the child of any fork a zero page here (MADV_WIPEONFORK, Linux 4.14): to read it is a load from
memory.
"""

from __future__ import annotations

import mmap
import sys

__all__ = ["is_owner", "own"]

_MADV_WIPEONFORK = 18
"""`mmap` has no name for it."""


def _wiped_on_fork() -> mmap.mmap | None:
    """None where the kernel has no such thing."""
    if sys.platform != "linux":
        return None
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        page.madvise(_MADV_WIPEONFORK)
    except (OSError, ValueError):
        return None
    return page


_page = _wiped_on_fork()
is_owner: mmap.mmap | bytes = b"\1" if _page is None else _page
"""`is_owner[0]` is 1 in the process that owns the links, 0 in a child until it calls `own`.

The object is the same for ever: `from fork_flag import is_owner` sees every change.
"""


def own() -> None:
    """Called in a child once nothing of the links is the parent's."""
    if _page is not None:
        _page[0] = 1


own()
