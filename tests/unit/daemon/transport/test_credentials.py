"""Who a peer is and whether it is still there, asked of this kernel with real processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from walld.daemon.transport import credentials
from walld.daemon.transport.liveness import Liveness
from walld.wal.records import Owner


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits until its stdin ends."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    assert process.stdin is not None
    process.stdin.close()
    process.kill()
    process.wait()


def owner_of(pid: int) -> Owner:
    pidfd = os.pidfd_open(pid)
    try:
        return credentials.describe(pid, pidfd, credentials.boot_id())
    finally:
        os.close(pidfd)


def test_a_peer_is_who_connected() -> None:
    here, there = socket.socketpair()
    with here, there:
        assert credentials.credentials(there) == (os.getpid(), os.getuid(), os.getgid())
        pidfd = credentials.open_pidfd(there, os.getpid())
        assert pidfd is not None
        assert not credentials.is_gone(pidfd)
        os.close(pidfd)


def test_a_process_is_found_again_by_what_was_stored(child: subprocess.Popen[bytes]) -> None:
    owner = owner_of(child.pid)
    assert (owner.boot_id, owner.pid) == (credentials.boot_id(), child.pid)
    assert owner.start_ticks > 0
    pidfd = credentials.find_process(owner)
    assert pidfd is not None
    os.close(pidfd)


def test_a_process_that_has_exited_is_gone_also_while_nobody_waited_for_it(
    child: subprocess.Popen[bytes],
) -> None:
    owner = owner_of(child.pid)
    pidfd = os.pidfd_open(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
    assert credentials.is_gone(pidfd)
    assert credentials.find_process(owner) is None
    child.wait()
    assert credentials.is_gone(pidfd)
    assert credentials.find_process(owner) is None
    os.close(pidfd)


@pytest.mark.parametrize("change", [{"start_ticks": 1}, {"pidfd_inode": 1}])
def test_another_process_of_the_same_pid_is_another(
    child: subprocess.Popen[bytes], change: dict[str, int]
) -> None:
    owner = owner_of(child.pid)
    if "pidfd_inode" in change and owner.pidfd_inode == 0:
        pytest.skip("this kernel gives pidfds no inode of their own")
    fields = {name: getattr(owner, name) for name in owner.__struct_fields__}
    before = len(os.listdir("/proc/self/fd"))
    assert credentials.find_process(Owner(**(fields | change))) is None
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_could_not_be_seen_is_not_looked_for() -> None:
    assert credentials.describe(0, None, "boot") == Owner("boot", 0, 0, 0)
    assert credentials.find_process(Owner("boot", 0, 0, 0)) is None


def test_a_name_with_a_parenthesis_does_not_shift_the_fields() -> None:
    """Field 22 of /proc/<pid>/stat stands behind a name that may hold anything."""
    code = "import ctypes; ctypes.CDLL(None).prctl(15, b') 1 2 (x'); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        own = owner_of(os.getpid())
        theirs = owner_of(process.pid)
        assert theirs.start_ticks >= own.start_ticks > 0
        process.kill()


def test_the_boot_has_a_name() -> None:
    assert credentials.boot_id() == credentials.boot_id() != ""


def test_a_living_process_is_not_the_one_of_another_boot_with_its_numbers() -> None:
    here, there = socket.socketpair()
    liveness = Liveness("this-boot")
    with here, there:
        process = liveness.of_peer(there, credentials.credentials(there))
    owner = process.owner
    try:
        assert liveness.of_owner(os.getuid(), owner, 0.0) is process
        before = msgspec.structs.replace(owner, boot_id="the-boot-before")
        assert liveness.of_owner(os.getuid(), before, 0.0) is None
    finally:
        liveness.close()


def test_whether_a_named_process_is_there(child: subprocess.Popen[bytes]) -> None:
    """By its start, too; one that nobody has waited for is gone."""
    start = credentials.describe(child.pid, None, "boot").start_ticks
    assert credentials.process_state(child.pid, start) == "running"
    assert credentials.process_state(child.pid, start + 1) == "gone"
    assert credentials.process_state(child.pid, 0) == "unseen"
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert credentials.process_state(child.pid, start) == "gone"
    child.wait()
    assert credentials.process_state(child.pid, start) == "gone"
    assert credentials.process_state(2**40, start) == "unseen"
    assert credentials.pid_namespace() == os.stat("/proc/self/ns/pid").st_ino
