"""The lines of a file that is imported, as often as they are asked for.

Owns: reading lines again. Refuses: what the lines say (`foreign/`), archives (`import_archive.py`),
other files (`follow.py`), unpacking (`compressed_file.py`).
"""

from __future__ import annotations

import io
import os
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import overload

from walld.cli.session.compressed_file import Readable
from walld.cli.session.follow import lines_of_file

__all__ = ["lines_of"]


def lines_of(file: Readable, path: str) -> Sequence[bytes]:
    """The lines of what `unpacked` gave. FormatError: one is too long, or the file is cut.

    Of a plain file they are read again where they are asked for, of anything else they are held.
    """
    lines = lines_of_file(file, path)
    if isinstance(file, io.BufferedReader) and file.seekable():
        return _OfFile(file.fileno(), map(len, lines))
    return list(lines)


class _OfFile(Sequence[bytes]):
    """Lines of a plain file, by where they end."""

    def __init__(self, fd: int, lengths: Iterable[int]) -> None:
        self._fd = fd
        self._ends = array("q", accumulate(lengths))

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        end = self._ends[at]
        at %= len(self)
        begin = self._ends[at - 1] if at else 0
        return os.pread(self._fd, end - begin, begin)
