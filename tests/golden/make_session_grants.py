"""Wrote the files in session_grants/ and session_call_names/, once. They are not written over.

Two calls that were allowed, by whom, for what and until when; one more that started and is safe,
and one that started and of which a person said that it ran. In the other, calls of one id, of which
a person said that they ran, each by what names it apart from the others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from walld.disk.real import RealDisk
from walld.ledger.line import chain_of, header_line, make_line
from walld.ledger.store import LedgerStore

SESSION_GRANTS = Path(__file__).parent / "session_grants"
SESSION_CALL_NAMES = Path(__file__).parent / "session_call_names"
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

CALL: dict[str, Any] = {"id": "c1", "name": "mail", "arguments": {"to": "b"}, "outcome": "unknown"}
PUT: dict[str, Any] = CALL | {"name": "put"}
SAID: dict[str, Any] = {"role": "assistant", "content": ""}
OF: dict[str, Any] = {"turn": "t1", "call_id": "c1"}
NAMED: list[tuple[str, dict[str, Any]]] = [
    ("turn_submitted", {"message_id": "m1", "content": "mail it"}),
    ("tool_intent", {"call_id": "c1", **MAIL}),
    ("tool_started", {"call_id": "c1"}),
    ("tool_finished", {"call_id": "c1", "result": "sent"}),
    ("tool_intent", {"call_id": "c1", **MAIL, "arguments": {"to": "c"}}),
    ("tool_started", {"call_id": "c1"}),
    ("message", SAID | {"tool_calls": [CALL, PUT]}),
    ("message", SAID | {"tool_calls": [PUT | {"seq": 3}], "_wal_stream": "r1", "_wal_seq": 1}),
    *(
        ("tool_settled", {"of": OF | more, "word": "ran"})
        for more in (
            {"entry": "e5"},
            {"entry": "e7", "n": 2},
            {"stream": "r1", "seq": 3, "step": 1, "place": 0},
        )
    ),
]


def lines(events: list[tuple[str, dict[str, Any]]]) -> list[bytes]:
    previous, made = chain_of(header_line(UID, SESSION)), []
    for seq, (kind, payload) in enumerate(events, 1):
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
    for folder, events in ((SESSION_GRANTS, EVENTS), (SESSION_CALL_NAMES, NAMED)):
        if folder.exists():
            continue
        folder.mkdir()
        with RealDisk(str(folder)) as disk:
            LedgerStore(disk).append(UID, SESSION, 1, lines(events))


if __name__ == "__main__":
    main()
