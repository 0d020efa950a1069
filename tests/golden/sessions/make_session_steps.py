"""Wrote the files in session_steps/, once. They are not written over.

A reply's message that has what its program said of the step (`_wal_info`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from walld.disk.real import RealDisk
from walld.ledger.line import chain_of, header_line, make_line
from walld.ledger.store import LedgerStore

SESSION_STEPS = Path(__file__).parent / "session_steps"
UID, SESSION = 1000, "chat/12"
AT_MS = 1_796_028_000_000

PLACE: dict[str, Any] = {"_wal_stream": "s1", "_turn": "t1"}
EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("turn_submitted", {"message_id": "m1", "content": "look"}),
    ("message", {"role": "assistant", "content": "I look.", "_wal_seq": 1, **PLACE}),
    (
        "message",
        {
            "role": "assistant",
            "content": "There are 4.",
            "_wal_seq": 4,
            **PLACE,
            "_wal_info": {"model": "m-2", "tries": [1, None, 2.5]},
        },
    ),
    ("turn_completed", {}),
]


def lines() -> list[bytes]:
    previous, made = chain_of(header_line(UID, SESSION)), list[bytes]()
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
    if SESSION_STEPS.exists():
        return
    SESSION_STEPS.mkdir()
    with RealDisk(str(SESSION_STEPS)) as disk:
        LedgerStore(disk).append(UID, SESSION, 1, lines())


if __name__ == "__main__":
    main()
