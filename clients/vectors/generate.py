"""Writes `frames.json`, `malformed.json`, `directories.json` and `calls.json` from the code:
`python generate.py`.

The files are committed, and a test compares them with what this gives: a change of the wire shows
up as a change of bytes in a review.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from calls import calls, hashes, kinds
from directories import directories
from frames import frames, texts
from malformed import malformed
from walld_client.wire.framing import PROTOCOL_VERSION

__all__ = ["documents"]

HERE = Path(__file__).parent


def documents() -> dict[str, str]:
    """File names and what stands in them: one vector a line."""
    return {
        "frames.json": _document({"frames": frames(), "texts": texts()}),
        "malformed.json": _document({"cases": malformed()}),
        "directories.json": _document({"directories": directories()}),
        "calls.json": _document({"kinds": kinds(), "calls": calls(), "hashes": hashes()}),
    }


def _document(lists: dict[str, list[dict[str, Any]]]) -> str:
    lines = [f'"protocol": {PROTOCOL_VERSION}']
    for name, vectors in lists.items():
        inner = ",\n".join(json.dumps(vector) for vector in vectors)
        lines.append(f'"{name}": [\n{inner}\n]')
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    for name, text in documents().items():
        (HERE / name).write_text(text, encoding="ascii")
