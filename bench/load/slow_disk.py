"""walld on a disk that takes its time: `python -m bench.load.slow_disk serve --sync-ms 5 ...`.

Owns: the delay, for the daemon and for whoever is compared with it, and counting what is given to
the disk. Beside walld's own options it knows

    --sync-ms N    every fsync and fdatasync returns so much later (0)
    --write-ms N   every pwrite too (0); walld writes to files by nothing else
    --tally FILE   writes, their bytes and syncs so far are kept there, as three numbers of 8 bytes

A delay is a sleep after the call: the thread that made it waits, as for a device or a server far
away, and the core is free. Refuses: all else; the rest of the command line is walld's.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from walld.cli import main

__all__ = ["Given", "Tally", "slowed"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_FORM = struct.Struct("=QQQ")


def slowed(call: Callable[_P, _T], seconds: float) -> Callable[_P, _T]:
    """The same call, which returns so much later."""

    def slow(*arguments: _P.args, **named: _P.kwargs) -> _T:
        done = call(*arguments, **named)
        time.sleep(seconds)
        return done

    return slow


class Given(NamedTuple):
    """What a disk was given so far."""

    writes: int
    bytes: int
    syncs: int

    def since(self, earlier: Given) -> Given:
        """What was given between two looks."""
        return Given(*(now - before for now, before in zip(self, earlier, strict=True)))


class Tally:
    """Counts that another process can read, also when this one is killed."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_FORM.size))
        with path.open("r+b") as file:
            self._room = mmap.mmap(file.fileno(), _FORM.size)
        self._lock = threading.Lock()

    def given(self) -> Given:
        """So far."""
        return Given(*_FORM.unpack_from(self._room))

    def add(self, writes: int, size: int, syncs: int) -> None:
        """What was done just now."""
        with self._lock:
            now = self.given()
            _FORM.pack_into(self._room, 0, now.writes + writes, now.bytes + size, now.syncs + syncs)

    def of_write(self, write: Callable[_P, int]) -> Callable[_P, int]:
        """A write that is counted."""

        def counted(*arguments: _P.args, **named: _P.kwargs) -> int:
            taken = write(*arguments, **named)
            self.add(1, taken, 0)
            return taken

        return counted

    def of_sync(self, sync: Callable[_P, None]) -> Callable[_P, None]:
        """A sync that is counted."""

        def counted(*arguments: _P.args, **named: _P.kwargs) -> None:
            sync(*arguments, **named)
            self.add(0, 0, 1)

        return counted


def _taken(words: list[str], name: str, default: str) -> str:
    """An option's value; it is no longer among the words."""
    if name not in words:
        return default
    at = words.index(name)
    _, value = words[at : at + 2]
    del words[at : at + 2]
    return value


if __name__ == "__main__":
    sync_ms, write_ms = (float(_taken(sys.argv, name, "0")) for name in ("--sync-ms", "--write-ms"))
    told = _taken(sys.argv, "--tally", "")
    if told:
        tally = Tally(Path(told))
        os.pwrite = tally.of_write(os.pwrite)
        os.fsync, os.fdatasync = tally.of_sync(os.fsync), tally.of_sync(os.fdatasync)
    if write_ms:
        os.pwrite = slowed(os.pwrite, write_ms / 1000)
    if sync_ms:
        os.fsync = slowed(os.fsync, sync_ms / 1000)
        os.fdatasync = slowed(os.fdatasync, sync_ms / 1000)
    sys.exit(main())
