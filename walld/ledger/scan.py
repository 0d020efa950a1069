"""Reading a session's file: where its lines are, which are whole, and what is missing between.

Owns: finding a line by its seq without reading the file, and the verdict on what lies between two
lines. Refuses: writing (`store.py`), what a line says (`line.py`, `sessions/`).

Invariants
- J1 A line is given out only when it is whole (its crc) and behind all that were given before; what
  is missing or damaged between two of them is a Break, never skipped in silence.
- J2 Bisection believes no line it has only glanced at: reading starts behind a line that is whole
  and has the seq that was asked for, or at the beginning of the file.
- J3 Memory and time are bounded by the lines, whatever the file is long: of a run of bytes without
  a line, longer than _RUN_BYTES_MAX, only its two ends are read. What lies between is damage, said
  as a break like any other. Reading from the front comes to the same last line as from the end.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from walld.ledger.astray import in_order
from walld.ledger.line import chain_of, chain_text, line_chain, line_seq
from walld.limits import LEDGER_LINE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walld.disk.base import File

__all__ = [
    "Break",
    "Found",
    "Reading",
    "find_line",
    "last_line",
    "lines_between",
    "pieces",
    "read_lines",
]

_BLOCK_BYTES: Final = 64 * 1024
_BACK_BYTES_MAX: Final = 1024 * 1024
_RUN_BYTES_MAX: Final = 8 * LEDGER_LINE_BYTES_MAX
"""Bytes without a line that are walked over. A file can have any length: one that a disk made a
TiB of zeros of took all memory, and walking over it takes an hour (J3)."""
_GLANCE_BYTES: Final = 2 * 1024
"""Read at a time where a line is looked for: most lines are shorter."""
_seq = re.compile(rb'\{"(?:seq":([0-9]{1,19}),|walld":)')


class Break(NamedTuple):
    """Something is wrong at `offset`; the events first_seq to last_seq are missing.

    first_seq > last_seq: no event is. why: "damaged" (bytes that are no line), "missing" (nothing
    lies there), "chain" (the line behind is whole and was made for another one before it), "order"
    (a line that was there before, or stands too early; it is not given out), "header", "log"
    (nobody knows whether they were given: they may stand in what cannot be read of the log). seam:
    names the place by its two neighbours, so that a repair of it can be written down.
    """

    offset: int
    first_seq: int
    last_seq: int
    why: str
    seam: str = ""


class Reading(NamedTuple):
    """Lines of a session in order, whole ones only.

    size: offset behind the last of them, or behind all that was read. torn_bytes: what is no line
    behind the last one of the file; 0 where `limit` ended the reading.
    """

    lines: list[bytes]
    breaks: list[Break]
    size: int
    torn_bytes: int = 0


class Found(NamedTuple):
    """A whole line and where it stands. seq 0: the header."""

    offset: int
    seq: int
    line: bytes

    @property
    def end(self) -> int:
        """Where the next line begins."""
        return self.offset + len(self.line)


def lines_between(file: File, start: int, end: int) -> Iterator[Found]:
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
        for found in _backwards(file, last.end):
            if found.offset < start:
                break
            last = found
        start = last.offset


def last_line(file: File, size: int) -> Found | None:
    """The last whole line of an event before `size`, reading backwards from there.

    Where there is none within reach, the last one before a long run, by bisection over offsets.
    """
    last = next(_backwards(file, size), None)
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


def _near(file: File, start: int, end: int) -> Iterator[Found]:
    """Whole lines from `start` to `end`, or to where a long run of bytes has none."""
    for offset, piece in pieces(file, start, end):
        found = _whole(offset, piece)
        if found is not None:
            yield found
            start = found.end
        elif offset + len(piece) - start > _RUN_BYTES_MAX:
            return


def _backwards(file: File, end: int) -> Iterator[Found]:
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


def find_line(file: File, seq: int, size: int) -> Found | None:
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


def read_lines(
    file: File,
    size: int,
    header: bytes,
    after: int = 0,
    limit: int = 0,
    from_offset: int | None = None,
    *,
    is_headed: bool = True,
) -> Reading:
    """The lines behind seq `after`, at most `limit` (0: all), with what is wrong between them.

    header: the whole header line as it must be; not is_headed: what stands in its place, whatever
    its length, is none, which the caller knows. from_offset: where the caller believes the line
    `after` ends.
    """
    before = _landing(file, size, after, from_offset)
    if before is None or before.seq == 0:
        before = Found(0, 0, header)
    lines: list[bytes] = []
    breaks: list[Break] = []
    last, clean = before.seq, before.end
    is_lost = not is_headed and not last
    whole = lines_between(file, 0 if is_lost else clean, size)
    for found, previous, is_given in in_order(whole, last, chain_text(chain_of(before.line))):
        if is_lost:
            is_lost, clean = False, found.offset
        chain = line_chain(found.line)
        seam = f"{previous.decode()} {chain.decode('ascii', 'backslashreplace')}"
        why = _why(found, last, clean, chain == previous) if is_given else "order"
        if why == "order":
            breaks.append(Break(found.offset, found.seq, found.seq - 1, why, seam))
        else:
            is_behind = found.seq > after + 1 or last == after
            if why and is_behind:
                breaks.append(Break(clean, max(last, after) + 1, found.seq - 1, why, seam))
            if found.seq > after:
                lines.append(found.line)
            last = found.seq
        clean = found.end
        if limit and len(lines) == limit:
            return Reading(lines, breaks, clean)
    return Reading(lines, breaks, clean, size - clean)


def _why(found: Found, last: int, clean: int, fits: bool) -> str:
    """What is wrong between a line and the one before it; "" for nothing."""
    if found.offset > clean:
        return "damaged"
    if found.seq > last + 1:
        return "missing"
    return "" if fits else "chain"


def _landing(file: File, size: int, after: int, from_offset: int | None) -> Found | None:
    """The whole line of seq `after`; None where reading has to start at the beginning (J2)."""
    if after <= 0:
        return None
    if from_offset is not None and 0 < from_offset <= size:
        found = last_line(file, from_offset)
        if found is not None and (found.end, found.seq) == (from_offset, after):
            return found
    found = last_line(file, size)
    if found is None or found.seq > after:
        found = find_line(file, after, size)
    return found if found is not None and _fits(file, found) else None


def _fits(file: File, found: Found) -> bool:
    """It follows the line before it: no copy that stands elsewhere does."""
    before = last_line(file, found.offset)
    return before is not None and chain_text(chain_of(before.line)) == line_chain(found.line)


def _whole(offset: int, piece: bytes) -> Found | None:
    """The line in a piece that ends in a newline: all of it, or, behind damage, its end."""
    seq = line_seq(piece)
    if seq:
        return Found(offset, seq, piece)
    begin = piece.rfind(b'{"seq":', 1)
    if begin < 0:
        return None
    seq = line_seq(piece[begin:])
    return Found(offset + begin, seq, piece[begin:]) if seq else None


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


def pieces(file: File, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """What lies between newlines, newline included; the last may be without.

    What is longer than any line comes in parts; the last of them is as long as a line can be.
    """
    held: deque[bytes] = deque()
    held_bytes = 0
    offset, at = start, start
    while at < end:
        block = file.read_at(min(_BLOCK_BYTES, end - at), at)
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
