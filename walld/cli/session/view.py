"""A session's tree, as text for a person.

Owns: how entries and their branches are drawn. Refuses: asking for them, printing them, what was
said in full (`show.py`), the width of the terminal (an argument).

Never raises for a field that is missing or of another type: a view shows what there is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from walld.cli.page import cell, columns, cut, maps

__all__ = ["render_tree"]

_NAME_COLUMNS_MIN: Final = 24
"""Of a role, a type or a label, which an application may make as long as it likes."""
_TEXT_COLUMNS_MIN: Final = 8
"""Of an entry in the tree; a shorter beginning says nothing."""


def render_tree(tree: dict[str, Any], *, width: int) -> str:
    """One line an entry, a branch where an entry has several below it; the leaf is marked.

    A line of entries without a branch goes straight down: only branches are indented, so that a
    session of thousands of entries stays readable. Bookkeeping on which nothing hangs is in line.
    Where a line is too long its text is cut, never the id: that is what `fork --at` and
    `messages --branch` take.
    """
    nodes = {_id(node): node for node in maps(tree.get("nodes"))}
    below: dict[str | None, list[str]] = {}
    for id_, node in nodes.items():
        parent = node.get("parent")
        known = isinstance(parent, str) and parent in nodes and parent != id_
        below.setdefault(parent if known else None, []).append(id_)
    leaf = tree.get("leaf")
    lines = []
    drawn: set[str] = set()
    # A stack: a session is deeper than Python's. (entry, its branch mark, indent of what is below)
    stack = _onward(nodes, below, None, "")
    while stack:
        id_, mark, indent = stack.pop()
        if id_ in drawn:
            continue
        drawn.add(id_)
        lines.append(mark + _node(nodes[id_], id_ == leaf, width - len(mark)))
        stack += _onward(nodes, below, id_, indent)
    lost = [_node(nodes[id_], id_ == leaf, width) for id_ in nodes if id_ not in drawn]
    if lost:
        lines += ["entries that hang on each other:", *lost]
    if leaf is None:
        lines.append("the leaf is before the first entry" if lines else "no entries")
    return "\n".join(lines)


def _onward(
    nodes: Mapping[str, Mapping[str, Any]],
    below: Mapping[str | None, list[str]],
    id_: str | None,
    indent: str,
) -> list[tuple[str, str, str]]:
    """The entries below one, last first, as a stack takes them."""
    found, ways = [], []
    for child in below.get(id_, ()):
        if nodes[child].get("bookkeeping") is True and not below.get(child):
            found.append((child, indent, indent))
        else:
            ways.append(child)
    for at, way in enumerate(ways):
        mark, more = ("└─ ", "   ") if at == len(ways) - 1 else ("├─ ", "│  ")
        if len(ways) == 1:
            mark = more = ""
        found.append((way, indent + mark, indent + more))
    return found[::-1]


def _node(node: Mapping[str, Any], is_leaf: bool, width: int) -> str:
    type_ = cell(node.get("type"))
    begin = cell(node.get("role")) if type_ == "message" and node.get("role") else type_
    begin = cut(begin, max(width // 3, _NAME_COLUMNS_MIN))
    label = cut(cell(node.get("label")), max(width // 2, _NAME_COLUMNS_MIN))
    end = [f"[{label}]"] if label else []
    end.append(f"({cell(node.get('id'))})")
    if is_leaf:
        end.append("<- leaf")
    left = width - columns(" ".join((begin, *end))) - 1
    text = cell(_in_one_line(node.get("text")))
    words = [begin, cut(text, left) if left >= _TEXT_COLUMNS_MIN else "", *end]
    return " ".join(word for word in words if word)


def _in_one_line(text: object) -> object:
    return " ".join(text.split()) if isinstance(text, str) else text


def _id(node: Mapping[str, Any]) -> str:
    id_ = node.get("id")
    return id_ if isinstance(id_, str) else json.dumps(id_)
