"""What was recorded, in `recorded/`: `values.json`, the measures, and `code_lines.jsonl`, a line
for each record.

A line has the commit, its date and the code lines of each room. It is counted from the commit, not
from the working tree.
"""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

from gauges.code_lines import by_room
from gauges.ratchet import Measure

__all__ = ["CODE_LINES", "VALUES", "add_line", "line_of", "recorded", "write"]

_RECORDED = Path(__file__).with_name("recorded")
VALUES = _RECORDED / "values.json"
CODE_LINES = _RECORDED / "code_lines.jsonl"


def recorded() -> dict[str, Measure]:
    """The measures as they were recorded last."""
    values: dict[str, Measure] = json.loads(VALUES.read_text())
    return values


def write(values: Mapping[str, Measure]) -> None:
    """Record these."""
    VALUES.write_text(json.dumps(values, indent=1) + "\n")


def line_of(root: Path, commit: str) -> dict[str, object]:
    """The line of a commit of the repository at `root`."""
    name, date = _git(root, "log", "-1", "--format=%h %cs", commit).decode().split()
    with tarfile.open(fileobj=io.BytesIO(_git(root, "archive", commit))) as archive:
        texts = {
            member.name: content.read().decode()
            for member in archive
            if member.name.endswith((".py", ".ts")) and (content := archive.extractfile(member))
        }
    return {"commit": name, "date": date, "rooms": by_room(texts)}


def add_line(path: Path, line: Mapping[str, object]) -> bool:
    """Add it, unless the last line has the same rooms: True if it was added."""
    lines = path.read_text().splitlines() if path.exists() else []
    if lines and json.loads(lines[-1])["rooms"] == line["rooms"]:
        return False
    path.write_text("\n".join([*lines, json.dumps(line)]) + "\n")
    return True


def _git(root: Path, *words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, check=True).stdout
