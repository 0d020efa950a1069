"""Other users and their daemons: what tests of who may do what share.

Owns: running Python as another uid, a daemon of another uid, what a process holds in memory.
Refuses: what a test asserts.

The uid is changed in the process itself, after its imports: the interpreter of these tests may lie
where nobody else can read.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import fork_server
import pytest
from daemon_process import PATIENCE_SECONDS, DaemonProcess, environment
from fork_server import Process

__all__ = ["NOBODY", "DaemonOf", "as_user", "needs_root", "resident_bytes"]

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")

_BECOME = "import os, sys; uid = int(sys.argv[1]); os.setgroups([]); os.setgid(uid); os.setuid(uid)"


def as_user(uid: int, source: str, *arguments: str) -> str:
    """What Python source prints as another user. It finds its arguments in sys.argv[2:]."""
    code = f"import socket, struct\n{_BECOME}\n{source}"
    command = [sys.executable, "-c", code, str(uid), *arguments]
    done = fork_server.run(command, environment(), PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().strip()


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


class DaemonOf(DaemonProcess):
    """A daemon of another uid: `give` it its directory, then start it."""

    def __init__(self, home: Path, uid: int, *options: str) -> None:
        super().__init__(home, *options)
        self.uid = uid
        # Root gives it a folder where nobody else can make one: clients of other users trust it.
        os.rmdir(self.folder)
        self.folder = tempfile.mkdtemp(prefix="walld-", dir="/run")
        self.socket_path = f"{self.folder}/s"
        # pytest's folders are closed to other users; this one is its own.
        self.data = Path(self.folder) / "data"
        os.chown(self.folder, uid, uid)

    def _launch(self, command: list[str], env: Mapping[str, str], stderr: int) -> Process:
        self.process = fork_server.start(command, dict(env), stderr=stderr, uid=self.uid)
        return self.process
