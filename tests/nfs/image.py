"""The guest: a kernel, an initramfs, a root file system. Made once, kept until the recipe changes.

Owns: the recipe and the folder it is kept in. Refuses: what is tried in the guest (it comes on a
drive of its own, `tree.py`), and starting it (`machine.py`).

A guest is made beside its place and moved there whole: one that was interrupted is made again.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final, NamedTuple

from .needs import Missing, Source, kernel_package, quietly, source

__all__ = ["ROOT", "Image", "image", "make_ext4"]

ROOT: Final = Path(__file__).parents[2]
_INCLUDE: Final = "python3,nfs-common,nfs-kernel-server,rpcbind,e2fsprogs,kmod,iproute2,procps"
_PLATFORMS: Final = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
_DRIVERS: Final = ("virtio_pci", "virtio_blk")
"""Of the two drives; what they depend on comes with them."""
_MEGABYTES: Final = 1200
_STEP_SECONDS_MAX: Final = 900.0

_INIT: Final = """\
#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /root
/bin/busybox mount -t proc none /proc
/bin/busybox mount -t devtmpfs none /dev
for driver in {drivers}; do /bin/busybox insmod /$driver.ko || echo "no $driver"; done
for second in 1 2 3 4 5 6 7 8 9 10; do
    [ -b /dev/vda ] && [ -b /dev/vdb ] && break
    /bin/busybox sleep 1
done
/bin/busybox mount -t ext4 /dev/vda /root
/bin/busybox mkdir -p /root/tree
/bin/busybox mount -t ext4 /dev/vdb /root/tree
/bin/busybox umount /proc
/bin/busybox mount --move /dev /root/dev
exec /bin/busybox switch_root /root /bin/sh /tree/tests/nfs/init.sh
"""


class Image(NamedTuple):
    """Files of one guest."""

    kernel: Path
    initramfs: Path
    root: Path


def image(cache: Path) -> Image:
    """The guest of this recipe, made if need be. Raises Missing, OSError."""
    kernel = kernel_package()
    where = source()
    wanted = [Path(__file__).read_text(), kernel, where.suite, *_requirements()]
    digest = hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:16]
    folder = cache / digest
    if not folder.is_dir():
        making = cache / f"{digest}.{os.getpid()}"
        making.mkdir(parents=True)
        try:
            _make(making, kernel, where)
            making.rename(folder)
        finally:
            shutil.rmtree(making, ignore_errors=True)
        for old in cache.iterdir():
            if old != folder and re.fullmatch("[0-9a-f]{16}", old.name):
                shutil.rmtree(old, ignore_errors=True)
    return Image(folder / "vmlinuz", folder / "initramfs", folder / "root.ext4")


def make_ext4(path: Path, content: Path, megabytes: int) -> None:
    """An image with these files in it. It takes the room that its content needs."""
    with path.open("wb") as file:
        file.truncate(megabytes << 20)
    quietly("mkfs.ext4", "-qF", "-d", str(content), str(path), seconds=_STEP_SECONDS_MAX)


def _requirements() -> list[str]:
    """What walld needs of other people's packages."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    client = tomllib.loads((ROOT / "clients/python/pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *client.get("dependencies", [])]
    return sorted(one for one in needed if not one.startswith("walld"))


def _make(folder: Path, kernel: str, where: Source) -> None:
    guest, unpacked = folder / "guest", folder / "kernel"
    print(f"nfs: {kernel} is fetched", flush=True)
    _fetch(kernel, folder, unpacked)
    shutil.copy(next((unpacked / "boot").glob("vmlinuz-*")), folder / "vmlinuz")
    # Newer distributions have it below usr/.
    found = [*unpacked.glob("lib/modules/*"), *unpacked.glob("usr/lib/modules/*")]
    if not found:
        raise Missing(f"{kernel} holds no modules")
    modules = found[0]
    print(f"nfs: debootstrap of {where.suite}, once; a minute", flush=True)
    quietly(
        "debootstrap",
        "--variant=minbase",
        f"--include={_INCLUDE}",
        where.suite,
        str(guest),
        where.mirror,
        seconds=_STEP_SECONDS_MAX,
    )
    shutil.copytree(modules, guest / "lib/modules" / modules.name, symlinks=True)
    quietly("depmod", "-b", str(guest), modules.name, seconds=_STEP_SECONDS_MAX)
    print("nfs: Python packages, initramfs, image", flush=True)
    _python_packages(guest)
    shutil.rmtree(guest / "var/cache/apt", ignore_errors=True)
    shutil.rmtree(guest / "var/lib/apt/lists", ignore_errors=True)
    _initramfs(folder / "initramfs", guest / "lib/modules" / modules.name)
    make_ext4(folder / "root.ext4", guest, _MEGABYTES)
    shutil.rmtree(guest)
    shutil.rmtree(unpacked)


def _fetch(kernel: str, folder: Path, unpacked: Path) -> None:
    """Into the folder itself: apt-get puts it where it is started."""
    done = subprocess.run(
        ["apt-get", "download", "-qq", kernel],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_STEP_SECONDS_MAX,
        check=False,
    )
    packages = list(folder.glob("*.deb"))
    if done.returncode or not packages:
        raise Missing(f"apt-get cannot download {kernel}: {done.stderr.strip()}")
    quietly("dpkg", "-x", str(packages[0]), str(unpacked), seconds=_STEP_SECONDS_MAX)
    packages[0].unlink()


def _python_packages(guest: Path) -> None:
    """For the guest's own Python, whatever this one is."""
    version = (guest / "usr/bin/python3").readlink().name.removeprefix("python")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    target = guest / f"usr/local/lib/python{version}/dist-packages"
    command += ["--root-user-action=ignore", "--target", str(target)]
    command += ["--python-version", version, "--only-binary=:all:", "--implementation", "cp"]
    for name in _PLATFORMS:
        command += ["--platform", name]
    quietly(*command, *_requirements(), seconds=_STEP_SECONDS_MAX)
    # By the guest's own Python: it would take a minute under emulation, at every boot.
    compiled = f"/{target.relative_to(guest)}"
    compile_all = ("-m", "compileall", "-q", compiled)
    quietly("chroot", str(guest), "python3", *compile_all, seconds=_STEP_SECONDS_MAX)


def _initramfs(path: Path, modules: Path) -> None:
    """Busybox, the drivers of the two drives, and a script that mounts them."""
    folder = path.with_name("initramfs.d")
    (folder / "bin").mkdir(parents=True)
    busybox = shutil.which("busybox")
    if busybox is None:
        raise Missing("there is no busybox")
    shutil.copy(busybox, folder / "bin/busybox")
    present: list[str] = []
    for name in _DRIVERS:
        for driver in _with_dependencies(modules, name):
            if driver.stem not in present:
                shutil.copy(driver, folder / driver.name)
                present.append(driver.stem)
    init = folder / "init"
    init.write_text(_INIT.format(drivers=" ".join(present)))
    init.chmod(0o755)
    names = "\n".join(str(one.relative_to(folder)) for one in sorted(folder.rglob("*")))
    with path.open("wb") as archive:
        subprocess.run(
            ["cpio", "--quiet", "--create", "--format=newc"],
            cwd=folder,
            input=names.encode(),
            stdout=archive,
            timeout=_STEP_SECONDS_MAX,
            check=True,
        )
    shutil.rmtree(folder)


def _with_dependencies(modules: Path, name: str) -> list[Path]:
    """In the order in which they must be loaded; none where it is in the kernel itself."""
    for line in (modules / "modules.dep").read_text().splitlines():
        path, _, needed = line.partition(":")
        if Path(path).name == f"{name}.ko":
            return [modules / one for one in (*reversed(needed.split()), path)]
    return []
