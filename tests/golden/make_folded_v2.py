"""Wrote the files in folded_v2/, once. It refuses to write over them: they stay for ever.

A directory as it is left on a disk that does not look at case: LOCK of version 2, names folded.
What is in the files is as on any disk.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from make_v1 import AT_MS, BEGIN, ITEMS, LOG

from walld.disk.folded import FoldedDisk
from walld.disk.lock_record import LOCK_NAME, LockRecord, lock_record
from walld.disk.real import RealDisk
from walld.ledger.line import chain_of, header_line, make_line
from walld.ledger.store import LedgerStore
from walld.partials.file import PartialFacts
from walld.partials.store import PartialStore
from walld.wal.layout import SegmentHeader, pack_segment_header
from walld.wal.records import encode_item, join_items

FOLDED_V2 = Path(__file__).parent / "folded_v2"
UID, SESSIONS = 1000, ("Chat-1", "chat-1", "chat/7")
STREAM = "St-1"


def write(root: str) -> None:
    with RealDisk(root) as below:
        disk = FoldedDisk(below, is_folded=True)
        below.replace(LOCK_NAME, lock_record(LockRecord(5, LOG, True, 7, 8, True, True)))
        disk.make_dir("wal")
        disk.replace(f"wal/{5:020d}.wal", pack_segment_header(SegmentHeader(LOG, 5, 7, 5)))
        for session in SESSIONS:
            said = f'{{"said in":"{session}"}}'.encode()
            line = make_line(1, "e1", AT_MS, "note", said, chain_of(header_line(UID, session)))
            LedgerStore(disk).append(UID, session, 1, [line])
        facts = PartialFacts(LOG, 1, AT_MS, AT_MS + 99, 0, 8, "agent_lost")
        begin = msgspec.structs.replace(BEGIN, stream_id=STREAM, session_id=SESSIONS[0])
        body = join_items([encode_item(item) for item in [begin, *ITEMS[1:]]])
        PartialStore(disk).write(UID, SESSIONS[0], STREAM, facts, body)


def main() -> None:
    FOLDED_V2.mkdir()
    write(str(FOLDED_V2))


if __name__ == "__main__":
    main()
