"""The process that a call runs in, where its program named one, as a turn names its owner.

Owns: what a `tool_started` says of it, and of which ones nobody said the end. Refuses: looking
whether it is there (the daemon), what follows from that (`call_rules.py`).

Invariant: what was named and cannot be compared, be it malformed, is never taken for gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from walld.sessions.state.call_account import CallAccount
from walld.sessions.state.events import Event

__all__ = ["NamedProcess", "process_of", "processes_of", "seen", "start_of"]

_ENDS = ("tool_finished", "observation")


class NamedProcess(NamedTuple):
    """A pid, and what tells it from another that gets it later: its start in ticks, the boot, the
    namespace (its inode) that the pid is of. Each 0, or "", where that is not known.
    """

    pid: int
    start: int
    boot: str
    namespace: int


def process_of(payload: Mapping[str, Any]) -> NamedProcess | None:
    """What a start names; None where it names none."""
    if payload.get("pid") is None:
        return None
    pid, start, namespace = (_number(payload.get(name)) for name in ("pid", "start", "namespace"))
    boot = payload.get("boot")
    return NamedProcess(pid, start, boot if isinstance(boot, str) else "", namespace)


def start_of(call: CallAccount) -> Event | None:
    """Its newest start."""
    starts = [one for one in call.words if one.type == "tool_started"]
    return starts[-1] if starts else None


def seen(call: CallAccount, processes: Mapping[NamedProcess, str]) -> str:
    """Of its newest start, gone | running | unseen: gone where that named no process."""
    start = start_of(call)
    named = None if start is None else process_of(start.payload)
    return "gone" if named is None else processes.get(named, "unseen")


def processes_of(events: Sequence[Event]) -> list[NamedProcess]:
    """Those of calls that started and did not end, as far as ids say: the rest need no look."""
    found: dict[tuple[str | None, object], NamedProcess] = {}
    for event in events:
        key = event.turn, event.payload.get("call_id")
        if event.type in _ENDS:
            found.pop(key, None)
        elif event.type == "tool_started" and (named := process_of(event.payload)) is not None:
            found[key] = named
    return list(dict.fromkeys(found.values()))


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
