"""The files of this tree as texts and parsed modules: the only place that reads them.

Modules are found by walking, so a measure holds wherever a module moves to.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

__all__ = ["CLIENT", "NODE", "PRODUCT", "ROOT", "Module", "modules_of", "read", "walk"]

ROOT = Path(__file__).parents[2]
CLIENT = "clients/python"
NODE = "clients/node/src"
PRODUCT = ("walld", CLIENT, NODE)
IMPORT_ROOTS = (CLIENT, "")
"""Folders that are on Python's path: a module's name begins below one of them; inner ones first."""
_MADE = {"__pycache__", "node_modules", "build", "dist"}
"""Folders of what tools leave behind."""


class Module(NamedTuple):
    """A Python module, parsed."""

    path: str
    """From the root of the tree on, with slashes."""
    tree: ast.Module
    is_package: bool


def walk(root: Path, folders: Iterable[str]) -> list[str]:
    """Paths of all files of these folders, from the root on, without what tools leave behind."""
    found = []
    for folder in folders:
        for path in (root / folder).rglob("*"):
            parts = path.relative_to(root).parts
            is_made = any(p in _MADE or p.startswith(".") or p.endswith(".egg-info") for p in parts)
            if not is_made and path.suffix != ".pyc" and path.is_file():
                found.append("/".join(parts))
    return sorted(found)


def read(root: Path, paths: Iterable[str], suffix: str) -> dict[str, str]:
    """Texts by path, of the files that end so."""
    return {path: (root / path).read_text() for path in paths if path.endswith(suffix)}


def modules_of(texts: Mapping[str, str]) -> dict[str, Module]:
    """Modules by their dotted name; texts by path."""
    found = {}
    for path, text in texts.items():
        is_package = PurePosixPath(path).name == "__init__.py"
        found[_dotted(path)] = Module(path, ast.parse(text, path), is_package)
    return found


def _dotted(path: str) -> str:
    root = next(root for root in IMPORT_ROOTS if not root or path.startswith(f"{root}/"))
    parts = PurePosixPath(path).relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
