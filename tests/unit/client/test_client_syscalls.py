"""One system call a token, and no wake-up of any thread, while all is well. Counted by strace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from fake_daemon import fake_daemon

TOKENS = 1000
SCRIPT = f"""
import array, fcntl, os, sys, termios, threading
import walld_client
from walld_client.link import process
client = walld_client.connect(sys.argv[1])
reply = client.reply("S")
reply.token("warm")
(thread,) = [t for t in threading.enumerate() if t.name == "walld"]
def parked():                  # in poll(2) or ppoll(2), on any 64-bit Linux
    with open(f"/proc/self/task/{{thread.native_id}}/syscall") as now:
        return now.read().split()[0] in ("7", "271", "73")
def woken():                   # a byte in its pipe that it has not read
    pending = array.array("i", [0])
    pipe = process.io_thread()._pipe  # the thread makes it
    if pipe is None:
        return True
    fcntl.ioctl(pipe[0], termios.FIONREAD, pending)
    return pending[0] > 0
while woken() or not parked():
    pass
os.getppid()                   # marks where the counting begins
for _ in range({TOKENS}):
    reply.token("token")
os.getppid()                   # and where it ends
assert client.stats().backlog == 0
os._exit(0)
"""


def test_a_token_is_one_send_and_wakes_nobody(tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    out = tmp_path / "trace"
    env = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    with fake_daemon(str(tmp_path / "s")) as daemon:
        traced = subprocess.run(
            [strace, "-f", "-qq", "-o", out, sys.executable, "-c", SCRIPT, daemon.path],
            env=env,
            capture_output=True,
            check=False,
            timeout=60,
        )
        if b"ptrace" in traced.stderr:
            pytest.skip("strace may not trace here")
        assert traced.returncode == 0, traced.stderr
        daemon.until(lambda: daemon.agent().text() == "warm" + "token" * TOKENS)
    lines = out.read_text().splitlines()
    marks = [index for index, line in enumerate(lines) if "getppid(" in line]
    assert len(marks) == 2
    between = lines[marks[0] + 1 : marks[1]]
    calls = Counter(match[1] for line in between if (match := re.match(r"\d+ +(\w+)\(", line)))
    assert len({line.split()[0] for line in between}) == 1, "another thread was woken"
    assert calls.pop("sendto") == TOKENS
    # The chores of one round at most, and what Python's allocator asks for now and then.
    assert calls.pop("recvfrom", 0) <= 1
    assert set(calls) <= {"mmap", "munmap", "brk", "madvise"}, calls
