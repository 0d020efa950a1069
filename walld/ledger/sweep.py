"""Sweeps up what a crash left unfinished below sessions/.

Owns: that, a session at a time. Refuses: what is in the files. Only for the owner of the data
directory.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from walld.ledger.listing import folders
from walld.ledger.names import ARTIFACTS_DIR, SESSIONS_DIR, is_temporary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from walld.disk.base import Disk

__all__ = ["sweeping"]


def sweeping(
    disk: Disk, spared: Callable[[str], bool], failed: list[str] | None = None
) -> Iterator[int]:
    """Files removed of each session. spared: paths that are being written.

    failed: takes what was wrong with one that could not be swept, and the others are; without it
    that is raised. Sessions may be written between two steps.
    """
    for uid_path in folders(disk, SESSIONS_DIR):
        with _noting(failed):
            for folder in folders(disk, uid_path):
                with _noting(failed):
                    swept = _sweep(disk, f"{folder}/{ARTIFACTS_DIR}", spared)
                    yield swept + _sweep(disk, folder, spared)
            if not disk.remove_dir(uid_path):
                disk.sync_dir(uid_path)
    with suppress(FileNotFoundError):
        disk.sync_dir(SESSIONS_DIR)


@contextmanager
def _noting(failed: list[str] | None) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        pass  # a session that was deleted between two steps
    except OSError as error:
        if failed is None:
            raise
        failed.append(str(error))


def _sweep(disk: Disk, folder: str, spared: Callable[[str], bool]) -> int:
    entries = disk.list_dir(folder)
    swept = [item.name for item in entries if item.kind == "file" and is_temporary(item.name)]
    swept = [name for name in swept if not spared(f"{folder}/{name}")]
    for name in swept:
        disk.unlink(f"{folder}/{name}")
    if not disk.remove_dir(folder) and entries:
        disk.sync_dir(folder)
    return len(swept)
