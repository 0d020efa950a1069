"""FORMAT.md says what the code does: every size, field, type, bit and item in its tables."""

from __future__ import annotations

import json
import re
import struct
from array import array
from pathlib import Path
from typing import NamedTuple, get_args

import msgspec
import pytest
from walld_client import paths

from walld import limits
from walld.disk.lock_record import LOCK_BYTES
from walld.engine import admission
from walld.ledger import line, names, repair_notes, snapshot
from walld.partials import file, store
from walld.wal import layout, records, unreadable_segments, verdict

TEXT = (Path(layout.__file__).parents[1] / "FORMAT.md").read_text()
CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q"}


class Row(NamedTuple):
    offset: int
    size: int
    field: str
    kind: str
    meaning: str


def table(title: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its own head."""
    section = re.split(rf"^#+ {re.escape(title)}$", TEXT, flags=re.MULTILINE)[1]
    lines = re.split(r"^#", section, flags=re.MULTILINE)[0].splitlines()
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines if line[:1] == "|"]
    return rows[2:]


def fields(title: str) -> list[Row]:
    return [Row(int(row[0]), int(row[1]), row[2], row[3], row[4]) for row in table(title)]


@pytest.mark.parametrize(
    ("title", "packed", "size"),
    [
        ("Segment header", layout._segment.format + "I", layout.SEGMENT_HEADER_BYTES),
        ("Batch header", layout._batch.format + "I", layout.BATCH_HEADER_BYTES),
        ("Settled row", layout.settled.format, layout.SETTLED_BYTES),
        ("Record body", "<I", records.BODY_CRC_BYTES),
        ("Partial", file._header.format + "I", file.PARTIAL_HEADER_BYTES),
        ("Snapshot", snapshot._header.format + "I", snapshot.SNAPSHOT_HEADER_BYTES),
        ("Increment", snapshot._frame.format + "I", snapshot.INCREMENT_BYTES),
    ],
)
def test_fields_have_the_offsets_and_types_of_the_code(title: str, packed: str, size: int) -> None:
    rows = fields(title)
    codes = "".join(CODES.get(row.kind, f"{row.size}s") for row in rows)
    expanded = re.sub(r"(\d+)([BHIQ])", lambda hit: hit[2] * int(hit[1]), packed.replace(" ", ""))
    assert "<" + codes == expanded
    position = 0
    for row in rows:
        assert (row.offset, row.size) == (position, row.size), row
        if row.kind in CODES:
            assert struct.calcsize("<" + CODES[row.kind]) == row.size, row
        position += row.size
    assert position == size


OUTSIDE = "gap_word", "whose"
PARTIAL_FIELDS = tuple(name for name in file.PartialFacts._fields if name not in OUTSIDE)


@pytest.mark.parametrize(
    ("title", "names"),
    [
        (
            "Batch header",
            # The header has it as a difference.
            tuple("behind" if name == "synced_no" else name for name in layout.BatchHeader._fields),
        ),
        ("Partial", PARTIAL_FIELDS),
        ("Settled row", layout.Settled._fields),
        # One of its flags comes last, where it may have a default.
        ("Segment header", ("flags", *layout.SegmentHeader._fields[:-1])),
    ],
)
def test_fields_have_the_names_and_order_of_the_code(title: str, names: tuple[str, ...]) -> None:
    own = {"magic", "version", "reserved", "header_bytes", "header_crc"}
    if title == "Partial":
        own |= {"gaps", "uid", "place", "body_bytes", "body_crc"}
    assert tuple(row.field for row in fields(title) if row.field not in own) == names


def test_values_in_the_tables_are_those_of_the_code() -> None:
    meaning = {
        (title, row.field): row.meaning
        for title in ("Segment header", "Batch header", "Partial", "Snapshot", "Increment")
        for row in fields(title)
        if row.field != "reserved"
    }
    assert meaning["Segment header", "magic"] == f"`{layout.SEGMENT_MAGIC.decode()}`"
    assert meaning["Segment header", "version"] == str(layout.SEGMENT_VERSION)
    assert meaning["Segment header", "header_bytes"] == str(layout.SEGMENT_HEADER_BYTES)
    magic = layout.BATCH_MAGIC.to_bytes(2, "little").hex(" ").upper()
    assert meaning["Batch header", "magic"] == f"`0x{layout.BATCH_MAGIC:04X}`, `{magic}` as bytes"
    assert meaning["Partial", "magic"] == f"`{file.PARTIAL_MAGIC.decode()}`"
    assert meaning["Partial", "version"] == str(file.PARTIAL_VERSION)
    assert meaning["Partial", "header_bytes"] == str(file.PARTIAL_HEADER_BYTES)
    assert meaning["Snapshot", "magic"] == f"`{snapshot.SNAPSHOT_MAGIC.decode()}`"
    assert meaning["Snapshot", "version"] == str(snapshot.SNAPSHOT_VERSION)
    assert meaning["Snapshot", "header_bytes"] == str(snapshot.SNAPSHOT_HEADER_BYTES)
    before = snapshot.SNAPSHOT_HEADER_BYTES - 4
    assert meaning["Snapshot", "header_crc"] == f"CRC of the {before} bytes before it"
    before = snapshot.INCREMENT_BYTES - 4
    assert meaning["Increment", "frame_crc"].startswith(f"CRC of the {before} bytes before it")
    limit = limits.BATCH_BYTES_MAX // limits.MIB
    assert f"at most {limit} MiB" in meaning["Batch header", "payload_bytes"]
    aligned = f"a multiple of {layout.BATCH_ALIGNMENT}"
    assert meaning["Batch header", "payload_bytes"].startswith(aligned)
    assert f"At an offset that is {aligned}." in TEXT
    assert f"the next multiple of {layout.BATCH_ALIGNMENT} where" in TEXT
    assert f"0 to {layout.BATCH_ALIGNMENT - 1} bytes of padding" in TEXT
    assert f"more than {layout._BEHIND_MAX} back" in TEXT
    assert admission.AT_MS_MAX == 2**53 - 1
    assert "0 to 2^53 - 1" in TEXT
    before = layout.BATCH_HEADER_BYTES - 4
    assert f"CRC of the {before} bytes before it" in meaning["Batch header", "header_crc"]
    assert f"header_crc is the CRC of the {before} bytes" in TEXT
    before = file.PARTIAL_HEADER_BYTES - 4
    assert meaning["Partial", "header_crc"] == f"CRC of the {before} bytes before it"
    assert f"header {layout.BATCH_HEADER_BYTES} |" in TEXT


@pytest.mark.parametrize(
    ("title", "values"), [("Entry flags", layout.Flag), ("Batch kinds", layout.BatchKind)]
)
def test_bits_and_kinds(title: str, values: type) -> None:
    code = {name: value for name, value in vars(values).items() if name.isupper()}
    assert {row[1]: int(row[0]) for row in table(title)} == code


def test_columns() -> None:
    *sized, flags = table("Directory")
    assert tuple(row[1] for row in [*sized, flags]) == layout.Columns._fields
    assert [row[0] for row in sized] == [f"{at}-{at + 1}" for at in range(0, 8, 2)]
    assert flags[:3] == ["", "flags", "1"]
    for at, row in enumerate(sized):
        told = [int(size) for size in row[2].split(", ")]
        taken = []
        for code in range(4):
            payload = memoryview(bytes(64))
            header = layout.BatchHeader(0, code << 2 * at, 1, 0, len(payload), 1, 0)
            columns = layout.unpack_directory(header, payload)
            if columns is not None:
                column = columns[at]
                assert isinstance(column, array)
                taken.append(column.itemsize)
                assert taken[-1] == 1 << code
        assert told == taken, row
    widest = sum(int(row[2].split(", ")[-1]) for row in [*sized, flags])
    assert widest == layout.ENTRY_BYTES_MAX


def test_verdicts_of_settled_rows() -> None:
    meaning = {row.field: row.meaning for row in fields("Settled row")}
    assert meaning["verdict"] == (
        f"{verdict.TORN} torn, {verdict.CORRUPT} corrupt, {verdict.STRANDED} stranded, "
        f"{verdict.RENEWED} renewed, {verdict.LEAPT} leapt, "
        f"{unreadable_segments.UNREAD} unread, {unreadable_segments.READ} read: "
        'see "Rules for a writer"'
    )


def test_items() -> None:
    listed = {row[1]: (int(row[0]), row[2].split(", ")) for row in table("Items")}
    code = {}
    for kind in get_args(records.Item):
        names = [field.name for field in msgspec.structs.fields(kind)]
        code[kind.__name__] = (kind.__struct_config__.tag, names)
    assert listed == code
    owner_fields = ", ".join(field.name for field in msgspec.structs.fields(records.Owner))
    assert f"an array of {owner_fields}" in " ".join(TEXT.split())


def test_names_and_lock() -> None:
    assert f"`{paths._safe.pattern}`" in TEXT
    assert f"`{paths.HASHED_PREFIX}`" in TEXT
    assert f"One record of {LOCK_BYTES} bytes" in TEXT
    assert f"{layout.WAL_DIR}/{layout.segment_name(1)}" in TEXT
    assert f"    {store.PARTIALS_DIR}/<uid>" in TEXT
    assert f"    {store.QUARANTINE_DIR}/" in TEXT
    for name in (names.EVENTS_FILE, names.SNAPSHOT_FILE, names.REPAIRED_FILE):
        assert f"    {names.SESSIONS_DIR}/<uid>/<session>/{name} " in TEXT
    assert f"    {names.SESSIONS_DIR}/<uid>/<session>/{names.ARTIFACTS_DIR}/<sha256>" in TEXT


def test_the_line_of_an_event() -> None:
    rows = table("Session")
    given = {"parent": "p", "turn": "t", "cause": "c", "correlation": "o", "key": "k"}
    owner: dict[str, str | int] = {"boot": "b", "pid": 1, "inode": 2, "start": 3}
    header = line.header_line(1000, "chat/7")
    assert f"    {header.decode()}" in TEXT
    previous = line.chain_of(header)
    full = line.make_line(1, "e1", 0, "m", b"{}", previous, leaf=False, owner=owner, **given)
    assert list(json.loads(full)) == [row[0] for row in rows]
    least = line.make_line(1, "e1", 1_795_353_611_123, "message", b"{}", previous)
    assert list(json.loads(least)) == [row[0] for row in rows if row[1] == "yes"]
    assert least.split(b"{}")[0].decode() in TEXT
    meaning = {row[0]: row[3] for row in rows}
    assert f"{len(line.chain_text(previous))} characters" in meaning["chain"]
    assert f"first {line.CHAIN_BYTES} bytes of the SHA-256" in meaning["chain"]
    assert meaning["owner"].endswith(": " + ", ".join(owner))
    assert json.loads(header)["walld"] == line.LEDGER_VERSION
    assert "The header names the version, 1, and" in TEXT
    assert set(repair_notes._Note.__struct_fields__) == set(
        re.findall(r"acknowledged: (.*?)\n\(", TEXT, re.DOTALL)[0].split(", ")
    )
