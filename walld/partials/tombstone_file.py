"""The file of finished streams, kept while partials cannot be read.

Owns: the file partials/.gone (FORMAT.md), when it is written and when it goes.

A reply's tombstone stands in the log, and goes with its segment once its partial is gone. Whether a
partial that cannot be read is gone nobody knows; its tombstone is not to be forgotten for that, or
the reply would come back with the file. Of another log the file says nothing. It holds its record
twice, so that one fault takes nothing; where neither is whole it goes to quarantine, where it
speaks against "nothing there" until somebody has looked.
"""

from __future__ import annotations

import errno
import logging
import re
from typing import TYPE_CHECKING
from zlib import crc32

from walld.errors import FormatError
from walld.partials.store import PARTIALS_DIR, PartialStore
from walld.wal import ranges

if TYPE_CHECKING:
    from collections.abc import Iterable

    from walld.disk.base import Disk
    from walld.wal.ranges import Range

__all__ = ["GONE_PATH", "done_with", "read_gone", "write_down"]

_log = logging.getLogger("walld.recovery")

GONE_PATH = f"{PARTIALS_DIR}/.gone"
GONE_BYTES_MAX = 16 * 1024 * 1024
"""Some 200,000 ranges, twice. What is longer no daemon wrote: a disk can make a file a TiB."""
_NO_LIMIT = 1 << 63
"""No daemon gives a number from there on: the next one would not fit a record."""
_whole = re.compile(rb"(log ([0-9a-f]{32})\n(?:[0-9]{1,20} [0-9]{1,20}\n)*)crc ([0-9a-f]{8})\n")


def read_gone(disk: Disk, log_uuid: bytes | None) -> list[Range]:
    """Their numbers, as a set of `ranges`. OSError, FormatError where they cannot be read."""
    try:
        file = disk.open(GONE_PATH)
    except FileNotFoundError:
        return []
    try:
        if (size := file.size()) > GONE_BYTES_MAX:
            raise FormatError(f"it has {size} bytes, limit {GONE_BYTES_MAX}: it was damaged")
        content = file.read_at(size, 0)
    finally:
        file.close()
    half = len(content) // 2
    whole = [found for one in (content[:half], content[half:], content) if (found := _record(one))]
    if not whole:
        raise FormatError("neither of its records verifies: it was damaged")
    if log_uuid is None or whole[0][2] != log_uuid.hex().encode():
        return []
    lines = (line.split() for line in whole[0][1].splitlines()[1:])
    numbers = ranges.merged((int(first), int(last)) for first, last in lines)
    if numbers and numbers[-1][1] >= _NO_LIMIT:
        raise FormatError(f"it names stream {numbers[-1][1]}, limit {_NO_LIMIT - 1}")
    return numbers


def _record(content: bytes) -> re.Match[bytes] | None:
    found = _whole.fullmatch(content)
    return found if found is not None and crc32(found[1]) == int(found[3], 16) else None


def done_with(
    disk: Disk,
    log_uuid: bytes,
    dead: Iterable[int],
    kept: Iterable[int],
    *,
    is_all: bool,
) -> tuple[list[Range], bool]:
    """Numbers of streams that are done with by what an earlier start has written down, and whether
    that could be read: where not, any number may be among them.

    is_all: this start could read all partials. Where it could not, those that it finds done with
    (`dead`) are written down too, before any tombstone goes with its segment;
    `daemon/startup/deferred_recovery.py` adds those that come later, and tries again what fails
    here. The file goes once all partials are read and none of them (`kept`) is of a number in it.
    """
    try:
        earlier = read_gone(disk, log_uuid)
    except OSError as error:
        _log.error("%s: %s; a reply that was resolved may come back", GONE_PATH, error)
        return [], False
    except FormatError as error:
        return [], _set_aside(disk, error)
    try:
        if not is_all:
            write_down(disk, log_uuid, dead)
        elif earlier and not any(ranges.contains(earlier, no) for no in kept):
            disk.unlink(GONE_PATH)
    except OSError as error:
        _log.error("%s: %s; no segment goes before it is written", GONE_PATH, error)
    return earlier, True


def write_down(disk: Disk, log_uuid: bytes, numbers: Iterable[int]) -> None:
    """These are done with too, durably. OSError; what is damaged there is kept in quarantine."""
    try:
        earlier = read_gone(disk, log_uuid)
    except FormatError as error:
        if not _set_aside(disk, error):
            raise OSError(errno.EIO, str(error), GONE_PATH) from error
        earlier = []
    found = ranges.merged([*earlier, *((no, no) for no in numbers)])
    if found != earlier:
        _note(disk, log_uuid, found)


def _set_aside(disk: Disk, why: FormatError) -> bool:
    try:
        kept = PartialStore(disk).quarantine(GONE_PATH, str(why))
    except OSError as error:
        _log.error("%s: %s; it cannot be moved to quarantine: %s", GONE_PATH, why, error)
        return False
    _log.error("%s: %s; moved to %s", GONE_PATH, why, kept)
    return True


def _note(disk: Disk, log_uuid: bytes, numbers: Iterable[Range]) -> None:
    lines = [f"log {log_uuid.hex()}\n", *(f"{first} {last}\n" for first, last in numbers)]
    content = "".join(lines).encode()
    content = 2 * (content + f"crc {crc32(content):08x}\n".encode())
    if len(content) > GONE_BYTES_MAX:  # nobody would read it
        text = f"{len(content)} bytes, limit {GONE_BYTES_MAX}"
        raise OSError(errno.EFBIG, text, GONE_PATH)
    disk.replace(GONE_PATH, content)
