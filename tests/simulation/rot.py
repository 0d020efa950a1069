"""`python -m simulation.rot`: each bit of a log of 64 KiB flipped, each length cut, pages zeroed.

    python -m simulation.rot               all of it: half a million flips, 65,000 lengths
    python -m simulation.rot --every 100   each hundredth

What must hold for each: every batch that was not hit is read, byte for byte; what was hit is
reported, at its place; corrupt where the log says that it was synced, torn where nothing says so;
and corrupt always, once a client says what it was told (FORMAT.md, "Verdicts"). What is not hit is
never reported. Exit 1 where that does not hold, with the bit, length or page.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from random import Random
from typing import NamedTuple

from wal_files import LOG, BytesFile, LogWriter

from walld.wal.layout import SEGMENT_HEADER_BYTES
from walld.wal.scan import SegmentScan
from walld.wal.scan_report import SegmentFacts
from walld.wal.verdict import Verdict, judge

__all__ = ["Intact", "Rot", "cases", "check", "log_of_64_kib"]

_SEGMENT_BYTES = 32 * 1024
_LOG_BYTES = 2 * _SEGMENT_BYTES
_PAGE_BYTES = 512
_CHUNK = 2000


class Rot(NamedTuple):
    """What happens to a segment: kind is flip (at: a bit), cut (a length) or zero (a page)."""

    kind: str
    segment_id: int
    at: int


def log_of_64_kib() -> LogWriter:
    """Two segments of about 32 KiB, batches of some bytes to some kilobytes, in any order."""
    random = Random(64)
    log = LogWriter()
    for _ in range(2):
        segment_id = log.segment()
        while (left := _SEGMENT_BYTES - len(log.files[segment_id])) > 200:
            size = min(random.choice((20, 300, 2000, 6000)), left - 120)
            log.batch(random.randbytes(size), random.randbytes(random.randrange(1, 40)))
    return log


def cases(log: LogWriter, every: int = 1) -> Iterator[Rot]:
    """All that may rot, or each `every`th of it."""
    for segment_id, content in log.files.items():
        for bit in range(0, len(content) * 8, every):
            yield Rot("flip", segment_id, bit)
        for length in range(0, len(content), every):
            yield Rot("cut", segment_id, length)
        for page in range(0, len(content) // _PAGE_BYTES, max(1, every // 100)):
            yield Rot("zero", segment_id, page)


class Intact:
    """The log as it was, and what is found of each segment as long as it is whole."""

    def __init__(self, log: LogWriter) -> None:
        self.files = {segment_id: bytes(content) for segment_id, content in log.files.items()}
        self.places = log.places
        self.facts = {segment_id: _scan(segment_id, c)[0] for segment_id, c in self.files.items()}
        self.last_no = log.places[-1].batch_no


def _scan(segment_id: int, content: bytes) -> tuple[SegmentFacts, dict[int, bytes]]:
    found = SegmentScan(BytesFile("x", content), segment_id, LOG)
    batches = {batch.batch_no: bytes(batch.payload) for batch in found}
    return found.facts, batches


def _damaged(content: bytes, rot: Rot) -> tuple[bytes, int, int]:
    """(the bytes now, from where to where they are not what they were)."""
    if rot.kind == "cut":
        return content[: rot.at], rot.at, len(content)
    changed = bytearray(content)
    if rot.kind == "flip":
        start, end = rot.at // 8, rot.at // 8 + 1
        changed[start] ^= 1 << rot.at % 8
    else:
        start, end = rot.at * _PAGE_BYTES, (rot.at + 1) * _PAGE_BYTES
        changed[start:end] = bytes(end - start)
    return bytes(changed), start, end


def check(intact: Intact, rot: Rot) -> None:
    """AssertionError where a rule does not hold."""
    content, start, end = _damaged(intact.files[rot.segment_id], rot)
    facts, found = _scan(rot.segment_id, content)
    mine = [place for place in intact.places if place.segment_id == rot.segment_id]
    hit = [place for place in mine if place.offset < end and start < place.offset + place.length]
    assert found == {place.batch_no: place.payload for place in mine if place not in hit}
    segments = [facts if one == rot.segment_id else known for one, known in intact.facts.items()]
    for attested_no in (0, intact.last_no):
        verdict = judge(segments, attested_no)
        if len(content) >= SEGMENT_HEADER_BYTES or rot.segment_id > 1:
            known_no = max(attested_no, *(one.synced_no for one in segments))
            _check_numbers(verdict, {place.batch_no for place in hit}, known_no)
        if rot.kind == "flip" or any(intact.files[rot.segment_id][start:end]):
            _check_places(verdict, rot, start, end)


def _check_numbers(verdict: Verdict, lost: set[int], known_no: int) -> None:
    """Just the batches that were hit are missed, each under its right name.

    Not where the oldest segment is too short for a header: which numbers it held nothing tells.
    """
    corrupt = {no for one in verdict.corrupt for no in range(one.first_no, one.last_no + 1) if no}
    torn = {no for one in verdict.torn for no in range(one.first_no, one.last_no + 1) if no}
    assert corrupt == {no for no in lost if no <= known_no}, f"corrupt {corrupt}, hit {lost}"
    # The log's last batches, cut off at their beginning, leave nothing that names them.
    assert torn <= lost - corrupt, f"torn {torn}, hit {lost}"


def _check_places(verdict: Verdict, rot: Rot, start: int, end: int) -> None:
    """It is reported where it is, unless the file just ends there."""
    found = [one for one in (*verdict.corrupt, *verdict.torn) if one.segment_id]
    if rot.kind != "cut":
        assert any(one.offset < end and start < one.offset + one.length for one in found), "silent"


_intact: Intact | None = None


def _many(chunk: list[Rot]) -> list[tuple[Rot, str]]:
    global _intact
    if _intact is None:
        _intact = Intact(log_of_64_kib())
    failed = []
    for rot in chunk:
        try:
            check(_intact, rot)
        except AssertionError as error:
            failed.append((rot, str(error).partition("\n")[0]))
    return failed


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="simulation.rot")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    log = log_of_64_kib()
    todo = list(cases(log, options.every))
    failed: list[tuple[Rot, str]] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for part in pool.map(_many, (todo[at : at + _CHUNK] for at in range(0, len(todo), _CHUNK))):
            failed += part
    for rot, why in failed[:20]:
        print(f"{rot}: {why}", file=sys.stderr)
    size = sum(map(len, log.files.values()))
    flips = sum(rot.kind == "flip" for rot in todo)
    print(
        f"rot: {flips} flips, {len(todo) - flips} lengths and pages of {size} bytes in "
        f"{len(log.places)} batches, {len(failed)} failed; {time.monotonic() - begun:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
