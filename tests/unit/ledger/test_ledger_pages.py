"""Lines too many to be held are read again as they were, or not at all (J5)."""

from __future__ import annotations

from random import Random

import pytest
from ledger_world import AT_MS, SESSION, UID, lines_of

from walld.disk.medium import Storage
from walld.disk.simulated import SimulatedDisk, SimulatedFile
from walld.errors import FormatError
from walld.ledger.line import chain_of, header_line, make_line
from walld.ledger.runs import Run, read_page
from walld.ledger.scan import read_lines

HEADER = header_line(UID, SESSION)


def opened(text: bytes) -> SimulatedFile:
    disk = SimulatedDisk(Storage(Random(1)))
    file = disk.create("f")
    file.write_at(text, 0)
    return file


def paged(text: bytes, run: Run, bytes_max: int = 300) -> list[bytes]:
    """All pages of a run."""
    file, found, behind = opened(text), list[bytes](), run
    while True:
        lines, rest = read_page(file, behind, bytes_max)
        assert lines
        assert sum(map(len, lines[:-1])) < bytes_max
        found += lines
        if rest is None:
            return found
        behind = rest


def damaged_texts() -> dict[str, bytes]:
    lines = lines_of(30)
    other = lines_of(30, session="chat/8")
    whole = [HEADER, *lines]
    flipped = bytearray(b"".join(whole))
    flipped[len(flipped) // 2] ^= 1
    return {
        "whole": b"".join(whole),
        "a line is lost": b"".join(whole[:9] + whole[10:]),
        "a bit flipped": bytes(flipped),
        "zeros between": b"".join([*whole[:9], bytes(500), *whole[9:]]),
        "of another session": b"".join([*whole[:9], *other[10:13], *whole[9:]]),
        "a copy of a later one": b"".join([*whole[:9], whole[20], *whole[9:]]),
        "without a header": b"".join(lines),
        "a torn end": b"".join(whole)[:-7],
        "of nothing": HEADER,
    }


@pytest.mark.parametrize("what", damaged_texts())
def test_a_reading_that_holds_little_gives_the_lines_of_one_that_holds_all(what: str) -> None:
    text = damaged_texts()[what]
    is_headed = text.startswith(HEADER)
    for after, limit, held in (
        (after, limit, held)
        for after in (0, 1, 8, 12, 29)
        for limit in (0, 1, 5)
        for held in (1, 600, 2000)
    ):
        file, size = opened(text), len(text)
        plain = read_lines(file, size, HEADER, after, limit, is_headed=is_headed)
        short = read_lines(
            file, size, HEADER, after, limit, is_headed=is_headed, held_bytes_max=held
        )
        assert plain.runs == []
        assert short.total == plain.total == len(plain.lines)
        assert short._replace(lines=[], runs=[]) == plain._replace(lines=[])
        if not short.runs:
            assert short.lines == plain.lines
            assert sum(map(len, plain.lines)) <= held
            continue
        assert short.lines == []
        assert [one for run in short.runs for one in paged(text, run)] == plain.lines


def test_what_changed_meanwhile_is_no_page_of_it() -> None:
    """Each bit, each length, and the same session begun anew."""
    lines = lines_of(6)
    text = HEADER + b"".join(lines)
    (run,) = read_lines(opened(text), len(text), HEADER, held_bytes_max=1).runs
    assert paged(text, run) == lines
    assert paged(text + b"more", run) == lines
    for at in range(len(HEADER), len(text)):
        flipped = bytearray(text)
        flipped[at] ^= 1
        with pytest.raises(FormatError, match="is not what it was"):
            paged(bytes(flipped), run)
    for size in range(0, len(text), 7):
        with pytest.raises(FormatError, match="is not what it was"):
            paged(text[:size], run)
    anew = HEADER + b"".join(lines_of(6)).replace(b"xxxx", b"yyyy")
    with pytest.raises(FormatError, match="is not what it was"):
        paged(anew, run)
    # Whole lines of a session begun anew, of the same lengths: the last one's hash tells.
    previous, begun = chain_of(HEADER), list[bytes]()
    for seq in range(1, 7):
        payload = b'{"role":"user","content":"%b %d"}' % (b"z" * 20, seq)
        parent = f"e{seq - 1}" if seq > 1 else None
        at_ms = AT_MS + seq
        begun.append(make_line(seq, f"e{seq}", at_ms, "message", payload, previous, parent=parent))
        previous = chain_of(begun[-1])
    assert list(map(len, begun)) == list(map(len, lines))
    with pytest.raises(FormatError, match="is not what it was"):
        paged(HEADER + b"".join(begun), run)
