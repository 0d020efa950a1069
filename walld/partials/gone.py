"""Which streams are done with, written down for partials that could not be read.

Owns: the file partials/.gone (FORMAT.md), when it is written and when it goes.

A reply's tombstone stands in the log, and goes with its segment once its partial is gone. Whether a
partial that cannot be read is gone nobody knows; its tombstone is not to be forgotten for that, or
the reply would come back with the file. Damaged or of another log the file says nothing.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING
from zlib import crc32

from walld.partials.store import PARTIALS_DIR
from walld.wal import ranges
from walld.wal.scan import READ_TRIES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from walld.disk.base import Disk
    from walld.wal.ranges import Range

__all__ = ["GONE_PATH", "done_with", "read_gone"]

_log = logging.getLogger("walld.mend")

GONE_PATH = f"{PARTIALS_DIR}/.gone"
_whole = re.compile(rb"(log ([0-9a-f]{32})\n(?:[0-9]{1,20} [0-9]{1,20}\n)*)crc ([0-9a-f]{8})\n")


def read_gone(disk: Disk, log_uuid: bytes | None) -> list[Range]:
    """Their numbers, as a set of `ranges`. OSError where they cannot be read."""
    try:
        file = disk.open(GONE_PATH)
    except FileNotFoundError:
        return []
    try:
        found = _whole.fullmatch(file.read_at(file.size(), 0))
    finally:
        file.close()
    if found is None or crc32(found[1]) != int(found[3], 16) or log_uuid is None:
        return []
    if found[2] != log_uuid.hex().encode():
        return []
    lines = (line.split() for line in found[1].splitlines()[1:])
    return ranges.merged((int(first), int(last)) for first, last in lines)


def done_with(
    disk: Disk, log_uuid: bytes, dead: Iterable[int], kept: Iterable[int], *, is_all: bool
) -> tuple[list[Range], bool]:
    """Numbers of streams that are done with by what an earlier start has written down, and whether
    that could be read: where not, any number may be among them.

    is_all: this start could read all partials. Else those that it finds done with (`dead`) are
    written down too, before any tombstone goes with its segment; once all is read, and nothing of
    them lies there, the file goes.
    """
    for tried in range(1, READ_TRIES + 1):
        try:
            earlier = read_gone(disk, log_uuid)
            break
        except OSError as error:
            _log.error("%s: %s; a reply that was resolved may come back", GONE_PATH, error)
            if tried == READ_TRIES:
                return [], False
    try:
        if not is_all:
            found = ranges.merged([*earlier, *((no, no) for no in dead)])
            if found != earlier:
                _note(disk, log_uuid, found)
        elif earlier and not any(ranges.contains(earlier, no) for no in kept):
            disk.unlink(GONE_PATH)
    except OSError as error:
        _log.error("%s: %s; a reply that was resolved may come back", GONE_PATH, error)
    return earlier, True


def _note(disk: Disk, log_uuid: bytes, numbers: Iterable[Range]) -> None:
    lines = [f"log {log_uuid.hex()}\n", *(f"{first} {last}\n" for first, last in numbers)]
    content = "".join(lines).encode()
    disk.replace(GONE_PATH, content + f"crc {crc32(content):08x}\n".encode())
