"""Lines of a session's file by where they stand: what a long answer keeps of them in memory.

Owns: gathering lines into runs, and reading a run again a page at a time. Refuses: which lines are
given out (`scan.py`), files and their names (`store.py`), what the lines mean.

Between the two readings the file may be appended to, written anew with the same beginning, deleted
and begun again. So each line must stand where it stood, with its seq, and be made for the one that
was read before it; and the last one must be what it was, which by its chain names all the others.

Invariant
- J5 A run that is read again gives the lines that were gathered, or FormatError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from walld.errors import FormatError
from walld.ledger.line import chain_of, chain_text, line_chain
from walld.ledger.line_scan import lines_between

if TYPE_CHECKING:
    from walld.disk.base import File
    from walld.ledger.line_scan import Found

__all__ = ["Gathered", "Run", "read_page"]


class Run(NamedTuple):
    """Lines that stand behind one another in [offset, end), each made for the one before it.

    chain: as the first of them has it. last_chain: as one behind the last of them would have it.
    """

    offset: int
    end: int
    first_seq: int
    last_seq: int
    chain: bytes
    last_chain: bytes

    @property
    def total(self) -> int:
        """Its lines: their seqs are dense."""
        return self.last_seq - self.first_seq + 1


class Gathered:
    """The lines of one reading: themselves, up to `bytes_max` (0: all); beyond, their runs."""

    def __init__(self, bytes_max: int = 0) -> None:
        self.lines: list[bytes] = []
        self.count = 0
        self._bytes_max = bytes_max
        self._bytes = 0
        self._runs: list[Run] = []
        self._first = (0, 0, b"")
        """Offset, seq and chain of the first line of the run that goes on, up to `_last`."""
        self._last: Found | None = None

    def add(self, found: Found, *, follows: bool) -> None:
        """The next line. follows: it was made for the one that was given before it."""
        self.count += 1
        if not self._bytes_max:
            self.lines.append(found.line)
            return
        last = self._last
        if last is None or not follows or found[:2] != (last.end, last.seq + 1):
            self._end_run()
            self._first = (found.offset, found.seq, line_chain(found.line))
        self._last = found
        self._bytes += len(found.line)
        if self._bytes <= self._bytes_max:
            self.lines.append(found.line)
        else:
            self.lines.clear()

    def runs(self) -> list[Run]:
        """All lines, where they are too many to be held; else none."""
        if not self.count or self.lines:
            return []
        self._end_run()
        return self._runs

    def _end_run(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            offset, seq, chain = self._first
            behind = chain_text(chain_of(last.line))
            self._runs.append(Run(offset, last.end, seq, last.seq, chain, behind))


def read_page(file: File, run: Run, bytes_max: int) -> tuple[list[bytes], Run | None]:
    """The first lines of a run, one at least, and the run behind them; None: that was all.

    FormatError where they are not what was gathered.
    """
    lines: list[bytes] = []
    offset, seq, chain, count = run.offset, run.first_seq, run.chain, 0
    for found in lines_between(file, run.offset, run.end):
        if (*found[:2], line_chain(found.line)) != (offset, seq, chain):
            break
        lines.append(found.line)
        offset, seq, chain = found.end, seq + 1, chain_text(chain_of(found.line))
        count += len(found.line)
        if count >= bytes_max and offset < run.end:
            return lines, run._replace(offset=offset, first_seq=seq, chain=chain)
    if (offset, seq - 1, chain) != (run.end, run.last_seq, run.last_chain):
        raise FormatError(
            f"{file.path}: line {seq} at {offset} is not what it was, lines {run.first_seq} to "
            f"{run.last_seq} stood at {run.offset} to {run.end}: its session was deleted, or the "
            "file damaged, while it was read; read it again"
        )
    return lines, None
