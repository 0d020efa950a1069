"""A disk that keeps the case of a name and does not look at it, over a real one."""

from __future__ import annotations

import os

from walld.disk.base import Entry
from walld.disk.real import RealDisk, RealFile

__all__ = ["CaseBlindDisk"]


class CaseBlindDisk(RealDisk):
    """Every component is found by any letters, as on SMB, APFS or a drive of Windows."""

    def _there(self, path: str) -> str:
        done: list[str] = []
        for part in path.split("/") if path else []:
            folder = os.path.join(self.root, *done)
            names = os.listdir(folder) if os.path.isdir(folder) else []
            near = [name for name in names if name.lower() == part.lower()]
            assert len(near) < 2, f"{folder} cannot hold {near}"
            done.append(near[0] if near else part)
        return "/".join(done)

    def create(self, path: str) -> RealFile:
        return super().create(self._there(path))

    def _open(self, path: str, access: int) -> RealFile:
        return super()._open(self._there(path), access)

    def unlink(self, path: str) -> None:
        super().unlink(self._there(path))

    def rename(self, path: str, new_path: str) -> None:
        super().rename(self._there(path), self._there(new_path))

    def make_one_dir(self, path: str) -> bool:
        return super().make_one_dir(self._there(path))

    def remove_dir(self, path: str) -> bool:
        return super().remove_dir(self._there(path))

    def sync_dir(self, path: str) -> None:
        super().sync_dir(self._there(path))

    def list_dir(self, path: str) -> list[Entry]:
        return super().list_dir(self._there(path))
