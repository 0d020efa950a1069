"""Wrote the files in session_grants/, once. It refuses to write over them: they stay for ever.

Two calls that were allowed, by whom, for what and until when; one more that started and is safe,
and one that started and of which a person said that it ran.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from walld.disk.real import RealDisk
from walld.ledger.line import chain_of, header_line, make_line
from walld.ledger.store import LedgerStore

SESSION_GRANTS = Path(__file__).parent / "session_grants"
UID, SESSION = 1000, "chat/9"
AT_MS = 1_795_953_611_123

RISK: dict[str, Any] = {"side_effect": "external-write", "resume_policy": "rerun-after-check"}
MAIL: dict[str, Any] = {"tool": "mail", "arguments": {"to": "b", "at": 1}, **RISK}
GRANT: dict[str, Any] = {"state": "granted", "by": "anna", "expires_at": 2_000_000_000}
EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("turn_submitted", {"message_id": "m1", "content": "mail it"}),
    ("tool_intent", {"call_id": "c1", **MAIL}),
    ("tool_approval", {"call_id": "c1", **GRANT, "scope": {"tool": "mail"}}),
    ("tool_intent", {"call_id": "c2", **MAIL}),
    ("tool_approval", {"call_id": "c2", **GRANT, "scope": {"arguments": {"to": "c", "at": 1}}}),
    (
        "tool_intent",
        {"call_id": "c3", "tool": "put", **RISK}
        | {"idempotency": "safe", "key": "order-7", "effect": "network"},
    ),
    ("tool_started", {"call_id": "c3"}),
    ("tool_intent", {"call_id": "c4", **MAIL}),
    ("tool_started", {"call_id": "c4"}),
    (
        "tool_settled",
        {"of": {"turn": "t1", "call_id": "c4"}, "word": "ran", "result": "sent", "by": "anna"},
    ),
]


def lines() -> list[bytes]:
    previous, made = chain_of(header_line(UID, SESSION)), []
    for seq, (kind, payload) in enumerate(EVENTS, 1):
        said = json.dumps(payload, separators=(",", ":")).encode()
        parent = f"e{seq - 1}" if seq > 1 else None
        is_settled = kind == "tool_settled"
        line = make_line(
            seq,
            f"e{seq}",
            AT_MS + seq,
            kind,
            said,
            previous,
            parent=parent,
            turn=None if is_settled else "t1",
            leaf=not is_settled,
        )
        made.append(line)
        previous = chain_of(line)
    return made


def main() -> None:
    SESSION_GRANTS.mkdir()
    with RealDisk(str(SESSION_GRANTS)) as disk:
        LedgerStore(disk).append(UID, SESSION, 1, lines())


if __name__ == "__main__":
    main()
