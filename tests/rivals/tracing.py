"""A sync that fails, once, where strace says so.

Owns: attaching to a process that runs, and knowing when it has happened. Refuses: what follows.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .store import PATIENCE_SECONDS

__all__ = ["failing_sync"]

_RULE = "inject=fdatasync,fsync:error=EIO:when=2"
"""The second of each thread: before it, one has worked."""


@contextmanager
def failing_sync(pid: int, log: Path) -> Iterator[Callable[[], bool]]:
    """While the block runs. Gives: has it happened?"""
    command = ["strace", "-f", "-qq", "-o", str(log), "-p", str(pid)]
    command += ["-e", "trace=fdatasync,fsync", "-e", "signal=none", "-e", _RULE]
    strace = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text():
            assert strace.poll() is None, "strace cannot trace here"
            assert time.monotonic() < deadline
            time.sleep(0.001)
        yield lambda: log.exists() and "(INJECTED)" in log.read_text()
    finally:
        if strace.poll() is None:
            strace.terminate()
        strace.wait()
