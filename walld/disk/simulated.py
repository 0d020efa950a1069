"""The disk verbs of `base.py` on a simulated medium that can crash.

Owns: each verb's step: counted, traced, perhaps failed or crashed within. Refuses: what a crash
leaves (`medium.py`), time (who runs a verb awaits its latency).
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from walld.disk.atomic import ComposedDisk
from walld.disk.base import Entry
from walld.disk.medium import PAGE_BYTES, Crashed, Dir, Node

if TYPE_CHECKING:
    from walld.disk.medium import Storage

__all__ = ["SimulatedDisk", "SimulatedFile"]


class SimulatedDisk(ComposedDisk):
    """One process's hold on a Storage."""

    def __init__(self, storage: Storage, root: str = "(simulated)") -> None:
        super().__init__()
        self.root = root
        self._storage = storage
        self._life = storage.life

    def step(self, verb: str, path: str) -> bool:
        """Every verb begins here. Raises OSError or Crashed; True where a crash comes within it."""
        storage = self._storage
        if storage.life != self._life:
            raise Crashed
        storage.ops += 1
        if storage.trace is not None:
            storage.trace.append((verb, path))
        if storage.ops == storage.crash_at:
            if verb == "write":
                return True
            self.die()
        number = storage.fail(verb, path)
        if number:
            raise OSError(number, os.strerror(number), path)
        return False

    def die(self) -> None:
        """The process is gone within a verb."""
        self._storage.life += 1
        raise Crashed

    def create(self, path: str) -> SimulatedFile:
        """A new file. FileExistsError if there."""
        self.step("create", path)
        folder, name = self._parent(path)
        if name in folder.entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        node = Node(names=1)
        folder.change({name: node})
        return SimulatedFile(self, self._storage, path, node)

    def open(self, path: str) -> SimulatedFile:
        """An existing file, for reading."""
        self.step("open", path)
        return SimulatedFile(self, self._storage, path, self._storage.node(path))

    def reopen(self, path: str) -> SimulatedFile:
        """An existing file, read-write."""
        return self.open(path)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        self.step("unlink", path)
        node = self._storage.node(path)
        folder, name = self._parent(path)
        folder.change({name: None})
        node.names -= 1

    def rename(self, path: str, new_path: str) -> None:
        """Another name; within one directory in one step, as a kernel does it.

        To another directory the new name is durable first: a journal never keeps half of it.
        """
        self.step("rename", path)
        node = self._storage.node(path)
        (source, name), (target, new_name) = self._parent(path), self._parent(new_path)
        was = target.entries.get(new_name)
        if isinstance(was, Node):
            was.names -= 1
        if source is target:
            source.change({name: None, new_name: node})
            return
        target.change({new_name: node})
        target.durable[new_name] = node
        source.change({name: None})

    def link(self, path: str, new_path: str) -> None:
        """A second name of a file, durable with its directory."""
        self.step("link", path)
        node = self._storage.node(path)
        folder, name = self._parent(new_path)
        if name in folder.entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new_path)
        folder.change({name: node})
        node.names += 1

    def make_one_dir(self, path: str) -> bool:
        """A directory; False where it is there."""
        self.step("mkdir", path)
        folder, name = self._parent(path)
        if name in folder.entries:
            return False
        folder.change({name: Dir()})
        return True

    def remove_dir(self, path: str) -> bool:
        """Remove an empty directory; False where it is not empty or not there."""
        self.step("rmdir", path)
        try:
            if self._storage.folder(path).entries:
                return False
        except FileNotFoundError:
            return False
        folder, name = self._parent(path)
        folder.change({name: None})
        self._durable_dirs.discard(path)
        return True

    def sync_dir(self, path: str) -> None:
        """The names in it survive power loss."""
        self.step("sync_dir", path)
        folder = self._storage.folder(path)
        if not self._storage.profile.ignores_sync:
            folder.durable, folder.changes = dict(folder.entries), []

    def list_dir(self, path: str) -> list[Entry]:
        """Entries by name; [] where there is no such directory."""
        self.step("list", path)
        try:
            entries = self._storage.folder(path).entries
        except FileNotFoundError:
            return []
        return [
            Entry(name, "dir", 0) if isinstance(node, Dir) else Entry(name, "file", len(node.data))
            for name, node in sorted(entries.items())
        ]

    def is_removed(self) -> bool:
        """It has no name that could go."""
        return False

    def free_bytes(self) -> int:
        """What may still be written."""
        self.step("statvfs", "")
        return self._storage.room

    def _parent(self, path: str) -> tuple[Dir, str]:
        head, _, name = path.rpartition("/")
        return self._storage.folder(head), name


class SimulatedFile:
    """An open file of a SimulatedDisk."""

    __slots__ = ("_disk", "_node", "_poisoned", "_storage", "path")

    def __init__(self, disk: SimulatedDisk, storage: Storage, path: str, node: Node) -> None:
        self.path = path
        self._disk = disk
        self._storage = storage
        self._node = node
        self._poisoned = False

    def write_at(self, data: bytes, offset: int) -> int:
        """Bytes taken: fewer than given where the disk is nearly full."""
        crashes = self._disk.step("write", self.path)
        if crashes:
            pages = range(-offset % PAGE_BYTES, len(data) + 1, PAGE_BYTES)
            data = data[: self._storage.random.choice([0, *pages, len(data)])]
        node, storage = self._node, self._storage
        grown = max(0, offset + len(data) - len(node.data))
        if grown > storage.room and not storage.profile.full_at_sync:
            data = data[: max(0, len(data) - (grown - storage.room))]
            grown = max(0, offset + len(data) - len(node.data))
            if not data:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        storage.room -= grown
        if grown:
            node.length_is_dirty = True
            node.data.extend(bytes(grown))
        node.data[offset : offset + len(data)] = data
        if data:
            node.dirty.update(
                range(offset // PAGE_BYTES, (offset + len(data) - 1) // PAGE_BYTES + 1)
            )
        if crashes:
            self._disk.die()
        return len(data)

    def read_at(self, length: int, offset: int) -> bytes:
        """Up to `length` bytes, fewer only at the end."""
        self._disk.step("read", self.path)
        return bytes(self._node.data[offset : offset + length])

    def read_cached(self, length: int, offset: int) -> bytes | None:
        """Everything is in memory here, except now and then."""
        if self._storage.random.random() < 0.2:
            return None
        data = self.read_at(length, offset)
        return data if len(data) == length else None

    def size(self) -> int:
        """Length in bytes."""
        self._disk.step("stat", self.path)
        return len(self._node.data)

    def truncate(self, length: int) -> None:
        """Cut or extend."""
        self._disk.step("truncate", self.path)
        node = self._node
        self._storage.room += len(node.data) - length
        del node.data[length:]
        node.data.extend(bytes(length - len(node.data)))
        node.length_is_dirty = True

    def sync(self) -> None:
        """Its bytes survive power loss. After an error the pages are gone and called clean."""
        assert not self._poisoned, f"{self.path}: a second sync after a failed one proves nothing"
        node, storage = self._node, self._storage
        try:
            self._disk.step("sync", self.path)
            if storage.room < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        except OSError:
            self._poisoned = True
            node.dirty.clear()
            raise
        if storage.profile.ignores_sync:
            return
        length = len(node.data)
        del node.durable[length:]
        node.durable.extend(bytes(length - len(node.durable)))
        for page in node.dirty:
            start, end = page * PAGE_BYTES, min((page + 1) * PAGE_BYTES, length)
            node.durable[start:end] = node.data[start:end]
        node.dirty.clear()
        node.length_is_dirty = False

    def same_file(self) -> bool:
        """False where the path leads elsewhere, or it has no name any more."""
        self._disk.step("stat", self.path)
        try:
            return self._storage.node(self.path) is self._node
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return False

    def close(self) -> None:
        """Give the descriptor back."""
