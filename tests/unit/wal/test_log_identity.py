"""Which log it is, where only batches can say."""

from __future__ import annotations

from wal_files import LOG, BytesDisk, LogWriter, small_log

from walld.wal.log_identity import is_there, proven_uuid


def proven(log: LogWriter) -> bytes | None:
    return proven_uuid(BytesDisk(log.files), sorted(log.files))


def test_a_header_with_any_one_bit_flipped_still_names_its_log() -> None:
    log = small_log()
    del log.files[2]
    for bit in range(64 * 8):
        log.flip(1, bit)
        assert proven(log) == LOG, bit
        log.flip(1, bit)


def test_one_segment_that_proves_it_is_enough() -> None:
    log = small_log()
    log.flip(1, 400)
    log.files[2] = b"?" * len(log.files[2])
    log.files[3] = b""
    assert proven(log) == LOG


def test_what_no_batch_proves_is_no_log() -> None:
    log = LogWriter()
    log.segment()
    log.flip(1, 400)
    assert proven(log) is None
    assert proven(LogWriter()) is None
    log = small_log()
    for segment_id, content in log.files.items():
        log.files[segment_id] = bytes(64) + content[64:]
    assert proven(log) is None


def test_a_segment_that_cannot_be_opened_proves_nothing() -> None:
    assert proven_uuid(BytesDisk({}), [1]) is None


def test_a_batch_whose_header_alone_is_whole_says_that_the_log_is_there() -> None:
    """Its seed is of the log; and `Segment.nameless` counts it: what is before it may go."""
    log = LogWriter()
    log.segment()
    place = log.batch(b"x" * 40)
    log.flip(1, 400)
    log.flip(1, 8 * (place.offset + place.length - 1))
    assert is_there(BytesDisk(log.files), LOG)
    log.flip(1, 8 * (place.offset + 5))
    assert not is_there(BytesDisk(log.files), LOG)
