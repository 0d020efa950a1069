"""The lines of a file that is imported, unpacked where it is compressed.

Owns: which compressions can be read here, and reading lines again. Refuses: what the lines say
(`foreign/`), archives (`import_archive.py`), other files (`follow.py`).

gzip, bzip2 and xz are Python's own; zstd is so from 3.14 on, else the package zstandard reads it.
"""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import lzma
import os
import tempfile
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import accumulate
from typing import IO, Any, Final, overload

from walld.cli.session.follow import Readable, lines_of_file
from walld.errors import NotUnderstood
from walld.foreign.containers import compressed

__all__ = ["copied", "lines_of", "unpacked"]

_DAMAGED: Final = (EOFError, zlib.error, lzma.LZMAError, OSError, ValueError)
"""What the readers raise for bytes that are none of theirs, but for the ZstdError of zstandard."""
_MAGIC_BYTES: Final = 6
_BLOCK_BYTES: Final = 64 * 1024


class _Packed:
    """A compressed file, read like one that is not. NotUnderstood where it is cut or damaged."""

    def __init__(self, file: Readable, path: str, name: str) -> None:
        self._file, self._path, self._name = file, path, name

    def readline(self, size: int, /) -> bytes:
        try:
            return self._file.readline(size)
        except Exception as error:
            if not isinstance(error, _DAMAGED) and type(error).__name__ != "ZstdError":
                raise
            raise NotUnderstood(
                f"{self._path}: it is compressed with {self._name}, and cut or damaged ({error}):"
                f" nothing of it was imported; what {self._name} can still unpack of it can be"
            ) from None


def unpacked(file: io.BufferedReader, path: str) -> tuple[Readable, str | None]:
    """The file as what it holds, and what it was compressed with. NotUnderstood: see there."""
    name = compressed(file.peek(_MAGIC_BYTES)[:_MAGIC_BYTES])
    return (file if name is None else _Packed(_opened(file, path, name), path, name)), name


def _opened(file: io.BufferedReader, path: str, name: str) -> Readable:
    if name == "gzip":
        return gzip.GzipFile(fileobj=file, mode="rb")
    if name == "bzip2":
        return bz2.BZ2File(file)
    if name == "xz":
        return lzma.LZMAFile(file)
    with suppress(ImportError):
        opened: Readable = importlib.import_module("compression.zstd").open(file)
        return opened
    with suppress(ImportError):
        made: Any = importlib.import_module("zstandard").ZstdDecompressor()
        return io.BufferedReader(made.stream_reader(file, read_across_frames=True))
    raise NotUnderstood(
        f"{path}: it is compressed with zstd, which this Python cannot read: unpack it first"
        " (zstd -d -o OTHER FILE), or install the package zstandard"
    )


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
