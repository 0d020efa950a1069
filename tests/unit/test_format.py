"""FORMAT.md says what the code does: every size, field, type, bit and item in its tables."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from walld_client import paths

from walld import limits
from walld.disk import owner
from walld.partials import store
from walld.wal import layout, records, verdict

TEXT = (Path(layout.__file__).parents[1] / "FORMAT.md").read_text()
CODES = {"u16": "H", "u32": "I", "u64": "Q"}


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
        ("Directory entry", layout.directory.format, layout.ENTRY_BYTES),
        ("Settled row", layout.settled.format, layout.SETTLED_BYTES),
        ("Partial", store._header.format + "I", store.PARTIAL_HEADER_BYTES),
    ],
)
def test_fields_have_the_offsets_and_types_of_the_code(title: str, packed: str, size: int) -> None:
    rows = fields(title)
    codes = "".join(CODES.get(row.kind, f"{row.size}s") for row in rows)
    expanded = re.sub(r"(\d+)([HIQ])", lambda hit: hit[2] * int(hit[1]), packed.replace(" ", ""))
    assert "<" + codes == expanded
    position = 0
    for row in rows:
        assert (row.offset, row.size) == (position, row.size), row
        if row.kind in CODES:
            assert struct.calcsize("<" + CODES[row.kind]) == row.size, row
        position += row.size
    assert position == size


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("Batch header", layout.BatchHeader._fields),
        ("Settled row", layout.Settled._fields),
        ("Segment header", layout.SegmentHeader._fields),
    ],
)
def test_fields_have_the_names_and_order_of_the_code(title: str, names: tuple[str, ...]) -> None:
    own = {"magic", "version", "reserved", "header_bytes", "header_crc"}
    assert tuple(row.field for row in fields(title) if row.field not in own) == names


def test_values_in_the_tables_are_those_of_the_code() -> None:
    meaning = {
        (title, row.field): row.meaning
        for title in ("Segment header", "Batch header", "Partial")
        for row in fields(title)
        if row.field != "reserved"
    }
    assert meaning["Segment header", "magic"] == f"`{layout.SEGMENT_MAGIC.decode()}`"
    assert meaning["Segment header", "version"] == str(layout.SEGMENT_VERSION)
    assert meaning["Segment header", "header_bytes"] == str(layout.SEGMENT_HEADER_BYTES)
    assert f"`0x{layout.BATCH_MAGIC:08X}`" in meaning["Batch header", "magic"]
    assert meaning["Partial", "magic"] == f"`{store.PARTIAL_MAGIC.decode()}`"
    assert meaning["Partial", "version"] == str(store.PARTIAL_VERSION)
    assert meaning["Partial", "header_bytes"] == str(store.PARTIAL_HEADER_BYTES)
    limit = limits.BATCH_BYTES_MAX // limits.MIB
    assert f"at most {limit} MiB" in meaning["Batch header", "payload_bytes"]


@pytest.mark.parametrize(
    ("title", "flags"), [("Entry flags", layout.Flag), ("Batch flags", layout.BatchFlag)]
)
def test_bits(title: str, flags: type) -> None:
    code = {name: value for name, value in vars(flags).items() if name.isupper()}
    assert {row[1]: int(row[0]) for row in table(title)} == code


def test_verdicts_of_settled_rows() -> None:
    meaning = {row.field: row.meaning for row in fields("Settled row")}
    assert meaning["verdict"] == (
        f"{verdict.TORN} torn, {verdict.CORRUPT} corrupt, {verdict.STRANDED} stranded"
    )


def test_items() -> None:
    listed = {row[1]: (int(row[0]), row[2].split(", ")) for row in table("Items")}
    code = {}
    for kind in (records.Begin, records.Text, records.Happened):
        names = [field.name for field in msgspec.structs.fields(kind)]
        code[kind.__name__] = (kind.__struct_config__.tag, names)
    assert listed == code
    owner_fields = ", ".join(field.name for field in msgspec.structs.fields(records.Owner))
    assert f"an array of {owner_fields}" in " ".join(TEXT.split())


def test_names_and_lock() -> None:
    assert f"`{paths._safe.pattern}`" in TEXT
    assert f"`{paths.HASHED_PREFIX}`" in TEXT
    assert f"One record of {owner.LOCK_BYTES} bytes" in TEXT
    assert f"{layout.WAL_DIR}/{layout.segment_name(1)}" in TEXT
    assert f"    {store.PARTIALS_DIR}/<uid>" in TEXT
    assert f"    {store.QUARANTINE_DIR}/" in TEXT
