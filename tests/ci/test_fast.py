"""Which tests `make fast` takes for what was changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from fast import (
    ALWAYS,
    DEFAULT_PACKAGES,
    FILES_MAX,
    NODE,
    ROOT,
    VECTORS,
    VECTORS_TESTS,
    changed,
    chosen,
    near,
    of_node,
)

TREE = [
    "tests/test_tidy.py",
    "tests/ci/test_lanes.py",
    "tests/crash/test_disk.py",
    "tests/acceptance/test_demo.py",
    "tests/unit/test_docs.py",
    "tests/unit/test_partials.py",
    "tests/unit/test_partials_unread.py",
    "tests/unit/test_client_reply.py",
    "tests/unit/test_client_reply_ends.py",
    "tests/unit/daemon/test_service.py",
    "tests/unit/daemon/transport/test_acceptor.py",
    "tests/unit/daemon/transport/test_acceptor_full.py",
    "tests/unit/daemon/transport/test_liveness.py",
    "tests/unit/client/link/test_link.py",
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("name", "own", "neighbours"),
    [
        (
            "walld/daemon/transport/acceptor.py",
            ["test_acceptor", "test_acceptor_full"],
            ["test_liveness"],
        ),
        # The next parent that is there.
        (
            "walld/daemon/transport/inner/frames.py",
            [],
            ["test_acceptor", "test_acceptor_full", "test_liveness"],
        ),
        ("walld/daemon/storage/service.py", ["test_service"], []),
        # No folder of its package: by its name alone.
        ("walld/engine/partials.py", ["test_partials", "test_partials_unread"], []),
        ("clients/python/walld_client/link/link.py", ["test_link"], []),
        ("walld/limits.py", [], []),
        ("tests/acceptance/test_demo.py", ["test_demo"], []),
        ("tests/acceptance/test_gone.py", [], []),
        ("tests/crash/test_disk.py", [], []),
        ("README.md", [], ["test_docs"]),
        ("Makefile", ["test_lanes"], []),
        (".ci/steps.toml", ["test_lanes"], []),
    ],
)
def test_the_nearest(tree: Path, name: str, own: list[str], neighbours: list[str]) -> None:
    found = list(near(tree, name))
    assert [test.stem for rank, test in found if rank == 0] == own
    assert [test.stem for rank, test in found if rank == 1] == neighbours


def test_of_the_client_by_name_where_it_has_no_folder(tmp_path: Path) -> None:
    unit = tmp_path / "tests/unit"
    unit.mkdir(parents=True)
    for name in ("test_client_reply.py", "test_client_reply_ends.py", "test_reply.py"):
        (unit / name).touch()
    found = [test.name for _, test in near(tmp_path, "clients/python/walld_client/reply.py")]
    assert found == ["test_client_reply.py", "test_client_reply_ends.py"]


def test_those_of_a_module_may_have_a_word_before_its_name(tmp_path: Path) -> None:
    link = tmp_path / "tests/unit/client/link"
    link.mkdir(parents=True)
    for name in ("test_client_backlog.py", "test_backlogs.py", "test_link_backlog_full.py"):
        (link / name).touch()
    found = list(near(tmp_path, "clients/python/walld_client/link/backlog.py"))
    assert [(rank, test.name) for rank, test in found] == [
        (1, "test_backlogs.py"), (0, "test_client_backlog.py"), (0, "test_link_backlog_full.py"),
    ]  # fmt: skip


def test_a_helper_of_tests_has_those_that_import_it(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    (tests / "unit").mkdir(parents=True)
    (tests / "crash").mkdir()
    words = {
        "unit/test_one.py": "from engine_world import World\n",
        "unit/test_two.py": "import engine_world\n",
        "unit/test_other.py": "from other import engine_world_of\n",
        "crash/test_three.py": "import engine_world\n",
    }
    for name, text in words.items():
        (tests / name).write_text(text)
    found = [(rank, test.name) for rank, test in near(tmp_path, "tests/engine_world.py")]
    assert found == [(1, "test_one.py"), (1, "test_two.py")]


def test_the_nearest_come_first_and_each_once(tree: Path) -> None:
    tests = chosen(
        tree, ["walld/daemon/transport/liveness.py", "walld/daemon/transport/acceptor.py"]
    )
    assert [test.name for test in tests] == [
        "test_tidy.py", "test_acceptor.py", "test_acceptor_full.py", "test_liveness.py",
    ]  # fmt: skip


def test_what_differs_is_committed_on_the_branch_staged_or_new(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    (tmp_path / "old.py").write_text("1\n")
    (tmp_path / "gone.py").write_text("1\n")
    git("add", ".")
    git("commit", "-q", "-m", "old")
    assert changed(tmp_path) == []
    git("checkout", "-q", "-b", "branch")
    (tmp_path / "committed.py").write_text("2\n")
    git("mv", "gone.py", "moved.py")
    git("add", ".")
    git("commit", "-q", "-m", "new")
    (tmp_path / "old.py").write_text("3\n")
    (tmp_path / "new.py").write_text("4\n")
    assert changed(tmp_path) == ["committed.py", "gone.py", "moved.py", "new.py", "old.py"]


def test_no_repository_is_nothing_changed(tmp_path: Path) -> None:
    assert changed(tmp_path) == []


def test_a_fresh_clone_has_a_small_set() -> None:
    modules = [path for folder in DEFAULT_PACKAGES for path in (ROOT / folder).rglob("*.py")]
    tests = chosen(ROOT, [str(path.relative_to(ROOT)) for path in modules])
    assert len(ALWAYS) + 5 < len(tests) <= FILES_MAX


@pytest.mark.parametrize("name", ["frames.json", "frames.py"])
def test_vectors_have_the_tests_that_read_them(name: str) -> None:
    near_ones = {test.relative_to(ROOT) for _, test in near(ROOT, f"{VECTORS}/{name}")}
    assert {Path(test) for test in VECTORS_TESTS} == near_ones
    assert all((ROOT / test).exists() for test in VECTORS_TESTS)


@pytest.mark.parametrize(
    ("name", "tests"),
    [
        (f"{NODE}/src/link/backlog.ts", ["link/a", "link/b"]),
        (f"{NODE}/src/encoding/ids.ts", ["top"]),
        (f"{NODE}/src/client.ts", ["top"]),
        (f"{NODE}/test/link/a.test.ts", ["link/a"]),
        (f"{NODE}/test/link/gone.test.ts", []),
        (f"{NODE}/test/support/daemon.ts", []),
        (f"{VECTORS}/frames.json", ["wire/vectors"]),
        ("walld/link/backlog.py", []),
    ],
)
def test_of_the_node_client(tmp_path: Path, name: str, tests: list[str]) -> None:
    for test in ("top", "link/a", "link/b", "wire/vectors"):
        path = tmp_path / NODE / "test" / f"{test}.test.ts"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert of_node(tmp_path, [name]) == [Path(f"test/{test}.test.ts") for test in tests]


def test_each_source_of_the_node_client_has_one() -> None:
    sources = [path.relative_to(ROOT) for path in (ROOT / NODE / "src").rglob("*.ts")]
    assert sources
    assert [str(path) for path in sources if not of_node(ROOT, [str(path)])] == []
