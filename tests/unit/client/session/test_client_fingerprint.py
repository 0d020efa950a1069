"""The fingerprint of a workspace: what git says, without starting it where that is simple."""

from __future__ import annotations

import os
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest
from walld_client.limits import PAYLOAD_BYTES_MAX
from walld_client.session import fingerprint
from walld_client.session.entries import json_text
from walld_client.session.fingerprint import file_hashes, fingerprint_pieces, workspace_fingerprint

from walld.sessions.gate.workspace import compare, fingerprint_then
from walld.sessions.state.events import Event

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="no git here")


def git(root: Path, *words: str) -> str:
    who = ["-c", "user.name=w", "-c", "user.email=w@example.org", "-c", "init.defaultBranch=main"]
    env = {"PATH": os.environ["PATH"], "HOME": str(root), "GIT_CONFIG_NOSYSTEM": "1"}
    told = subprocess.run(
        ["git", *who, *words], cwd=root, env=env, check=True, capture_output=True, text=True
    )
    return told.stdout.strip()


def git_as_found(root: Path, *words: str) -> str:
    """The one that PATH names."""
    told = subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True)
    return told.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    git(root, "init", "-q")
    (root / "a").write_text("a")
    git(root, "add", "a")
    git(root, "commit", "-q", "-m", "one")
    return root


def test_without_git_every_file_is_looked_at(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    (root / "sub" / "empty").mkdir(parents=True)
    assert workspace_fingerprint(root)["changes"] == {}
    (root / "a").write_text("a")
    (root / "sub" / "run").write_text("b")
    (root / "sub" / "run").chmod(0o755)
    (root / "link").symlink_to("a")
    (root / "folder").symlink_to("sub")
    os.mkfifo(root / "pipe")
    hashed = {name: sha256(name.encode()).hexdigest() for name in ("a", "b", "sub")}
    assert workspace_fingerprint(root, ["a"]) == {
        "root": None,
        "head": None,
        "branch": None,
        "dirty": None,
        "files": {"a": hashed["a"]},
        "changes": {
            "folder": hashed["sub"],
            "link": hashed["a"],
            "sub/run": hashed["b"],
        },
        "kinds": {"folder": "link", "link": "link", "sub/run": "executable"},
    }
    assert workspace_fingerprint(root / "none")["changes"] is None
    for number in range(500):
        (root / "sub" / str(number)).touch()
    named = [f"./sub/{number}" for number in range(250)]
    named += [str(root / "sub" / str(number)) for number in range(250, 500)]
    named += ["", "half \ud800", "a\0b"]
    assert len(workspace_fingerprint(root, named)["changes"]) == 4, "those that are named are told"
    assert workspace_fingerprint(root)["changes"] is None, "half of them would look like all"


@needs_git
def test_a_tree_as_it_is(tree: Path) -> None:
    head = git(tree, "rev-parse", "HEAD")
    found = workspace_fingerprint(tree, ["a", "none"])
    hashed = sha256(b"a").hexdigest()
    assert found == {
        "root": os.path.realpath(tree),
        "head": head,
        "branch": "main",
        "dirty": False,
        "changes": None,
        "files": {"a": hashed, "none": None},
    }
    (tree / "b").write_text("b")
    assert workspace_fingerprint(str(tree))["dirty"] is True


@needs_git
def test_what_differs_from_the_commit_is_hashed(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gone", "old name"):
        (tree / name).write_text(name * 9)
    git(tree, "add", ".")
    git(tree, "commit", "-q", "-m", "two")
    (tree / "gone").unlink()
    git(tree, "mv", "old name", "näme")
    (tree / "a").write_text("A")
    (tree / "new/deep").mkdir(parents=True)
    (tree / "new/deep/b").write_text("b")
    (tree / "link").symlink_to("nowhere")
    hashes = {name: sha256(text).hexdigest() for name, text in (
        ("a", b"A"), ("new/deep/b", b"b"), ("link", b"nowhere"), ("näme", b"old name" * 9)
    )}  # fmt: skip
    found = workspace_fingerprint(tree)
    assert found["dirty"] is True
    assert found["changes"] == hashes | {"gone": None, "old name": None}
    below = workspace_fingerprint(tree / "new")["changes"]
    assert below is not None
    assert {"deep/b", "../a", "../gone"} <= set(below)
    monkeypatch.setattr(fingerprint, "_CHANGES_BYTES_MAX", 3)
    assert workspace_fingerprint(tree)["changes"] is None, "some of them would look like all"
    monkeypatch.undo()
    monkeypatch.setattr(fingerprint, "_CHANGES_MAX", 5)
    assert workspace_fingerprint(tree)["changes"] is None
    monkeypatch.undo()
    os.mkfifo(tree / "pipe")
    git(tree, "config", "core.worktree", str(tmp_path / "none"))
    assert workspace_fingerprint(tree)["dirty"] is None


@needs_git
@pytest.mark.parametrize("kind", ["no UTF-8", "a tree within"])
def test_a_name_or_a_thing_that_cannot_be_hashed_leaves_all_unknown(tree: Path, kind: str) -> None:
    if kind == "no UTF-8":
        Path(os.fsdecode(os.fsencode(tree) + b"/\xff")).write_text("x")
    else:
        (tree / "within").mkdir()
        git(tree / "within", "init", "-q")
    found = workspace_fingerprint(tree)
    assert (found["dirty"], found["changes"]) == (True, None)


@needs_git
def test_packed_refs_branches_and_no_branch(tree: Path) -> None:
    head = git(tree, "rev-parse", "HEAD")
    git(tree, "checkout", "-q", "-b", "feature/x")
    git(tree, "pack-refs", "--all")
    assert not (tree / ".git/refs/heads/feature/x").exists()
    found = workspace_fingerprint(tree)
    assert (found["head"], found["branch"]) == (head, "feature/x")
    git(tree, "checkout", "-q", "--detach")
    found = workspace_fingerprint(tree)
    assert (found["head"], found["branch"]) == (head, None)


@needs_git
def test_a_worktree_a_folder_within_and_a_tree_without_commits(tree: Path, tmp_path: Path) -> None:
    head = git(tree, "rev-parse", "HEAD")
    git(tree, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    found = workspace_fingerprint(tmp_path / "side")
    assert (found["head"], found["branch"], found["dirty"]) == (head, "side", False)
    (tree / "sub").mkdir()
    assert workspace_fingerprint(tree / "sub")["head"] == head
    new = tmp_path / "new"
    new.mkdir()
    git(new, "init", "-q")
    found = workspace_fingerprint(new)
    assert (found["head"], found["branch"], found["dirty"]) == (None, "main", False)


@needs_git
def test_refs_that_are_no_files(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `git init --ref-format=reftable` leaves them. Where git is too old for that, its files of
    refs are moved away, and it is told where to.
    """
    try:
        git(tree, "refs", "migrate", "--ref-format=reftable")
    except subprocess.CalledProcessError:
        elsewhere = tmp_path / "elsewhere"
        shutil.copytree(tree / ".git", elsewhere)
        shutil.rmtree(tree / ".git/refs")
        (tree / ".git/HEAD").write_text("ref: refs/heads/.invalid\n")
        knows = tmp_path / "bin/git"
        knows.parent.mkdir()
        where = f"--git-dir='{elsewhere}' --work-tree='{tree}'"
        knows.write_text(f'#!/bin/sh\nexec {shutil.which("git")} {where} "$@"\n')
        knows.chmod(0o755)
        monkeypatch.setenv("PATH", f"{knows.parent}:{os.environ['PATH']}")
    head = git_as_found(tree, "rev-parse", "HEAD")
    found = workspace_fingerprint(tree)
    assert (found["head"], found["branch"], found["dirty"]) == (head, "main", False)
    git_as_found(tree, "checkout", "-q", "--detach")
    found = workspace_fingerprint(tree)
    assert (found["head"], found["branch"]) == (head, None)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = workspace_fingerprint(tree)
    assert (found["head"], found["branch"], found["dirty"]) == (None, None, None)


def test_what_is_no_tree_and_what_cannot_be_read(tmp_path: Path) -> None:
    found = workspace_fingerprint(tmp_path / "none", ["a\0b"])
    nothing = dict.fromkeys(("root", "head", "branch", "dirty", "changes"))
    assert found == nothing | {"files": {"a\0b": None}}
    (tmp_path / ".git").write_text("gitdir: nowhere\n")
    assert workspace_fingerprint(tmp_path)["head"] is None
    (tmp_path / ".git").write_text("")
    assert workspace_fingerprint(tmp_path)["head"] is None
    loop = tmp_path / "loop"
    (loop / ".git").mkdir(parents=True)
    (loop / ".git/HEAD").write_text("ref: HEAD\n")
    assert workspace_fingerprint(loop)["head"] is None


def test_a_pipe_and_a_device_are_no_files(tmp_path: Path) -> None:
    """Nobody writes to that pipe, and the device has no end."""
    os.mkfifo(tmp_path / "pipe")
    found = file_hashes(["pipe", "/dev/zero", tmp_path], tmp_path)
    assert list(found.values()) == [None, None, None]


def test_git_that_hangs_or_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert workspace_fingerprint(tmp_path)["dirty"] is None
    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nexec /bin/sleep 30\n")
    slow.chmod(0o755)
    monkeypatch.setattr(fingerprint, "GIT_SECONDS", 0.1)
    assert workspace_fingerprint(tmp_path)["dirty"] is None


def test_paths_are_named_as_they_were_given(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xff" * 3_000_000)
    hashed = sha256(b"\xff" * 3_000_000).hexdigest()
    full = tmp_path / "a"
    assert file_hashes([full, "a"], tmp_path) == {str(full): hashed, "a": hashed}
    assert file_hashes([tmp_path]) == {str(tmp_path): None}


@needs_git
@pytest.mark.parametrize("ignore", ["all", "dirty", "untracked"])
def test_a_submodule_that_git_is_told_to_pass_over_is_looked_at(
    tree: Path, tmp_path: Path, ignore: str
) -> None:
    part = tmp_path / "part"
    part.mkdir()
    git(part, "init", "-q")
    (part / "b").write_text("b")
    git(part, "add", "b")
    git(part, "commit", "-q", "-m", "one")
    git(tree, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(part), "sub")
    git(tree, "config", "-f", ".gitmodules", "submodule.sub.ignore", ignore)
    git(tree, "config", "diff.ignoreSubmodules", ignore)
    git(tree, "add", ".")
    git(tree, "commit", "-q", "-m", "two")
    assert workspace_fingerprint(tree)["dirty"] is False
    (tree / "sub" / ("new" if ignore == "untracked" else "b")).write_text("other")
    found = workspace_fingerprint(tree)
    assert (found["dirty"], found["changes"]) == (True, None)


@needs_git
@pytest.mark.parametrize("name", ["GIT_DIR", "GIT_INDEX_FILE"])
def test_the_tree_is_asked_and_not_the_one_whose_hook_runs_the_program(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    other = tmp_path / "other"
    shutil.copytree(tree, other)
    (tree / "a").write_text("b")
    git(tree, "add", "a")
    expected = workspace_fingerprint(tree)
    assert expected["dirty"] is True
    monkeypatch.setenv(name, str(other / ".git" / ("index" if name != "GIT_DIR" else "")))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert workspace_fingerprint(tree) == expected


def test_one_of_many_files_is_several_that_come_to_the_same() -> None:
    files = {f"some/folder/of/the/tree/file-{n}": "ab" * 32 for n in range(5000)}
    found = {"root": "/r", "head": "h", "branch": "b", "dirty": False, "changes": None}
    assert fingerprint_pieces(found | {"files": {"a": None}}) == [found | {"files": {"a": None}}]
    pieces = fingerprint_pieces(found | {"files": files})
    assert all(len(json_text(one)) < PAYLOAD_BYTES_MAX for one in pieces)
    assert pieces[-1] == found | {"files": {}}
    events = [
        Event(seq=seq, id=f"e{seq}", at_ms=0, type="lifecycle", payload={"fingerprint": one})
        for seq, one in enumerate(pieces, 1)
    ]
    assert fingerprint_then(events) == found | {"files": files}


@needs_git
def test_a_mode_and_a_kind_are_changes_too(tree: Path) -> None:
    """Of files whose bytes differ from the commit already."""
    (tree / "a").write_text("dirty")
    (tree / "run").write_text("#!/bin/sh")
    (tree / "run").chmod(0o755)
    (tree / "link").symlink_to("a")
    then = workspace_fingerprint(tree)
    assert then["kinds"] == {"run": "executable", "link": "link"}
    assert compare(then, workspace_fingerprint(tree), has_written=False).verdict == "same"
    (tree / "a").chmod(0o755)
    (tree / "run").chmod(0o644)
    (tree / "link").unlink()
    (tree / "link").write_text("a")
    now = workspace_fingerprint(tree)
    assert now["changes"] == then["changes"]
    found = compare(then, now, has_written=False)
    assert (found.verdict, found.changed) == ("changed", ["file a", "file link", "file run"])
    assert compare(then, now, has_written=True).verdict == "unknown"


@needs_git
def test_a_fingerprint_of_before_there_were_kinds_still_fits(tree: Path) -> None:
    (tree / "run").write_text("#!/bin/sh")
    (tree / "run").chmod(0o755)
    now = workspace_fingerprint(tree)
    before = {name: value for name, value in now.items() if name != "kinds"}
    assert compare(before, now, has_written=False).verdict == "same"
    assert compare(now, before, has_written=False).verdict == "same"
