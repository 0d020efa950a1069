"""Finds whole lines in a session's file: from the front, from the end, by seq.

Owns: which bytes of a file are lines, wherever they stand. Refuses: which of them are the session's
(`out_of_order_lines.py`), and what is wrong between two (`scan.py`); what a line says (`line.py`).

Bisection believes no line it has only glanced at: what is found is whole, and has the seq that was
asked for.

Invariants
- J3 Memory and time are bounded by the lines, whatever the file is long: of a run of bytes without
  a line, longer than _RUN_BYTES_MAX, only its two ends are read.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from walld.ledger.files import pieces
from walld.ledger.line import chain_of, chain_text, line_chain, line_seq
from walld.limits import LEDGER_LINE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walld.disk.base import File

__all__ = ["FoundLine", "backwards", "find_line", "fits", "follows", "last_line", "lines_between"]

_BACK_BYTES_MAX: Final = 1024 * 1024
_RUN_BYTES_MAX: Final = 8 * LEDGER_LINE_BYTES_MAX
"""Bytes without a line that are walked over. A file can have any length: one that a disk made a
TiB of zeros of took all memory, and walking over it takes an hour (J3)."""
_GLANCE_BYTES: Final = 2 * 1024
"""Read at a time where a line is looked for: most lines are shorter."""
_seq = re.compile(rb'\{"(?:seq":([0-9]{1,19}),|walld":)')


class FoundLine(NamedTuple):
    """A whole line and where it stands. seq 0: the header."""

    offset: int
    seq: int
    line: bytes

    @property
    def end(self) -> int:
        """Where the next line begins."""
        return self.offset + len(self.line)


def lines_between(file: File, start: int, end: int) -> Iterator[FoundLine]:
    """Whole lines of events from `start`, where one may begin, to `end`. What is none is left out.

    Who wants to know what was left out compares offsets.
    """
    while True:
        for found in _near(file, start, end):
            yield found
            start = found.end
        if end - start <= _RUN_BYTES_MAX:
            return
        last = last_line(file, end)
        if last is None or last.offset < start:
            return
        # It stands behind a long run, alone or with others before it.
        for found in backwards(file, last.end):
            if found.offset < start:
                break
            last = found
        start = last.offset


def last_line(file: File, size: int) -> FoundLine | None:
    """The last whole line of an event before `size`, reading backwards from there.

    Where there is none within reach, the last one before a long run, by bisection over offsets.
    """
    last = next(backwards(file, size), None)
    if last is not None or size <= _RUN_BYTES_MAX:
        return last
    low, high = 0, size
    while high - low > _RUN_BYTES_MAX:
        middle = (low + high) // 2
        seen = next(_near(file, middle, min(high, middle + 2 * LEDGER_LINE_BYTES_MAX)), None)
        if seen is None:
            high = middle
        else:
            low = seen.offset
    near = deque(_near(file, low, size), maxlen=1)
    return near[0] if near else None


def find_line(file: File, seq: int, size: int) -> FoundLine | None:
    """The whole line of that seq before `size`, by bisection over offsets.

    None where it is not found that way: it is not there, or damage misled the search.
    """
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        begin = _line_start(file, middle, high)
        if begin < 0:
            high = middle
            continue
        glanced = _seq.match(file.read_at(32, begin))
        if glanced is None:
            return None
        number = int(glanced[1] or 0)
        if number == seq:
            found = next(lines_between(file, begin, size), None)
            return found if found is not None and found[:2] == (begin, seq) else None
        if number < seq:
            low = begin + 1
        else:
            high = middle
    return None


def fits(file: File, found: FoundLine) -> bool:
    """It follows the line before it: no copy that stands elsewhere does."""
    before = last_line(file, found.offset)
    return before is not None and follows(found, before)


def follows(found: FoundLine, before: FoundLine) -> bool:
    """It was made for that line."""
    return line_chain(found.line) == chain_text(chain_of(before.line))


def _near(file: File, start: int, end: int) -> Iterator[FoundLine]:
    """Whole lines from `start` to `end`, or to where a long run of bytes has none."""
    for offset, piece in pieces(file, start, end):
        found = _whole(offset, piece)
        if found is not None:
            yield found
            start = found.end
        elif offset + len(piece) - start > _RUN_BYTES_MAX:
            return


def backwards(file: File, end: int) -> Iterator[FoundLine]:
    """Whole lines before `end`, the last one first, up to where a long run of bytes has none."""
    start, block, until = end, _GLANCE_BYTES, end - _RUN_BYTES_MAX
    text = b""
    while start > max(0, until):
        taken = min(block, start)
        start -= taken
        text = file.read_at(taken, start) + text
        end = len(text)
        while end > 0:
            begin = text.rfind(b"\n", 0, end - 1) + 1
            is_long = end - begin > LEDGER_LINE_BYTES_MAX
            if begin == 0 and start > 0 and not is_long:
                break  # it may begin before the window
            found = _whole(start + begin, text[begin:end])
            if found is not None:
                yield found
                begin, until = found.offset - start, found.offset - _RUN_BYTES_MAX
            end = begin
        text = text[:end]
        block = min(block * 8, _BACK_BYTES_MAX)


def _whole(offset: int, piece: bytes) -> FoundLine | None:
    """The line in a piece that ends in a newline: all of it, or, behind damage, its end."""
    seq = line_seq(piece)
    if seq:
        return FoundLine(offset, seq, piece)
    begin = piece.rfind(b'{"seq":', 1)
    if begin < 0:
        return None
    seq = line_seq(piece[begin:])
    return FoundLine(offset + begin, seq, piece[begin:]) if seq else None


def _line_start(file: File, at: int, high: int) -> int:
    """Where the first line begins that does so in [at, high); -1 where none does, or none near."""
    if at == 0:
        return 0
    at -= 1
    until = min(high - 1, at + LEDGER_LINE_BYTES_MAX)
    while at < until:
        text = file.read_at(min(_GLANCE_BYTES, high - 1 - at), at)
        cut = text.find(b"\n")
        if cut >= 0:
            return at + cut + 1
        if not text:
            break
        at += len(text)
    return -1
