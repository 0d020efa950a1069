"""Repairs a session's file: damage to quarantine, its cost noted.

Owns: the file `repaired` beside the events, a JSON line for each break that is known. Refuses:
inventing what is gone: its seqs stay missing, and whoever wants to know reads it there.

A break is named by its seam, the hash of the line before it and the chain of the line behind. The
two stay as they are, so a break that is damaged further, or another one, is reported again.

A leap is written down there as well, without a seam: it stays a break until somebody repairs it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from walld.errors import FormatError
from walld.ledger.append_position import whole_header
from walld.ledger.files import KEPT_BYTES_MAX, blocks_of, keep_bytes, keep_file, write_anew
from walld.ledger.line import chain_of, chain_text
from walld.ledger.line_scan import lines_between
from walld.ledger.names import REPAIRED_FILE
from walld.ledger.out_of_order_lines import in_order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walld.disk.base import Disk, File
    from walld.ledger.scan import Break

__all__ = [
    "Leap",
    "keep_holes",
    "leaps_of",
    "note_leap",
    "noted_seq",
    "repair_file",
    "unknown_breaks",
]


class _Note(msgspec.Struct):
    """A line of `repaired`: the seqs that are missing, where damaged bytes of them were kept."""

    first_seq: int
    last_seq: int
    why: str
    seam: str
    kept: list[str]


class Leap(NamedTuple):
    """Seqs that may have been given, and the paths of what could not be read then."""

    first_seq: int
    last_seq: int
    unread: list[str]


_LEAPT: Final = "leapt"
_NOTES_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of `repaired`, some 100,000 notes: what stands behind is not read."""
_decode = msgspec.json.Decoder(_Note).decode


def unknown_breaks(disk: Disk, path: str, breaks: list[Break]) -> list[Break]:
    """Those that no repair has written down. What is damaged now is never known."""
    if not breaks:
        return breaks
    known = {note.seam for note in _notes(disk, path)}
    return [
        item for item in breaks if item.why not in ("missing", "chain") or item.seam not in known
    ]


def noted_seq(disk: Disk, path: str, seam: str) -> int:
    """Up to where a repair has written down that lines are missing at that seam; 0: it has not."""
    return max((note.last_seq for note in _notes(disk, path) if note.seam == seam), default=0)


def leaps_of(disk: Disk, path: str) -> list[Leap]:
    """Where the session has leapt over seqs that it could not know."""
    found = (note for note in _notes(disk, path) if note.why == _LEAPT)
    return [Leap(note.first_seq, note.last_seq, note.kept) for note in found]


def note_leap(disk: Disk, path: str, leap: Leap) -> None:
    """Write a leap down, durably, once."""
    if leap not in leaps_of(disk, path):
        _add(
            disk, _notes_path(path), [_Note(leap.first_seq, leap.last_seq, _LEAPT, "", leap.unread)]
        )


def keep_holes(disk: Disk, path: str, header: bytes, *, also_end: bool) -> int:
    """Copy what is no line to quarantine, once. Returns places.

    FormatError behind all others where one is too long: it stays in the file, and nowhere else.
    """
    long = []
    file = disk.open(path)
    try:
        size = file.size()
        holes = list(_holes(file, header, size))
        if holes and not also_end and holes[-1][1] == size:
            holes.pop()
        for start, end in holes:
            if end - start > KEPT_BYTES_MAX:
                long.append(f"{end - start} at {start}")
                continue
            damaged = file.read_at(end - start, start)
            keep_bytes(disk, path, start, damaged, "damaged: found by a reading", again=False)
    finally:
        file.close()
    if long:
        most = f"at most {KEPT_BYTES_MAX} at a place are copied"
        raise FormatError(f"{path}: bytes that are no line: {', '.join(long)}; {most}")
    return len(holes)


def repair_file(disk: Disk, path: str, header: bytes, breaks: list[Break]) -> None:
    """Leave whole lines alone in the file. The notes are there before it is; again is harmless."""
    file = disk.open(path)
    try:
        size = file.size()
        found_header = whole_header(file, header) or b""
        holes = list(_holes(file, header, size))
        kept = []
        if any(end - start > KEPT_BYTES_MAX for start, end in holes):
            kept.append(keep_file(disk, path, "damaged: a repair wrote a new one"))
        for start, end in holes if not kept else ():
            damaged = file.read_at(end - start, start)
            kept.append(keep_bytes(disk, path, start, damaged, "damaged: taken out by a repair"))
        _note(disk, _notes_path(path), breaks, kept)
        if holes or not found_header:
            write_anew(disk, path, _without(file, holes, size, b"" if found_header else header))
    finally:
        file.close()


def _holes(file: File, header: bytes, size: int) -> Iterator[tuple[int, int]]:
    """What is no line, or one that no reading gives out."""
    there = whole_header(file, header)
    clean = len(there or b"")
    whole = lines_between(file, clean, size)
    for found, _, is_given in in_order(whole, 0, chain_text(chain_of(there or header))):
        if not is_given:
            continue
        if found.offset > clean:
            yield clean, found.offset
        clean = found.end
    if clean < size:
        yield clean, size


def _without(file: File, holes: list[tuple[int, int]], size: int, header: bytes) -> Iterator[bytes]:
    if header:
        yield header
    clean = 0
    for start, end in [*holes, (size, size)]:
        yield from blocks_of(file, clean, start)
        clean = end


def _note(disk: Disk, path: str, breaks: list[Break], kept: list[str]) -> None:
    found = [_Note(item.first_seq, item.last_seq, item.why, item.seam, kept) for item in breaks]
    _add(disk, path, found)


def _add(disk: Disk, path: str, notes: list[_Note]) -> None:
    lines = b"".join(msgspec.json.encode(note) + b"\n" for note in notes)
    if lines:
        before = _read(disk, path)
        if len(before) > _NOTES_BYTES_MAX:
            raise FormatError(
                f"{path} is longer than {_NOTES_BYTES_MAX} bytes, which walld never made it: "
                "move it away"
            )
        disk.make_dir(path.rpartition("/")[0])
        disk.replace(path, before + (b"" if before[-1:] in (b"", b"\n") else b"\n") + lines)


def _notes(disk: Disk, path: str) -> Iterator[_Note]:
    for line in _read(disk, _notes_path(path)).splitlines():
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            yield _decode(line)


def _read(disk: Disk, path: str) -> bytes:
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return b""
    try:
        return file.read_at(min(file.size(), _NOTES_BYTES_MAX + 1), 0)
    finally:
        file.close()


def _notes_path(path: str) -> str:
    return f"{path.rpartition('/')[0]}/{REPAIRED_FILE}"
