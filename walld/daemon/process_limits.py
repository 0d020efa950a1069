"""Limits of the daemon's own process: open descriptors, and no core dumps or tracing.

Owns: descriptors, core files, ptrace. Refuses: other processes (`liveness.py`).
"""

from __future__ import annotations

import ctypes
import resource

from walld import limits

__all__ = ["keep_private", "peers_max"]

_DESCRIPTORS_MAX = 1 << 20
"""A higher limit, as containers may have, is none: the share of a uid in it would bound nothing."""
_PR_SET_DUMPABLE = 4


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
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
