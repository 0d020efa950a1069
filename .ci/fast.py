"""The files of tests that `make fast` runs: those of what differs from the main branch.

Owns: the way from a changed file to the tests nearest to it, the bound on how many. Refuses:
running them. With `--node` it prints those of the Node client instead, as they are built.

Tests mirror the packages: those of `walld/a/b/c.py` are the files of `tests/unit/a/b` that have `c`
in their name, then the others of that folder, or of the next parent that is there. A helper of the
tests has those that import it. Behind FILES_MAX files the rest is for `make test`, and this says
so. Where nothing differs, as in a fresh clone, it is as if all of DEFAULT_PACKAGES did.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = {"clients/python/walld_client": "client", "walld": "", "bench": "bench"}
"""Folders of product code, and where their tests are below tests/unit."""
DEFAULT_PACKAGES: Final = ("walld/wal", "walld/replies")
ALWAYS: Final = ("test_tidy.py",)
LOOP: Final = (".ci", "Makefile", "pyproject.toml")
VECTORS: Final = "clients/vectors"
VECTORS_TESTS: Final = (
    "tests/unit/pages/test_vectors.py",
    "tests/unit/client/query/test_client_offline.py",
    "tests/acceptance/daemon/test_malformed.py",
)
"""Those that read the vectors, or make them anew."""
NODE: Final = "clients/node"
NODE_VECTORS_TEST: Final = "test/wire/vectors.test.ts"
OWN_TARGETS: Final = {
    "adapters", "crash", "fuzz", "install", "kernel", "nfs", "rivals", "simulation", "upgrade",
    "zoo",
}  # fmt: skip
"""Folders of tests/ that `make test` leaves to other targets; the Makefile has the same list."""
FILES_MAX: Final = 32


def git(root: Path, *words: str) -> list[str]:
    """The lines it prints; none where it fails."""
    done = subprocess.run(
        ["git", *words],
        cwd=root,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed(root: Path) -> list[str]:
    """Files that differ from where this branch left the main one: committed, or not yet."""
    base = "HEAD"
    for main in ("origin/HEAD", "origin/main", "origin/master", "main", "master"):
        if found := git(root, "merge-base", "HEAD", main):
            base = found[0]
            break
    new = git(root, "ls-files", "--others", "--exclude-standard")
    return sorted({*git(root, "diff", "--name-only", "--no-renames", base), *new})


def near(root: Path, name: str) -> Iterator[tuple[int, Path]]:
    """Tests of a changed file, 0 for those of its own, 1 for its neighbours'."""
    path = Path(name)
    if path.parts[0] == "tests":
        if path.suffix == ".py" and not OWN_TARGETS & set(path.parts):
            yield from _of_tests(root, path)
        return
    if name.startswith(LOOP):
        yield from ((0, test) for test in sorted((root / "tests/ci").glob("test_*.py")))
    if path.is_relative_to(VECTORS):
        yield from ((0, root / test) for test in VECTORS_TESTS)
    if path.suffix == ".md":
        yield from ((1, test) for test in (root / "tests/unit").rglob("test_docs.py"))
    for folder, place in PACKAGES.items():
        if path.is_relative_to(folder) and path.suffix == ".py":
            yield from _of_module(root / "tests/unit", place, path.relative_to(folder))
            return


def _of_tests(root: Path, path: Path) -> Iterator[tuple[int, Path]]:
    if path.name.startswith("test_"):
        if (root / path).exists():
            yield 0, root / path
        return
    imports = re.compile(rf"^(from|import) [\w.]*\b{re.escape(path.stem)}\b", re.MULTILINE)
    for test in sorted((root / "tests").rglob("test_*.py")):
        is_elsewhere = OWN_TARGETS & set(test.relative_to(root).parts)
        if not is_elsewhere and imports.search(test.read_text()):
            yield 1, test


def _of_module(unit: Path, place: str, module: Path) -> Iterator[tuple[int, Path]]:
    folder = unit / place / module.parent
    while not folder.is_dir():
        folder = folder.parent
    # Beside all that no package has: only by its name there.
    flat = folder == unit
    prefix = f"{place}_" if flat and place else ""
    own = re.compile(rf"test_(?:\w+_)?{prefix}{module.stem}(?:_\w+)?")
    for test in sorted(folder.glob("test_*.py")):
        if own.fullmatch(test.stem):
            yield 0, test
        elif not flat:
            yield 1, test


def chosen(root: Path, names: Sequence[str]) -> list[Path]:
    """Nearest first, each once."""
    ranks: dict[Path, int] = {root / "tests" / name: 0 for name in ALWAYS}
    for name in names:
        for rank, test in near(root, name):
            ranks[test] = min(rank, ranks.get(test, rank))
    return sorted(ranks, key=lambda test: (ranks[test], test))


def of_node(root: Path, names: Sequence[str]) -> list[Path]:
    """Tests of the Node client for what was changed, below its folder: those of the package."""
    node = root / NODE
    found: set[Path] = set()
    for name in names:
        path = Path(name)
        if path.is_relative_to(VECTORS):
            found.add(node / NODE_VECTORS_TEST)
        elif name.endswith(".test.ts") and path.is_relative_to(f"{NODE}/test"):
            found |= {path for path in (root / path,) if path.exists()}
        elif path.suffix == ".ts" and path.is_relative_to(f"{NODE}/src"):
            package = path.relative_to(f"{NODE}/src").parent
            # A package without tests of its own, and the modules above all packages: those above.
            while not (tests := sorted((node / "test" / package).glob("*.test.ts"))):
                if package == Path():
                    break
                package = package.parent
            found |= set(tests)
    return sorted(path.relative_to(node) for path in found)


def main(words: Sequence[str]) -> int:
    names = changed(ROOT)
    if words == ["--node"]:
        # tsc keeps the folders; what runs is JavaScript.
        print(*(Path("build") / test.with_suffix(".js") for test in of_node(ROOT, names)))
        return 0
    if not any(list(near(ROOT, name)) for name in names):
        print("fast: nothing differs that has unit tests: a small set", file=sys.stderr)
        names = [
            str(path.relative_to(ROOT))
            for one in DEFAULT_PACKAGES
            for path in (ROOT / one).rglob("*.py")
        ]
    tests = chosen(ROOT, names)
    if len(tests) > FILES_MAX:
        told = f"fast: the nearest {FILES_MAX} of {len(tests)} files; `make test` has the others"
        print(told, file=sys.stderr)
    print(*(test.relative_to(ROOT) for test in tests[:FILES_MAX]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
