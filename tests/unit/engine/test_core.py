"""What is queued, written, synced, released, orphaned and kept is set in one place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import walld.engine

FOLDER = Path(walld.engine.__file__).parent
FIELDS = {"disk_full", "gone", "orphans", "queue_bytes", "synced_seq", "written_seq"}
STEPS = {
    "batches": {"queued", "dropped", "bury", "bury_with", "carry", "written", "synced"},
    "registry": {"add", "remove", "own", "disown", "leaves", "left"},
    "partials": {"add", "remove", "move"},
    "orphans": {"pop", "clear"},
}


def settings(text: str) -> Iterator[str]:
    """Assignments to these fields of another object, and calls of these steps."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case (
                ast.Attribute(value=ast.expr() as owner, attr=name, ctx=ast.Store())
                | ast.Subscript(
                    value=ast.Attribute(value=ast.expr() as owner, attr=name),
                    ctx=ast.Store() | ast.Del(),
                )
            ) if name in FIELDS and ast.unparse(owner) != "self":
                yield ast.unparse(node)
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(attr=owned) | ast.Name(id=owned), attr=step)
            ) if step in STEPS.get(owned, ()):
                yield ast.unparse(node.func)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_the_core_alone_sets_them(path: Path) -> None:
    found = list(settings(path.read_text()))
    if path.name == "core.py":
        fields = {one.rpartition(".")[2] for one in found}
        missing = {"gone", "written_seq", "synced_seq", "queued", "own", "disown"} - fields
        assert not missing, "a reading that finds nothing proves nothing"
    else:
        assert found == []
