"""Wrote the files in session_facts/, once. It refuses to write over them: they stay for ever.

A call that says where a reply said it, with fields of the application's own, which timed out; and
one of a later turn that names the call whose place it takes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from walld.disk.real import RealDisk
from walld.ledger.line import chain_of, header_line, make_line
from walld.ledger.store import LedgerStore

SESSION_FACTS = Path(__file__).parent / "session_facts"
UID, SESSION = 1000, "chat/11"
AT_MS = 1_795_971_611_123
PLACE = "0123456789abcdefghijklmnop:3"

EDIT: dict[str, Any] = {
    "tool": "edit",
    "side_effect": "workspace-write",
    "resume_policy": "rerun-after-check",
}
EVENTS: list[tuple[str, str, str | None, dict[str, Any]]] = [
    ("turn_submitted", "t1", None, {"message_id": "m1", "content": "edit it"}),
    (
        "tool_intent",
        "t1",
        PLACE,
        {"call_id": "c1", **EDIT, "arguments": {"text": "x"}, "said": PLACE, "cwd": "/src"},
    ),
    ("tool_started", "t1", "e2", {"call_id": "c1", "host": "h1"}),
    (
        "tool_finished",
        "t1",
        "e3",
        {"call_id": "c1", "result": "slow", "failed": True, "outcome": "timeout", "exit_code": -9},
    ),
    ("tool_intent", "t1", None, {"call_id": "c2", **EDIT, "arguments": {"text": "y"}}),
    ("tool_started", "t1", "e5", {"call_id": "c2"}),
    ("turn_interrupted", "t1", None, {"reason": "agent_lost"}),
    ("turn_submitted", "t2", None, {"message_id": "m1", "content": "edit it", "retry_of": "t1"}),
    (
        "tool_intent",
        "t2",
        None,
        {"call_id": "k1", **EDIT, "arguments": {"text": "z"}, "supersedes": "c2"},
    ),
    ("tool_started", "t2", "e9", {"call_id": "k1"}),
]


def lines() -> list[bytes]:
    previous, made = chain_of(header_line(UID, SESSION)), []
    for seq, (kind, turn, cause, payload) in enumerate(EVENTS, 1):
        line = make_line(
            seq,
            f"e{seq}",
            AT_MS + seq,
            kind,
            json.dumps(payload, separators=(",", ":")).encode(),
            previous,
            parent=f"e{seq - 1}" if seq > 1 else None,
            turn=turn,
            cause=cause,
        )
        made.append(line)
        previous = chain_of(line)
    return made


def main() -> None:
    SESSION_FACTS.mkdir()
    with RealDisk(str(SESSION_FACTS)) as disk:
        LedgerStore(disk).append(UID, SESSION, 1, lines())


if __name__ == "__main__":
    main()
