"""Wrote the files in v1/, once. It refuses to write over them: they stay as they are for ever.

Fixed inputs to a data directory per case (name/wal/...), and to partials. What they must read as
stands beside them as JSON; `test_golden.py` says what of it was checked by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from walld_client.paths import path_name
from walld_client.wire import messages as wire

from walld.disk.real import RealDisk
from walld.partials.file import Partial, PartialFacts, pack_partial
from walld.partials.names import place_of
from walld.wal.encode import Batch, BatchEncoder, settled_batches
from walld.wal.layout import (
    Flag,
    SegmentHeader,
    Settled,
    pack_segment_header,
    segment_name,
    segment_seed,
)
from walld.wal.log_scan import LogScan
from walld.wal.records import (
    Begin,
    Happened,
    Item,
    Owner,
    Text,
    Thought,
    encode_item,
    join_items,
    pack_body,
)

V1 = Path(__file__).parent / "v1"
LOG = bytes.fromhex("00112233445566778899aabbccddeeff")
AT_MS = 1_750_000_000_000
OWNER = Owner("8d3f9c1e-0000-4000-8000-000000000001", 4242, 987654, 123456)
BEGIN = Begin(1000, bytes(range(16)), 1, "st-1", "chat/7", "turn-1", None, b"\x80", AT_MS, OWNER)
HALF = "\ud83d".encode("utf-8", "surrogatepass")

ITEMS: list[Item] = [
    BEGIN,
    Text(1, 10, bytes([5, 1, 4]), b"Hello wor"),
    Thought(4, 20, bytes([3]), HALF),
    Happened(-30, wire.Tool(1, 5, "call-1", "grep", b'{"q":"x"}')),
    Happened(40, wire.ToolResult(1, 6, "call-1", None, b"3 hits")),
    Happened(50, wire.Finish(1, 7, "stop")),
    Happened(60, wire.End(1, 8, True, "stop")),
]
ARRAY = join_items([encode_item(item) for item in ITEMS])


def batch(batch_no: int, *rows: tuple[int, int, int, int, bytes]) -> Batch:
    builder = BatchEncoder()
    for row in rows:
        builder.add(*row)
    return builder.seal(batch_no)


def segment(segment_id: int, batches: list[tuple[Batch, int]]) -> bytearray:
    """A whole segment: each batch with the synced_no to stamp it with."""
    header = SegmentHeader(LOG, segment_id, batches[0][0].batch_no - 1, segment_id)
    content = bytearray(pack_segment_header(header))
    for each, synced_no in batches:
        content += each.stamped(synced_no, segment_seed(LOG, segment_id), len(content))
    return content


def logs() -> dict[str, dict[int, bytes]]:
    """Case name -> segment id -> bytes."""
    one, two = batch(1, (1, 0, 8, Flag.BEGIN | Flag.TERMINAL, pack_body(1, ARRAY))), batch(2)
    # One row whose columns have 8, 4, 2 and 1 bytes, and one that would need one each.
    wide = (2**40, 2**32 - 2**16, 2**32 - 1, 0, pack_body(2**40, b"\x90"))
    three = batch(3, wide, (3, 0, 0, Flag.CARRIED, pack_body(3, b"\x91\xc0")))
    four = batch(4, (1, 9, 9, Flag.RELEASED, b""))
    first = segment(1, [(one, 0), (two, 1)])
    second = segment(2, [(three, 2), (four, 3)])
    torn = second[:-5]
    third = segment(3, [(settled_batches(5, [Settled(2, 136, 4, 4, 1)])[0], 3)])
    hole = bytearray(first)
    hole[130] ^= 0x10
    return {
        "clean": {1: bytes(first), 2: bytes(second)},
        "torn": {1: bytes(first), 2: bytes(torn)},
        "settled": {1: bytes(first), 2: bytes(torn), 3: bytes(third)},
        "corrupt": {1: bytes(hole), 2: bytes(second)},
    }


def partials() -> dict[str, Partial]:
    """File name -> what it holds."""
    whole = PartialFacts(LOG, 1, AT_MS, AT_MS + 99, 0, 8, "agent_lost")
    live = PartialFacts(LOG, 2**40, AT_MS, AT_MS + 1, 5, 2**32 - 1, None)
    return {
        "whole.partial": Partial(1000, whole, ARRAY, place_of(path_name("chat/7"), "st-1")),
        "empty.partial": Partial(0, live, b"", bytes(16)),
    }


def read_log(case: Path) -> dict[str, Any]:
    """A data directory as JSON."""
    with RealDisk(str(case), read_only=True) as disk:
        scan = LogScan(disk)
        batches = []
        for segment_id, each in scan:
            rows = [
                [*record[:3], record.flags, each.body(record.offset, record.body_bytes).hex()]
                for record in each.records
            ]
            place = [segment_id, each.offset, each.batch_no, each.synced_no]
            batches.append({"place": place, "records": rows})
        verdict = scan.verdict()
    return {
        "log_uuid": (scan.log_uuid or b"").hex(),
        "batches": batches,
        "last_batch_no": verdict.last_batch_no,
        "synced_no": verdict.synced_no,
        "torn": [list(item) for item in verdict.torn],
        "corrupt": [list(item) for item in verdict.corrupt],
        "settled": [list(item) for item in verdict.settled],
    }


def partial_facts(partial: Partial) -> dict[str, Any]:
    """A partial as JSON."""
    facts = partial.facts._asdict() | {"log_uuid": partial.facts.log_uuid.hex()}
    place, body = partial.place.hex(), partial.body.hex()
    return {"uid": partial.uid, **facts, "place": place, "body": body}


def main() -> None:
    V1.mkdir()
    for name, files in logs().items():
        (V1 / name / "wal").mkdir(parents=True)
        for segment_id, content in files.items():
            (V1 / name / "wal" / segment_name(segment_id)).write_bytes(content)
        expected = json.dumps(read_log(V1 / name), indent=1)
        (V1 / name / "expected.json").write_text(expected + "\n")
    for name, partial in partials().items():
        (V1 / name).write_bytes(pack_partial(*partial))
        expected = json.dumps(partial_facts(partial), indent=1)
        (V1 / f"{name}.json").write_text(expected + "\n")


if __name__ == "__main__":
    main()
