"""Blocks of lines in wrong places: the reader and a second one, made of FORMAT.md, agree."""

from __future__ import annotations

import random

import pytest
from fuzz.sessions import HEADER, simply_read
from wal_files import BytesFile

from walld.ledger.line import chain_of, header_line, make_line
from walld.ledger.scan import read_lines

_FILES = 2000


def _lines(header: bytes, seqs: list[int], name: str) -> list[bytes]:
    made: list[bytes] = []
    for seq in seqs:
        before = chain_of(made[-1] if made else header)
        made.append(make_line(seq, f"{name}{seq}", 0, "note", b"{}", before))
    return made


def _leaping(rng: random.Random) -> list[int]:
    """Seqs of a session that has leapt over some."""
    seqs = [1]
    for _ in range(rng.randint(2, 13)):
        seqs.append(seqs[-1] + (1 if rng.random() < 0.93 else rng.randint(2, 6)))
    return seqs


@pytest.mark.parametrize("seed", range(4))
def test_two_readers_give_the_same_lines(seed: int) -> None:
    rng = random.Random(seed)
    others = _lines(header_line(1000, "another"), list(range(1, 30)), "b")
    for _ in range(_FILES):
        own = _lines(HEADER, _leaping(rng), "a")
        file = list(own)
        for _ in range(rng.randint(1, 4)):
            at, taken = rng.randint(0, len(file)), rng.randint(0, 4)
            source = rng.choice((others, own, [b"no line\n"], []))
            start = rng.randint(0, max(0, len(source) - 1))
            file[at : at + taken] = source[start : start + rng.randint(1, 5)]
        raw = b"".join(file)
        content = HEADER + raw
        reading = read_lines(BytesFile("x", content), len(content), HEADER)
        assert reading.lines == simply_read(raw), [line[:20] for line in file]
