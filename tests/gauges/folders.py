"""Files per folder, and files that are long.

A folder of code counts with every file in it, source or not: a reader goes through all of them.
A folder without source is data that tests make and read, golden files and corpora of the fuzzers,
and is not cut into packages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

__all__ = ["FILES_MAX", "LINES_TO_ASK_WHY", "crowded", "long_files"]

FILES_MAX = 20
LINES_TO_ASK_WHY = 600
_SOURCE = (".py", ".ts")


def crowded(paths: Iterable[str]) -> dict[str, int]:
    """Folders of code with more files of their own than FILES_MAX, and how many they have."""
    counts = Counter[str]()
    of_code = set()
    for path in map(PurePosixPath, paths):
        folder = str(path.parent)
        counts[folder] += 1
        if path.suffix in _SOURCE:
            of_code.add(folder)
    return {folder: counts[folder] for folder in sorted(of_code) if counts[folder] > FILES_MAX}


def long_files(texts: Mapping[str, str]) -> dict[str, int]:
    """Files above the length where one asks why, and how many lines they have. No failure."""
    lengths = {path: len(text.splitlines()) for path, text in texts.items()}
    return {path: lines for path, lines in lengths.items() if lines > LINES_TO_ASK_WHY}
