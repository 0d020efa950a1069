"""The lines of a file that is imported, unpacked where it is compressed.

Owns: which compressions can be read here, and the limit of a line. Refuses: what the lines say
(`foreign/`), archives (`import_archive.py`).

gzip, bzip2 and xz are Python's own; zstd is so from 3.14 on, else the package zstandard reads it.
"""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import lzma
import os
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, Final, Protocol, overload

from walld.errors import FormatError, NotUnderstood
from walld.foreign.containers import compressed

__all__ = ["lines_of", "unpacked"]

_LINE_BYTES_MAX: Final = 64 * 1024 * 1024
"""No agent writes such a line, and a device has no other."""
_DAMAGED: Final = (EOFError, zlib.error, lzma.LZMAError, OSError, ValueError)
"""What the readers raise for bytes that are none of theirs, but for the ZstdError of zstandard."""
_MAGIC_BYTES: Final = 6


class _Readable(Protocol):
    def readline(self, size: int, /) -> bytes: ...


def unpacked(file: io.BufferedReader, path: str) -> tuple[_Readable, str | None]:
    """The file as what it holds, and what it was compressed with. NotUnderstood: see there."""
    name = compressed(file.peek(_MAGIC_BYTES)[:_MAGIC_BYTES])
    if name == "gzip":
        return gzip.GzipFile(fileobj=file, mode="rb"), name
    if name == "bzip2":
        return bz2.BZ2File(file), name
    if name == "xz":
        return lzma.LZMAFile(file), name
    return (_zstd(file, path) if name == "zstd" else file), name


def _zstd(file: io.BufferedReader, path: str) -> _Readable:
    with suppress(ImportError):
        opened: _Readable = importlib.import_module("compression.zstd").open(file)
        return opened
    with suppress(ImportError):
        made: Any = importlib.import_module("zstandard").ZstdDecompressor()
        return io.BufferedReader(made.stream_reader(file, read_across_frames=True))
    raise NotUnderstood(
        f"{path}: it is compressed with zstd, which this Python cannot read: unpack it first"
        " (zstd -d -o OTHER FILE), or install the package zstandard"
    )


def lines_of(file: _Readable, path: str, packed: str | None) -> Sequence[bytes]:
    """The lines of what `unpacked` gave. FormatError: one is too long, or the file is cut.

    Of a plain file they are read again where they are asked for, of anything else they are held.
    """
    lines = _lines(file, path, packed)
    if packed is None and isinstance(file, io.BufferedReader) and file.seekable():
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


def _lines(file: _Readable, path: str, packed: str | None) -> Iterator[bytes]:
    number = 0
    while line := _line(file, path, packed):
        number += 1
        if len(line) > _LINE_BYTES_MAX:
            limit = f"more than {_LINE_BYTES_MAX} bytes, the limit of a line"
            raise FormatError(f"{path}, line {number}: {limit}")
        yield line


def _line(file: _Readable, path: str, packed: str | None) -> bytes:
    if packed is None:
        return file.readline(_LINE_BYTES_MAX + 1)
    try:
        return file.readline(_LINE_BYTES_MAX + 1)
    except Exception as error:
        if not isinstance(error, _DAMAGED) and type(error).__name__ != "ZstdError":
            raise
        raise NotUnderstood(
            f"{path}: it is compressed with {packed}, and cut or damaged ({error}): nothing of it"
            f" was imported; what {packed} can still unpack of it can be"
        ) from None
