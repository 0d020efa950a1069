"""The unit's cage: what the daemon asks of the kernel, and the watchdog while a disk hangs.

`acceptance/daemon/test_systemd.py` has the units themselves and their exposure. There is no systemd
to run them under here, so the calls of a real daemon are compared with what the unit lets through.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agents.process import Obedient
from daemon_process import ROOT, DaemonProcess, until
from walld_client.wire import messages as wire
from wire_peer import Peer

STRACE = shutil.which("strace")
ANALYZE = shutil.which("systemd-analyze")


def _untraceable() -> str:
    if STRACE is None:
        return "no strace in PATH"
    tried = subprocess.run([STRACE, "-f", "true"], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"strace cannot trace here: {tried.stderr.strip()}"


traced = pytest.mark.skipif(bool(_untraceable()), reason=_untraceable())


def calls_of(name: str) -> set[str]:
    """System calls of a systemd set, its inner sets included."""
    assert ANALYZE is not None
    shown = subprocess.run(
        [ANALYZE, "--no-pager", "syscall-filter", name], capture_output=True, text=True, check=True
    )
    found: set[str] = set()
    for line in shown.stdout.splitlines()[1:]:
        word = line.strip()
        if word.startswith("@"):
            found |= calls_of(word)
        elif word and not word.startswith("#"):
            found.add(word)
    return found


def setting(name: str) -> list[str]:
    """The values of a setting in the unit, in order."""
    unit = (ROOT / "systemd/walld.service").read_text()
    return re.findall(rf"^{name}=(.*)$", unit, re.M)


@traced
@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("backend", ["asyncio+uvloop", "trio"])
def test_the_daemon_asks_for_nothing_that_its_unit_forbids(
    make_daemon: Callable[..., DaemonProcess], make_agent: Callable[..., Obedient], backend: str
) -> None:
    """From the moment it listens: agents, queries, a partial, a restart on it, an end."""
    allow, deny = setting("SystemCallFilter")
    allowed = set().union(*map(calls_of, allow.split()))
    allowed -= set().union(*map(calls_of, deny.removeprefix("~").split()))
    daemon = make_daemon(backend=backend)
    trace = daemon.home / "trace"
    daemon.wrapper = [str(STRACE), "-f", "-o", str(trace)]
    for _ in range(2):
        daemon.start()
        agent = make_agent(daemon)
        agent.do("client.recover('s'); client.resolve('r')")
        agent.do("reply = client.reply('s', stream_id='r'); reply.token('x')")
        agent.do("reply.drain(20, 'synced')")
        agent.kill()
        until(daemon.partials, "a partial")
        daemon.status()
        daemon.metrics()
        assert daemon.process is not None
        children = Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children")
        os.kill(int(children.read_text().split()[0]), signal.SIGTERM)
        assert daemon.ended() == 0
    text = trace.read_text(errors="replace")
    listening = text.index("listen(")
    asked = set(re.findall(r"^\d+ +(\w+)\(", text[listening:], re.M))
    assert {"accept4", "recvfrom", "fdatasync"} <= asked
    assert asked <= allowed, asked - allowed
    families = set(re.findall(r"socket\((\w+)", text))
    assert families <= set(setting("RestrictAddressFamilies")[0].split()), families
    if backend != "trio":  # whose import looks for libpthread with ldconfig
        started = re.findall(r"^\d+ +(?:execve|fork|vfork)\(", text[listening:], re.M)
        assert started == [], "it runs no other program, ever"


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The service manager's end of sd_notify."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(20)
        yield listening


@traced
def test_the_watchdog_is_fed_while_the_disk_hangs(
    make_daemon: Callable[..., DaemonProcess],
    manager: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sync that does not return for 4 s, a watchdog of 1 s: fed all the time, from the loop."""
    monkeypatch.setenv("NOTIFY_SOCKET", manager.getsockname())
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    daemon = make_daemon("--flush-bound-ms", "200")
    daemon.wrapper = [str(STRACE), "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync"]
    daemon.wrapper += ["-e", "inject=fdatasync:delay_enter=4000000"]
    daemon.start()
    with Peer(daemon, "agent") as peer:  # type: ignore[arg-type]
        drained(manager)
        peer.send(wire.Start(1, 0, "r", "s"), wire.Token(1, 1, b"x"))
        until(lambda: daemon.status()["state"] == "degraded", "a sync that hangs")
        peer.drain(1, "synced")
        assert drained(manager).count(b"WATCHDOG=1") >= 3, "at least once a second"


def drained(manager: socket.socket) -> bytes:
    """What was said up to now."""
    said = b""
    manager.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while more := manager.recv(4096):
            said += more
    manager.settimeout(20)
    return said
