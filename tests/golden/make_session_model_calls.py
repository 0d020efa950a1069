"""Wrote the files in session_model_calls/, session_expired/ and session_model_facts/, once each. It
refuses to write over them: they stay for ever.

What is left of replies that went. In the first, of one of a turn, cut in its second call, and of
one without a turn that brought the result of a call of the first. In the second, of one that went
for its age. In the third, what is known of the model: of a step that asked for a tool and of one
that failed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from walld.disk.real import RealDisk
from walld.ledger.line import chain_of, header_line, make_line
from walld.ledger.store import LedgerStore

SESSION_MODEL_CALLS = Path(__file__).parent / "session_model_calls"
SESSION_EXPIRED = SESSION_MODEL_CALLS.with_name("session_expired")
SESSION_MODEL_FACTS = SESSION_MODEL_CALLS.with_name("session_model_facts")
UID, SESSION, FACTS_SESSION = 1000, "chat/10", "chat/12"
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


FACTS: list[tuple[str, str, dict[str, Any]]] = [
    ("e1", "turn_submitted", {"message_id": "m1", "content": "look it up"}),
    (
        "s1:1:call",
        "model_call",
        OF_A_TURN
        | {"status": "complete", "calls": [], "at_ms": AT_MS + 1, "ended_at_ms": AT_MS + 900}
        | {"model": "m-1", "provider": "p", "request_id": "req_7", "tools_hash": HASHED}
        | {"usage": {"input_tokens": 12, "output_tokens": 3, "cost": 0.25}},
    ),
    (
        "s1:7:call",
        "model_call",
        OF_A_TURN
        | {"step": 7, "status": "error", "calls": CALLS[:1], "at_ms": AT_MS + 1000}
        | {"error_class": "rate_limit", "error_kind": "RateLimitError"},
    ),
    (
        "s2:1:call",
        "model_call",
        ALONE
        | {"status": "partial", "calls": [], "at_ms": AT_MS + 3, "error_class": "content_filter"}
        | {"finish_reason": "content_filter"},
    ),
]


def lines(events: list[tuple[str, str, dict[str, Any]]], session_id: str) -> list[bytes]:
    previous, made = chain_of(header_line(UID, session_id)), []
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
    for folder, session_id, events in (
        (SESSION_MODEL_CALLS, SESSION, EVENTS),
        (SESSION_EXPIRED, SESSION, EXPIRED),
        (SESSION_MODEL_FACTS, FACTS_SESSION, FACTS),
    ):
        if not folder.exists():
            folder.mkdir()
            with RealDisk(str(folder)) as disk:
                LedgerStore(disk).append(UID, session_id, 1, lines(events, session_id))


if __name__ == "__main__":
    main()
