"""Wrote the files in session_calls/, once. It refuses to write over them: they stay for ever.

A turn that promised a journal, and a reply's message whose call says where it stood and its risk.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from walld.disk.real import RealDisk
from walld.ledger.line import chain_of, header_line, make_line
from walld.ledger.store import LedgerStore

SESSION_CALLS = Path(__file__).parent / "session_calls"
UID, SESSION = 1000, "chat/8"
AT_MS = 1_795_953_611_123

CALL: dict[str, Any] = {
    "id": "c1",
    "name": "look",
    "arguments": "{}",
    "arguments_complete": True,
    "outcome": "done",
    "result": "4 files",
    "seq": 3,
    "at": 7,
    "side_effect": "read",
    "resume_policy": "replay-from-event",
}
EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("turn_submitted", {"message_id": "m1", "content": "look", "calls": "journal"}),
    (
        "message",
        {
            "role": "assistant",
            "content": "I look.There are 4.",
            "tool_calls": [CALL],
            "_wal_stream": "s1",
            "_wal_seq": 1,
            "_turn": "t1",
        },
    ),
    ("turn_completed", {}),
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
    SESSION_CALLS.mkdir()
    with RealDisk(str(SESSION_CALLS)) as disk:
        LedgerStore(disk).append(UID, SESSION, 1, lines())


if __name__ == "__main__":
    main()
