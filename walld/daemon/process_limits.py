"""Limits of the daemon's own process: descriptors, no core dumps or tracing, memory given back.

Owns: descriptors, core files, ptrace, the C library's heaps. Refuses: other processes
(`liveness.py`).
"""

from __future__ import annotations

import ctypes
import resource

from walld import limits

__all__ = ["bound_heaps", "keep_private", "peers_max", "trim_heaps"]

_LIBC = ctypes.CDLL(None)

_DESCRIPTORS_MAX = 1 << 20
"""A higher limit, as containers may have, is none: the share of a uid in it would bound nothing."""
_PR_SET_DUMPABLE = 4
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_HEAP_BLOCK_BYTES = limits.MIB
"""A longer block is a mapping of its own. With 128 KiB, malloc's own start, an entry of 250 KB took
a dozen mappings: the kernel's clearing of them was most of its 2 ms of the event loop.
"""
_ARENAS_MAX = 2


def peers_max() -> int:
    """Raise the limit of open descriptors as far as it goes. How many of them peers may have: all
    but a reserve of our own.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    if soft == resource.RLIM_INFINITY:  # -1
        soft = _DESCRIPTORS_MAX
    return max(16, min(soft, _DESCRIPTORS_MAX) - limits.PEERS_RESERVE_FDS)


def keep_private() -> None:
    """Replies must not end up in a core file, nor be read by a process of the same user.

    A core_pattern that is a pipe gets cores whatever RLIMIT_CORE says (core(5)); a process that is
    not dumpable leaves none there either, and cannot be traced (PR_SET_DUMPABLE, prctl(2)).
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def bound_heaps() -> None:
    """Let what long replies and views take go back to the system when they are let go of.

    glibc's malloc, left alone, cuts blocks of up to 32 MiB from its heaps once one as long was
    freed (the "dynamic mmap threshold", mallopt(3)), and has a heap for each thread: they grow
    around what stays, and seldom shrink. Other C libraries have no mallopt, or one that does
    nothing.
    """
    mallopt = getattr(_LIBC, "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _HEAP_BLOCK_BYTES)  # it was raised along with the other
        mallopt(_M_MMAP_THRESHOLD, _HEAP_BLOCK_BYTES)
        mallopt(_M_ARENA_MAX, _ARENAS_MAX)


def trim_heaps() -> None:
    """Give free pages between what stays back to the system: 0.4 ms, and 8 ms for 100 MiB."""
    malloc_trim = getattr(_LIBC, "malloc_trim", None)  # glibc's alone
    if malloc_trim is not None:
        malloc_trim(0)
