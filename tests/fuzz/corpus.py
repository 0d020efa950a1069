"""The kept inputs of each target.

Owns: reading and adding them. Refuses: where the first of them come from (`seeds.py`), what one
means (the targets). Imports nothing of walld: atheris must see its modules first.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

__all__ = ["CORPUS", "INPUT_BYTES_MAX", "keep", "load"]

CORPUS = Path(__file__).parent / "corpus"
INPUT_BYTES_MAX = 4096


def load(target: str) -> list[tuple[str, bytes]]:
    """(name, bytes) of what is kept for a target."""
    files = sorted(path for path in (CORPUS / target).iterdir() if path.is_file())
    return [(path.name, path.read_bytes()) for path in files]


def keep(target: str, data: bytes) -> Path:
    """Add an input, under the name of its hash."""
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(data).hexdigest()[:16]
    path.write_bytes(data)
    return path
