r"""File names on a disk that does not look at case (case-insensitive): `Chat-1` is `@chat-1` there.

Owns: whether a disk looks at case, the Disk that knows names in both forms, and strays: names in a
directory that have the form of the other kind of disk. Refuses: the form of one name
(`walld_client/paths.py`), renaming what is there (`recovery/name_forms.py`), LOCK, which says that
folded names may be there.

APFS, SMB, drives of Windows and ext4 with casefold keep the case of a name and find it by any:
sessions `Chat-1` and `chat-1` would share their files. So a capital is written as `@` and its small
letter. That can be undone, so all above this works with names as they are on any disk, and what
files say of names is the same on both. Hashing them instead, as odd ids are, would need the disk
wherever an id is compared with a name.

Invariants
- D5 On a disk that does not look at case no two names that walld makes differ in case alone.
"""

from __future__ import annotations

import os
import re
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from walld_client.paths import folded_name

from walld.disk.retrying import patiently

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from walld.disk.base import Disk, Entry, File

__all__ = ["FoldedDisk", "each_stray", "fold", "looks_at_case", "strays_of", "unfold"]

_DEPTHS: Final = {"partials": 4, "sessions": 3, "quarantine": 2}
"""Up to how many components of a path that begins so are made of ids."""
_STEM_BYTES_MAX: Final = 255 - len("..note.tmp") - 15
_HASH_DIGITS: Final = 40
_capital = re.compile("[A-Z]")
_folded = re.compile("@([a-z])")
_decorated = re.compile(r"(\.?)(.*?)((?:\.note)?(?:\.tmp)?)", re.DOTALL)
_ours = re.compile(r"(\.[0-9]+\+)?[A-Za-z0-9_@-][A-Za-z0-9._+~@-]*")
"""What walld may have named: `.DS_Store` is left as it is."""


def looks_at_case(folder: str, name: str) -> bool:
    """False where a name that is there is found in other letters. OSError.

    By the names that are there: inodes of a file server may be made up at each look.
    """
    other = name.swapcase()
    assert other != name, name
    try:
        os.lstat(os.path.join(folder, other))
    except FileNotFoundError:
        return True
    return {name, other} <= set(os.listdir(folder))


def fold(name: str) -> str:
    """A name without capitals. Of one in quarantine/ that gets too long the rest is a hash: that
    cannot be undone, and need not be.
    """
    if _capital.search(name) is None:
        return name
    folded = folded_name(name)
    if len(folded) <= _STEM_BYTES_MAX:
        return folded
    found = _decorated.fullmatch(name)
    assert found is not None, name
    dot, stem, end = found.groups()
    raw = os.fsencode(folded_name(stem))
    if len(raw) <= _STEM_BYTES_MAX:
        return f"{dot}{folded_name(stem)}{end}"
    kept = raw[: _STEM_BYTES_MAX - _HASH_DIGITS - 1]
    return f"{dot}{os.fsdecode(kept)}~{sha256(raw).hexdigest()[:_HASH_DIGITS]}{end}"


def unfold(name: str) -> str:
    """The name that `fold` was given; one with capitals never went through it."""
    if _capital.search(name) is not None:
        return name
    return _folded.sub(lambda found: found[1].upper(), name)


def each_stray(
    disk: Disk, met: Callable[[str, str, str, bool], str | None], *, is_folded: bool
) -> bool:
    """Call `met` with folder, name, wanted name and whether both are there, for all that is in the
    other form than this one. It returns the name to enter it by; None: it is not entered.

    Parents come first. What walld cannot have named is left out. False where a directory could not
    be listed: whoever wants what is in it finds that out, and says so.
    """
    kinds = {entry.name: entry.kind for entry in patiently(partial(disk.list_dir, ""))}
    pending = [(name, depth) for name, depth in _DEPTHS.items() if kinds.get(name) == "dir"]
    is_all = True
    while pending:
        folder, depth = pending.pop()
        try:
            entries = patiently(partial(disk.list_dir, folder))
        except OSError:
            is_all = False
            continue
        names = {entry.name for entry in entries}
        for entry in entries:
            name: str | None = entry.name
            wanted = fold(entry.name) if is_folded else unfold(entry.name)
            if wanted != name and _ours.fullmatch(entry.name):
                name = met(folder, entry.name, wanted, wanted in names)
            if name is not None and entry.kind == "dir" and folder.count("/") + 2 < depth:
                pending.append((f"{folder}/{name}", depth))
    return is_all


def strays_of(disk: Disk, *, is_folded: bool) -> set[str]:
    """Paths of what is in the other form. Where both are there, the other one is none: it stands in
    nobody's place, and the next start sets it aside.
    """
    found: set[str] = set()

    def met(folder: str, name: str, _: str, is_double: bool) -> str | None:
        if is_double:
            return None
        found.add(f"{folder}/{name}")
        return name

    each_stray(disk, met, is_folded=is_folded)
    return found


class FoldedDisk:
    """The verbs of another disk, on which names with capitals may be folded.

    is_folded: they are made so; else as they are, where a directory came from a disk that does not
    look at case. strays: paths on the disk below it, of what stands there in the other form.
    """

    def __init__(self, disk: Disk, *, is_folded: bool, strays: set[str] | None = None) -> None:
        self.below = disk
        self.is_folded = is_folded
        self.strays = strays if strays is not None else set()
        self.root = disk.root
        self.expect = disk.expect
        self.removed = disk.removed
        self.is_removed = disk.is_removed
        self.free_bytes = disk.free_bytes

    def at(self, path: str) -> str:
        """Where that is on the disk below."""
        if _capital.search(path) is None:
            return path
        done, *parts = path.split("/")
        depth = _DEPTHS.get(done, 1)
        for at, part in enumerate(parts, 1):
            name, other = part, fold(part)
            if self.is_folded:
                name, other = other, name
            if at >= depth:
                name = part
            elif f"{done}/{other}" in self.strays:
                name = other
            done = f"{done}/{name}"
        return done

    def create(self, path: str) -> File:
        """A new file, read-write."""
        return _NamedFile(self.below.create(self.at(path)), path)

    def open(self, path: str) -> File:
        """An existing regular file, for reading only."""
        return _NamedFile(self.below.open(self.at(path)), path)

    def reopen(self, path: str) -> File:
        """An existing regular file, read-write."""
        return _NamedFile(self.below.reopen(self.at(path)), path)

    def replace(self, path: str, data: bytes) -> None:
        """Whole file, atomically and durably."""
        self.below.replace(self.at(path), data)

    def swap(self, path: str, data: bytes) -> None:
        """The same without the syncs."""
        self.below.swap(self.at(path), data)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        self.below.unlink(self.at(path))

    def rename(self, path: str, new_path: str) -> None:
        """Another name; what stood there is replaced."""
        self.below.rename(self.at(path), self.at(new_path))

    def link(self, path: str, new_path: str) -> None:
        """A second name."""
        self.below.link(self.at(path), self.at(new_path))

    def make_dir(self, path: str) -> None:
        """A directory and its missing parents."""
        self.below.make_dir(self.at(path))

    def remove_dir(self, path: str) -> bool:
        """Remove an empty directory; False where it is not empty or not there."""
        return self.below.remove_dir(self.at(path))

    def sync_dir(self, path: str) -> None:
        """The names in it survive power loss."""
        self.below.sync_dir(self.at(path))

    def list_dir(self, path: str) -> list[Entry]:
        """Its entries by name, as `at` finds them."""
        folder = self.at(path)
        entries = self.below.list_dir(folder)
        if not path or path.count("/") + 1 >= _DEPTHS.get(path.partition("/")[0], 1):
            return entries
        return sorted(self._as_named(folder, entries))

    def _as_named(self, folder: str, entries: list[Entry]) -> Iterator[Entry]:
        for entry in entries:
            is_stray = f"{folder}/{entry.name}" in self.strays
            if _capital.search(entry.name) is not None:
                if is_stray or not self.is_folded:
                    yield entry
            elif self.is_folded or is_stray:
                yield entry._replace(name=unfold(entry.name))
            else:
                yield entry


class _NamedFile:
    """The verbs of another open file, by the name that it was opened by."""

    def __init__(self, file: File, path: str) -> None:
        self.path = path
        self.write_at = file.write_at
        self.read_at = file.read_at
        self.read_cached = file.read_cached
        self.size = file.size
        self.truncate = file.truncate
        self.sync = file.sync
        self.same_file = file.same_file
        self.close = file.close
