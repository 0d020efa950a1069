"""What an owner wrote that had been replaced does not count; all that the next one found does."""

from __future__ import annotations

from wal_files import LogWriter

from walld.wal.verdict import Damage


def old_and_new() -> LogWriter:
    """Batches 1 to 3 of one owner, 4 and 5 of the next."""
    log = LogWriter()
    log.segment()
    for _ in range(3):
        log.batch(b"old")
    log.segment(epoch=2)
    for _ in range(2):
        log.batch(b"new")
    return log


def bodies(log: LogWriter) -> dict[int, bytes]:
    found, verdict = log.read()
    assert not verdict.torn, verdict
    assert not verdict.corrupt, verdict
    texts = {}
    for number, batch in found.items():
        (record,) = batch.records
        texts[number] = batch.body(record.offset, record.body_bytes)
    return texts


def numbers(log: LogWriter) -> list[int]:
    return sorted(log.read()[0])


WHOLE = {1: b"old", 2: b"old", 3: b"old", 4: b"new", 5: b"new"}


def test_what_comes_too_late_to_its_segment_has_numbers_of_the_next_owner() -> None:
    log = old_and_new()
    place = len(log.files[1])
    log.go_back(1, 4)
    for _ in range(4):
        log.batch(b"late")
    assert bodies(log) == WHOLE
    verdict = log.read()[1]
    assert (verdict.last_batch_no, verdict.synced_no) == (5, 4)
    late = Damage(1, place, len(log.files[1]) - place, 0, 0, "fenced")
    assert verdict.superseded == [late]


def test_so_has_what_stands_in_a_segment_that_it_began_too_late() -> None:
    log = old_and_new()
    log.segment(next_no=4, epoch=1)
    log.batch(b"late")
    assert bodies(log) == WHOLE
    log.segment(next_no=6, epoch=2)
    log.batch(b"new")
    assert bodies(log) == WHOLE | {6: b"new"}


def test_of_three_owners_each_counts_up_to_the_next() -> None:
    log = old_and_new()
    log.segment(epoch=7)
    log.batch(b"newest")
    log.go_back(2, 6)
    log.batch(b"late")
    log.go_back(1, 4)
    log.batch(b"later")
    assert bodies(log) == WHOLE | {6: b"newest"}


def test_batches_written_again_fence_nothing() -> None:
    """A failed sync has the next owner write again what it found, below where it began."""
    log = old_and_new()
    log.segment(next_no=3, again=True, epoch=2)
    log.batch(b"old")
    assert bodies(log) == WHOLE
    del log.files[2]
    assert numbers(log) == [1, 2, 3], "where it began is not known any more: all counts"


def test_a_header_that_cannot_be_read_fences_nothing_and_is_not_fenced() -> None:
    log = old_and_new()
    log.flip(2, 5)
    log.go_back(1, 4)
    log.batch(b"late")
    assert numbers(log) == [1, 2, 3, 4, 5]
