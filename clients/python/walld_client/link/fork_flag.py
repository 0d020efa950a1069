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

try:
    import ctypes
except ImportError:  # a Python that was built without libffi
    ctypes = None  # type: ignore[assignment]

__all__ = ["is_owner", "own"]

_MADV_WIPEONFORK = 18
"""`mmap` has no name for it."""


def _wiped_on_fork() -> ctypes.c_bool | None:
    """False in memory that is zero in a child; None where the kernel has no such thing."""
    if ctypes is None or sys.platform != "linux":
        return None
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        page.madvise(_MADV_WIPEONFORK)
    except (OSError, ValueError):
        return None
    return ctypes.c_bool.from_buffer(page)


_flag = _wiped_on_fork()
is_owner: object = True if _flag is None else _flag
"""True as a condition in the process that owns the links; false in a child until it calls `own`.

The object is the same for ever: `from fork_flag import is_owner` sees every change.
"""


def own() -> None:
    """Called in a child once nothing of the links is the parent's."""
    if _flag is not None:
        _flag.value = True


own()
