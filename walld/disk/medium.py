"""A simulated kernel cache and disk medium: what is left after a crash.

Owns: what is kept of each file and each directory, apart: what a reader sees, and what is on the
medium; and what a kill, a power cut or rot makes of it. Refuses: the verbs (`simulated.py`), when
to crash or fail (a test says).

The model, and where it is from
- A write changes what readers see; a sync moves that file's pages, and only that file's, to the
  medium. A directory's names are synced by the directory's own sync (ALICE, OSDI 2014).
- A process that is killed loses nothing but the end of the write it was in, which is cut at a page
  (measured on ext4, xfs and tmpfs: 4 to 90 % of kills inside a write, by its length).
- Power loss: of what was not synced each page is there, not there, zeros, garbage or torn, each on
  its own; the file's length is old, new or between; of each directory's changes any part happened
  (`ordered`: a beginning of them, as a journal gives). Bytes that were synced are never touched: a
  sector that is written again with the same beginning keeps it (SQLite: powersafe overwrite).
- A failed sync: the pages are dropped and called clean. They can still be read; the next sync says
  all is well; power loss shows what was there before (fsyncgate; measured on ext4, xfs, btrfs).
- A full disk says so at the write, or (`full_at_sync`: NFS) not before the sync, which then drops
  the pages.
- `damage`: what rots in silence: a flipped bit, a page of zeros, an old page.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

__all__ = ["PAGE_BYTES", "PROFILES", "Crashed", "Dir", "Node", "Profile", "Storage"]

Fate = Literal["kept", "lost", "zero", "garbage", "torn"]
PAGE_BYTES = 4096


class Crashed(BaseException):
    """The process or the machine is gone; no code of it runs any further."""


@dataclass(frozen=True, slots=True)
class Profile:
    """How bad power loss is. page_bytes: what is there or not there as one."""

    page_bytes: int = 4096
    fates: tuple[Fate, ...] = ("kept", "lost")
    ordered: bool = True
    """Directory changes happen in order: a beginning of them survives."""
    full_at_sync: bool = False
    ignores_sync: bool = False
    """The disk lies: a sync moves nothing."""


PROFILES = {
    "ext4": Profile(),
    "xfs": Profile(fates=("kept", "lost", "zero")),
    "nfs": Profile(fates=("kept", "lost"), full_at_sync=True),
    "adversarial": Profile(512, ("kept", "lost", "zero", "garbage", "torn"), ordered=False),
    "orderly": Profile(512, ("kept", "torn"), ordered=True),
}


@dataclass(slots=True, eq=False)
class Node:
    """A file: `data` is what readers see, `durable` what is on the medium."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)
    """Pages that a sync would move."""
    length_is_dirty: bool = False
    names: int = 0


@dataclass(slots=True, eq=False)
class Dir:
    """A directory: `entries` is what readers see; `changes` wait for its sync, in order."""

    entries: dict[str, Node | Dir] = field(default_factory=dict)
    durable: dict[str, Node | Dir] = field(default_factory=dict)
    changes: list[dict[str, Node | Dir | None]] = field(default_factory=list)

    def change(self, names: dict[str, Node | Dir | None]) -> None:
        """These names are set or (None) removed, in one step."""
        self.changes.append(names)
        _apply(self.entries, names)


def _apply(entries: dict[str, Node | Dir], names: dict[str, Node | Dir | None]) -> None:
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def _copied(folder: Dir, made: dict[Node | Dir, Node | Dir]) -> Dir:
    """made: what has a copy already: a file has one, however many names lead to it."""

    def of(node: Node | Dir) -> Node | Dir:
        if node in made:
            return made[node]
        if isinstance(node, Dir):
            return _copied(node, made)
        twin = made[node] = Node(
            node.data[:], node.durable[:], set(node.dirty), node.length_is_dirty, node.names
        )
        return twin

    copy = made[folder] = Dir()
    copy.entries = {name: of(node) for name, node in folder.entries.items()}
    copy.durable = {name: of(node) for name, node in folder.durable.items()}
    copy.changes = [
        {name: None if node is None else of(node) for name, node in names.items()}
        for names in folder.changes
    ]
    return copy


class Storage:
    """The medium and the kernel's memory, which outlive a process.

    ops: verbs so far. crash_at: the verb that is not carried out any more. fail: asked before each
    verb for an errno, 0 where it may go on. room: bytes that may still be written.
    """

    def __init__(self, random: Random, profile: Profile = PROFILES["adversarial"]) -> None:
        self.random = random
        self.profile = profile
        self.root = Dir()
        self.ops = 0
        self.crash_at = 0
        self.fail: Callable[[str, str], int] = _never
        self.room = 1 << 40
        self.trace: list[tuple[str, str]] | None = None
        """(verb, path) of every step, where a list is put here."""
        self.life = 0
        """Raised by each crash: what was opened before is of no use."""

    # --- crashes --------------------------------------------------------------------------------

    def copy(self, random: Random) -> Storage:
        """The same disk once more, apart from this one, with room. random: what its fate is."""
        twin = Storage(random, self.profile)
        twin.root = _copied(self.root, {})
        return twin

    def kill(self) -> None:
        """The process is gone; the kernel keeps what it took."""
        self.life += 1
        self.crash_at = 0

    def cut_power(self) -> None:
        """The machine is gone: of what was not synced, whatever the profile leaves."""
        self.kill()
        seen: set[int] = set()
        self._cut_dir(self.root, seen)

    def _cut_dir(self, folder: Dir, seen: set[int]) -> None:
        entries = dict(folder.durable)
        changes = folder.changes
        if self.profile.ordered:
            survivors = changes[: self.random.randint(0, len(changes))]
        else:
            survivors = [change for change in changes if self.random.random() < 0.5]
        for names in survivors:
            _apply(entries, names)
        folder.entries, folder.durable, folder.changes = entries, dict(entries), []
        for name in sorted(entries):
            node = entries[name]
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, Dir):
                self._cut_dir(node, seen)
            else:
                self._cut_file(node)

    def _cut_file(self, node: Node) -> None:
        data, durable, size = node.data, node.durable, self.profile.page_bytes
        if node.dirty or node.length_is_dirty:
            lengths = [len(durable), len(data), self.random.randint(0, len(data))]
            length = max(self.random.choice(lengths), min(len(durable), len(data)))
            kept = bytearray(durable[:length].ljust(length, b"\0"))
            pages = sorted({at * PAGE_BYTES // size + sub for at in node.dirty
                            for sub in range(max(1, PAGE_BYTES // size))})  # fmt: skip
            for page in pages:
                start, end = page * size, min(page * size + size, length)
                if start < end:
                    safe = _same(data, durable, start, end)
                    kept[safe:end] = self._page(data, durable, safe, end)
            node.durable = kept
        node.data = bytearray(node.durable)
        node.dirty.clear()
        node.length_is_dirty = False

    def _page(self, data: bytearray, durable: bytearray, start: int, end: int) -> bytes:
        old = bytes(durable[start:end]).ljust(end - start, b"\0")
        new = bytes(data[start:end]).ljust(end - start, b"\0")
        match self.random.choice(self.profile.fates):
            case "kept":
                return new
            case "lost":
                return old
            case "zero":
                return bytes(end - start)
            case "garbage":
                return self.random.randbytes(end - start)
            case "torn":
                at = self.random.randint(0, end - start)
                return new[:at] + old[at:]

    # --- rot ------------------------------------------------------------------------------------

    def damage(self, path: str, kind: Literal["flip", "zero", "stale"]) -> tuple[int, int] | None:
        """Rot in a file's synced bytes. (offset, length) of what changed, None for nothing."""
        node = self.node(path)
        content = bytes(node.durable)
        if not content:
            return None
        if kind == "flip":
            bit = self.random.randrange(len(content) * 8)
            start, end = bit // 8, bit // 8 + 1
            new = bytes((content[start] ^ 1 << bit % 8,))
        else:
            start = self.random.randrange(0, len(content), 512)
            end = min(start + 512, len(content))
            stale = self.random.randrange(0, max(1, start), 512) if kind == "stale" else None
            old = bytes(end - start) if stale is None else content[stale : stale + end - start]
            new = old.ljust(end - start, b"\0")
        before = content[start:end], bytes(node.data[start:end])
        node.durable[start:end] = new
        node.data[start : min(end, len(node.data))] = new[: max(0, len(node.data) - start)]
        after = bytes(node.durable[start:end]), bytes(node.data[start:end])
        return (start, end - start) if after != before else None

    # --- looking --------------------------------------------------------------------------------

    def node(self, path: str) -> Node:
        """A file by its path. FileNotFoundError, IsADirectoryError."""
        found = self.folder(path.rpartition("/")[0]).entries.get(path.rpartition("/")[2])
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(found, Dir):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return found

    def folder(self, path: str) -> Dir:
        """A directory by its path; "" is the root. FileNotFoundError, NotADirectoryError."""
        folder = self.root
        for name in path.split("/") if path else []:
            found = folder.entries.get(name)
            if found is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if not isinstance(found, Dir):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            folder = found
        return folder

    def files(self, *, durable: bool = False) -> dict[str, bytes]:
        """Every file's bytes, as a reader sees them; or what is left if nothing else gets there."""
        found: dict[str, bytes] = {}
        todo: list[tuple[str, Dir]] = [("", self.root)]
        while todo:
            head, folder = todo.pop()
            entries = folder.durable if durable else folder.entries
            for name, node in sorted(entries.items()):
                if isinstance(node, Dir):
                    todo.append((f"{head}{name}/", node))
                else:
                    found[head + name] = bytes(node.durable if durable else node.data)
        return found


def _never(_verb: str, _path: str) -> int:
    return 0


def _same(data: bytearray, durable: bytearray, start: int, end: int) -> int:
    """Up to where both hold the same from `start` on: what was synced and not changed."""
    end = min(end, len(data), len(durable))
    while start < end and data[start] == durable[start]:
        start += 1
    return start
