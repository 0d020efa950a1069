"""The tree that is tried: a drive with this checkout's walld, client and tests on it.

Owns: what goes on it, and planting one of `spoiled.py`'s bugs there. Refuses: changing this tree.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from .image import ROOT, make_ext4
from .spoiled import SPOILED

__all__ = ["make_tree"]

_MEGABYTES: Final = 64
_CODE: Final = ("walld", "clients/python", "tests", "bench")


def make_tree(path: Path, spoiled: str = "") -> None:
    """An image with the code in it. spoiled: with that bug planted."""
    folder = path.with_name("tree.d")
    for name in _CODE:
        for file in (ROOT / name).rglob("*"):
            if file.suffix not in (".py", ".sh", ".toml") or ".venv" in file.parts:
                continue
            copy = folder / file.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)
    if spoiled:
        bug = SPOILED[spoiled]
        target = folder / bug.path
        text = target.read_text()
        assert text.count(bug.old) == 1, f"{bug.path} has changed: {bug.old!r} is not there once"
        target.write_text(text.replace(bug.old, bug.new))
    make_ext4(path, folder, _MEGABYTES)
    shutil.rmtree(folder)
