"""Wrote the files in session_answers/, once. They are not written over.

What is left of replies that were an answer, and went to their program's own store: one of whose
model something is known, and one of whose model nothing is; and of one with a call, and when that
was said.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from walld.disk.real import RealDisk
from walld.ledger.line import chain_of, header_line, make_line
from walld.ledger.store import LedgerStore

SESSION_ANSWERS = Path(__file__).parent / "session_answers"
UID, SESSION = 1000, "chat/13"
AT_MS = 1_796_040_000_000

STARTED: dict[str, Any] = {"started_at_ms": AT_MS}
EVENTS: list[tuple[str, str, dict[str, Any]]] = [
    ("turn_submitted", "t1", {"message_id": "m1", "content": "look"}),
    ("turn_assistant_started", "t1", {"stream_id": "s1"}),
    ("turn_interrupted", "t1", {"reason": "agent_lost", "by": "daemon"}),
    (
        "model_call",
        "t1",
        {"stream": "s1", "step": 1, **STARTED, "status": "complete", "calls": [], "answer": True},
    ),
    ("turn_submitted", "t2", {"message_id": "m2", "content": "again"}),
    ("turn_assistant_started", "t2", {"stream_id": "s2"}),
    ("turn_interrupted", "t2", {"reason": "agent_lost", "by": "daemon"}),
    (
        "model_call",
        "t2",
        {
            "stream": "s2",
            "step": 3,
            **STARTED,
            "status": "complete",
            "calls": [],
            "at_ms": AT_MS,
            "finish_reason": "stop",
            "model": "m-2",
            "answer": True,
        },
    ),
    ("turn_submitted", "t3", {"message_id": "m3", "content": "deploy"}),
    ("turn_assistant_started", "t3", {"stream_id": "s3"}),
    ("turn_interrupted", "t3", {"reason": "agent_lost", "by": "daemon"}),
    (
        "model_call",
        "t3",
        {
            "stream": "s3",
            "step": 1,
            **STARTED,
            "status": "crashed",
            "calls": [
                {
                    "call_id": "c1",
                    "name": "deploy",
                    "seq": 2,
                    "at_ms": AT_MS + 5,
                    "outcome": "unknown",
                    "arguments_hash": None,
                }
            ],
        },
    ),
]


def lines() -> list[bytes]:
    previous, made = chain_of(header_line(UID, SESSION)), list[bytes]()
    leaf: str | None = None
    for seq, (kind, turn, payload) in enumerate(EVENTS, 1):
        said = json.dumps(payload, separators=(",", ":")).encode()
        is_leaf = kind != "model_call"
        line = make_line(
            *(seq, f"e{seq}", AT_MS + seq, kind, said, previous),
            parent=leaf,
            turn=turn,
            leaf=is_leaf,
        )
        made.append(line)
        previous, leaf = chain_of(line), f"e{seq}" if is_leaf else leaf
    return made


def main() -> None:
    if SESSION_ANSWERS.exists():
        return
    SESSION_ANSWERS.mkdir()
    with RealDisk(str(SESSION_ANSWERS)) as disk:
        LedgerStore(disk).append(UID, SESSION, 1, lines())


if __name__ == "__main__":
    main()
