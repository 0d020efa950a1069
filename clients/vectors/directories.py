"""Data directories, and what a client may say of one without a daemon (`directories.json`).

Owns: the cases. Each is made of one log whose newest segment begins behind batch 7, with what
`files` and `removed` change of it. `kept` is the answer for user 0 and session `S`: true, false,
or null where it cannot be known. It is that for all sessions of user 0, too, but where `of` has
other sessions with their answers.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from walld.disk.lock import WRITTEN_AT, LockRecord, lock_record
from walld.wal.layout import SegmentHeader, pack_segment_header

__all__ = ["directories"]

LOG, OTHER = bytes(range(16)), bytes(range(16, 32))
SEGMENT = f"wal/{3:020d}.wal"
WRITTEN = LockRecord(5, LOG, had_log=True)
WHOLE = WRITTEN._replace(synced_no=7, first_no=8)
WITH_DIRS = WHOLE._replace(had_dirs=True)
THERE = "partials/.gone"
Case = dict[str, Any]


def directories() -> list[Case]:
    """The vectors of `directories.json`."""
    return [*_locks(), *_damaged_locks(), *_planted(), *_folded()]


def _case(name: str, why: str, lock: bytes | None, *paths: str, kept: bool | None = None) -> Case:
    files = {SEGMENT: pack_segment_header(SegmentHeader(LOG, 3, 7, 5)).hex()}
    files |= dict.fromkeys(paths, "")
    if lock is not None:
        files["LOCK"] = lock.hex()
    return {"name": name, "why": why, "files": files, "kept": kept}


def _locks() -> Iterator[Case]:
    record = lock_record(WHOLE)
    yield _case("whole", "nothing that LOCK names is missing", record, kept=False)
    yield _case("absent", "a copy may be made without it", None, kept=False)
    yield _case("no_segment_yet", "no line", lock_record(LockRecord(5, LOG)), kept=False)
    yield _case("no_batch_yet", "no numbers", lock_record(WRITTEN), kept=False)
    older = b"synced %020d " % 7
    older += b"%08x\n" % zlib.crc32(b"%020d" % 7, zlib.crc32(LOG))
    older = (record[: WRITTEN_AT + 8] + older).ljust(128)
    yield _case("older_version", "synced alone, 128 bytes", older, kept=False)
    yield _case("older_in_newer", "an older version wrote last", older + record[128:], kept=False)
    short = record.replace(b"epoch %020d" % 5, b"epoch 5").ljust(160)
    yield _case("short_epoch", "a reader takes fewer digits", short, kept=False)
    yield _case("synced", "batch 8 was there", lock_record(WHOLE._replace(synced_no=8)))
    yield _case("first", "batch 7 must be there", lock_record(WHOLE._replace(first_no=7)))
    yield _case("partials_gone", "partials/ was there", lock_record(WITH_DIRS))
    noted = "quarantine/sessions"
    yield _case("partials", "it is there", lock_record(WITH_DIRS), THERE, kept=False)
    yield _case("sessions_gone", "no reply is", lock_record(WITH_DIRS), THERE, noted, kept=False)
    foreign = "quarantine/other-log.1000"
    yield _case("others_log", "of user 1000", lock_record(WITH_DIRS), THERE, foreign, kept=False)
    own = "quarantine/other-log.0"
    yield _case("other_log_known", "its clients know of it", lock_record(WITH_DIRS), THERE, own)
    expected = "quarantine/other-log"
    yield _case("data_expected", "it was empty", lock_record(WITH_DIRS), THERE, expected)
    gone = "quarantine/partials"
    yield _case("partials_were_gone", "a start said so", lock_record(WITH_DIRS), THERE, gone)
    bare = lock_record(WRITTEN._replace(had_dirs=True))
    yield _case("partials_gone_before_a_batch", "no numbers", bare)
    yield _case("partials_before_a_batch", "no numbers", bare, THERE, kept=False)
    yield _case("other_log", "its log is gone", lock_record(WHOLE._replace(log_uuid=OTHER)))


def _damaged_locks() -> Iterator[Case]:
    """Whatever is wrong with it: it may have named a batch that is not there."""
    why = "what LOCK says does not verify"
    record = lock_record(WITH_DIRS)
    end = len(record.rstrip(b" "))
    for at in range(end):
        damaged = record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :]
        yield _case(f"byte_{at}", why, damaged, THERE)
    for length in (0, 1, 8, 40, WRITTEN_AT, WRITTEN_AT + 8, 100, 120, 140, 144, end - 1, end, 159):
        yield _case(f"cut_{length}", why, record[:length], THERE)
    yield _case("zeros", why, bytes(len(record)), THERE)
    yield _case("spaces", why, b" " * len(record), THERE)
    replaced = record[:WRITTEN_AT].replace(b"%020d" % 5, b"%020d" % 6) + record[WRITTEN_AT:]
    yield _case("of_an_owner_before", "its line is written behind a later owner", replaced, THERE)


def _planted() -> Iterator[Case]:
    """Numbers that no log gets to: a daemon reads none of it."""
    for name, segment_id, before_no in (
        ("segment_beyond_all", 2**63, 7),
        ("batch_beyond_all", 3, 2**40),
        ("last_batch", 3, 2**40 - 1),
    ):
        case = _case(name, "no number is so high", None, kept=False if name[0] == "l" else None)
        header = pack_segment_header(SegmentHeader(LOG, segment_id, before_no, 5))
        case["files"][f"wal/{segment_id:020d}.wal"] = header.hex()
        yield case


def _folded() -> Iterator[Case]:
    """Names of a disk that does not look at case, there and on another one."""
    folded = lock_record(WITH_DIRS._replace(is_folded=True))
    plain, small = "partials/0/S/r", "partials/0/@s/r"
    yield _case("folded_none", "LOCK of version 2", folded, THERE, kept=False)
    yield _case("folded", "S is @s there", folded, small, kept=True)
    yield _case("folded_not_yet", "a start was killed", folded, plain, kept=True)
    yield _case("folded_without_lock", "it says nothing", None, small, kept=True)
    yield _case("folded_in_another", "both forms, always", lock_record(WITH_DIRS), small, kept=True)
    case = _case(
        "folded_others", "names as they are listed", folded, "partials/0/s/r", small, kept=True
    )
    yield case | {"of": {"s": True, "SS": False}}
    case = _case(
        "folded_not_this_one", "s is another session", folded, "partials/0/s/r", kept=False
    )
    yield case | {"of": {"s": True}}
    case = _case("folded_not_yet_mixed", "an earlier build mixed them", folded, plain, kept=True)
    yield case | {"of": {"s": None, "other": False}}
