"""Wrote the files in session_processes/, once. It refuses to write over them: they stay for ever.

Three calls that started: in a process that is named whole, in one of which the start is not known,
and in none that is named.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from walld.disk.real import RealDisk
from walld.ledger.line import chain_of, header_line, make_line
from walld.ledger.store import LedgerStore

SESSION_PROCESSES = Path(__file__).parent / "session_processes"
UID, SESSION = 1000, "chat/10"
AT_MS = 1_796_053_611_123
BOOT, NAMESPACE = "5ea5f0a4-6f4c-4d8e-9f0a-0c5f5f0c2f11", 4_026_531_836

RISK: dict[str, Any] = {"side_effect": "external-write", "resume_policy": "rerun-after-check"}
NAMED: dict[str, Any] = {"pid": 4711, "start": 1_234_567, "boot": BOOT, "namespace": NAMESPACE}
EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("turn_submitted", {"message_id": "m1", "content": "build it"}),
    ("tool_intent", {"call_id": "c1", "tool": "make", "arguments": {"n": 1}, **RISK}),
    ("tool_started", {"call_id": "c1", **NAMED}),
    ("tool_intent", {"call_id": "c2", "tool": "make", "arguments": {"n": 2}, **RISK}),
    ("tool_started", {"call_id": "c2", "pid": 4712}),
    ("tool_intent", {"call_id": "c3", "tool": "make", "arguments": {"n": 3}, **RISK}),
    ("tool_started", {"call_id": "c3"}),
]


def lines() -> list[bytes]:
    previous, made = chain_of(header_line(UID, SESSION)), []
    for seq, (kind, payload) in enumerate(EVENTS, 1):
        said = json.dumps(payload, separators=(",", ":")).encode()
        parent = f"e{seq - 1}" if seq > 1 else None
        line = make_line(
            seq, f"e{seq}", AT_MS + seq, kind, said, previous, parent=parent, turn="t1"
        )
        made.append(line)
        previous = chain_of(line)
    return made


def main() -> None:
    SESSION_PROCESSES.mkdir()
    with RealDisk(str(SESSION_PROCESSES)) as disk:
        LedgerStore(disk).append(UID, SESSION, 1, lines())


if __name__ == "__main__":
    main()
