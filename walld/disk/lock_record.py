"""The contents of LOCK: bytes and meaning.

Owns: the record (FORMAT.md), what of it is believed, and against what its segments say of
themselves. Refuses: the file, who writes it and when (`lock.py`).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from walld.errors import FormatError

__all__ = [
    "EPOCH_MAX",
    "LOCK_BYTES",
    "LOCK_NAME",
    "WRITTEN_AT",
    "LockRecord",
    "believes_segments",
    "is_lost",
    "is_raised",
    "lock_record",
    "parse_lock",
    "trouble_of",
]

LOCK_NAME = "LOCK"
LOCK_BYTES = 160
_LOCK_BYTES_MIN = 128
"""Of an older version; behind those may stand some of a later record."""
WRITTEN_AT = 72
"""Where `written` stands: the epoch before it has all its digits, whoever's it is."""
EPOCH_MAX = 1 << 27
"""No owner got there, nor did a segment: what says so is damaged, and the rest tells how far they
did. From there on no epoch would have stream numbers of its own."""
_LOCK = re.compile(
    rb"walld ([12])\nepoch ([0-9]{1,20})\nlog ([0-9a-f]{32})\n"
    rb"(written\n(?:synced ([0-9]{20}) (?:first ([0-9]{20}) )?([0-9a-f]{8})\n)?(directories\n)?)?"
)
_HEAD = re.compile(rb"walld [0-9]+\nepoch ([0-9]{1,20})\nlog [0-9a-f]{32}\n")
"""As an owner of any version, and of any log, writes it."""


class LockRecord(NamedTuple):
    """What stands in LOCK. had_log: a segment was durable once.

    synced_no: a batch that was. first_no: the first that must be there, all before it may have
    gone with their segments. Both 0 where the line that names them is not there, or does not
    verify; first_no alone, too, in the line of an older walld: there the batch of synced_no must be
    there until a segment begins behind it.
    had_dirs: partials/ and sessions/ were there, durably. Every start makes both, and no daemon
    removes them; an older walld made sessions/ when it had one, and does not say so.
    is_folded: names may be folded (`folded.py`): version 2, which earlier builds refuse.
    """

    epoch: int
    log_uuid: bytes
    had_log: bool = False
    synced_no: int = 0
    first_no: int = 0
    had_dirs: bool = False
    is_folded: bool = False


def lock_record(told: LockRecord) -> bytes:
    """What stands in LOCK (FORMAT.md)."""
    version = 2 if told.is_folded else 1
    fixed = f"walld {version}\nepoch {told.epoch:020}\nlog {told.log_uuid.hex()}\n".encode()
    assert len(fixed) == WRITTEN_AT, fixed
    lines = "written\n" if told.had_log else ""
    if told.had_log and (told.synced_no or told.first_no):
        named = f"{told.synced_no:020} first {told.first_no:020}"
        lines += f"synced {named} {_crc(told):08x}\n"
    lines += "directories\n" if told.had_log and told.had_dirs else ""
    return fixed + lines.encode().ljust(LOCK_BYTES - WRITTEN_AT)


def _crc(told: LockRecord, *, is_older: bool = False) -> int:
    """A digit that flips would miss batches that never were; so would the number of another log,
    or what an owner wrote that was replaced while it stood still: what was first for it has gone.

    is_older: of a line without first_no.
    """
    seed, numbers = zlib.crc32(told.log_uuid), b"%020d" % told.synced_no
    if not is_older:
        seed, numbers = zlib.crc32(b"%020d" % told.epoch, seed), numbers + b"%020d" % told.first_no
    return zlib.crc32(numbers, seed)


def parse_lock(raw: bytes, path: str) -> LockRecord | None:
    """None where no whole record stands there. FormatError where it is one of another version."""
    found = _LOCK.match(raw)
    if found is not None:
        told = _told(found)
        return told if _verifies(told, found) else told._replace(synced_no=0, first_no=0)
    version = re.match(rb"walld ([0-9]+)\n", raw)
    if version is not None and version[1] not in (b"1", b"2"):
        text = f"a LOCK of version {int(version[1])}, this walld reads 1 and 2: run the one that "
        text += "wrote it"
        raise FormatError(f"{path}: {text}, or remove LOCK where none did")
    return None


def is_raised(raw: bytes, epoch: int) -> bool:
    """A later owner than that of this epoch wrote it, of the same log or of another one.

    No damage but that of an epoch's digit looks like it, and an older record put back does not.
    """
    found = _HEAD.match(raw)
    return found is not None and epoch < int(found[1]) < EPOCH_MAX


def trouble_of(raw: bytes) -> str | None:
    """What is wrong with a LOCK of this version: it may have named a batch, or directories."""
    found = _LOCK.match(raw)
    if found is None:
        return "no whole record stands in LOCK: power was lost at its making, or damage"
    end = _LOCK_BYTES_MIN if found.end() <= _LOCK_BYTES_MIN else LOCK_BYTES
    is_whole = len(raw) in (_LOCK_BYTES_MIN, LOCK_BYTES) and not raw[found.end() : end].strip(b" ")
    if is_whole and (found[7] is None or _verifies(_told(found), found)):
        return None
    return "what LOCK says of the log does not verify: damage, or power was lost at its writing"


def _told(found: re.Match[bytes]) -> LockRecord:
    log_uuid, numbers = bytes.fromhex(found[3].decode()), (int(found[5] or 0), int(found[6] or 0))
    had_log, had_dirs = found[4] is not None, found[8] is not None
    return LockRecord(int(found[2]), log_uuid, had_log, *numbers, had_dirs, found[1] == b"2")


def _verifies(told: LockRecord, found: re.Match[bytes]) -> bool:
    crc = _crc(told, is_older=found[6] is None)
    return found[7] is not None and int(found[7], 16) == crc


def believes_segments(told: bytes, known: Sequence[bytes]) -> bool:
    """True where it is not LOCK (told) that is right about the log, but its segments (known).

    LOCK has no checksum. It is believed against one segment, which may be another log's, unless the
    two differ in one digit alone; and against none where several agree.
    """
    if not known or told in known:
        return False
    return _is_slip(told, known[0]) or (len(known) > 1 and len(set(known)) == 1)


def is_lost(told: LockRecord, log_uuid: bytes) -> bool:
    """The log of LOCK, where it is its segments, of log_uuid, that are believed: unless LOCK has a
    slip, what it names was here and is not any more.
    """
    return told.had_log and not _is_slip(told.log_uuid, log_uuid)


def _is_slip(one: bytes, other: bytes) -> bool:
    """They differ in one hex digit at most, as by one byte of LOCK."""
    return sum(a != b for a, b in zip(one.hex(), other.hex(), strict=True)) <= 1
