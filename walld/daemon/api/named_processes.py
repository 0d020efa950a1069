"""Looks whether processes are there that starts of calls name.

Owns: which of them can be looked for from here. Refuses: `/proc` (`transport/credentials.py`), what
follows for a call (`sessions/gate/processes.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walld.daemon.transport import credentials

if TYPE_CHECKING:
    from collections.abc import Iterable

    from walld.sessions.gate.processes import NamedProcess

__all__ = ["seen_now"]


def seen_now(named: Iterable[NamedProcess]) -> dict[NamedProcess, str]:
    """Of those that are of this boot and namespace: running, gone or unseen. For a thread."""
    here = credentials.boot_id(), credentials.pid_namespace()
    return {
        one: credentials.process_state(one.pid, one.start)
        for one in named
        if all(here) and one.pid and (one.boot, one.namespace) == here
    }
