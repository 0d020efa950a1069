"""Wrote the files in session_model_calls/ and session_expired/, once each. It refuses to write over
them: they stay for ever.

What is left of two replies that went: one of a turn, cut in its second call, and one without a
turn that brought the result of a call of the first. And of one that went for its age.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from walld.disk.real import RealDisk
from walld.ledger.line import chain_of, header_line, make_line
from walld.ledger.store import LedgerStore

SESSION_MODEL_CALLS = Path(__file__).parent / "session_model_calls"
SESSION_EXPIRED = Path(__file__).parent / "session_expired"
UID, SESSION = 1000, "chat/10"
AT_MS = 1_795_953_611_123

HASHED = "2c29480702c4d0de261dda44aa63c88d531ae200a94239af29f2ad7b0d67955f"
CALLS: list[dict[str, Any]] = [
    {"call_id": "c1", "name": "deploy", "seq": 2, "outcome": "unknown", "arguments_hash": HASHED}
    | {"key": "k1", "resume_policy": "never-rerun", "side_effect": "external-write"},
    {"call_id": "c2", "name": "look", "seq": 5, "outcome": "pending", "arguments_hash": None},
    {"call_id": "c3", "name": "look", "seq": 6, "outcome": "unknown", "arguments_hash": HASHED},
]
OF_A_TURN: dict[str, Any] = {"stream": "s1", "step": 1, "started_at_ms": AT_MS + 1}
ALONE: dict[str, Any] = {"stream": "s2", "step": 1, "started_at_ms": AT_MS + 2}
EVENTS: list[tuple[str, str, dict[str, Any]]] = [
    ("e1", "turn_submitted", {"message_id": "m1", "content": "deploy it"}),
    (
        "s1:1:call",
        "model_call",
        OF_A_TURN | {"status": "errored", "calls": CALLS, "error_class": "overloaded"},
    ),
    (
        "s2:1:call",
        "model_call",
        ALONE
        | {"status": "complete", "finish_reason": "stop", "calls": []}
        | {"results": [{"call_id": "c3", "seq": 1, "outcome": "failed"}]},
    ),
]
EXPIRED: list[tuple[str, str, dict[str, Any]]] = [
    EVENTS[0],
    (
        "s1:expired",
        "reply_expired",
        {"stream": "s1", "started_at_ms": AT_MS + 1, "last_event_at_ms": AT_MS + 9, "last_seq": 212}
        | {"status": "crashed", "partial_reason": "agent_lost", "characters": 1187, "calls": 1},
    ),
]


def lines(events: list[tuple[str, str, dict[str, Any]]]) -> list[bytes]:
    previous, made = chain_of(header_line(UID, SESSION)), []
    for seq, (name, kind, payload) in enumerate(events, 1):
        said = json.dumps(payload, separators=(",", ":")).encode()
        line = make_line(
            seq,
            name,
            AT_MS + seq,
            kind,
            said,
            previous,
            parent="e1" if seq > 1 else None,
            turn=None if name.startswith("s2") else "t1",
            leaf=seq == 1,
        )
        made.append(line)
        previous = chain_of(line)
    return made


def main() -> None:
    for folder, events in ((SESSION_MODEL_CALLS, EVENTS), (SESSION_EXPIRED, EXPIRED)):
        if not folder.exists():
            folder.mkdir()
            with RealDisk(str(folder)) as disk:
                LedgerStore(disk).append(UID, SESSION, 1, lines(events))


if __name__ == "__main__":
    main()
