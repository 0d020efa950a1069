"""Rules of the house that no linter knows, as tests."""

from __future__ import annotations

import ast
import io
import re
import runpy
import sys
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*(ROOT / "walld").rglob("*.py"), *(ROOT / "clients/python").rglob("*.py")])
TESTS = sorted((ROOT / "tests").rglob("*.py"))
BANNED_WORDS = {"utils", "util", "helper", "helpers", "manager", "misc", "common"}
BANNED_NAMES = {"data"}
"""As the name of a module, class, function, or public attribute: it says nothing."""


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), named(path))


def each(paths: Iterable[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """One test that looks at each of them, and tells every one in which its rule is broken.

    A test a file was most of a second thousand tests: their bookkeeping cost more than the look.
    """

    def of(rule: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            looked, broken = 0, []
            for path in paths:
                looked += 1
                try:
                    rule(path)
                except AssertionError as error:
                    broken.append(f"{named(path)}: {error}")
            assert looked
            assert not broken, "\n".join(broken)

        return test

    return of


def test_there_is_something_to_look_at() -> None:
    names = {named(path) for path in SOURCES}
    assert {"walld/engine/engine.py", "clients/python/walld_client/reply/reply.py"} <= names


@each(SOURCES)
def test_a_module_says_what_it_is(path: Path) -> None:
    text = ast.get_docstring(parsed(path))
    assert text, "no module docstring"
    assert text.splitlines()[0].endswith((".", ":", "?")), "its first line is a sentence"
    if path.name not in ("__init__.py", "__main__.py"):
        assert len(text) > 60, "what it owns and what it refuses"


def public_names(module: ast.Module) -> Iterator[str]:
    """Public names a module defines itself, at its top level."""
    for node in module.body:
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name
            case ast.Assign(targets=targets):
                for target in targets:
                    for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                        if isinstance(part, ast.Name):
                            yield part.id
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def exported(module: ast.Module) -> list[str] | None:
    """What `__all__` says, None where there is none."""
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return None


def imported(module: ast.Module) -> set[str]:
    """Names that come from elsewhere."""
    found: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
    return found


@each(SOURCES)
def test_all_is_exact(path: Path) -> None:
    """Classes and functions without an underscore are in it, and nothing that is not there.

    Constants may stay out: a table beside the code that uses it is no promise.
    """
    module = parsed(path)
    names = exported(module)
    everything = set(public_names(module))
    defined = {name for name in everything if not name.startswith("_")}
    if names is None:
        callables = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        public = [n.name for n in module.body if isinstance(n, callables) and n.name[0] != "_"]
        assert not public, f"no __all__, and these are public: {public}"
        return
    assert len(set(names)) == len(names), "twice"
    nowhere = set(names) - everything - imported(module)
    assert not nowhere, f"in __all__ and not there: {nowhere}"
    constants = {name for name in defined if name.isupper()}
    callables_missing = {n for n in defined - set(names) - constants if n != "__all__"}
    types = {
        target.id
        for node in module.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and not isinstance(node.value, ast.Call)
    }
    assert not callables_missing - types, f"public and not in __all__: {callables_missing - types}"


def words(name: str) -> set[str]:
    """The words of a name: CamelCase or snake_case."""
    return {part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


@each([*SOURCES, *TESTS])
def test_no_name_that_says_nothing(path: Path) -> None:
    assert not words(path.stem) & BANNED_WORDS, path.name
    for name in re.findall(r"^ *class (\w+)", path.read_text(), re.M):  # a tree of each is dear
        assert not words(name) & BANNED_WORDS, name
    if path in SOURCES:
        for name in public_names(parsed(path)):
            assert name not in BANNED_NAMES, name


@each(
    path
    for path in sorted(ROOT.rglob("*"))
    if path.is_file()
    and not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
    and not {"__pycache__", "build", "dist", "node_modules"} & set(path.parts)
    and path.suffix not in (".pyc", ".wal")
    and path != Path(__file__)
)
def test_no_path_of_the_machine_it_was_written_on(path: Path) -> None:
    text = path.read_bytes()
    for banned in (b".pyenv", b"/tmp/pytest-of-"):
        assert banned not in text, banned.decode()


def prose(path: Path) -> Iterator[str]:
    """Docstrings and comments."""
    for node in ast.walk(parsed(path)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


FILES = {
    f"/{path.relative_to(ROOT)}"
    for folder in ("walld", "clients", "tests", "bench")
    for path in (ROOT / folder).rglob("*.*")
    if path.suffix in (".py", ".ts", ".pth") and "node_modules" not in path.parts
}
MODULES = {Path(name).stem for name in FILES} | {"walld", "walld_client"} | sys.stdlib_module_names
NO_MODULE_HERE = {
    *("logmanager/eventlog.py", "message.py"),  # gptme's own
    *("content", "response", "result"),  # events, and an object, of the providers' SDKs
    "thing",  # any object
}
"""What stands in backticks as a file or a `module.name` would, and is none."""


@each(SOURCES)
def test_a_module_that_is_named_exists(path: Path) -> None:
    """`file.py`, `folder/file.py` and `module.name` in docstrings and comments."""
    named_files, named_modules = set[str](), set[str]()
    for text in prose(path):
        named_files |= set(re.findall(r"`([\w/]+\.(?:py|ts))`", text))
        named_modules |= set(re.findall(r"`([a-z_]\w*)\.(?!(?:py|ts)`)\w+(?:\(.*?\))?`", text))
    no_file = {one for one in named_files if not any(file.endswith(f"/{one}") for file in FILES)}
    assert (no_file | named_modules - MODULES) - NO_MODULE_HERE == set()


def labels() -> list[tuple[str, str]]:
    """(label, module) of every invariant that a module docstring numbers: "- S1 ..."."""
    found = []
    for path in SOURCES:
        text = ast.get_docstring(parsed(path)) or ""
        found += [(label, named(path)) for label in re.findall(r"^- ([A-Z]\d)\b", text, re.M)]
    return found


def test_labels_are_given_once() -> None:
    names = [label for label, _ in labels()]
    assert len(names) > 20
    twice = {label for label in names if names.count(label) > 1}
    assert not twice, twice


def test_every_invariant_is_named_by_a_test() -> None:
    told = "\n".join(path.read_text() for path in TESTS if path != Path(__file__))
    words = set(re.findall(r"\b[A-Z]\d\b", told))
    assert [one for one in labels() if one[0] not in words] == [], (
        "no test says that it looks at it"
    )


def test_no_two_files_of_tests_have_one_name() -> None:
    """Most stand in no package: pytest would find one of them only, and end with an error."""
    names = [path.name for path in TESTS if path.name.startswith("test_")]
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_every_test_of_an_sdk_is_in_a_group() -> None:
    """`make test-adapters` runs those that are named there, and no others."""
    groups = (ROOT / "tests/adapters/__main__.py").read_text()
    assert [
        path
        for path in TESTS
        if path.match("tests/adapters/*/test_*.py") and path.name not in groups
    ] == []


# --- tests/unit mirrors the packages --------------------------------------------------------------

UNIT = ROOT / "tests/unit"
MIRRORED = {"walld": "", "clients/python/walld_client": "client", "bench": "bench"}
"""Folders of code, and where the tests of their packages are below tests/unit."""
OF_NO_PACKAGE = {
    "pages": "what the pages, their examples and the vectors say",
    "harness": "what the tests themselves are run with",
}
OF_THE_PACKAGE_ABOVE = {"bench/costs", "bench/faults", "bench/load", "bench/peers"}
"""What they measure is checked, not how: `tests/unit/bench` has the check for all of them."""


def packages() -> dict[Path, Path]:
    """Each package of the code, and where its tests are to be."""
    found = {}
    for code, place in MIRRORED.items():
        for start in (ROOT / code).rglob("__init__.py"):
            found[start.parent] = UNIT / place / start.parent.relative_to(ROOT / code)
    return found


def test_each_folder_of_unit_tests_is_that_of_a_package() -> None:
    folders = {path.parent for path in UNIT.rglob("*.py")}
    named_here = {UNIT / name for name in OF_NO_PACKAGE}
    assert named_here <= folders, "an exception that there is no folder for"
    strays = folders - set(packages().values()) - named_here
    assert not strays, f"no package has these names: {sorted(map(named, strays))}"


def test_each_package_has_its_folder_of_unit_tests() -> None:
    """From three modules on: of a smaller one those of the package above it may do."""
    without = {
        named(package)
        for package, place in packages().items()
        if len([path for path in package.glob("*.py") if path.name != "__init__.py"]) >= 3
        and not list(place.glob("test_*.py"))
    }
    assert without == OF_THE_PACKAGE_ABOVE, "its tests stand elsewhere, or it has none"


def test_each_module_has_tests_near_it() -> None:
    """As `make fast` looks for them; of a module beside all packages by its name alone."""
    near = runpy.run_path(str(ROOT / ".ci/fast.py"))["near"]
    modules = [path for code in MIRRORED for path in sorted((ROOT / code).rglob("*.py"))]
    assert [
        named(path)
        for path in modules
        if path.stem not in ("__init__", "__main__") and not list(near(ROOT, named(path)))
    ] == []
