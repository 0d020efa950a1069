"""The tree of a session's entries as a view.

Owns: the shape of nodes, and how far each branch that has a name goes. Refuses: what hangs on what
(`path.py`), drawing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from walld.sessions.state.events import Event, check_payload
from walld.sessions.state.labels import labels_of
from walld.sessions.state.path import NO_PLACE, path, places

__all__ = ["branches", "tree"]

_MARKS: Final = ("label", "leaf")
_BESIDE: Final = (
    *("model_call", "tool_settled", "child", "child_of", "reply_expired"),
    *("queued", "dequeued", "tool_progress", "session_info", "compaction_failed"),
)
"""Bookkeeping where they do not become the leaf: else they are an application's own."""
TEXT_CHARS: Final = 120
"""Of an entry's text in its node."""
_WORDS: Final = (
    *("model", "key", "tool", "verdict", "state", "reason", "call_id"),
    *("summary", "name", "target", "session", "media_type"),
)
"""Fields of payloads that say in a few words what an entry without a text is about."""


def tree(events: Sequence[Event]) -> dict[str, Any]:
    """Every entry as a node, in order of seq: leaf, roots, nodes, branches that have a name.

    A node says its children, whether it stands on the path to the leaf, its label and the
    summaries of branches that name it. bookkeeping: it begins no branch (a label, a move, what is
    left of a reply, what was settled). tips: the other entries on which none of the others hangs.
    """
    found = places(events)
    labels = labels_of(events)
    on_path = set(path(found))
    children: list[list[str]] = [[] for _ in events]
    roots: list[str] = []
    grown: set[int] = set()
    summaries: dict[str, list[str]] = {}
    names: dict[str, str | None] = {}
    for place, event in enumerate(events):
        parent = found.parents[place]
        (roots if parent == NO_PLACE else children[parent]).append(event.id)
        if not _is_bookkeeping(event):
            grown.add(parent)
        sound = check_payload(event.type, event.payload) is None
        if event.type == "branch_summary" and sound:
            summaries.setdefault(event.payload["target"], []).append(event.payload["text"])
        elif event.type == "leaf" and sound and event.payload.get("name"):
            names[event.payload["name"]] = event.payload["target"]
    nodes = []
    for place, event in enumerate(events):
        parent = found.parents[place]
        node = _node(event) | {
            "parent": None if parent == NO_PLACE else events[parent].id,
            "children": children[place],
            "on_path": place in on_path,
            "leaf": place == found.leaf,
        }
        if event.id in labels:
            node["label"] = labels[event.id]
        if event.type in ("leaf", "branch_summary"):
            node |= _of_branch(event)
        if _is_bookkeeping(event):
            node["bookkeeping"] = True
        if event.id in summaries:
            node["summaries"] = summaries[event.id]
        nodes.append(node)
    return {
        "leaf": None if found.leaf == NO_PLACE else events[found.leaf].id,
        "roots": roots,
        "tips": [
            event.id
            for place, event in enumerate(events)
            if place not in grown and not _is_bookkeeping(event)
        ],
        "names": names,
        "branches": branches(events),
        "nodes": nodes,
    }


def branches(events: Sequence[Event]) -> dict[str, dict[str, str | None]]:
    """Each branch that has a name: `at`, the entry that it began at, and `leaf`, its last; None
    before the first entry.

    What becomes the leaf behind a branch's last entry is its last from there on. A move of the leaf
    with a name begins that branch, or, to its last entry, goes on with it; one without a name goes
    on with the branch whose last entry it leads to, if there is one.
    """
    found: dict[str, dict[str, str | None]] = {}
    last_of: dict[str | None, str] = {}
    known = set[str]()
    on: str | None = None
    for event in events:
        known.add(event.id)
        if event.type == "leaf":
            if check_payload(event.type, event.payload) is not None:
                continue
            target, name = event.payload["target"], event.payload.get("name")
            if target is not None and target not in known:
                continue
            if name is None:
                on = last_of.get(target)
                continue
            if name not in found or found[name]["leaf"] != target:
                found[name] = {"at": target, "leaf": target}
            on = last_of[target] = name
        elif event.leaf and event.type != "label":
            if on is None or found[on]["leaf"] != event.parent:
                on = last_of.get(event.parent)
            if on is not None:
                last_of.pop(event.parent, None)
                found[on]["leaf"] = event.id
                last_of[event.id] = on
    return found


def _is_bookkeeping(event: Event) -> bool:
    return event.type in _MARKS or (event.type in _BESIDE and not event.leaf)


def _node(event: Event) -> dict[str, Any]:
    node: dict[str, Any] = {
        "id": event.id,
        "seq": event.seq,
        "at_ms": event.at_ms,
        "type": event.type,
    }
    if event.turn is not None:
        node["turn"] = event.turn
    if event.type in ("message", "turn_submitted"):
        node["role"] = event.payload.get("role", "user")
    text = _text(event)
    if text:
        node["text"] = text if len(text) <= TEXT_CHARS else text[: TEXT_CHARS - 1] + "…"
    return node


def _of_branch(event: Event) -> dict[str, Any]:
    """Where a move of the leaf leads and what the branch is called; what one that was left says."""
    payload = event.payload
    if check_payload(event.type, payload) is not None:
        return {}
    if event.type == "branch_summary":
        return {"summary": payload["text"]}
    name = payload.get("name")
    return {"target": payload["target"]} | ({} if name is None else {"name": name})


def _text(event: Event) -> str:
    """What it says in a few words: text, or the names of what it calls; what else it sets."""
    payload = event.payload
    content = payload.get("content", payload.get("text"))
    if isinstance(content, str):
        return content
    blocks = [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []
    told = [one["text"] for one in blocks if isinstance(one.get("text"), str)]
    if told:
        return str(told[0])
    listed = payload.get("tool_calls")
    calls = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else blocks
    names = []
    for call in calls:
        function = call.get("function")
        names.append((function if isinstance(function, dict) else call).get("name"))
    if called := ", ".join(name for name in names if isinstance(name, str)):
        return f"-> {called}"
    words = [payload[name] for name in _WORDS if isinstance(payload.get(name), str)]
    if isinstance(payload.get("n"), int):
        words.append(str(payload["n"]))
    return " ".join(words)
