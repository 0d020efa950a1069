"""A file that is compressed, read as what it holds.

Owns: which compressions can be read here, and that one that is cut or damaged is an error. Refuses:
what the lines say (`foreign/`), archives (`import_archive.py`).

gzip, bzip2 and xz are Python's own, zstd is so from 3.14 on: before it comes from backports.zstd,
which is the same code, or from the package zstandard.
"""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import lzma
import zlib
from contextlib import suppress
from typing import Any, Final, Protocol

from walld.errors import NotUnderstood
from walld.foreign.containers import compressed

__all__ = ["Readable", "unpacked"]

_DAMAGED: Final = (EOFError, zlib.error, lzma.LZMAError, OSError, ValueError)
"""What the readers raise for bytes that are none of theirs, but for each package's ZstdError."""
_MAGIC_BYTES: Final = 6
_ZSTD_MODULES: Final = ("compression.zstd", "backports.zstd")
_FED_BYTES: Final = 512
"""At a time to zstandard, which gives at once all that they hold: 128 KiB of four at worst."""


class Readable(Protocol):
    """A file that gives lines of bytes."""

    def readline(self, size: int, /) -> bytes:
        """The next one, or so much of it; empty at the end."""


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
    for module in _ZSTD_MODULES:
        with suppress(ImportError):
            opened: Readable = importlib.import_module(module).open(file)
            return opened
    with suppress(ImportError):
        return io.BufferedReader(_Frames(file, importlib.import_module("zstandard")))
    raise NotUnderstood(
        f"{path}: it is compressed with zstd, which this Python cannot read: unpack it first"
        " (zstd -d -o OTHER FILE), or install the package backports.zstd (pip install"
        " 'walld[zstd]') or zstandard"
    )


class _Frames(io.RawIOBase):
    """zstd by the package zstandard, whose own reader takes a file that is cut for a whole one."""

    def __init__(self, file: io.BufferedReader, zstandard: Any) -> None:
        self._file = file
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame: Any = None
        """The one that has begun; None between two of them."""
        self._fed = b""
        """Packed bytes behind the last frame's end."""
        self._held = memoryview(b"")
        """What was unpacked and not read yet."""

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any, /) -> int:
        while not self._held:
            packed = self._fed or self._file.read(_FED_BYTES)
            if not packed:
                if self._frame is not None:
                    raise EOFError("it ends in the middle of a frame")
                return 0
            frame = self._frame = self._frame or self._decompressor.decompressobj()
            self._held = memoryview(frame.decompress(packed))
            self._fed = frame.unused_data if frame.eof else b""
            if frame.eof:
                self._frame = None
        count = min(len(into), len(self._held))
        into[:count] = self._held[:count]
        self._held = self._held[count:]
        return count
