"""One run of the guest: started, listened to, ended.

Owns: the process of QEMU, its serial line, the time it may take. Refuses: what the guest does
(`inside.py`).

The line carries text for people and, behind a mark, verdicts for this process. No network device:
client and server of NFS are both inside.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from .image import Image

__all__ = ["MARK", "Silent", "run"]

MARK: Final = "@@walld "
_BUG: Final = b"Kernel panic"


class Silent(Exception):
    """The guest did not come to its end; the text says how far it was."""


def run(
    image: Image, tree: Path, words: Sequence[str], seconds: float
) -> Iterator[dict[str, Any] | str]:
    """Verdicts, and lines for people, as they come. Raises Silent; the machine is gone then too."""
    command = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "2048"]
    command += ["-smp", "2", "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"]
    command += ["-net", "none", "-kernel", str(image.kernel), "-initrd", str(image.initramfs)]
    command += ["-append", " ".join(("console=ttyS0 quiet loglevel=3 panic=-1", *words))]
    command += ["-drive", f"file={image.root},if=virtio,format=raw,snapshot=on"]
    command += ["-drive", f"file={tree},if=virtio,format=raw,snapshot=on"]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        for line in _lines(process, time.monotonic() + seconds):
            _, mark, verdict = line.partition(MARK)
            yield json.loads(verdict) if mark else line
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _lines(process: subprocess.Popen[bytes], deadline: float) -> Iterator[str]:
    """Whole lines, until it closes the line or its time is over."""
    assert process.stdout is not None
    fd, rest = process.stdout.fileno(), b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            raise Silent("the guest has not come to its end in time")
        got = os.read(fd, 1 << 16)
        if not got:
            return
        *whole, rest = (rest + got).split(b"\n")
        for line in whole:
            if _BUG in line:
                raise Silent(line.decode(errors="replace").strip())
            yield line.decode(errors="replace").rstrip("\r")
