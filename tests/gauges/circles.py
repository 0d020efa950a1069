"""Circles of imports: modules of which each reaches each other one.

A graph maps a module to those it imports, whether for types only, within a function or at its top.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

__all__ = ["circles"]


def circles(graph: Mapping[str, Set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module, large ones first."""
    reached = {module: _reached(graph, module) for module in graph}
    found = {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in graph
        if module in reached[module]
    }
    return sorted((sorted(circle) for circle in found), key=lambda circle: (-len(circle), circle))


def _reached(graph: Mapping[str, Set[str]], start: str) -> set[str]:
    """All that `start` leads to; itself only where something leads back."""
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += graph[module]
    return found
