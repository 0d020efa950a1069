"""Names of modules: which are given twice, and which modules have nothing of their own."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Mapping

from gauges.source_tree import Module

__all__ = ["given_twice", "only_reexport"]


def given_twice(modules: Iterable[str]) -> dict[str, int]:
    """Last parts of dotted names that more than one module or package has, and how many do."""
    counts = Counter(name.rpartition(".")[2] for name in modules)
    counts.pop("__main__", None)
    return {name: count for name, count in sorted(counts.items()) if count > 1}


def only_reexport(modules: Mapping[str, Module]) -> list[str]:
    """Modules that import names, define nothing, and do nothing."""
    return sorted(name for name, module in modules.items() if _only_imports(module.tree))


def _only_imports(tree: ast.Module) -> bool:
    kinds = [_kind(statement) for statement in tree.body]
    return "import" in kinds and "own" not in kinds


def _kind(statement: ast.stmt) -> str:
    match statement:
        case ast.ImportFrom(module="__future__") | ast.Expr(value=ast.Constant(value=str())):
            return "none"
        case ast.Import() | ast.ImportFrom():
            return "import"
        case ast.If(body=body, orelse=orelse):
            kinds = {_kind(inner) for inner in [*body, *orelse]}
            return "own" if "own" in kinds else "import" if "import" in kinds else "none"
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return "none"
        case ast.Assign(value=ast.Name() | ast.Attribute()):
            return "none"  # another name for what was imported
        case _:
            return "own"
