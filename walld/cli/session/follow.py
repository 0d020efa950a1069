"""Files beside the one that is imported, which hold what its conversation began with.

Owns: finding them, and their lines before its own. Refuses: which lines those are
(`foreign/parts.py`), the import (`import_file.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Final

from walld.cli.session.compressed_file import Readable, unpacked
from walld.errors import FormatError, NotUnderstood
from walld.foreign.parts import LINES_LOOKED_AT, Part, before, is_source, part_of

__all__ = ["LINE_BYTES_MAX", "followed", "lines_of_file"]

LINE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of a foreign file: no agent writes such a line, and a device has no other."""
_FILES_LOOKED_AT: Final = 10_000
_PARTS_MAX: Final = 100
"""Files behind each other: a fork of a fork of a fork ..."""
_ENDINGS: Final = (".jsonl", ".jsonl.zst", ".jsonl.gz", ".jsonl.xz", ".jsonl.bz2")
"""Codex compresses those that nobody has written to for long."""


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

    FormatError for a line that is too long, NotUnderstood for a file that cannot be unpacked here,
    OSError for one that cannot be read.
    """
    return _followed(lines_of_file(file, path), Path(path), {os.path.realpath(path)})


def _followed(lines: Iterator[bytes], path: Path, taken: set[str]) -> Iterator[bytes]:
    first = list(islice(lines, LINES_LOOKED_AT))
    part = part_of(first)
    source = None if part is None or len(taken) > _PARTS_MAX else _source(path, part, taken)
    if part is not None and source is not None:
        with source.open("rb") as file:
            own = lines_of_file(unpacked(file, str(source))[0], str(source))
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
                lines = lines_of_file(unpacked(file, str(one))[0], str(one))
                if is_source(list(islice(lines, LINES_LOOKED_AT)), part):
                    return one
        except NotUnderstood:
            if part.of in one.name:
                raise
        except (OSError, FormatError):
            continue  # another's
    return None


def _beside(path: Path, part: Part) -> Iterator[Path]:
    """The same folder; of Codex the folders of all days, of an agent that of its session."""
    folder = path.absolute().parent
    yield from _sessions(folder, "")
    if part.format == "codex" and folder.name.isdecimal():
        yield from _sessions(folder.parent.parent.parent, "[0-9]*/[0-9]*/[0-9]*/")
    elif folder.name == "subagents":
        yield from _sessions(folder.parent.parent, "")


def _sessions(folder: Path, within: str) -> Iterator[Path]:
    for ending in _ENDINGS:
        yield from sorted(folder.glob(f"{within}*{ending}"))
