"""Assignments to the engine's objects by code outside `walld/engine/`.

An engine object is what such an expression gives: a name or attribute `engine`; a name that is
annotated with a class of `walld.engine`, or made by calling one; and an attribute, an item or the
result of a method of an engine object, also under a local name of its own. A write is an
assignment (plain, augmented, annotated, as the target of a loop or a `with`), a `del`, or a
`setattr` or `delattr`.

Read from the syntax tree alone, without types: what an own attribute holds is known where it is
annotated or where an engine object is assigned to it in the same class.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gauges.python_imports import absolute
from gauges.source_tree import Module

__all__ = ["Write", "writes"]

ENGINE = "walld.engine"
_CALLED = {"engine", "_engine"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Scope = _Function | ast.ClassDef


class Write(NamedTuple):
    """One place that changes an engine object."""

    path: str
    line: int
    target: str
    is_item: bool
    """It changes an item of a table, not an attribute."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.target}"


def writes(modules: Mapping[str, Module]) -> list[Write]:
    """All of them, of the modules outside the engine."""
    return [
        Write(module.path, node.lineno, ast.unparse(node), isinstance(node, ast.Subscript))
        for name, module in modules.items()
        if name.startswith("walld.") and not f"{name}.".startswith(f"{ENGINE}.")
        for node in _Reader(_engine_classes(name, module)).read(module.tree, frozenset())
    ]


def _engine_classes(name: str, module: Module) -> set[str]:
    """Names under which this module has classes of the engine."""
    return {
        alias.asname or alias.name
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom)
        and f"{absolute(name, module.is_package, node)}.".startswith(f"{ENGINE}.")
        for alias in node.names
        if alias.name[0].isupper()
    }


class _Reader:
    def __init__(self, classes: set[str]) -> None:
        self._classes = classes

    def read(self, scope: ast.Module | _Scope, outer: frozenset[str]) -> Iterator[ast.expr]:
        """Targets of writes within; outer: what is an engine object around it, as source text."""
        known = self._known(scope, outer)
        for node in _own_nodes(scope):
            if isinstance(node, _Scope):
                yield from self.read(node, known)
            for target in _targets(node):
                match target:
                    case ast.Attribute(value=value) | ast.Subscript(value=value) if self._is_engine(
                        value, known
                    ):
                        yield target
                    case ast.Call(args=[changed, *_]) if self._is_engine(changed, known):
                        yield target

    def _known(self, scope: ast.Module | _Scope, outer: frozenset[str]) -> frozenset[str]:
        known = set(outer)
        if isinstance(scope, _Function):
            for argument in _arguments(scope):
                known.discard(argument.arg)
                if self._is_annotated(argument.annotation):
                    known.add(argument.arg)
        nodes = list(_own_nodes(scope))
        if isinstance(scope, ast.ClassDef):
            # What one method assigns to an attribute of its object, the others know it by.
            for method in (node for node in nodes if isinstance(node, _Function)):
                inner = self._known(method, frozenset(known))
                known |= {name for name in inner if name.startswith("self.")}
            return frozenset(known)
        before = -1
        while len(known) != before:
            before = len(known)
            for node in nodes:
                known |= set(self._bound(node, frozenset(known)))
        return frozenset(known)

    def _bound(self, node: ast.AST, known: frozenset[str]) -> Iterator[str]:
        """Names and attributes that this node makes names of engine objects."""
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from self._paired(target, value, known)
            case ast.NamedExpr(target=target, value=value):
                yield from self._paired(target, value, known)
            case ast.AnnAssign(target=target, annotation=annotation, value=value):
                if self._is_annotated(annotation) or (value and self._is_engine(value, known)):
                    yield ast.unparse(target)
            case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
                if self._is_engine(value, known):
                    yield from _names(target)

    def _paired(self, target: ast.expr, value: ast.expr, known: frozenset[str]) -> Iterator[str]:
        match target, value:
            case (ast.Tuple(elts=targets), ast.Tuple(elts=values)) if len(targets) == len(values):
                for one, other in zip(targets, values, strict=True):
                    yield from self._paired(one, other, known)
            case _ if self._is_engine(value, known):
                yield from _names(target)

    def _is_engine(self, node: ast.expr, known: frozenset[str]) -> bool:
        match node:
            case ast.Name(id=name):
                return name in _CALLED or name in known
            case ast.Attribute(value=value, attr=name):
                return (
                    name in _CALLED or ast.unparse(node) in known or self._is_engine(value, known)
                )
            case ast.Subscript(value=value):
                return self._is_engine(value, known)
            case ast.Call(func=ast.Name(id=name)) if name in self._classes:
                return True
            case ast.Call(func=ast.Attribute(value=value)):
                return self._is_engine(value, known)
            case ast.BoolOp(values=values):
                return any(self._is_engine(value, known) for value in values)
            case ast.IfExp(body=body, orelse=orelse):
                return self._is_engine(body, known) or self._is_engine(orelse, known)
            case _:
                return False

    def _is_annotated(self, annotation: ast.expr | None) -> bool:
        """With a class of the engine, or with that or nothing; a list of them is none."""
        if annotation is None:
            return False
        text = ast.unparse(annotation).strip("'\"")
        return any(part in self._classes for part in re.split(r"\s*\|\s*", text))


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """All nodes within, down to the scopes that begin there; those are given, not entered."""
    waiting: list[ast.AST] = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, _Scope):
            waiting += ast.iter_child_nodes(node)


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            for target in targets:
                yield from _flat(target)
        case (
            ast.AugAssign(target=target)
            | ast.For(target=target)
            | ast.AsyncFor(target=target)
            | ast.comprehension(target=target)
            | ast.withitem(optional_vars=ast.expr() as target)
        ):
            yield from _flat(target)
        case ast.AnnAssign(target=target, value=ast.expr()):
            yield target
        case ast.Call(func=ast.Name(id="setattr" | "delattr")):
            yield node


def _flat(target: ast.expr) -> Iterator[ast.expr]:
    match target:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from _flat(part)
        case ast.Starred(value=value):
            yield from _flat(value)
        case _:
            yield target


def _names(target: ast.expr) -> Iterator[str]:
    """Local names and attributes of one's own object that are bound."""
    for part in _flat(target):
        if isinstance(part, ast.Name) or ast.unparse(part).startswith("self."):
            yield ast.unparse(part)


def _arguments(function: _Function) -> list[ast.arg]:
    given = function.args
    rest = [one for one in (given.vararg, given.kwarg) if one]
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *rest]
