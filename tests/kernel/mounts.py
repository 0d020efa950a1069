"""File systems of one's own on loop devices, and the cut of their power.

Owns: images, mounts, the shutdown ioctl, and that nothing of it is left behind. Refuses: what is
written there.

The shutdown (flag 2: no log flush) is what a power cut is to a file system: from that moment
nothing reaches the device any more, neither pages nor journal; the next mount finds what was there
before.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["CUTTABLE", "LoopMount", "mounted", "sync_all", "tmpfs", "why_not"]

CUTTABLE: Final = ("ext4", "xfs")
"""File systems that have a shutdown; btrfs answers ENOTTY."""
_SHUTDOWN: Final = 0x8004587D
_FREEZE: Final = 0xC0045877
_THAW: Final = 0xC0045878
_TRIM: Final = 0xC0185879
_NO_LOG_FLUSH: Final = struct.pack("I", 2)
_MAKE: Final = {
    "ext4": ("mkfs.ext4", "-qF", "-b", "4096", "-E", "nodiscard"),
    "xfs": ("mkfs.xfs", "-qfK"),
    "btrfs": ("mkfs.btrfs", "-qfK"),
}
_PACKAGES: Final = {"ext4": "e2fsprogs", "xfs": "xfsprogs", "btrfs": "btrfs-progs"}
_MEGABYTES: Final = {"ext4": 64, "xfs": 300, "btrfs": 128}
"""The smallest that mkfs takes, where that is more than a loop needs."""
_BUSY_SECONDS: Final = 10.0
_libc = ctypes.CDLL(None, use_errno=True)


def why_not(kind: str) -> str | None:
    """Why such a file system cannot be mounted here; None where it can."""
    if os.geteuid() != 0:
        return "only root can mount a file system"
    if kind == "tmpfs":
        return _why_no_tmpfs()
    if shutil.which(_MAKE[kind][0]) is None:
        return f"needs {_MAKE[kind][0]} (Debian: apt-get install {_PACKAGES[kind]})"
    try:
        with mounted(kind):
            return None
    except OSError as error:
        return f"cannot mount {kind} here: {error}"


def _why_no_tmpfs() -> str | None:
    try:
        with tmpfs(1024):
            return None
    except OSError as error:
        return f"cannot mount tmpfs here: {error}"


class LoopMount:
    """One image, one loop device, one place where it is mounted."""

    def __init__(self, kind: str, folder: Path, megabytes: int | None = None) -> None:
        self.kind = kind
        self._sectors_kb = ""
        self.path = folder / "mnt"
        self.path.mkdir()
        image = folder / "image"
        with image.open("wb") as file:
            length = (megabytes or _MEGABYTES[kind]) << 20
            file.truncate(length)
            _run(*_MAKE[kind], str(image))
            os.posix_fallocate(file.fileno(), 0, length)  # mkfs leaves holes, in the journal too
        self.device = _run("losetup", "--find", "--show", str(image)).strip()

    def mount(self) -> None:
        _call("mount", self.device.encode(), os.fsencode(self.path), self.kind.encode(), 0, None)

    def unmount(self) -> None:
        """A process that was killed a moment ago may still hold it."""
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                _call("umount2", os.fsencode(self.path), 0)
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.002)

    def is_read_only(self) -> bool:
        """Nothing can be written to it."""
        return bool(os.statvfs(self.path).f_flag & os.ST_RDONLY)

    def cut_power(self) -> None:
        """From here on nothing reaches the device."""
        self._ioctl(_SHUTDOWN, _NO_LOG_FLUSH)

    def freeze(self) -> None:
        """From here on every write and sync of it waits, until `thaw`."""
        self._ioctl(_FREEZE, 0)

    def thaw(self) -> None:
        self._ioctl(_THAW, 0)

    def trim(self) -> None:
        """What is free has no room in the image any more, and must find it there when written."""
        self.sync()
        self._ioctl(_TRIM, struct.pack("QQQ", 0, 1 << 62, 0))

    def _ioctl(self, number: int, argument: int | bytes) -> None:
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, number, argument)
        finally:
            os.close(fd)

    def page_by_page(self) -> None:
        """The device takes a page a request; file systems here have blocks of a page.

        Of a longer one that finds room for its first pages alone the loop driver of Linux 6.18
        calls all of it written: a disk that lies, which is another fault than one that fails.
        """
        queue = Path("/sys/block", Path(self.device).name, "queue/max_sectors_kb")
        self._sectors_kb = queue.read_text()
        queue.write_text("4")

    def sync(self) -> None:
        """What was done so far outlives the next cut."""
        sync_all(self.path)

    def close(self) -> None:
        """Unmounted whatever state it is in, and the device given back."""
        if os.path.ismount(self.path):
            self.unmount()
        if self._sectors_kb:
            queue = Path("/sys/block", Path(self.device).name, "queue/max_sectors_kb")
            queue.write_text(self._sectors_kb)  # the device keeps it for its next image
        _run("losetup", "--detach", self.device)


@contextmanager
def mounted(
    kind: str, megabytes: int | None = None, folder: Path | None = None
) -> Iterator[LoopMount]:
    """Such a file system, mounted, until the block ends. OSError where that cannot be."""
    own = Path(tempfile.mkdtemp(prefix="walld-mount-", dir=folder))
    mount = None
    try:
        mount = LoopMount(kind, own, megabytes)
        mount.mount()
        yield mount
    finally:
        if mount is not None:
            mount.close()
        shutil.rmtree(own)


@contextmanager
def tmpfs(kilobytes: int) -> Iterator[Path]:
    """A file system in memory, of that size, until the block ends. OSError where that cannot be."""
    path = tempfile.mkdtemp(prefix="walld-mount-")
    options = f"size={kilobytes}k,mode=0700".encode()
    try:
        _call("mount", b"tmpfs", os.fsencode(path), b"tmpfs", 0, options)
        try:
            yield Path(path)
        finally:
            _call("umount2", os.fsencode(path), 0)
    finally:
        os.rmdir(path)


def sync_all(path: Path) -> None:
    """syncfs(2) of the file system that holds `path`."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _call("syncfs", fd)
    finally:
        os.close(fd)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(done.returncode, f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _call(name: str, *arguments: bytes | int | None) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}", str(arguments[0]))
