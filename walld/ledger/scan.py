"""Reads a session's file in order, with its breaks and its end.

Owns: where a reading begins without reading all before it, and the verdict on what lies between two
lines. Refuses: finding whole lines (`line_scan.py`), writing (`store.py`), what a line says
(`line.py`, `sessions/`).

Invariants
- J1 A line is given out only when it is whole (its crc) and behind all that were given before; what
  is missing or damaged between two of them is a Break, never skipped in silence.
- J2 Reading starts behind a line that was found by its seq, and follows those before it or hides
  none behind it; or at the beginning of the file.
- J4 A file ends with the line that a reading gives out last, wherever others stand behind it:
  reading from the front comes to the same last line as from the end.

What lies within a run of bytes too long to be read (`line_scan.py`) is damage, said as a break like
any other.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from walld.ledger.line import chain_of, chain_text, line_chain, line_seq
from walld.ledger.line_scan import (
    FoundLine,
    backwards,
    find_line,
    fits,
    follows,
    last_line,
    lines_between,
)
from walld.ledger.out_of_order_lines import AHEAD_BYTES, in_order
from walld.ledger.runs import Begin, Run, Runs

if TYPE_CHECKING:
    from walld.disk.base import File
    from walld.ledger.pending import Pending

__all__ = ["Break", "End", "Reading", "end_of", "read_lines"]

_END_BYTES: Final = 16 * 1024
"""Of the end, whose lines are glanced at: a block in a wrong place is seldom longer."""
_ORDER_BYTES: Final = 512 * 1024
"""Of the end, read where those are not dense: twice what is looked at behind a line that stands
too early."""
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


class Reading(NamedTuple):
    """Lines of a session in order, whole ones only.

    size: offset behind the last of them, or behind all that was read. torn_bytes: what is no line
    behind the last one of the file; 0 where `limit` ended the reading. end: the last line up to
    there that is given out; where there is none the header. runs: all lines, where they are more
    than are to be held; `lines` has none then.
    """

    lines: list[bytes]
    breaks: list[Break]
    size: int
    torn_bytes: int
    end: FoundLine
    runs: list[Run]

    @property
    def total(self) -> int:
        """Lines, in either form."""
        return len(self.lines) or sum(run.total for run in self.runs)


class End(NamedTuple):
    """The last line that is given out. clean: behind the last whole one, which may be another.

    claimed: its seq, or that of one that stands too early, and follows it by its chain.
    """

    line: FoundLine
    clean: int
    claimed: int = 0


def end_of(file: File, size: int, header: bytes) -> End | None:
    """Where a reading ends (J4), None where there is no line.

    One read, as long as the lines at the end are dense; of one that stands out of order a bounded
    part before it is read as well.
    """
    start = max(0, size - _END_BYTES)
    text = file.read_at(size - start, start)
    begin = text.rfind(b"\n", 0, -1) + 1
    seq = line_seq(text[begin:])
    last = FoundLine(start + begin, seq, text[begin:]) if seq else last_line(file, size)
    if last is None:
        return None
    seqs = [int(one) for one in _begun.findall(text)]
    if len(seqs) > 1 or not start:
        is_dense = seq > 0 and seqs == list(range(seq - len(seqs) + 1, seq + 1))
    else:  # long lines
        is_dense = fits(file, last)
    return End(last, last.end, last.seq) if is_dense else _last_given(file, last, header)


def _last_given(file: File, last: FoundLine, header: bytes) -> End:
    """Of the lines up to `last`. Looked for from behind (J3)."""
    held: deque[FoundLine] = deque()
    given = FoundLine(-1, 0, header)
    for found in backwards(file, last.end):
        held.appendleft(found)
        if len(held) > 2 and found.offset < last.end - _ORDER_BYTES:
            pairs = pairwise(held)
            given = next((one for one, behind in pairs if follows(behind, one)), found)
            break
    lines = (one for one in held if one.offset > given.offset)
    for found, _, is_given in in_order(lines, given.seq, chain_text(chain_of(given.line))):
        given = found if is_given else given
    behind = {line_chain(found.line): found for found in held}
    claimed = given
    while (found_next := behind.pop(chain_text(chain_of(claimed.line)), None)) is not None:
        claimed = found_next
    return End(given, last.end, max(given.seq, claimed.seq))


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
    held_bytes_max: int = 0,
) -> Reading:
    """The lines behind seq `after`, at most `limit` (0: all), with what is wrong between them.

    header: the whole header line as it must be; not is_headed: what stands in its place, whatever
    its length, is none, which the caller knows. from_offset: where the caller believes the line
    `after` ends, 0 to read all. pending: lines from this one on are the log's, and may be half
    written: they hide none, and of those behind all others nothing is said. What else stands out of
    order there is told. held_bytes_max: where there are more bytes of lines, their runs (0: never).
    """
    end = _landing(file, size, header, after, from_offset)
    if end is None or end.seq == 0:
        end = FoundLine(0 if is_headed else -len(header), 0, header)
    lines: list[bytes] = []
    runs, begins = Runs(), list[Begin]()
    held_since, lines_end = 0, -1
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
                if why or found.offset != lines_end:
                    begins.append(Begin(len(lines), found.offset, found.seq, chain))
                    held_since = held_since if lines else found.offset
                lines.append(found.line)
                lines_end = found.end
                if held_bytes_max and lines_end - held_since > held_bytes_max:
                    runs.take(lines, begins)
                    held_since = lines_end
            end = found
        else:
            told = early if found.seq >= until else breaks
            told.append(Break(found.offset, found.seq, found.seq - 1, "order", seam))
        clean = found.end
        if limit and runs.count + len(lines) == limit and end.seq != until - 1:
            torn_bytes = 0
            break
    else:
        torn_bytes = size - clean
    if runs.count:
        runs.take(lines, begins)
    return Reading(lines, breaks, clean, torn_bytes, end, runs.ended())


def _why(found: FoundLine, last: int, clean: int, fits: bool) -> str:
    """What is wrong between a line and the one before it; "" for nothing."""
    if found.offset > clean:
        return "damaged"
    if found.seq > last + 1:
        return "missing"
    return "" if fits else "chain"


def _landing(
    file: File, size: int, header: bytes, after: int, from_offset: int | None
) -> FoundLine | None:
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


def _follow_up_to(file: File, found: FoundLine, header: bytes, size: int) -> bool:
    """A reading of all would give it out.

    Each line follows the one before it, from further back than a block in a wrong place is long:
    in one, of another session say, all but the first do. Where one does not, lines were lost there
    or such a block begins; none is hidden where all seqs rise, on from there as far as a reading
    looks ahead.
    """
    behind, since, follow = found, found, True
    for one in backwards(file, found.offset):
        if not follows(behind, one):
            if one.seq >= behind.seq:
                return False
            since, follow = one, False
        elif one.offset < since.end - _END_BYTES:
            break
        behind = one
    else:
        if not follows(behind, FoundLine(0, 0, header)):
            return False
    if follow:
        return True
    ahead = lines_between(file, found.end, min(size, found.end + AHEAD_BYTES))
    return all(one.seq < behind.seq for one, behind in pairwise([found, *ahead]))
