"""Wrote the files in session_children/, once. They are not written over.

A session whose call is the work of a sub-agent, and that sub-agent's session: what joins them, and
the result that the child gave. A second call of the parent's has no result yet.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from walld.disk.real import RealDisk
from walld.ledger.line import chain_of, header_line, make_line
from walld.ledger.store import LedgerStore

SESSION_CHILDREN = Path(__file__).parent / "session_children"
UID, PARENT, CHILD = 1000, "chat/10", "chat/10/look"
AT_MS = 1_796_000_000_000

SPAWN: dict[str, Any] = {
    "tool": "spawn",
    "arguments": {"task": "look"},
    "side_effect": "external-write",
    "resume_policy": "never-rerun",
}


def joined(session: str, call_id: str) -> dict[str, Any]:
    return {"session": session, "call_id": call_id, "of": {"turn": "t1", "call_id": call_id}}


Told = tuple[str, str, str | None, dict[str, Any]]
"""Id, type, turn, payload."""
OF_PARENT: list[Told] = [
    ("t1", "turn_submitted", "t1", {"message_id": "m1", "content": "look"}),
    ("e2", "tool_intent", "t1", {"call_id": "k1", **SPAWN}),
    ("e3", "child", None, joined(CHILD, "k1")),
    ("e4", "tool_started", "t1", {"call_id": "k1"}),
    (f"{CHILD}:s1:result", "tool_finished", "t1", {"call_id": "k1", "result": "4 degrees"}),
    ("e6", "tool_intent", "t1", {"call_id": "k2", **SPAWN}),
    ("e7", "child", None, joined(CHILD, "k2")),
    ("e8", "tool_started", "t1", {"call_id": "k2"}),
]
OF_CHILD: list[Told] = [
    ("c1", "child_of", None, joined(PARENT, "k1")),
    ("s1", "turn_submitted", "s1", {"message_id": "m1", "content": "look"}),
    ("c3", "message", "s1", {"role": "assistant", "content": "4 degrees"}),
    ("c4", "turn_completed", "s1", {}),
    ("c5", "child_of", None, joined(PARENT, "k2")),
    ("s2", "turn_submitted", "s2", {"message_id": "m2", "content": "look again"}),
    ("c7", "message", "s2", {"role": "assistant", "content": "5 degrees"}),
]
_BESIDE = ("child", "child_of", "tool_finished")


def lines(session: str, told: list[Told]) -> list[bytes]:
    previous, made, leaf = chain_of(header_line(UID, session)), list[bytes](), None
    for seq, (name, kind, turn, payload) in enumerate(told, 1):
        said = json.dumps(payload, separators=(",", ":")).encode()
        is_leaf = kind not in _BESIDE
        line = make_line(
            seq, name, AT_MS + seq, kind, said, previous, parent=leaf, turn=turn, leaf=is_leaf
        )
        made.append(line)
        leaf = name if is_leaf else leaf
        previous = chain_of(line)
    return made


def main() -> None:
    if SESSION_CHILDREN.exists():
        return
    SESSION_CHILDREN.mkdir()
    with RealDisk(str(SESSION_CHILDREN)) as disk:
        store = LedgerStore(disk)
        store.append(UID, PARENT, 1, lines(PARENT, OF_PARENT))
        store.append(UID, CHILD, 1, lines(CHILD, OF_CHILD))


if __name__ == "__main__":
    main()
