"""Judges what follows the last whole line of a session's file: unfinished write or damage.

Owns: the verdict, and which seqs it cost. Refuses: lines between others (`scan.py`), what the log
still holds of a session (the caller asks only where it holds nothing), snapshots.

A line is let go of by the log once it is durable in the file. So, where the log has none of them,
a write that was cut off is one line at most that has no newline, and what ends in one is damage.
A snapshot is written behind the sync of the lines it covers: it proves that they were there.

Invariants
- Z1 A seq that anything says was given is not given again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from walld.ledger.files import pieces
from walld.ledger.line import chain_of, chain_text, line_seq
from walld.ledger.scan import Break
from walld.limits import LEDGER_LINE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walld.disk.base import File
    from walld.ledger.line_scan import FoundLine

__all__ = ["claimed_seq", "end_break", "end_seam"]

_LINE_BYTES_MIN: Final = 125
_CLAIMED_MAX: Final = 100_000
_READ_BYTES_MAX: Final = 8 * LEDGER_LINE_BYTES_MAX
"""Of a longer end so much is read at the front, and as much at the back."""
_glance = re.compile(rb'\{"seq":([1-9][0-9]{0,18}),"id":"')


def claimed_seq(file: File, start: int, size: int, last_seq: int) -> int:
    """The highest seq of the lines that stood in [start, size), behind the line `last_seq`.

    last_seq itself where those bytes can be an unfinished write. Else at least the next, and no
    more than there is room for: a seq that can be read there may be damaged too. A line that is
    whole stands out of order there, and claims nothing.
    """
    most = min(max(1, (size - start) // _LINE_BYTES_MIN), _CLAIMED_MAX)
    count, read, whole_bytes = 0, 0, 0
    is_damage = False
    begins = True  # what is longer than a line comes in parts
    for offset, piece in _ends(file, start, size):
        if begins and line_seq(piece):
            whole_bytes += len(piece)
            continue
        count += begins and offset > 0  # the first of a file is its header
        begins = piece.endswith(b"\n")
        is_damage |= begins
        found = _glance.match(piece)
        if found is not None and int(found[1]) <= last_seq + most:
            read = max(read, int(found[1]))
    # No write of one line is as long.
    is_damage |= size - start - whole_bytes > LEDGER_LINE_BYTES_MAX
    return max(last_seq + min(max(count, 1), most), read) if is_damage else last_seq


def _ends(file: File, start: int, size: int) -> Iterator[tuple[int, bytes]]:
    """The pieces of [start, size), of a long one those at its two ends."""
    cut = min(size, start + _READ_BYTES_MAX)
    yield from pieces(file, start, cut)
    yield from pieces(file, max(cut, size - _READ_BYTES_MAX), size)


def end_break(size: int, end: FoundLine, after: int, until: int) -> Break | None:
    """The events behind seq `after` that are missing at the end of a file that had `until`.

    end: the last line that is given out, or its header.
    """
    first_seq = max(end.seq, after) + 1
    if first_seq > until:
        return None
    why = "damaged" if size > end.end else "missing"
    return Break(end.end, first_seq, until, why, end_seam(end.line))


def end_seam(line: bytes) -> str:
    """Between a line and whichever comes next: that one is made for it."""
    chain = chain_text(chain_of(line)).decode()
    return f"{chain} {chain}"
