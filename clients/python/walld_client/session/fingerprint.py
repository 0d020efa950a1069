"""Fingerprints a workspace: commit, changes, hashes of chosen files.

Owns: reading git without starting it where that is simple (HEAD, loose and packed refs, worktrees),
asking it where no commit is found so (refs in a table of their own: `reftable`), and hashing.
Refuses: comparing (the resume gate of the daemon does), anything that changes a file.

What cannot be known is None, never a guess: a file that is not there or cannot be read has no
hash, and without git nobody says whether the tree is dirty. Where it is, `changes` has every file
that git lists, with its hash, and without git every file that `files` does not name; nothing at all
where one of them cannot be known or they are too many, for half of them would look like all. What a
hash of bytes does not say, that a file is a link or may be run, stands beside them in `kinds`: one
that was taken before there were any still fits.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from walld_client.limits import GIT_SECONDS, PAYLOAD_BYTES_MAX, WORKSPACE_BYTES_MAX
from walld_client.session.entries import in_pieces, json_text

__all__ = [
    "differing",
    "file_hashes",
    "file_pieces",
    "fingerprint_pieces",
    "is_long",
    "workspace_fingerprint",
]

_CHUNK_BYTES = 1024 * 1024
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REFS_MAX = 5
"""A symbolic ref may name another one, not for ever."""
_ELSEWHERE = ".invalid"
"""What HEAD names in a tree whose refs are not files (`git init --ref-format=reftable`)."""
_CHANGES_MAX = 500
_CHANGES_BYTES_MAX = 256 * 1024 * 1024
"""What is hashed of a dirty tree at most, and how many of its names an entry holds."""
_NAMES_BYTES_MAX = 32 * 1024
_OTHER_TREE = frozenset(
    (
        *("GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"),
        *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"),
    )
)
"""What git tells the hooks that it runs, and all that they start: which tree is theirs."""


def workspace_fingerprint(
    root: str | os.PathLike[str], files: Iterable[str | os.PathLike[str]] = ()
) -> dict[str, Any]:
    """{"root", "head", "branch", "dirty", "changes", "files"} of the tree at `root`.

    files: {path: sha256 in hex, or None}, paths as they were named; a relative one is looked for
    below `root`. changes: the same of what git lists, or without git of all others there, by path
    from `root`, None for a file that is gone; None at all where nothing differs or nobody can say.
    Where there are changes: kinds, which of them are a "link" or an "executable".
    """
    folder = _git_folder(Path(root))
    head, branch = (None, None) if folder is None else _head(folder)
    if folder is not None and head is None:
        head, branch = _asked_head(root, branch)
    listed = None if folder is None else _listed(root)
    named = [os.fspath(one) for one in files]
    seen = _others(root, named) if folder is None else _changes(root, listed) if listed else None
    changes, kinds = seen or (None, None)
    found = {
        "root": os.path.realpath(root) if folder is not None else None,
        "head": head,
        "branch": branch,
        "dirty": None if listed is None else bool(listed),
        "changes": changes,
        "files": file_hashes(named, root),
    }
    return found if kinds is None else found | {"kinds": kinds}


def fingerprint_pieces(found: dict[str, Any]) -> list[dict[str, Any]]:
    """It as fingerprints that an entry holds each, the last one with all but the files' hashes.

    Whoever compares takes the files of all of them, and the rest of the last.
    """
    if len(json_text(found)) <= PAYLOAD_BYTES_MAX // 2:
        return [found]
    return [*map(_part, file_pieces(found["files"])), found | {"files": {}}]


def _part(files: dict[str, Any]) -> dict[str, Any]:
    """Files and nothing else: what was known of the commit and the tree stands."""
    return {"part": True, "files": files}


def file_pieces(files: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """Hashes as tables of which each has room in an entry beside what else is there."""
    return [dict(piece) for piece in in_pieces(list(files.items()), PAYLOAD_BYTES_MAX // 2)]


def is_long(now: Mapping[str, Any]) -> bool:
    """No request holds it."""
    return len(json_text(now)) > WORKSPACE_BYTES_MAX


def differing(now: Mapping[str, Any], known: Mapping[str, Any], as_of: str) -> dict[str, Any]:
    """`now` without the files that are as `known` has them, which is what the log says up to the
    entry `as_of`; where the others are too many for a request, `more` says how many are left out.
    """
    files = now.get("files")
    files = files if isinstance(files, Mapping) else {}
    others = {
        path: files.get(path)
        for path in {**known, **files}
        if path not in known or files.get(path) != known[path]
    }
    told = {**now, "files": {}, "as_of": as_of}
    left = WORKSPACE_BYTES_MAX - len(json_text(told))
    for path, hashed in others.items():
        left -= len(json_text({path: hashed}))
        if left < 0:
            break
        told["files"][path] = hashed
    more = len(others) - len(told["files"])
    return told | ({"more": more} if more else {})


def file_hashes(
    files: Iterable[str | os.PathLike[str]], root: str | os.PathLike[str] = ""
) -> dict[str, str | None]:
    """The SHA-256 of each file by the path it was named by; None where it cannot be read."""
    return {os.fspath(path): _hash(os.path.join(root, path)) for path in files}


def _hash(path: str) -> str | None:
    hashed = sha256()
    try:
        # A pipe must not be waited for, nor a device read to its end.
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(opened, "rb") as file:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                return None
            while chunk := file.read(_CHUNK_BYTES):
                hashed.update(chunk)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return None
    return hashed.hexdigest()


def _git_folder(root: Path) -> Path | None:
    """Where git keeps what it knows of the tree that `root` lies in."""
    try:
        root = root.resolve()
    except (OSError, RuntimeError, ValueError):
        return None
    for folder in (root, *root.parents):
        git = folder / ".git"
        if git.is_dir():
            return git
        if git.is_file():  # a worktree or a submodule names it
            named = (_text(git) or "").removeprefix("gitdir:").strip()
            return folder / named if named else None
    return None


def _head(folder: Path) -> tuple[str | None, str | None]:
    """The commit and the branch; no branch where HEAD is a commit, no commit on a new branch."""
    ref, branch = "HEAD", None
    for _ in range(_REFS_MAX):
        value = _ref(folder, ref)
        if value is None or not value.startswith("ref:"):
            commit = value if value and _COMMIT.fullmatch(value) else None
            return commit, branch
        ref = value.removeprefix("ref:").strip()
        if branch is None:
            branch = ref.removeprefix("refs/heads/")
    return None, branch


def _asked_head(root: str | os.PathLike[str], branch: str | None) -> tuple[str | None, str | None]:
    """The same as git says it; what HEAD itself names says nothing where the refs are elsewhere."""
    told = _git(root, "rev-parse", "--verify", "--quiet", "HEAD")
    commit = None if told is None else told.decode("ascii", "replace").strip()
    if branch == _ELSEWHERE:
        named = _git(root, "symbolic-ref", "--quiet", "HEAD")
        ref = "" if named is None else named.decode("utf-8", "replace").strip()
        branch = ref.removeprefix("refs/heads/") or None
    return commit if commit and _COMMIT.fullmatch(commit) else None, branch


def _ref(folder: Path, name: str) -> str | None:
    """What a ref says: its own file, else that of the main tree, else the packed ones."""
    shared = folder / (_text(folder / "commondir") or ".")
    for place in (folder, shared):
        value = _text(place / name)
        if value is not None:
            return value
    for line in (_text(shared / "packed-refs") or "").splitlines():
        commit, _, packed = line.partition(" ")
        if packed == name:
            return commit
    return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError):
        return None


def _listed(root: str | os.PathLike[str]) -> list[bytes] | None:
    """What `git status` lists, from the top of the tree; None where it does not say."""
    every = ["--untracked-files=all", "--ignore-submodules=none"]  # whatever its configuration says
    told = _git(root, "status", "--porcelain", "-z", *every)
    if told is None:
        return None
    found = []
    pieces = iter(told.split(b"\0"))
    for piece in pieces:
        if piece:
            found.append(piece[3:])
            if b"R" in piece[:2] or b"C" in piece[:2]:  # the name it had follows
                found.append(next(pieces, b""))
    return found


def _changes(
    root: str | os.PathLike[str], listed: list[bytes]
) -> tuple[dict[str, str | None], dict[str, str]] | None:
    """The hash of each file that is listed, and its kind; None where one cannot be known."""
    if len(listed) > _CHANGES_MAX:
        return None
    told = _git(root, "rev-parse", "--show-toplevel")
    return None if told is None else _hashed(root, told.removesuffix(b"\n"), listed)


def _others(
    root: str | os.PathLike[str], named: Iterable[str]
) -> tuple[dict[str, str | None], dict[str, str]] | None:
    """The same of every file and link below that is not named; None also where a folder cannot be
    read.
    """
    top, listed, folders = os.fsencode(os.path.realpath(root)), list[bytes](), [b""]
    passed = {_from_top(top, one) for one in named}
    for within in folders:
        try:
            with os.scandir(os.path.join(top, within)) as entries:
                for one in entries:
                    path = os.path.join(within, one.name)
                    if one.is_dir(follow_symlinks=False):
                        folders.append(path)
                    elif path not in passed and (one.is_symlink() or one.is_file()):
                        listed.append(path)
                    if len(folders) + len(listed) > _CHANGES_MAX:
                        return None
        except (OSError, ValueError):
            return None
    return _hashed(root, top, sorted(listed))


def _from_top(top: bytes, named: str) -> bytes | None:
    try:
        return os.path.relpath(os.path.join(top, os.fsencode(named)), top)
    except ValueError:  # half a character: no file has it
        return None


def _hashed(
    root: str | os.PathLike[str], top: bytes, listed: list[bytes]
) -> tuple[dict[str, str | None], dict[str, str]] | None:
    if sum(map(len, listed)) > _NAMES_BYTES_MAX:
        return None
    found: dict[str, str | None] = {}
    kinds: dict[str, str] = {}
    left = _CHANGES_BYTES_MAX
    for name in listed:
        path = os.path.join(top, name)
        try:
            named = os.path.relpath(path, os.fsencode(os.path.realpath(root))).decode()
            facts = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            found[named] = None
            continue
        except (OSError, ValueError):  # ValueError: a name that is no UTF-8
            return None
        left -= facts.st_size
        if stat.S_ISLNK(facts.st_mode):
            found[named] = sha256(os.readlink(path)).hexdigest()
            kinds[named] = "link"
        else:
            hashed = _hash(os.fsdecode(path)) if left >= 0 else None
            if hashed is None:
                return None
            found[named] = hashed
            if facts.st_mode & stat.S_IXUSR:  # all of its mode that git knows
                kinds[named] = "executable"
    return found, kinds


def _git(root: str | os.PathLike[str], *words: str) -> bytes | None:
    """What git prints, None where it fails."""
    import subprocess  # not with the client: only who asks for a fingerprint pays for it

    # Nothing is written, and of the programs that the tree's own configuration names its filters
    # alone are run: without them git does not know what differs.
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false"]
    command += ["-C", os.fspath(root), *words]
    try:
        told = subprocess.run(
            command,
            env={name: value for name, value in os.environ.items() if name not in _OTHER_TREE},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=GIT_SECONDS,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return told.stdout if told.returncode == 0 else None
