"""Lines of a session's file by where they stand: what a long answer keeps of them in memory.

Owns: making runs of lines, and reading a run again a page at a time. Refuses: which lines are
given out (`scan.py`), files and their names (`store.py`), what the lines mean.

Between the two readings the file may be appended to, written anew with the same beginning, deleted
and begun again. So each line must stand where it stood, with its seq, and be made for the one that
was read before it; and the last one must be what it was, which by its chain names all the others.

Invariant
- J5 A run that is read again gives the lines that it was made of, or FormatError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from walld.errors import FormatError
from walld.ledger.line import chain_of, chain_text, line_chain
from walld.ledger.line_scan import lines_between

if TYPE_CHECKING:
    from walld.disk.base import File

__all__ = ["Begin", "Run", "Runs", "read_page"]


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


class Begin(NamedTuple):
    """Where a run begins among the lines that are held. at: which of them. chain: as it has it."""

    at: int
    offset: int
    seq: int
    chain: bytes


class Runs:
    """Lines that are not held any more, in order."""

    def __init__(self) -> None:
        self.count = 0
        self._ended: list[Run] = []
        self._begin = Begin(0, 0, 0, b"")
        """Of the run that goes on."""
        self._bytes = self._lines = 0
        self._last = b""

    def take(self, lines: list[bytes], begins: list[Begin]) -> None:
        """The next lines, and each that begins a run; the lists let go of them."""
        self.count += len(lines)
        ends = [*(begin.at for begin in begins), len(lines)]
        self._go_on(lines[: ends[0]])
        for begin, end in zip(begins, ends[1:], strict=True):
            self._end()
            self._begin = begin
            self._go_on(lines[begin.at : end])
        lines.clear()
        begins.clear()

    def ended(self) -> list[Run]:
        """All of them, behind the last line."""
        self._end()
        return self._ended

    def _go_on(self, lines: list[bytes]) -> None:
        if lines:
            self._bytes += sum(map(len, lines))
            self._lines += len(lines)
            self._last = lines[-1]

    def _end(self) -> None:
        if self._lines:
            _, offset, seq, chain = self._begin
            behind = chain_text(chain_of(self._last))
            last_seq = seq + self._lines - 1
            self._ended.append(Run(offset, offset + self._bytes, seq, last_seq, chain, behind))
        self._bytes = self._lines = 0
        self._last = b""


def read_page(file: File, run: Run, bytes_max: int) -> tuple[list[bytes], Run | None]:
    """The first lines of a run, one at least, and the run behind them; None: that was all.

    FormatError where they are not those it was made of.
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
