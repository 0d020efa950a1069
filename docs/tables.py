"""Writes the tables that the code gives into the pages: `python docs/tables.py`.

Owns: rooms (docstrings of packages, layers of pyproject.toml), limits (`walld/limits.py`), and
invariants (docstrings of modules, and `data/held_by.csv`: which test holds each). A test compares
the pages with what this gives. Refuses: prose; what stands outside the marks of a page.
"""

from __future__ import annotations

import ast
import csv
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
HELD_BY: Final = ROOT / "docs/data/held_by.csv"
_MARKS: Final = r"(<!-- table: {}, made by docs/tables.py -->\n).*?(<!-- table: end -->)"
CELL_CHARACTERS_MAX: Final = 260
_TOP: Final = {"escape", "errors", "limits"}
"""Modules that are a layer of their own, beside the packages."""


def rooms() -> str:
    """Each package, the highest layer first, what it owns, and what it is kept from."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = {
        contract["containers"][0]: [re.split(r" [|:] ", one) for one in contract["layers"]]
        for contract in contracts["contracts"]
        if contract["type"] == "layers"
    }
    rows = []
    for container, prefix in (("walld", "walld"), ("walld_client", "clients/python/walld_client")):
        for layer in layers[container]:
            rows += [
                row for name in layer for row in _room(container, prefix, name, layers, contracts)
            ]
    return _table(["package", "owns", "kept from"], rows)


def _room(
    container: str, prefix: str, name: str, layers: dict[str, Any], contracts: dict[str, Any]
) -> Iterator[list[str]]:
    folder = ROOT / prefix / name
    if not folder.is_dir():
        if name in _TOP and container == "walld":
            yield [f"`{prefix}/{name}.py`", _first(folder.with_suffix(".py")), "all of walld"]
        return
    module = f"{container}.{name}"
    yield [f"`{prefix}/{name}/`", _first(folder / "__init__.py"), _kept_from(module, contracts)]
    for layer in layers.get(module, []):
        for inner in layer:
            path = folder / inner / "__init__.py"
            if path.exists() and container == "walld" and name == "daemon":
                yield [f"`{prefix}/{name}/{inner}/`", _first(path), ""]


def _kept_from(module: str, contracts: dict[str, Any]) -> str:
    """What it may not import beside the packages above it."""
    kept = set()
    for contract in contracts["contracts"]:
        if contract["type"] == "forbidden" and module in contract["source_modules"]:
            forbidden = set(contract["forbidden_modules"])
            if {"socket", "threading"} & forbidden:
                kept.add("event loops, threads, sockets")
            if {"os", "time"} <= forbidden:
                kept.add("files, clocks, chance")
    return "; ".join(sorted(kept))


def limits() -> str:
    """Each bound with its value and its docstring."""
    tree = ast.parse((ROOT / "walld/limits.py").read_text())
    space: dict[str, Any] = {}
    exec(compile(tree, "limits.py", "exec"), space)
    rows = []
    for node, after in zip(tree.body, tree.body[1:], strict=False):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        if (name := node.target.id) in ("KIB", "MIB"):
            continue
        says = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            says = _beginning(str(after.value.value), 0)
        rows.append([f"`{name.lower()}`", with_unit(name, space[name]), says])
    return _table(["limit", "value", ""], rows)


def with_unit(name: str, value: float) -> str:
    """As a person writes it: 64 KiB, 0.25 s, 90 %."""
    words = name.split("_")
    if "BYTES" in words:
        for size, unit in ((1024**2, "MiB"), (1024, "KiB")):
            if value >= size and value % size == 0:
                return f"{int(value) // size:,} {unit}"
        return f"{value:,} B"
    if "SECONDS" in words and "PER" not in words:
        days = value / 86_400
        return f"{days:g} days" if days >= 1 and days.is_integer() else f"{value:,g} s"
    if "MS" in words:
        return f"{value:,} ms"
    if "SHARE" in words and value < 1:
        return f"{value * 100:g} %"
    return f"{value:,}"


def invariants() -> dict[str, tuple[str, str]]:
    """Label -> file, what holds. ValueError where two modules have a label."""
    found: dict[str, tuple[str, str]] = {}
    pattern = re.compile(
        r"^(?:- |Invariant )([A-Z]\d+)[: ] ?(.*(?:\n(?!- |Invariant ).+)*)", re.MULTILINE
    )
    folders = (ROOT / "walld", ROOT / "clients/python")
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        for label, says in pattern.findall(text):
            if label in found:
                raise ValueError(f"{label} is in {found[label][0]} and {path}")
            says = _beginning(says, CELL_CHARACTERS_MAX)
            found[label] = (str(path.relative_to(ROOT)), says.replace("|", "\\|"))
    return found


def _beginning(says: str, most: int) -> str:
    """As many sentences as so many characters take, one at least."""
    first, *others = re.split(r"(?<=[.])\s+(?=[A-Z\"`])", " ".join(says.split()))
    for sentence in others:
        if len(first) + len(sentence) >= most:
            break
        first += f" {sentence}"
    return first


def held_by() -> dict[str, str]:
    """Label -> the tests that hold it, as `file.py::function` each, or "none yet"."""
    with HELD_BY.open() as file:
        return {row["invariant"]: row["held by"] for row in csv.DictReader(file)}


def held_invariants() -> str:
    """The invariants, by label, with the tests that hold them."""
    tests = held_by()
    rows = [
        [label, f"[`{path.removeprefix('walld/')}`](../{path})", says, tests.get(label, "none yet")]
        for label, (path, says) in sorted(invariants().items())
    ]
    return _table(["invariant", "file", "what holds", "held by"], rows)


PAGES: Final = {
    ROOT / "walld/ARCHITECTURE.md": {"rooms": rooms},
    ROOT / "docs/limits.md": {"limits": limits},
    ROOT / "docs/invariants.md": {"invariants": held_invariants},
}
"""Each page with a table, and what makes it."""


def placed(page: Path) -> str:
    """The page with its tables as the code gives them. ValueError where its marks are not there."""
    text = page.read_text()
    for name, made in PAGES[page].items():
        table = made()
        text, count = re.subn(
            _MARKS.format(name), lambda at, t=table: f"{at[1]}\n{t}\n\n{at[2]}", text, flags=re.S
        )
        if count != 1:
            raise ValueError(f"{page}: {count} places for the table of {name}, wanted 1")
    return text


def _first(path: Path) -> str:
    """The first sentence of a module's docstring."""
    says = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(says.partition("\n\n")[0].split())


def _table(heading: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(placed(page))
