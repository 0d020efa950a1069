"""Wrote the files in session_v1/, once. It refuses to write over them: they stay for ever.

A small session of each kind of line, and a snapshot of it. What the lines must read as stands
beside them as JSON.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from walld.disk.real import RealDisk
from walld.ledger.line import Line, chain_of, header_line, make_line, read_line
from walld.ledger.snapshot import SnapshotStore
from walld.ledger.store import LedgerStore

SESSION_V1 = Path(__file__).parent / "session_v1"
UID, SESSION = 1000, "chat/7 é"
AT_MS = 1_795_353_611_123
OWNER = {"boot": "8d3f9c1e-0000-4000-8000-000000000001", "pid": 4242, "inode": 987654, "start": 99}

EVENTS: list[tuple[str, bytes, dict[str, Any]]] = [
    ("turn_submitted", b'{"message_id":"m1","content":"hello"}', {"turn": "t1", "owner": OWNER}),
    ("message", rb'{"role": "assistant", "content": "half \ud83d a pair"}', {"parent": "e1"}),
    ("label", b'{"target":"e2","text":"good"}', {"parent": "e2", "key": "k/1"}),
    ("my.app/note", '{"text":"é\u2028"}'.encode(), {"leaf": False, "cause": "e1"}),
    ("turn_completed", b"{}", {"turn": "t1", "correlation": "c", "owner": OWNER}),
]


def lines() -> list[bytes]:
    previous, made = chain_of(header_line(UID, SESSION)), []
    for seq, (kind, payload, fields) in enumerate(EVENTS, 1):
        line = make_line(seq, f"e{seq}", AT_MS + seq, kind, payload, previous, **fields)
        made.append(line)
        previous = chain_of(line)
    return made


def shown(line: Line) -> dict[str, Any]:
    names = line.__struct_fields__
    fields = {name: getattr(line, name) for name in names}
    return fields | {"payload": line.payload.decode(), "chain": line.chain.hex()}


def write(root: str) -> None:
    with RealDisk(root) as disk:
        store, snapshots, made = LedgerStore(disk), SnapshotStore(disk), lines()
        store.append(UID, SESSION, 1, made[:2])
        store.append(UID, SESSION, 3, made[2:])
        end = len(header_line(UID, SESSION)) + sum(map(len, made))
        snapshots.write_base(
            UID, SESSION, 2, end - sum(map(len, made[2:])), b"a base of some bytes"
        )
        snapshots.add_increment(UID, SESSION, 4, end - len(made[4]), b"three, four", follows=2)
        snapshots.add_increment(UID, SESSION, 5, end, b"five", follows=4)


def main() -> None:
    SESSION_V1.mkdir()
    write(str(SESSION_V1))
    expected = [shown(read_line(line)) for line in lines()]
    (SESSION_V1 / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
