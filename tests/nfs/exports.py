"""Server and mounts of one guest: nfsd, what it exports, who mounts it by which way.

Owns: the server's start, file systems behind exports, client mounts, cutting a way and giving it
back. Refuses: what is written there.

This process never opens a file on such a mount: with the server away it could not even start
another one (a fork closes what it inherits, and that flushes). What lies there is read at the
server's side, where it is what the server has.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final

__all__ = ["Export", "FarMachine", "OwnExport", "Way", "call", "mounted", "serve"]

_CALL_SECONDS_MAX: Final = 90.0
LEASE_SECONDS: Final = 10
"""The shortest that nfsd takes."""
_SERVER: Final = Path("/proc/fs/nfsd")
_PIPES: Final = Path("/run/rpc_pipefs")
_numbers = count(1)


def call(*command: str, check: bool = True) -> str:
    """Run it; what it printed."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_CALL_SECONDS_MAX, check=False
    )
    if check and done.returncode:
        raise OSError(f"{' '.join(command)}: {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def serve() -> None:
    """Start nfsd, v3 and v4; without a grace period, as nobody was here before."""
    _PIPES.mkdir()
    call("mount", "-t", "rpc_pipefs", "rpc_pipefs", str(_PIPES))
    call("mount", "-t", "nfsd", "nfsd", str(_SERVER))
    call("rpcbind", "-w", check=False)
    call("rpc.statd", check=False)
    call("nfsdcld", check=False)
    (_SERVER / "nfsv4leasetime").write_text(f"{LEASE_SECONDS}\n")
    (_SERVER / "nfsv4gracetime").write_text(f"{LEASE_SECONDS}\n")
    call("rpc.mountd")
    call("rpc.nfsd", "8")
    with suppress(OSError):
        (_SERVER / "v4_end_grace").write_text("Y\n")


class Export:
    """A file system of the server's that clients may mount; `path` is the server's side of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        how = f"rw,sync,no_root_squash,no_subtree_check,fsid={next(_numbers)}"
        call("exportfs", "-o", how, f"*:{self.path}")

    def close(self) -> None:
        """Nobody can reach it any more."""
        call("exportfs", "-u", f"*:{self.path}", check=False)
        call("exportfs", "-f", check=False)


class OwnExport(Export):
    """An ext4 that is made for it."""

    def __init__(self, name: str, megabytes: int) -> None:
        self._image = Path("/srv") / f"{name}.image"
        with self._image.open("wb") as file:
            file.truncate(megabytes << 20)
        call("mkfs.ext4", "-qF", "-m", "0", str(self._image))
        path = Path("/srv") / name
        path.mkdir()
        call("mount", "-o", "loop", str(self._image), str(path))
        super().__init__(path)

    def close(self) -> None:
        """The same, and its room is free again."""
        super().close()
        call("umount", "-l", str(self.path), check=False)
        self._image.unlink()


class Way:
    """From a client to the server; this one by the guest's own lo."""

    address = "127.0.0.1"
    prefix: tuple[str, ...] = ()
    """A command to run `mount` under."""
    _link = "lo"

    def cut(self) -> None:
        """From here on nothing passes."""
        call("ip", "link", "set", self._link, "down")

    def mend(self) -> None:
        call("ip", "link", "set", self._link, "up")


class FarMachine(Way):
    """Another client as the server sees it: its own network, address and host name."""

    def __init__(self, name: str) -> None:
        number = next(_numbers)
        self._link = f"to-{name}"
        self._name = name
        self.address = f"10.77.{number}.1"
        call("ip", "netns", "add", name)
        veth = ("type", "veth", "peer", "name", "way", "netns", name)
        call("ip", "link", "add", self._link, *veth)
        call("ip", "address", "add", f"{self.address}/24", "dev", self._link)
        call("ip", "link", "set", self._link, "up")
        call("ip", "-n", name, "address", "add", f"10.77.{number}.2/24", "dev", "way")
        call("ip", "-n", name, "link", "set", "way", "up")
        call("ip", "-n", name, "link", "set", "lo", "up")
        enter = ("nsenter", f"--net=/run/netns/{name}", "unshare", "--uts", "sh", "-c")
        self.prefix = (*enter, 'hostname "$0" && exec "$@"', name)


@contextmanager
def mounted(export: Export, options: str, way: Way | None = None, name: str = "") -> Iterator[Path]:
    """The export, as a client sees it."""
    way = way or Way()
    place = Path("/mnt") / (name or export.path.name)
    place.mkdir()
    source = f"{way.address}:{export.path}"
    begun = time.monotonic()
    while True:
        try:
            call(*way.prefix, "mount", "-t", "nfs", "-o", options, source, str(place))
            break
        except OSError:
            if time.monotonic() - begun > _CALL_SECONDS_MAX:
                raise
            time.sleep(0.5)
    try:
        yield place
    finally:
        call("umount", "-f", "-l", str(place), check=False)
        with suppress(OSError):
            os.rmdir(place)
