"""Lines of a tree in an order in which each stands behind the one that it hangs on.

Owns: that order, and whether a file names parents at all. Refuses: what hangs where (the modules of
the formats).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

__all__ = ["NO_PARENTS", "Tree"]

NO_PARENTS: Final = "no_parents"
"""The note of an import that took the order of the file for the conversation."""


class Tree:
    """Ids and parents of lines, in the order of the file."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._above: list[int | str | None] = []
        """The place of a parent that stands before, else its name."""
        self._messages = 0
        self._has_parents = False

    @property
    def names_parents(self) -> bool:
        """The file has a tree: of its messages one names a parent, or there is one alone."""
        return self._has_parents or self._messages < 2

    def message(self, *parents: str | None) -> None:
        """One of the messages names these."""
        self._messages += 1
        self._has_parents |= any(one is not None for one in parents)

    def add(self, own: str | None, parent: str | None) -> None:
        """The next line."""
        if own is not None:
            self._places.setdefault(own, len(self._above))
        self._above.append(None if parent is None else self._places.get(parent, parent))

    def place_of(self, own: str) -> int | None:
        """Of the first line of that id."""
        return self._places.get(own)

    def parents_first(self) -> Iterator[int]:
        """Places in the order of the file, but for parents that stand later: those come before.

        A circle stays as it stands: somebody in it has no parent above.
        """
        is_told = bytearray(len(self._above))
        for place in range(len(self._above)):
            waiting: dict[int, None] = {}
            above: int | None = place
            while above is not None and not is_told[above] and above not in waiting:
                waiting[above] = None
                above = self._parent_of(above)
            is_circle = above is not None and not is_told[above]
            for one in (place,) if is_circle and waiting else reversed(waiting):
                is_told[one] = True
                yield one

    def _parent_of(self, place: int) -> int | None:
        above = self._above[place]
        return self._places.get(above) if isinstance(above, str) else above
