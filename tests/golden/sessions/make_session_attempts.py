"""Wrote the files in session_attempts/, once. They are not written over.

An imported conversation: an answer of which its writer says that it failed, with a call, and the
one that took its place.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from walld.disk.real import RealDisk
from walld.ledger.line import chain_of, header_line, make_line
from walld.ledger.store import LedgerStore

SESSION_ATTEMPTS = Path(__file__).parent / "session_attempts"
UID, SESSION = 1000, "chat/14"
AT_MS = 1_796_053_611_123

_CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "clean up"},
    {"role": "assistant", "content": "At", "tool_calls": [_CALL], "_attempt": "error"},
    {"role": "assistant", "content": "At onc", "_attempt": "aborted"},
    {"role": "assistant", "content": "There is nothing to clean up."},
]


def lines() -> list[bytes]:
    previous, made = chain_of(header_line(UID, SESSION)), list[bytes]()
    for seq, message in enumerate(MESSAGES, 1):
        said = json.dumps(message, separators=(",", ":")).encode()
        parent = f"e{seq - 1}" if seq > 1 else None
        line = make_line(seq, f"e{seq}", AT_MS + seq, "message", said, previous, parent=parent)
        made.append(line)
        previous = chain_of(line)
    return made


def main() -> None:
    if SESSION_ATTEMPTS.exists():
        return
    SESSION_ATTEMPTS.mkdir()
    with RealDisk(str(SESSION_ATTEMPTS)) as disk:
        LedgerStore(disk).append(UID, SESSION, 1, lines())


if __name__ == "__main__":
    main()
