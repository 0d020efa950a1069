"""Who imports whom among Python modules of one's own: every import, wherever it stands.

`from a import b` means module a.b where there is one, else module a, as import-linter has it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

from gauges.source_tree import Module

__all__ = ["absolute", "graph_of"]


def graph_of(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """Imported modules by importing module; of `modules` alone, and none of itself."""
    return {name: set(_imported(name, modules)) - {name} for name in modules}


def _imported(name: str, modules: Mapping[str, Module]) -> Iterator[str]:
    for node in ast.walk(modules[name].tree):
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    yield from _nearest(alias.name, modules)
            case ast.ImportFrom(names=aliases):
                base = absolute(name, modules[name].is_package, node)
                for alias in aliases:
                    yield from _nearest(f"{base}.{alias.name}", modules)
            case ast.Call(args=[ast.Constant(value=str(target)), *_]) if ast.unparse(
                node.func
            ).rpartition(".")[2] in ("import_module", "__import__"):
                yield from _nearest(target, modules)


def absolute(importer: str, is_package: bool, node: ast.ImportFrom) -> str:
    """The module that a `from ... import` names, its dots resolved."""
    if not node.level:
        return node.module or ""
    parts = importer.split(".")
    kept = parts[: len(parts) - node.level + is_package]
    return ".".join([*kept, node.module] if node.module else kept)


def _nearest(target: str, modules: Collection[str]) -> Iterator[str]:
    """The module of this name, or the one that a name in it is taken from."""
    for name in (target, target.rpartition(".")[0]):
        if name in modules:
            yield name
            return
