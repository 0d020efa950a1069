"""Files per folder, and files that are long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

__all__ = ["FILES_MAX", "LINES_TO_ASK_WHY", "crowded", "long_files"]

FILES_MAX = 20
LINES_TO_ASK_WHY = 600


def crowded(paths: Iterable[str]) -> dict[str, int]:
    """Folders with more files of their own than FILES_MAX, and how many they have."""
    counts = Counter(str(PurePosixPath(path).parent) for path in paths)
    return {folder: count for folder, count in sorted(counts.items()) if count > FILES_MAX}


def long_files(texts: Mapping[str, str]) -> dict[str, int]:
    """Files above the length where one asks why, and how many lines they have. No failure."""
    lengths = {path: len(text.splitlines()) for path, text in texts.items()}
    return {path: lines for path, lines in lengths.items() if lines > LINES_TO_ASK_WHY}
