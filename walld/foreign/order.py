"""Lines of a tree in an order in which each stands behind the one that it hangs on.

Owns: that order, and whether a file names parents at all. Refuses: what hangs where (the modules of
the formats).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from walld.foreign.lines import Line, text_or_none

__all__ = ["NO_PARENTS", "names_parents", "parents_first"]

NO_PARENTS: Final = "no_parents"
"""The note of an import that took the order of the file for the conversation."""


def names_parents(values: Iterable[dict[str, Any]], *names: str) -> bool:
    """Whether the file has a tree: of its messages one names a parent, or there is one alone."""
    count = 0
    for value in values:
        count += 1
        if any(text_or_none(value.get(name)) is not None for name in names):
            return True
    return count < 2


def parents_first(lines: Sequence[Line], id_name: str, parent_name: str) -> list[Line]:
    """The lines in the order of the file, but for parents that stand later: those come before.

    A circle stays as it stands: somebody in it has no parent above.
    """
    places: dict[str, int] = {}
    for place, line in enumerate(lines):
        own = None if line.value is None else text_or_none(line.value.get(id_name))
        if own is not None:
            places.setdefault(own, place)

    def parent_of(place: int) -> int | None:
        value = lines[place].value
        named = None if value is None else text_or_none(value.get(parent_name))
        return None if named is None else places.get(named)

    told: list[Line] = []
    is_told = [False] * len(lines)
    for place in range(len(lines)):
        waiting: dict[int, None] = {}
        above: int | None = place
        while above is not None and not is_told[above] and above not in waiting:
            waiting[above] = None
            above = parent_of(above)
        is_circle = above is not None and not is_told[above]
        for one in (place,) if is_circle and waiting else reversed(waiting):
            is_told[one] = True
            told.append(lines[one])
    return told
