"""Each measure sees on a small tree what it is there for, and nothing where that is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from gauges import record
from gauges.circles import circles
from gauges.code_lines import by_room, code_lines
from gauges.engine_writes import writes
from gauges.folders import crowded, long_files
from gauges.module_names import given_twice, only_reexport
from gauges.passed_files import Passed, Step, passed
from gauges.python_imports import graph_of
from gauges.source_tree import modules_of, walk
from gauges.typescript import graph_of as typescript_graph_of
from gauges.typescript import without_comments


def _circles(**texts: str) -> list[list[str]]:
    """Of a package `walld` with these modules."""
    paths = {f"walld/{name}.py": dedent(text) for name, text in texts.items()}
    return circles(graph_of(modules_of(paths)))


# --- circles, Python ----------------------------------------------------------------------------

TYPE_ONLY = """
    from typing import TYPE_CHECKING

    if TYPE_CHECKING:
        from walld.a import A
"""
IN_A_FUNCTION = """
    def late():
        from walld import a
"""


@pytest.mark.parametrize(
    "back",
    [
        "import walld.a",
        "import walld.a as other",
        "from walld import a",
        "from walld.a import name",
        "from . import a",
        "from .a import name",
        "import importlib\nimportlib.import_module('walld.a')",
        TYPE_ONLY,
        IN_A_FUNCTION,
    ],
)
def test_a_circle_is_found_however_it_is_imported(back: str) -> None:
    assert _circles(a="from walld.b import B", b=back) == [["walld.a", "walld.b"]]


def test_what_only_leads_on_is_no_circle() -> None:
    texts = {"a": "from walld import b, c", "b": "import walld.c", "c": "import os, a, walld.d"}
    assert _circles(**texts) == []


def test_circles_are_told_apart_and_large_ones_come_first() -> None:
    found = _circles(
        a="import walld.b",
        b="import walld.a, walld.c",
        c="import walld.d",
        d="import walld.e",
        e="import walld.c",
    )
    assert found == [["walld.c", "walld.d", "walld.e"], ["walld.a", "walld.b"]]


def test_dots_begin_at_the_package_they_stand_in() -> None:
    texts = {
        "room/__init__": "from . import a",
        "room/a": "from .. import b",
        "b": "import walld.room",
    }
    assert _circles(**texts) == [["walld.b", "walld.room", "walld.room.a"]]


def test_the_client_has_names_without_its_folder() -> None:
    paths = {"clients/python/walld_client/wire/__init__.py": "", "walld/a.py": ""}
    assert set(modules_of(paths)) == {"walld_client.wire", "walld.a"}


# --- circles, Node ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "back",
    [
        'import { a } from "./a.ts";',
        "import type { A } from './a.js';",
        'import {\n  a,\n  b,\n} from "./a";',
        'import "./a.ts";',
        'import * as a from "./a.ts";',
        'export { a } from "./a.ts";',
        'export type { A } from "./a.ts";',
        'const a = await import("./a.ts");',
        'let a: import("./a.ts").A;',
        'const s = "//";\nimport { a } from "./a.ts";',
    ],
)
def test_a_circle_of_node_is_found(back: str) -> None:
    texts = {"src/a.ts": 'import { b } from "./in/b.ts";', "src/in/b.ts": back.replace("./", "../")}
    assert circles(typescript_graph_of(texts)) == [["src/a.ts", "src/in/b.ts"]]


def test_an_import_in_a_comment_is_none() -> None:
    comment = '/* was:\nimport { a } from "./a.ts"; */\n// import "./a.ts";\nimport "node:fs";'
    graph = typescript_graph_of({"a.ts": 'import "./b.ts";', "b.ts": comment})
    assert graph == {"a.ts": {"b.ts"}, "b.ts": set()}


def test_an_import_of_nothing_there_is_an_error() -> None:
    with pytest.raises(AssertionError, match=r"a\.ts imports \./gone\.ts"):
        typescript_graph_of({"a.ts": 'import "./gone.ts";'})


@pytest.mark.parametrize(
    "code",
    [
        "const s = \"// none\", t = '/* none */';",
        "const r = /[/*]\\/\\/'/g;",
        'return /"/.test(s);',
        "const half = a / 2;",
        "const t = `// ${a ? `/* ${b} */` : { c: 1 }.c} //`;",
        "const t = `\\`//`;",
    ],
)
def test_what_looks_like_a_comment_stays(code: str) -> None:
    assert without_comments(f"{code} // one\nnext();/* two */") == f"{code}  \nnext(); "


# --- folders and names --------------------------------------------------------------------------


def test_a_full_folder_is_found_and_its_packages_do_not_count() -> None:
    inner = [f"walld/room/inner/{number}.py" for number in range(20)]
    assert crowded([*inner, *(f"walld/room/{number}.py" for number in range(20))]) == {}
    assert crowded([*inner, *(f"walld/room/{number}.py" for number in range(21))]) == {
        "walld/room": 21
    }


def test_each_file_of_a_folder_of_code_counts_and_data_alone_is_none() -> None:
    code = [f"tests/room/{number}.py" for number in range(20)]
    data = [f"tests/golden/{number}.json" for number in range(21)]
    assert crowded([*data, *code, "tests/room/recorded.json"]) == {"tests/room": 21}


def test_a_walk_leaves_out_what_tools_make(tmp_path: Path) -> None:
    names = ["a.py", "room/b.md", "room/__pycache__/b.pyc", ".cache/c.py", "x.egg-info/d.py"]
    for name in ["walld/" + name for name in names] + ["other/e.py"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert walk(tmp_path, ["walld"]) == ["walld/a.py", "walld/room/b.md"]


def test_long_files_are_those_above_the_length() -> None:
    assert long_files({"a.py": "\n" * 600, "b.py": "\n" * 601}) == {"b.py": 601}


def test_a_name_given_twice_is_found() -> None:
    modules = ["walld.__main__", "walld.cli.__main__", "walld.a.parts", "walld.b.parts", "walld.a"]
    assert given_twice(modules) == {"parts": 2}


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ('"""What it is."""', False),
        ("from walld.b import B\n__all__ = ['B']", True),
        ("from walld.b import B\nC = B", True),
        ("if True:\n    from walld.b import B", True),
        ("from __future__ import annotations", False),
        ("from walld.b import B\nB()", False),
        ("from walld.b import B\ndef f(): ...", False),
        ("from walld.b import B\nC = 2", False),
        ("try:\n    import b\nexcept ImportError:\n    b = None", False),
    ],
)
def test_a_module_that_only_reexports_is_found(text: str, is_one: bool) -> None:
    assert only_reexport(modules_of({"walld/a.py": text})) == (["walld.a"] if is_one else [])


# --- the engine, changed from outside -----------------------------------------------------------


def _writes(text: str, path: str = "walld/daemon/a.py") -> list[str]:
    found = writes(modules_of({path: dedent(text)}))
    return sorted(f"{write.target}{' item' * write.is_item}" for write in found)


@pytest.mark.parametrize(
    "statement",
    [
        "self.engine.since = 1",
        "self._engine.since += 1",
        "engine.batches.is_shut = True",
        "engine.batches.is_shut: bool = True",
        "del engine.since",
        "setattr(engine.batches, 'is_shut', True)",
        "delattr(self._engine, name)",
        "a, (engine.since, *b) = c",
        "for engine.since in times: pass",
        "with clock() as engine.since: pass",
        "engine.streams()[3].since = 1",
        "engine.streams[3].since = 1",
        "batches = self._engine.batches; batches.is_shut = True",
        "a, b = 1, engine.batches; b.is_shut = True",
        "for stream in engine.streams.values(): stream.since = 1",
        "if stream := engine.streams.get(no): stream.since = 1",
        "[0 for engine.since in times]",
    ],
)
def test_a_change_of_the_engine_is_found(statement: str) -> None:
    assert len(_writes(statement)) == 1
    assert len(_writes(f"class A:\n    async def a(self, engine):\n        {statement}")) == 1
    assert _writes(statement, "walld/engine/a.py") == [], "its own"
    assert _writes(statement, "walld/engine_room/a.py") != []


def test_changes_of_items_are_told_apart() -> None:
    text = "engine.errors['bad'] += 1; del engine.open[key]; engine.since = 0"
    assert _writes(text) == ["engine.errors['bad'] item", "engine.open[key] item", "engine.since"]


@pytest.mark.parametrize(
    "statement",
    [
        "self.engine = engine",
        "engine = Engine()",
        "batches = engine.batches",
        "self.since = engine.since",
        "waiting[engine.since] = 1",
        "engine.begun(3)",
        "print(engine.since)",
        "setattr(self, name, engine)",
        "engines.since = 1",
    ],
)
def test_what_changes_no_engine_is_none(statement: str) -> None:
    assert _writes(statement) == []


def test_classes_of_the_engine_are_known_by_annotations() -> None:
    text = """
        from walld.engine.stream import Stream
        from walld.wal.records import Record

        class A:
            def __init__(self, first: Stream, record: Record) -> None:
                self._first = first
                self._record = record
                self._next: Stream | None = None

            def a(self, stream: "Stream", streams: list[Stream]) -> None:
                stream.no = 1
                self._first.no = 2
                self._next.no = 3
                self._record.no = 4
                streams.no = 5
                Stream().no = 6

        class B:
            def b(self, stream) -> None:
                stream.no = 7
                self._first.no = 8
    """
    assert _writes(text) == ["Stream().no", "self._first.no", "self._next.no", "stream.no"]


# --- code lines ---------------------------------------------------------------------------------


def test_code_lines_of_python() -> None:
    text = '''
        """A module."""

        # a comment
        a = 1  # behind code


        class A:
            """Two
            lines."""

            b = """three

            lines"""
            """What b is."""

            def f(
                self,
            ) -> None:
                """One."""
    '''
    assert code_lines("a.py", dedent(text)) == 8


def test_code_lines_of_typescript() -> None:
    text = "/** What\n * it is. */\n\nconst a = 1; // one\n// none\nconst b = `\n//x\n`;\n"
    assert code_lines("a.ts", text) == 4


def test_code_lines_by_room() -> None:
    paths = {
        "walld/a.py": "a\nb",
        "walld/daemon/transport/b.py": "a",
        "clients/node/src/ai/c.ts": "a",
        "clients/node/test/c.ts": "a",
        "tests/unit/d.py": "a",
        "tests/e.py": "a",
        "README.md": "a",
    }
    assert by_room(paths) == {
        "clients": 1,
        "clients/node/src/ai": 1,
        "tests": 2,
        "walld": 2,
        "walld/daemon/transport": 1,
    }


def test_a_line_is_of_its_commit_and_not_of_the_working_tree(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        own = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *own, *words], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "walld").mkdir()
    (tmp_path / "walld/a.py").write_text("a = 1\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "one", "--date", "2026-01-02T03:04:05Z")
    (tmp_path / "walld/a.py").write_text("a = 1\nb = 2\n")
    line = record.line_of(tmp_path, "HEAD")
    assert line["rooms"] == {"walld": 1}
    path = tmp_path / "lines"
    assert record.add_line(path, line)
    assert not record.add_line(path, {**line, "commit": "the next, which changes no code"})
    assert record.add_line(path, {**line, "rooms": {"walld": 2}})
    assert len(path.read_text().splitlines()) == 2


# --- files passed -------------------------------------------------------------------------------


def test_what_is_passed_each_time_counts() -> None:
    steps = [
        Step(10, 1, "a"),
        Step(11, 1, "b"),
        Step(12, 2, "a"),
        Step(13, 1, "b"),
        Step(14, 1, "send"),
        Step(15, 1, "after"),
        Step(19, 1, "between"),
        Step(20, 1, "b"),
        Step(21, 1, "tick"),
        Step(22, 1, "a"),
        Step(23, 1, "send"),
        Step(24, 1, "after"),
    ]
    windows = [(10, 18), (20, 25)]
    assert passed(steps, windows, until_send=True) == Passed(["a", "b"], 1)
    assert passed(steps, windows, until_send=False) == Passed(["a", "after", "b"], 2)
    with pytest.raises(AssertionError, match="sent nothing"):
        passed(steps, [(15, 18)], until_send=True)


def test_a_program_is_traced_in_each_of_its_threads(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "tests/gauges").mkdir(parents=True)
    traced = root / "tests/gauges/traced.py"
    traced.write_text(Path(__file__).with_name("traced.py").read_text())
    (root / "program.py").write_text(
        dedent("""
            import json, socket, sys, threading
            import other
            here, there = socket.socketpair()
            thread = threading.Thread(target=other.said, args=(here, sys.argv[1]))
            thread.start()
            thread.join()
            assert there.recv(10) == b"a word"
        """)
    )
    (root / "other.py").write_text("def said(peer, text):\n    peer.send(text.encode())\n")
    out = tmp_path / "steps"
    words = ["-P", str(traced), str(out), sys.executable, "-m", "program", "a word"]
    command = [sys.executable, *words]
    ran = subprocess.run(command, env={"PYTHONPATH": str(root)}, check=False, capture_output=True)
    assert ran.returncode == 0, ran.stderr
    steps = [line.split(", ") for line in out.read_text().splitlines()]
    assert [what for _, _, what in steps] == [
        '"program.py"]',
        '"other.py"]',
        '"other.py"]',
        '"send"]',
    ]
    assert len({thread for _, thread, _ in steps}) == 2
