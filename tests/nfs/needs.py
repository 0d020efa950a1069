"""What the machine must have before a guest can be made, and getting it where that is possible.

Owns: the list of programs, the Debian packages they come in, the reason to print where one cannot
be had. Refuses: making the guest (`image.py`).
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["Missing", "Source", "get", "kernel_package", "quietly", "source"]

_PROGRAMS: Final[Mapping[str, str]] = {
    "qemu-system-x86_64": "qemu-system-x86",
    "debootstrap": "debootstrap",
    "cpio": "cpio",
    "depmod": "kmod",
    "mkfs.ext4": "e2fsprogs",
    "busybox": "busybox-static",
}
_KERNEL: Final = "linux-image-cloud-amd64"
_INSTALL_SECONDS_MAX: Final = 600.0
_ASK_SECONDS_MAX: Final = 120.0


class Missing(Exception):
    """It cannot be run here; the text is the reason to print."""


class Source(NamedTuple):
    """Where apt gets the distribution from that is installed here."""

    mirror: str
    suite: str


def quietly(*command: str, seconds: float, **environment: str) -> str:
    """What it prints. Missing where it fails or takes longer, with its last words."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            env=os.environ | environment,
            check=False,
        )
    except FileNotFoundError:
        raise Missing(f"there is no {command[0]}") from None
    except subprocess.TimeoutExpired:
        raise Missing(f"{command[0]} took more than {seconds:.0f} s") from None
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()
        raise Missing(f"{command[0]} failed ({done.returncode}): {words[-1]}")
    return done.stdout


def get() -> None:
    """All programs are there afterwards. Raises Missing."""
    if platform.machine() != "x86_64":
        raise Missing(f"the guest is x86-64, this machine is {platform.machine()}")
    if os.geteuid() != 0:
        raise Missing("only root can make the guest (debootstrap)")
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    packages = [package for name, package in _PROGRAMS.items() if shutil.which(name) is None]
    if not packages:
        return
    if shutil.which("apt-get") is None:
        raise Missing(f"needs {', '.join(packages)}, and there is no apt-get to install them with")
    print(f"nfs: installing {' '.join(packages)}", flush=True)
    install = ("apt-get", "install", "-qq", "--yes", "--no-install-recommends")
    try:
        quietly(*install, *packages, seconds=_INSTALL_SECONDS_MAX, DEBIAN_FRONTEND="noninteractive")
    except Missing:  # its lists may be old, or none
        quietly("apt-get", "update", "-qq", seconds=_INSTALL_SECONDS_MAX)
        quietly(*install, *packages, seconds=_INSTALL_SECONDS_MAX, DEBIAN_FRONTEND="noninteractive")


def source() -> Source:
    """The mirror and suite that apt is configured for. Raises Missing."""
    release = platform.freedesktop_os_release()
    if release.get("ID") != "debian" or "VERSION_CODENAME" not in release:
        raise Missing(f"the guest is made by Debian's apt, this is {release.get('ID')}")
    suite = release["VERSION_CODENAME"]
    shape = "$(CODENAME) $(COMPONENT) $(SITE)"
    found = quietly("apt-get", "indextargets", "--format", shape, seconds=_ASK_SECONDS_MAX)
    for line in found.splitlines():
        codename, component, site = (*line.split(" ", 2), "", "")[:3]
        if codename == suite and component == "main" and site:
            return Source(site, suite)
    raise Missing(f"apt knows no mirror of {suite} (apt-get update?)")


def kernel_package() -> str:
    """The package of the kernel that Debian's cloud image would have now. Raises Missing."""
    if not any(Path("/var/lib/apt/lists").glob("*_Packages*")):
        quietly("apt-get", "update", "-qq", seconds=_INSTALL_SECONDS_MAX)
    for line in quietly("apt-cache", "depends", _KERNEL, seconds=_ASK_SECONDS_MAX).splitlines():
        word, _, name = line.strip().partition(": ")
        if word == "Depends" and name.startswith("linux-image-"):
            return name
    raise Missing(f"apt does not know {_KERNEL}")
