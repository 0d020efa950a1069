"""Reads and copies files that are too long for memory, and their quarantine.

Owns: the order of the steps, which is what makes them atomic and durable. Refuses: what the files
hold, and when any of it is done.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from walld.disk.base import LINK_REFUSED
from walld.errors import FormatError
from walld.ledger.names import temporary
from walld.limits import LEDGER_LINE_BYTES_MAX
from walld.wal.layout import QUARANTINE_DIR

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from walld.disk.base import Disk, File

__all__ = [
    "KEPT_BYTES_MAX",
    "blocks_of",
    "erase_kept",
    "keep_aside",
    "keep_bytes",
    "keep_file",
    "keep_part",
    "pieces",
    "sync_name",
    "write_anew",
    "write_whole",
]

_BLOCK_BYTES: Final = 1024 * 1024
_PIECE_BLOCK_BYTES: Final = 64 * 1024
KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
"""What is longer is not copied to quarantine: its file gets a second name there (`keep_file`)."""


def sync_name(disk: Disk, path: str) -> None:
    """Make the name of a file durable: a process that was killed may have left it without that."""
    folder = path.rpartition("/")[0]
    disk.make_dir(folder)
    disk.sync_dir(folder)


def write_whole(file: File, content: bytes, offset: int) -> None:
    """All of it, however much the kernel takes at a time."""
    written = 0
    while written < len(content):
        rest = content[written:] if written else content
        written += file.write_at(rest, offset + written)


def blocks_of(file: File, start: int, end: int) -> Iterator[bytes]:
    """The bytes [start, end) of a file, a block at a time."""
    while start < end:
        block = file.read_at(min(_BLOCK_BYTES, end - start), start)
        if not block:
            return
        start += len(block)
        yield block


def pieces(file: File, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """What lies between newlines, newline included; the last may be without.

    What is longer than any line comes in parts; the last of them is as long as a line can be.
    """
    held: deque[bytes] = deque()
    held_bytes = 0
    offset, at = start, start
    while at < end:
        block = file.read_at(min(_PIECE_BLOCK_BYTES, end - at), at)
        if not block:
            break
        at += len(block)
        begin = 0
        while cut := block.find(b"\n", begin) + 1:
            held.append(block[begin:cut])
            piece = b"".join(held)
            held.clear()
            held_bytes = 0
            yield offset, piece
            offset, begin = offset + len(piece), cut
        if begin < len(block):
            held.append(block[begin:])
            held_bytes += len(held[-1])
        if held_bytes > 2 * LEDGER_LINE_BYTES_MAX:
            part = b""
            while held_bytes - len(held[0]) >= LEDGER_LINE_BYTES_MAX:
                held_bytes -= len(held[0])
                part += held.popleft()
            yield offset, part
            offset += len(part)
    if held:
        yield offset, b"".join(held)


def write_anew(disk: Disk, path: str, blocks: Iterable[bytes]) -> None:
    """Like `Disk.replace`, a block at a time: whole and durable, or what stood there before."""
    unfinished = temporary(path)
    with suppress(FileNotFoundError):
        disk.unlink(unfinished)
    file = disk.create(unfinished)
    try:
        try:
            size = 0
            for block in blocks:
                write_whole(file, block, size)
                size += len(block)
            file.sync()
        finally:
            file.close()
        disk.rename(unfinished, path)
    except BaseException:
        with suppress(OSError):
            disk.unlink(unfinished)
        raise
    disk.sync_dir(path.rpartition("/")[0])


def keep_bytes(
    disk: Disk, path: str, offset: int, damaged: bytes, reason: str, *, again: bool = True
) -> str:
    """Copy bytes of a file to quarantine, durably, with a note of where they came from.

    Returns the path of the copy. The note is there before the bytes are, so that they are never
    unexplained; the same bytes of the same place are kept once, whatever crashes come between.
    again: a copy that is there is written once more, since its name may not be durable.
    """
    disk.make_dir(QUARANTINE_DIR)
    taken = {entry.name: entry.size for entry in disk.list_dir(QUARANTINE_DIR)}
    base = f"{path.replace('/', '+')}.{offset}.{len(damaged)}"
    name, copy = base, 1
    while name in taken and not _holds(disk, f"{QUARANTINE_DIR}/{name}", damaged):
        copy += 1
        name = f"{base}.{copy}"
    kept = f"{QUARANTINE_DIR}/{name}"
    if name in taken and not again:
        return kept
    note = f"from: {path}\noffset: {offset}\nbytes: {len(damaged)}\nreason: {reason}\n"
    disk.replace(f"{kept}.note", note.encode("utf-8", "backslashreplace"))
    disk.replace(kept, damaged)
    return kept


def keep_part(disk: Disk, file: File, start: int, end: int, reason: str) -> bool:
    """The bytes [start, end) go to quarantine. False: with the whole file, which stays as it is."""
    length = end - start
    if length > KEPT_BYTES_MAX:
        keep_file(disk, file.path, reason)
        return False
    keep_bytes(disk, file.path, start, file.read_at(length, start), reason)
    return True


def keep_file(disk: Disk, path: str, reason: str) -> str:
    """A second name of a whole file in quarantine, durably: for damage too long to be copied.

    Whoever goes on with the session writes a new file. FormatError where there are no such names.
    """
    kept = _new_name(disk, path, "whole")
    note = f"from: {path}\nthe whole file\nreason: {reason}\n"
    disk.replace(f"{kept}.note", note.encode("utf-8", "backslashreplace"))
    try:
        disk.link(path, kept)
    except OSError as error:
        if error.errno not in LINK_REFUSED:
            raise
        raise FormatError(
            f"{path}: more than {KEPT_BYTES_MAX} bytes in it are no line, and this file system "
            "gives it no second name in quarantine/: nothing was written; move the file away"
        ) from None
    disk.sync_dir(QUARANTINE_DIR)
    return kept


def keep_aside(disk: Disk, path: str, reason: str) -> None:
    """What is no file, and stands where one belongs, goes to quarantine as it is, with a note."""
    kept = _new_name(disk, path, "no-file")
    note = f"from: {path}\nreason: {reason}\n"
    disk.replace(f"{kept}.note", note.encode("utf-8", "backslashreplace"))
    disk.rename(path, kept)
    disk.sync_dir(QUARANTINE_DIR)
    disk.sync_dir(path.rpartition("/")[0])


def _new_name(disk: Disk, path: str, ending: str) -> str:
    """A path in quarantine that nothing has, for what stands at `path`."""
    disk.make_dir(QUARANTINE_DIR)
    taken = {entry.name for entry in disk.list_dir(QUARANTINE_DIR)}
    base = f"{path.replace('/', '+')}.{ending}"
    name, copy = base, 1
    while name in taken:
        copy += 1
        name = f"{base}.{copy}"
    return f"{QUARANTINE_DIR}/{name}"


def erase_kept(disk: Disk, session_path: str) -> int:
    """Remove what quarantine holds of a session, durably. Returns files.

    A directory stays: walld has put nothing into it.
    """
    begin = session_path.replace("/", "+") + "+"
    names = [entry.name for entry in disk.list_dir(QUARANTINE_DIR) if entry.kind != "dir"]
    names = [name for name in names if name.startswith((begin, "." + begin))]
    for name in names:
        disk.unlink(f"{QUARANTINE_DIR}/{name}")
    if names:
        disk.sync_dir(QUARANTINE_DIR)
    return len(names)


def _holds(disk: Disk, path: str, expected: bytes) -> bool:
    file = disk.open(path)
    try:
        return file.read_at(len(expected) + 1, 0) == expected
    finally:
        file.close()
