"""The lines of a file that is imported, as often as they are asked for.

Owns: reading lines again. Refuses: what the lines say (`foreign/`), archives (`import_archive.py`),
other files (`follow.py`), unpacking (`compressed_file.py`).
"""

from __future__ import annotations

import io
import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import accumulate
from typing import IO, Final, overload

from walld.cli.session.compressed_file import Readable
from walld.cli.session.follow import lines_of_file

__all__ = ["copied", "lines_of"]

_BLOCK_BYTES: Final = 64 * 1024


def lines_of(file: Readable, path: str, closing: ExitStack) -> Sequence[bytes]:
    """The lines of what `unpacked` gave. FormatError: one is too long, or the file is cut.

    They are read again where they are asked for: anything but a plain file is copied to one first,
    which is there until `closing` ends.
    """
    lines = lines_of_file(file, path)
    if isinstance(file, io.BufferedReader) and file.seekable():
        return _OfFile(file, map(len, lines))
    return copied(lines, closing)


def copied(lines: Iterable[bytes], closing: ExitStack) -> Sequence[bytes]:
    """Lines that come once, in a temporary file that has no name. OSError where there is no room
    for it.
    """
    file = closing.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  it is closed there
    lengths = array("q", map(file.write, lines))
    file.flush()
    return _OfFile(file, lengths)


class _OfFile(Sequence[bytes]):
    """Lines of a plain file, by where they end. What is read is what stands in a block of it."""

    def __init__(self, file: IO[bytes], lengths: Iterable[int]) -> None:
        self._file = file
        self._ends = array("q", accumulate(lengths))
        self._block, self._block_at = b"", 0

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[bytes]:
        begin = 0
        for end in self._ends:
            yield self._between(begin, end)
            begin = end

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        end = self._ends[at]
        at %= len(self)
        return self._between(self._ends[at - 1] if at else 0, end)

    def _between(self, begin: int, end: int) -> bytes:
        at = begin - self._block_at
        if at < 0 or end - self._block_at > len(self._block):
            size = max(end - begin, _BLOCK_BYTES)
            self._block, self._block_at = os.pread(self._file.fileno(), size, begin), begin
            at = 0
        return self._block[at : at + end - begin]
