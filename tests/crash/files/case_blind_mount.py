"""Mounts a folder once more, so that names are found by any letters: `python ... folder place`.

Owns: what SMB shares, APFS and drives of Windows have in common: the case of a name is kept, and
not looked at. Needs fusepy, libfuse2 and /dev/fuse. Refuses: everything but what walld calls.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import fuse

ATTRIBUTES = "st_atime st_ctime st_gid st_ino st_mode st_mtime st_nlink st_size st_uid st_blocks"
ROOM = "f_bavail f_bfree f_blocks f_bsize f_favail f_ffree f_files f_flag f_frsize f_namemax"


class CaseBlind(fuse.Operations):  # type: ignore[misc]
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def _there(self, path: str) -> str:
        done = self._folder
        for part in path.strip("/").split("/"):
            near = [one for one in _names(done) if one.lower() == part.lower()]
            done = os.path.join(done, near[0] if near else part)
        return done

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        found = os.fstat(fh) if fh is not None else os.lstat(self._there(path))
        return {key: getattr(found, key) for key in ATTRIBUTES.split()}

    def statfs(self, path: str) -> dict[str, Any]:
        found = os.statvfs(self._there(path))
        return {key: getattr(found, key) for key in ROOM.split()}

    def readdir(self, path: str, _fh: int) -> list[str]:
        return [".", "..", *os.listdir(self._there(path))]

    def mkdir(self, path: str, mode: int) -> None:
        os.mkdir(self._there(path), mode)

    def rmdir(self, path: str) -> None:
        os.rmdir(self._there(path))

    def unlink(self, path: str) -> None:
        os.unlink(self._there(path))

    def rename(self, old: str, new: str) -> None:
        os.rename(self._there(old), self._there(new))

    def link(self, target: str, source: str) -> None:
        os.link(self._there(source), self._there(target))

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(self._there(path), mode)

    def create(self, path: str, mode: int, _fi: object = None) -> int:
        return os.open(self._there(path), os.O_RDWR | os.O_CREAT, mode)

    def open(self, path: str, flags: int) -> int:
        return os.open(self._there(path), flags & ~os.O_NOFOLLOW)

    def read(self, _path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def write(self, _path: str, data: bytes, offset: int, fh: int) -> int:
        return os.pwrite(fh, data, offset)

    def truncate(self, path: str, length: int, fh: int | None = None) -> None:
        os.truncate(self._there(path) if fh is None else fh, length)

    def flush(self, _path: str, _fh: int) -> None:
        """It is written already."""

    def release(self, _path: str, fh: int) -> None:
        os.close(fh)

    def fsync(self, _path: str, _data: int, fh: int) -> None:
        os.fsync(fh)

    def fsyncdir(self, _path: str, _data: int, _fh: int) -> None:
        """The folder below is on a disk of its own."""


def _names(folder: str) -> list[str]:
    return os.listdir(folder) if os.path.isdir(folder) else []


if __name__ == "__main__":
    fuse.FUSE(
        CaseBlind(sys.argv[1]),
        sys.argv[2],
        foreground=True,
        nothreads=True,
        default_permissions=True,
        use_ino=True,
    )
