"""Tool calls of a reply that have no result yet.

Owns: which of them a result without a call id belongs to. Refuses: what a call or a result says.
"""

from __future__ import annotations

__all__ = ["OpenCalls"]

_OPEN_CALLS_MAX = 1024
"""The oldest are forgotten beyond that: a result of theirs must name its call."""


class OpenCalls:
    """Names by call id, in the order of their calls."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def add(self, call_id: str, name: str) -> None:
        """A call, or an update of one."""
        self._names[call_id] = name
        if len(self._names) > _OPEN_CALLS_MAX:
            del self._names[next(iter(self._names))]

    def close(self, call_id: str | None) -> str | None:
        """It has its result; the name it was called by."""
        return None if call_id is None else self._names.pop(call_id, None)

    def newest(self, name: str | None) -> str | None:
        """The newest open call of that name; without a name the one open call, if it is one."""
        calls = [c for c, n in self._names.items() if name is None or n == name]
        if name is None and len(calls) != 1:
            return None
        return calls[-1] if calls else None
