"""A session's file of any length (J3): bounded memory, bounded reading, its good lines served."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ledger_world import SESSION, UID, lines_of, verify

from walld.disk.real import RealDisk
from walld.ledger import listing
from walld.ledger.files import KEPT_BYTES_MAX
from walld.ledger.line import header_line
from walld.ledger.line_scan import find_line, last_line, lines_between
from walld.ledger.listing import session_rows
from walld.ledger.names import EVENTS_FILE, REPAIRED_FILE, SNAPSHOT_FILE, session_dir
from walld.ledger.repair_notes import Leap
from walld.ledger.scan import read_lines
from walld.ledger.snapshot import SnapshotStore
from walld.ledger.store import LedgerStore
from walld.limits import LEDGER_LINE_BYTES_MAX, MIB

HEADER = header_line(UID, SESSION)
FOLDER = session_dir(UID, SESSION)
PATH = f"{FOLDER}/{EVENTS_FILE}"
LINES = lines_of(90)
TIB = 1 << 40
RUN = 8 * LEDGER_LINE_BYTES_MAX
READ_MAX = 4 * MIB
"""At a time."""
ALL_READ_MAX = 256 * MIB


class Sparse:
    """Texts in a file of zeros. It counts what is read, and refuses to read much at a time."""

    path = "f"

    def __init__(self, size: int, texts: dict[int, bytes]) -> None:
        self._size = size
        self._texts = texts
        self.read_bytes = 0

    def read_at(self, length: int, offset: int) -> bytes:
        length = max(0, min(length, self._size - offset))
        assert length <= READ_MAX
        self.read_bytes += length
        assert self.read_bytes <= ALL_READ_MAX
        found = bytearray(length)
        for at, text in self._texts.items():
            begin, end = max(at, offset), min(at + len(text), offset + length)
            if begin < end:
                found[begin - offset : end - offset] = text[begin - at : end - at]
        return bytes(found)

    def size(self) -> int:
        return self._size


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[RealDisk]:
    with RealDisk(str(tmp_path)) as disk:
        yield disk


def lengthened(disk: RealDisk, size: int, count: int = 70) -> LedgerStore:
    """A session of so many events whose file a disk made longer."""
    store = LedgerStore(disk)
    store.append(UID, SESSION, 1, LINES[:count])
    os.truncate(Path(disk.root, PATH), size)
    return store


@pytest.mark.parametrize("size", [RUN, RUN + 100_000, 1 << 30, TIB])
def test_a_file_of_zeros_behind_its_lines_is_read_in_bounded_memory(size: int) -> None:
    text = HEADER + b"".join(LINES)
    file = Sparse(size, {0: text})
    last = last_line(file, size)
    assert last is not None
    assert (last.line, last.end) == (LINES[-1], len(text))
    assert find_line(file, 45, size).line == LINES[44]
    reading = read_lines(file, size, HEADER)
    assert (reading.lines, reading.breaks) == (LINES, [])
    assert reading.torn_bytes == size - len(text)
    assert read_lines(file, size, HEADER, 60, limit=3).lines == LINES[60:63]


@pytest.mark.parametrize("zeros", [RUN - 5, RUN, RUN + 1, 3 * RUN, TIB])
@pytest.mark.parametrize("end", [b"", b"torn", b"\n"])
def test_lines_behind_a_long_run_are_served_and_the_run_is_a_break(zeros: int, end: bytes) -> None:
    front, back = HEADER + b"".join(LINES[:20]), b"".join(LINES[30:])
    at = len(front) + zeros
    size = at + len(back) + len(end)
    file = Sparse(size, {0: front, at: back, at + len(back): end})
    reading = read_lines(file, size, HEADER)
    assert reading.lines == LINES[:20] + LINES[30:]
    assert [item[:4] for item in reading.breaks] == [(len(front), 21, 30, "damaged")]
    assert reading.torn_bytes == len(end)
    assert read_lines(file, size, HEADER, 40).lines == LINES[40:]
    assert read_lines(file, size, HEADER, 10).lines == LINES[10:20] + LINES[30:]


def test_what_is_read_from_the_front_ends_where_the_end_is() -> None:
    """Between two long runs nothing may be seen; but never by one of the two alone."""
    for middle in (RUN + 77, 5 * RUN, TIB // 2, TIB - 3 * RUN):
        file = Sparse(TIB, {0: HEADER + b"".join(LINES[:20]), middle: b"".join(LINES[40:60])})
        *_, from_front = lines_between(file, 0, TIB)
        assert last_line(file, TIB) == from_front
    nothing = Sparse(TIB, {})
    assert last_line(nothing, TIB) is None
    assert list(lines_between(nothing, 0, TIB)) == []
    assert find_line(nothing, 7, TIB) is None


def test_a_session_goes_on_behind_a_long_run_and_the_run_is_in_quarantine(disk: RealDisk) -> None:
    store = lengthened(disk, TIB)
    assert store.proven(UID, SESSION) == 71  # no write of one line is as long
    tail = store.tail(UID, SESSION)
    assert tail is not None
    assert tail.last_seq == 70
    until = store.proven(UID, SESSION)
    assert [item[1:4] for item in store.read(UID, SESSION, until=until).breaks] == [
        (71, 71, "damaged")
    ]
    store.append(UID, SESSION, 71, LINES[70:80])
    store.append(UID, SESSION, 81, LINES[80:])
    assert len(verify(Path(disk.root, PATH).read_bytes())) == 90
    kept, note = sorted(Path(disk.root, "quarantine").iterdir())
    assert kept.stat().st_size == TIB
    assert PATH in note.read_text()
    assert store.delete(UID, SESSION)
    assert list(Path(disk.root, "quarantine").iterdir()) == []


def test_a_file_that_is_nothing_but_zeros_gives_way_as_a_whole(disk: RealDisk) -> None:
    store = lengthened(disk, TIB)
    Path(disk.root, PATH).write_bytes(b"")
    os.truncate(Path(disk.root, PATH), TIB)
    store.append(UID, SESSION, 1, LINES, allow_gap=True)
    assert Path(disk.root, PATH).read_bytes() == HEADER + b"".join(LINES)
    assert [path.stat().st_size for path in Path(disk.root, "quarantine").glob("*.whole")] == [TIB]


def test_a_repair_takes_a_long_run_out(disk: RealDisk) -> None:
    store = lengthened(disk, TIB)
    assert [item[1:4] for item in store.repair(UID, SESSION)] == [(71, 71, "damaged")]
    assert Path(disk.root, PATH).read_bytes() == HEADER + b"".join(LINES[:70])
    assert [path.stat().st_size for path in Path(disk.root, "quarantine").glob("*.whole")] == [TIB]
    assert not store.read(UID, SESSION).breaks


def test_a_run_that_is_too_long_for_a_copy_is_said(disk: RealDisk) -> None:
    store = lengthened(disk, KEPT_BYTES_MAX + 50_000)
    with pytest.raises(Exception, match=r"bytes that are no line: \d+ at \d+; at most"):
        store.keep_damaged(UID, SESSION, also_end=True)
    assert store.keep_damaged(UID, SESSION, also_end=False) == 0


@pytest.mark.parametrize("name", [REPAIRED_FILE, SNAPSHOT_FILE])
def test_files_beside_the_events_may_be_of_any_length(disk: RealDisk, name: str) -> None:
    store, snapshots = LedgerStore(disk), SnapshotStore(disk)
    store.append(UID, SESSION, 1, LINES)
    store.note_leap(UID, SESSION, Leap(91, 99, ["wal/7"]))
    snapshots.write_base(UID, SESSION, 80, 20_000, b"base")
    assert snapshots.add_increment(UID, SESSION, 90, 21_000, b"delta", follows=80)
    os.truncate(Path(disk.root, FOLDER, name), TIB)
    assert store.leaps(UID, SESSION) == [Leap(91, 99, ["wal/7"])]
    found = snapshots.read(UID, SESSION)
    assert found is not None
    assert (found.base, found.deltas, found.covers_seq) == (b"base", [b"delta"], 90)
    if name == REPAIRED_FILE:
        with pytest.raises(Exception, match="move it away"):
            store.note_leap(UID, SESSION, Leap(100, 101, []))
    else:
        assert snapshots.add_increment(UID, SESSION, 95, 22_000, b"delta", follows=90)
        assert Path(disk.root, FOLDER, name).stat().st_size < 1000


def test_a_bug_met_by_one_session_hides_no_other(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LedgerStore(disk)
    store.append(UID, SESSION, 1, LINES)
    store.append(UID, "other", 1, lines_of(3, session="other"))

    def failing(disk: RealDisk, uid: int, folder: str) -> listing.SessionRow:
        if folder == FOLDER:
            raise MemoryError("planted")
        return row(disk, uid, folder)

    row = listing._row
    monkeypatch.setattr(listing, "_row", failing)
    rows = {one.session_id: one for one in session_rows(disk)}
    assert rows["other"].last_seq == 3
    assert "MemoryError: planted" in rows[None].trouble
