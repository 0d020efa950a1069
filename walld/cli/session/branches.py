"""Orders a session's entries for a reader: branch by branch.

Owns: which entry follows which on a page, headings of branches, what stands left of them. Refuses:
what is drawn at an entry (`show.py`), every entry there is (`view.py`).

Where several branches go on from an entry, those that were left come first, each behind a line of
its own; the one that leads to the leaf, else the last, goes straight on. So a session that was
branched a thousand times is no wider than one that was branched once. Bookkeeping on which nothing
hangs that is drawn is no branch: it stands at its entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any, NamedTuple

from walld.cli.page import cell, maps

__all__ = ["Branches", "Step"]


class Step(NamedTuple):
    """An entry, or the heading of a branch. margin: what stands left of its lines."""

    margin: str
    heading: str | None
    entry: str
    summary: str = ""


class Branches:
    """drawn: entries something is drawn at; of the others only what leads to them matters."""

    def __init__(self, tree: Mapping[str, Any], drawn: Set[str]) -> None:
        self._nodes: dict[str, Mapping[str, Any]] = {}
        self._below: dict[str | None, list[str]] = {}
        parents: dict[str, str | None] = {}
        for node in maps(tree.get("nodes")):
            id_, parent = node.get("id"), node.get("parent")
            if not isinstance(id_, str) or id_ in self._nodes:
                continue
            # An entry hangs on an earlier one: where a view says else, it hangs on nothing.
            parents[id_] = parent if isinstance(parent, str) and parent in self._nodes else None
            self._nodes[id_] = node
        alive: set[str | None] = set()
        for id_ in reversed(self._nodes):
            if id_ in drawn or id_ in alive or self._summary(id_):
                alive |= {id_, parents[id_]}
        led_on = {parents[id_] for id_ in alive if id_ is not None}
        self._beside: dict[str | None, list[str]] = {}
        """Bookkeeping to draw, by the entry it stands at."""
        self._leaf = tree.get("leaf")
        self._standing: set[str | None] = set()
        """Entries below which the path to the leaf goes on without anything to draw."""
        for id_, node in self._nodes.items():
            if id_ in alive and node.get("bookkeeping") is True and id_ not in led_on:
                self._beside.setdefault(parents[id_], []).append(id_)
            elif id_ in alive:
                self._below.setdefault(parents[id_], []).append(id_)
            elif node.get("on_path") is True:
                self._standing.add(parents[id_])
        self._names: dict[str, str] = {}
        self._unused: dict[str | None, list[str]] = {}
        self._name(list(self._nodes))
        self.are_several = any(len(self._ways(id_)) > 1 for id_ in (None, *self._below))

    def __contains__(self, entry: str) -> bool:
        return entry in self._nodes

    def walk(self) -> Iterator[Step]:
        """Everything to draw, from the beginning. A stack: a session is deeper than Python's."""
        stack: list[Step | tuple[str | None, str]] = [(None, "")]
        while stack:
            task = stack.pop()
            if isinstance(task, Step):
                yield task
                continue
            id_, margin = task
            if id_ is not None:
                yield Step(margin, None, id_, self._summary(id_))
            for beside in self._beside.get(id_, ()):
                yield Step(margin, None, beside)
            stack += reversed(self._onward(id_, margin))

    def _onward(self, id_: str | None, margin: str) -> list[Step | tuple[str | None, str]]:
        below, ways = self._below.get(id_, []), self._ways(id_)
        if len(ways) < 2:
            named = [self._heading(margin, "", way) for way in below if way in self._names]
            return [*named, *((way, margin) for way in below)]
        stands_here = self._stands(id_)
        onward = [way for way in below if self._nodes[way].get("on_path") is True]
        if not onward and not stands_here:
            onward = below[-1:]
        found: list[Step | tuple[str | None, str]] = []
        for way in below:
            if way not in onward:
                found += [self._heading(margin, "├─ ", way), (way, margin + "│  ")]
        unused = [f"branch {cell(name)}: nothing said yet" for name in self._unused.get(id_, ())]
        if stands_here and not unused:
            unused = ["nothing said yet"]
        if stands_here:
            unused[-1] += ", it stands here"
        for at, text in enumerate(unused):
            last = at == len(unused) - 1 and not onward
            found.append(Step(margin + ("└─ " if last else "├─ "), text, ""))
        for way in onward[:1]:
            found += [self._heading(margin, "└─ ", way), (way, margin)]
        return found

    def _ways(self, id_: str | None) -> list[str]:
        """Each way on from an entry: those with something to draw, and those without."""
        more = ["nothing"] if self._stands(id_) else []
        return [*self._below.get(id_, []), *(self._unused.get(id_) or more)]

    def _stands(self, id_: str | None) -> bool:
        """Whether what is said next stands right behind the entry."""
        return id_ in self._standing or (bool(self._nodes) and self._leaf == id_)

    def _heading(self, margin: str, mark: str, way: str) -> Step:
        name = cell(self._names.get(way))
        here = ", it stands here" if mark and self._nodes[way].get("on_path") is True else ""
        return Step(margin + mark, f"branch {name}".rstrip() + here, way)

    def _summary(self, id_: str) -> str:
        summary = self._nodes[id_].get("summary")
        return summary if isinstance(summary, str) else ""

    def _name(self, order: list[str]) -> None:
        """A named move of the leaf names what grew from its target next."""
        place = {id_: at for at, id_ in enumerate(order)}
        for id_, node in self._nodes.items():
            name, target = node.get("name"), node.get("target")
            if node.get("type") != "leaf" or not isinstance(name, str) or not name:
                continue
            if target is not None and not (isinstance(target, str) and target in place):
                continue
            grown = (way for way in self._below.get(target, ()) if place[way] > place[id_])
            if (way := next(grown, None)) is not None:
                self._names.setdefault(way, name)
            else:
                self._unused.setdefault(target, []).append(name)
