"""Wrote the files in session_said/, once. They are not written over.

What an application says of its session beside the conversation: where it runs, what waits to be
said, how far a call is, its state, what was verified; and an entry that it declares a message.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from walld.disk.real import RealDisk
from walld.ledger.line import chain_of, header_line, make_line
from walld.ledger.store import LedgerStore

SESSION_SAID = Path(__file__).parent / "session_said"
UID, SESSION = 1000, "chat/11"
AT_MS = 1_796_000_000_000

RISK: dict[str, Any] = {"side_effect": "read", "resume_policy": "rerun-after-check"}
EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("session_info", {"cwd": "/work", "version": "3.1"}),
    ("turn_submitted", {"message_id": "m1", "content": "look"}),
    ("queued", {"content": "then deploy", "kind": "input", "message_id": "m2"}),
    ("queued", {"content": "quickly", "kind": "steering"}),
    ("dequeued", {"target": "e4"}),
    ("tool_intent", {"call_id": "c1", "tool": "look", **RISK}),
    ("tool_started", {"call_id": "c1"}),
    ("tool_progress", {"call_id": "c1", "done": 1, "of": 2}),
    ("app.note", {"_message": {"role": "user", "content": "it rains"}, "by": "a sensor"}),
    ("compaction_failed", {"reason": "the model did not answer"}),
    ("verification", {"name": "tests", "passed": False}),
    ("verification", {"name": "tests", "passed": True}),
    ("lifecycle", {"state": "paused", "reason": "waits for Anna"}),
]
_OF_PATH = ("turn_submitted", "tool_intent", "tool_started", "app.note")
_OF_TURN = ("turn_submitted", "tool_intent", "tool_started", "tool_progress", "compaction_failed")


def lines() -> list[bytes]:
    previous, made, leaf = chain_of(header_line(UID, SESSION)), list[bytes](), None
    for seq, (kind, payload) in enumerate(EVENTS, 1):
        said = json.dumps(payload, separators=(",", ":")).encode()
        turn, is_leaf = "t1" if kind in _OF_TURN else None, kind in _OF_PATH
        name = f"e{seq}"
        line = make_line(
            seq, name, AT_MS + seq, kind, said, previous, parent=leaf, turn=turn, leaf=is_leaf
        )
        made.append(line)
        leaf = name if is_leaf else leaf
        previous = chain_of(line)
    return made


def main() -> None:
    if SESSION_SAID.exists():
        return
    SESSION_SAID.mkdir()
    with RealDisk(str(SESSION_SAID)) as disk:
        LedgerStore(disk).append(UID, SESSION, 1, lines())


if __name__ == "__main__":
    main()
