"""Detects values that contain themselves.

Owns: which parts of a value are taken apart, and how often. Refuses: what becomes of them.

What comes twice is sent twice, as any encoder does. But a value with a loop has no end, and cut at
some depth it is still 2**depth parts where it comes back in two ways, as nodes do that name their
parent: the call would never return. So of such a value each part is taken apart once; where it
comes again its class stands. Tuples are taken apart again: no loop is of them alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["CycleFound", "Trail", "taken_apart"]

_T = TypeVar("_T")


class CycleFound(Exception):
    """A part stands within itself."""


class Trail:
    """The parts that lead to the one at hand; once: all that were met."""

    __slots__ = ("_met", "_once")

    def __init__(self, once: bool) -> None:
        self._once = once
        self._met: dict[int, object] = {}
        """With the value: its id is another's once it is gone."""

    def enters(self, value: object) -> bool:
        """Is it to be taken apart? Then `leaves` follows. Raises CycleFound."""
        if id(value) not in self._met:
            self._met[id(value)] = value
            return True
        if not self._once:
            raise CycleFound
        return isinstance(value, (tuple, frozenset))

    def leaves(self, value: object) -> None:
        """It is taken apart."""
        if not self._once:
            del self._met[id(value)]


def taken_apart(take: Callable[[Trail], _T]) -> _T:
    """What `take` makes of a value, whether that has a loop or not."""
    try:
        return take(Trail(once=False))
    except CycleFound:
        return take(Trail(once=True))
