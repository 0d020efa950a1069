"""Reading a session's file: J1 nothing skipped in silence, J2 bisection believes no glance."""

from __future__ import annotations

from random import Random

import pytest
from ledger_world import SESSION, UID, lines_of

from walld.disk.medium import Storage
from walld.disk.simulated import SimulatedDisk, SimulatedFile
from walld.ledger.line import header_line, line_seq
from walld.ledger.line_scan import find_line, last_line
from walld.ledger.scan import read_lines

HEADER = header_line(UID, SESSION)


def opened(text: bytes):  # type: ignore[no-untyped-def]
    disk = SimulatedDisk(Storage(Random(1)))
    file = disk.create("f")
    file.write_at(text, 0)
    return file


def read(text: bytes, after: int = 0, **options: int):  # type: ignore[no-untyped-def]
    return read_lines(opened(text), len(text), HEADER, after, **options)


@pytest.mark.parametrize("size", [0, 3000, 70_000])
def test_every_line_is_found_and_nothing_else_is_read(size: int) -> None:
    lines = lines_of(40, size=size)
    text = HEADER + b"".join(lines)
    file = opened(text)
    for seq in range(1, 41):
        found = find_line(file, seq, len(text))
        assert found is not None
        assert found.line == lines[seq - 1]
        assert text[found.offset : found.end] == found.line
        assert read(text, seq).lines == lines[seq:]
        assert read(text, seq, limit=2).lines == lines[seq : seq + 2]
        assert read(text, seq, from_offset=found.end).lines == lines[seq:]
        assert read(text, seq, from_offset=found.end - 1).lines == lines[seq:]
    assert find_line(file, 41, len(text)) is None
    assert read(text).lines == lines
    assert read(text, 99).lines == []


def test_a_line_is_found_in_a_few_reads() -> None:
    lines = lines_of(5000)
    text = HEADER + b"".join(lines)
    file = opened(text)
    storage = file._storage
    for seq in (1, 7, 2500, 4999, 5000):
        before = storage.ops
        assert read_lines(file, len(text), HEADER, seq, limit=1).lines == lines[seq : seq + 1]
        assert storage.ops - before < 60
    before = storage.ops
    assert last_line(file, len(text)).line == lines[-1]
    assert storage.ops - before == 1


def test_a_damaged_line_is_a_break_and_the_rest_is_served() -> None:
    lines = lines_of(9)
    for seq in range(1, 9):
        for change in (b"", b"garbage\n", b"no newline", lines[seq - 1].replace(b"x", b"y"), b"\n"):
            text = HEADER + b"".join([*lines[: seq - 1], change, *lines[seq:]])
            for after in range(9):
                got = read(text, after)
                assert got.lines == [item for item in lines[after:] if line_seq(item) != seq]
                reported = [(item.first_seq, item.last_seq, item.why) for item in got.breaks]
                why = "damaged" if change else "missing"
                assert reported == ([(seq, seq, why)] if seq > after else []), (seq, after)
                assert got.torn_bytes == 0


def test_a_lost_newline_costs_one_line() -> None:
    lines = lines_of(5)
    got = read(HEADER + lines[0] + lines[1][:-1] + b"\x1a" + lines[2] + lines[3] + lines[4])
    assert got.lines == [lines[0], *lines[2:]]
    assert [item[1:4] for item in got.breaks] == [(2, 2, "damaged")]


def test_lines_twice_and_lines_of_another_session() -> None:
    lines = lines_of(4)
    got = read(HEADER + b"".join([*lines[:2], lines[0], lines[1], *lines[2:]]))
    assert got.lines == lines
    assert [item.why for item in got.breaks] == ["order", "order"]
    other = lines_of(4, size=21)
    got = read(HEADER + b"".join([*lines[:2], *other[2:]]))
    assert got.lines == [*lines[:2], *other[2:]]
    assert [item[1:4] for item in got.breaks] == [(3, 2, "chain")]


@pytest.mark.parametrize("ahead", [1, 5, 40])
def test_a_copy_of_later_lines_hides_none_of_those_it_leaps_over(ahead: int) -> None:
    lines = lines_of(100)
    stray = lines[60 : 60 + ahead - 1] + lines[90:91]
    got = read(HEADER + b"".join([*lines[:10], *stray, *lines[10:]]))
    assert got.lines == lines
    assert [item.why for item in got.breaks] == ["order"] * ahead
    assert read(HEADER + b"".join([*lines[:10], *stray, *lines[10:]]), after=20).lines == lines[20:]


def test_two_lines_that_changed_places_cost_those_two() -> None:
    lines = lines_of(100)
    swapped = [*lines[:10], lines[90], *lines[11:90], lines[10], *lines[91:]]
    got = read(HEADER + b"".join(swapped))
    assert got.lines == [*lines[:10], *lines[11:90], *lines[91:]]
    assert [item[1:4] for item in got.breaks] == [
        (91, 90, "order"),
        (11, 11, "missing"),
        (11, 10, "order"),
        (91, 91, "missing"),
    ]


def test_a_block_over_others_costs_what_it_lies_on() -> None:
    """What the file has at 4096 is what it should have at 12288."""
    lines = lines_of(200)
    text = HEADER + b"".join(lines)
    block = text[12288:16384]
    got = read(text[:4096] + block + text[8192:])
    kept = [one for one in lines if one in text[:4096] or one in text[8192:]]
    assert got.lines == kept
    assert {item.why for item in got.breaks} == {"order", "damaged"}
    lost = [one for one in got.breaks if one.why == "damaged" and one.first_seq <= one.last_seq]
    assert sum(one.last_seq - one.first_seq + 1 for one in lost) == len(lines) - len(kept)


def test_a_line_of_another_session_hides_not_even_one() -> None:
    lines, other = lines_of(2), lines_of(70, size=21)
    got = read(HEADER + lines[0] + other[69] + lines[1])
    assert got.lines == lines
    assert [item[1:4] for item in got.breaks] == [(70, 69, "order")]


def test_behind_a_hole_a_stray_line_of_it_hides_nothing() -> None:
    lines = lines_of(100)
    got = read(HEADER + b"".join([*lines[:10], *lines[50:60], lines[30], *lines[60:]]))
    assert got.lines == [*lines[:10], *lines[50:]]
    assert [item[1:4] for item in got.breaks] == [(11, 50, "missing"), (31, 30, "order")]


@pytest.mark.parametrize("at", [8, 4])
def test_a_copy_of_an_earlier_line_misleads_no_page(at: int) -> None:
    lines = lines_of(8)
    text = HEADER + b"".join([*lines[:at], lines[2], *lines[at:]])
    for after in range(9):
        assert read(text, after).lines == lines[after:], after
        assert read(text, after, limit=2).lines == lines[after : after + 2], after


def test_a_file_of_lines_that_leap_over_others_is_read_in_time() -> None:
    """Each look ahead takes its time, so there are not as many as lines (J3)."""
    lines = lines_of(6000)
    mixed = [one for pair in zip(lines[3000:], lines[:3000], strict=True) for one in pair]
    got = read(HEADER + b"".join(mixed))
    assert len(got.lines) >= 3000
    assert len(got.lines) + sum(item.why == "order" for item in got.breaks) == 6000


@pytest.mark.parametrize("header", [b"", b"garbage\n", b"x" * 3000 + b"\n", HEADER[:-4] + b"\n"])
def test_what_stands_for_the_header_hides_no_line(header: bytes) -> None:
    lines = lines_of(5)
    got = read(header + b"".join(lines), is_headed=False)
    assert (got.lines, got.breaks) == (lines, [])
    got = read(header + b"".join(lines[2:]), is_headed=False)
    assert got.lines == lines[2:]
    assert [item[1:4] for item in got.breaks] == [(1, 2, "missing")]


def test_a_seq_that_lies_does_not_mislead_the_search() -> None:
    lines = lines_of(30)
    for seq in range(1, 31):
        for wrong in (b"1", b"29", b"4000"):
            bad = lines[seq - 1].replace(b'"seq":%d,' % seq, b'"seq":%b,' % wrong)
            text = HEADER + b"".join([*lines[: seq - 1], bad, *lines[seq:]])
            for after in (0, 1, 14, 15, 28):
                got = read(text, after)
                kept = [item for item in lines[after:] if item in text]
                assert got.lines == kept, (seq, wrong, after)
                missing = len(lines[after:]) - len(kept)
                assert bool(got.breaks) + bool(got.torn_bytes) == missing


def test_what_is_torn_is_said() -> None:
    lines = lines_of(3)
    text = HEADER + b"".join(lines)
    for cut in range(1, len(lines[2])):
        got = read(text[:-cut])
        assert (got.lines, got.breaks) == (lines[:2], [])
        assert got.torn_bytes == len(lines[2]) - cut
        assert got.size == len(text) - len(lines[2])
    assert last_line(opened(text + bytes(300_000)), len(text) + 300_000).line == lines[2]
    assert last_line(opened(HEADER), len(HEADER)) is None
    assert read(HEADER).lines == []


def test_a_page_behind_a_lost_line_is_read_without_all_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who waits for what comes next asks for the same place again and again."""
    lines, taken = lines_of(20_000), 0
    read_at = SimulatedFile.read_at

    def counted(file: SimulatedFile, count: int, offset: int) -> bytes:
        nonlocal taken
        taken += count
        return read_at(file, count, offset)

    monkeypatch.setattr(SimulatedFile, "read_at", counted)
    for lost in (10_000, 19_970):
        text = HEADER + b"".join([*lines[:lost], *lines[lost + 1 :]])
        file = opened(text)
        for after in (lost + 2, lost + 29, lost + 30):
            taken = 0
            reading = read_lines(file, len(text), HEADER, after, 10)
            assert reading.lines == lines[after : after + 10]
            assert reading.breaks == []
            assert taken < 2 * 1024 * 1024, (lost, after)
