"""Reading a session's file: where its lines are, which are whole, and what is missing between.

Owns: finding a line by its seq without reading the file, and the verdict on what lies between two
lines. Refuses: writing (`store.py`), what a line says (`line.py`, `sessions/`).

Invariants
- J1 A line is given out only when it is whole (its crc) and behind all that were given before; what
  is missing or damaged between two of them is a Break, never skipped in silence.
- J2 Bisection believes no line it has only glanced at: reading starts behind a line that is whole,
  has the seq that was asked for, and follows those before it or hides none behind it, or at the
  beginning of the file.
- J3 Memory and time are bounded by the lines, whatever the file is long: of a run of bytes without
  a line, longer than _RUN_BYTES_MAX, only its two ends are read. What lies between is damage, said
  as a break like any other. Reading from the front comes to the same last line as from the end.
- J4 A file ends with the line that a reading gives out last, wherever others stand behind it.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from walld.ledger.astray import AHEAD_BYTES, in_order
from walld.ledger.files import pieces
from walld.ledger.line import chain_of, chain_text, line_chain, line_seq
from walld.limits import LEDGER_LINE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walld.disk.base import File
    from walld.ledger.pending import Pending

__all__ = [
    "Break",
    "End",
    "Found",
    "Reading",
    "end_of",
    "find_line",
    "fits",
    "last_line",
    "lines_between",
    "read_lines",
]

_BACK_BYTES_MAX: Final = 1024 * 1024
_RUN_BYTES_MAX: Final = 8 * LEDGER_LINE_BYTES_MAX
"""Bytes without a line that are walked over. A file can have any length: one that a disk made a
TiB of zeros of took all memory, and walking over it takes an hour (J3)."""
_GLANCE_BYTES: Final = 2 * 1024
"""Read at a time where a line is looked for: most lines are shorter."""
_END_BYTES: Final = 16 * 1024
"""Of the end, whose lines are glanced at: a block in a wrong place is seldom longer."""
_ORDER_BYTES: Final = 512 * 1024
"""Of the end, read where those are not dense: twice what is looked at behind a line that stands
too early."""
_seq = re.compile(rb'\{"(?:seq":([0-9]{1,19}),|walld":)')
_begun = re.compile(rb'\n\{"seq":([0-9]{1,19}),')


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


class Found(NamedTuple):
    """A whole line and where it stands. seq 0: the header."""

    offset: int
    seq: int
    line: bytes

    @property
    def end(self) -> int:
        """Where the next line begins."""
        return self.offset + len(self.line)


class Reading(NamedTuple):
    """Lines of a session in order, whole ones only.

    size: offset behind the last of them, or behind all that was read. torn_bytes: what is no line
    behind the last one of the file; 0 where `limit` ended the reading. end: the last line up to
    there that is given out; where there is none the header.
    """

    lines: list[bytes]
    breaks: list[Break]
    size: int
    torn_bytes: int
    end: Found


class End(NamedTuple):
    """The last line that is given out. clean: behind the last whole one, which may be another.

    claimed: its seq, or that of one that stands too early, and follows it by its chain.
    """

    line: Found
    clean: int
    claimed: int = 0


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


def end_of(file: File, size: int, header: bytes) -> End | None:
    """Where a reading ends (J4), None where there is no line.

    One read, as long as the lines at the end are dense; of one that stands out of order a bounded
    part before it is read as well.
    """
    start = max(0, size - _END_BYTES)
    text = file.read_at(size - start, start)
    begin = text.rfind(b"\n", 0, -1) + 1
    seq = line_seq(text[begin:])
    last = Found(start + begin, seq, text[begin:]) if seq else last_line(file, size)
    if last is None:
        return None
    seqs = [int(one) for one in _begun.findall(text)]
    if len(seqs) > 1 or not start:
        is_dense = seq > 0 and seqs == list(range(seq - len(seqs) + 1, seq + 1))
    else:  # long lines
        is_dense = fits(file, last)
    return End(last, last.end, last.seq) if is_dense else _last_given(file, last, header)


def _last_given(file: File, last: Found, header: bytes) -> End:
    """Of the lines up to `last`. Looked for from behind (J3)."""
    held: deque[Found] = deque()
    given = Found(-1, 0, header)
    for found in _backwards(file, last.end):
        held.appendleft(found)
        if len(held) > 2 and found.offset < last.end - _ORDER_BYTES:
            pairs = pairwise(held)
            given = next((one for one, behind in pairs if _follows(behind, one)), found)
            break
    lines = (one for one in held if one.offset > given.offset)
    for found, _, is_given in in_order(lines, given.seq, chain_text(chain_of(given.line))):
        given = found if is_given else given
    behind = {line_chain(found.line): found for found in held}
    claimed = given
    while (found_next := behind.pop(chain_text(chain_of(claimed.line)), None)) is not None:
        claimed = found_next
    return End(given, last.end, max(given.seq, claimed.seq))


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
    pending: Pending | None = None,
) -> Reading:
    """The lines behind seq `after`, at most `limit` (0: all), with what is wrong between them.

    header: the whole header line as it must be; not is_headed: what stands in its place, whatever
    its length, is none, which the caller knows. from_offset: where the caller believes the line
    `after` ends, 0 to read all. pending: lines from this one on are the log's, and may be half
    written: they hide none, and of those behind all others nothing is said. What else stands out of
    order there is told.
    """
    end = _landing(file, size, header, after, from_offset)
    if end is None or end.seq == 0:
        end = Found(0 if is_headed else -len(header), 0, header)
    lines: list[bytes] = []
    breaks: list[Break] = []
    clean = end.end
    is_lost = not clean
    early: list[Break] = []
    whole = lines_between(file, clean, size)
    until = sys.maxsize if pending is None else pending.seq
    ordered = in_order(whole, end.seq, chain_text(chain_of(end.line)), pending)
    for found, previous, is_given in ordered:
        if is_lost:
            is_lost, clean = False, found.offset
        chain = line_chain(found.line)
        seam = f"{previous.decode()} {chain.decode('ascii', 'backslashreplace')}"
        if is_given:
            breaks += early
            early.clear()
            why = _why(found, end.seq, clean, chain == previous)
            is_behind = found.seq > after + 1 or end.seq == after
            if why and is_behind:
                breaks.append(Break(clean, max(end.seq, after) + 1, found.seq - 1, why, seam))
            if found.seq > after:
                lines.append(found.line)
            end = found
        else:
            told = early if found.seq >= until else breaks
            told.append(Break(found.offset, found.seq, found.seq - 1, "order", seam))
        clean = found.end
        if limit and len(lines) == limit and end.seq != until - 1:
            return Reading(lines, breaks, clean, 0, end)
    return Reading(lines, breaks, clean, size - clean, end)


def _why(found: Found, last: int, clean: int, fits: bool) -> str:
    """What is wrong between a line and the one before it; "" for nothing."""
    if found.offset > clean:
        return "damaged"
    if found.seq > last + 1:
        return "missing"
    return "" if fits else "chain"


def _landing(
    file: File, size: int, header: bytes, after: int, from_offset: int | None
) -> Found | None:
    """The whole line of seq `after`; None where reading has to start at the beginning (J2)."""
    if after <= 0 or from_offset == 0:
        return None
    if from_offset is not None and from_offset <= size:
        found = last_line(file, from_offset)
        if found is not None and (found.end, found.seq) == (from_offset, after):
            return found
    end = end_of(file, size, header)
    found = end.line if end is not None and end.line.seq <= after else find_line(file, after, size)
    return found if found is not None and _follow_up_to(file, found, header, size) else None


def _follow_up_to(file: File, found: Found, header: bytes, size: int) -> bool:
    """A reading of all would give it out.

    Each line follows the one before it, from further back than a block in a wrong place is long:
    in one, of another session say, all but the first do. Where one does not, lines were lost there
    or such a block begins; none is hidden where all seqs rise, on from there as far as a reading
    looks ahead.
    """
    behind, since, follow = found, found, True
    for one in _backwards(file, found.offset):
        if not _follows(behind, one):
            if one.seq >= behind.seq:
                return False
            since, follow = one, False
        elif one.offset < since.end - _END_BYTES:
            break
        behind = one
    else:
        if not _follows(behind, Found(0, 0, header)):
            return False
    if follow:
        return True
    ahead = lines_between(file, found.end, min(size, found.end + AHEAD_BYTES))
    return all(one.seq < behind.seq for one, behind in pairwise([found, *ahead]))


def fits(file: File, found: Found) -> bool:
    """It follows the line before it: no copy that stands elsewhere does."""
    before = last_line(file, found.offset)
    return before is not None and _follows(found, before)


def _follows(found: Found, before: Found) -> bool:
    return line_chain(found.line) == chain_text(chain_of(before.line))


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
