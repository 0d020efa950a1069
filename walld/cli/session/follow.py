"""Files beside the one that is imported, which hold what its conversation began with.

Owns: finding them, and their lines before its own. Refuses: which lines those are
(`foreign/parts.py`), the import (`import_file.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Final, Protocol

from walld.errors import FormatError
from walld.foreign.parts import LINES_LOOKED_AT, Part, before, is_source, part_of

__all__ = ["LINE_BYTES_MAX", "Readable", "followed", "lines_of_file"]

LINE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of a foreign file: no agent writes such a line, and a device has no other."""
_FILES_LOOKED_AT: Final = 10_000
_PARTS_MAX: Final = 100
"""Files behind each other: a fork of a fork of a fork ..."""


class Readable(Protocol):
    """A file that gives lines of bytes."""

    def readline(self, size: int, /) -> bytes:
        """The next one, or so much of it; empty at the end."""


def lines_of_file(file: Readable, path: str) -> Iterator[bytes]:
    """A device, say, has one without an end. FormatError."""
    number = 0
    while line := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > LINE_BYTES_MAX:
            limit = f"more than {LINE_BYTES_MAX} bytes, the limit of a line"
            raise FormatError(f"{path}, line {number}: {limit}")
        yield line


def followed(file: Readable, path: str) -> Iterator[bytes]:
    """The lines of a file behind those that it goes on from, as far as those are beside it.

    FormatError for a line that is too long, OSError for a file that cannot be read.
    """
    return _followed(lines_of_file(file, path), Path(path), {os.path.realpath(path)})


def _followed(lines: Iterator[bytes], path: Path, taken: set[str]) -> Iterator[bytes]:
    first = list(islice(lines, LINES_LOOKED_AT))
    part = part_of(first)
    source = None if part is None or len(taken) > _PARTS_MAX else _source(path, part, taken)
    if part is not None and source is not None:
        with source.open("rb") as file:
            own = lines_of_file(file, str(source))
            yield from before(_followed(own, source, taken | {os.path.realpath(source)}), part)
    yield from chain(first, lines)


def _source(path: Path, part: Part, taken: set[str]) -> Path | None:
    """The file that the part is in: of those beside the first whose name has it, then any."""
    files = list(islice(_beside(path, part), _FILES_LOOKED_AT))
    files.sort(key=lambda one: part.of not in one.name)
    for one in files:
        if os.path.realpath(one) in taken:
            continue
        try:
            with one.open("rb") as file:
                if is_source(list(islice(lines_of_file(file, str(one)), LINES_LOOKED_AT)), part):
                    return one
        except (OSError, FormatError):
            continue  # another's
    return None


def _beside(path: Path, part: Part) -> Iterator[Path]:
    """The same folder; of Codex the folders of all days, of an agent that of its session."""
    folder = path.absolute().parent
    yield from sorted(folder.glob("*.jsonl"))
    if part.format == "codex" and folder.name.isdecimal():
        yield from sorted(folder.parent.parent.parent.glob("[0-9]*/[0-9]*/[0-9]*/*.jsonl"))
    elif folder.name == "subagents":
        yield from sorted(folder.parent.parent.glob("*.jsonl"))
