"""What the kernel is asked to do, counted from outside by strace on a real daemon.

Writes of a flush = ceil(bytes / 256 KiB), whatever the number of streams; one fdatasync for all who
wait; one write for what is written by one sender between two flushes.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from daemon_process import DaemonProcess, until
from walld_client.wire import messages as wire
from wire_peer import Peer

from walld import limits
from walld.wal.layout import BATCH_HEADER_BYTES, SEGMENT_HEADER_BYTES

STRACE = shutil.which("strace")


def _reason() -> str:
    """Why strace cannot be used here, "" where it can."""
    if STRACE is None:
        return "no strace in PATH"
    tried = subprocess.run([STRACE, "-f", "true"], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"strace cannot trace here: {tried.stderr.strip()}"


pytestmark = pytest.mark.skipif(bool(_reason()), reason=_reason())


class Write(NamedTuple):
    """A pwrite64 to a segment."""

    length: int
    offset: int

    @property
    def has_records(self) -> bool:
        """Neither a segment's header nor a batch that only says what is synced."""
        return self.length not in (SEGMENT_HEADER_BYTES, BATCH_HEADER_BYTES)


class Traced:
    """A daemon under strace."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self.daemon = daemon
        self.trace = daemon.home / "trace"
        assert STRACE is not None
        daemon.wrapper = [STRACE, "-f", "-y", "-s", "0", "-o", str(self.trace)]
        daemon.wrapper += ["-e", "trace=pwrite64,write,writev,pwritev,fdatasync,fsync"]

    @property
    def pid(self) -> int:
        """Of the daemon itself."""
        assert self.daemon.process is not None
        tracer = self.daemon.process.pid
        (child,) = Path(f"/proc/{tracer}/task/{tracer}/children").read_text().split()
        return int(child)

    def mark(self) -> int:
        """How long the trace is now."""
        return self.trace.stat().st_size

    def lines(self, since: int = 0) -> list[str]:
        """Calls on segments."""
        text = self.trace.read_bytes()[since:].decode()
        return [line for line in text.splitlines() if "/wal/" in line and ".wal>" in line]

    def writes(self, since: int = 0) -> list[Write]:
        """Writes to segments; by any other call than pwrite64 there are none."""
        found = []
        for line in self.lines(since):
            if "sync(" in line:
                continue
            match = re.search(r"pwrite64\(\d+<[^>]*\.wal>, .*, (\d+), (\d+)", line)
            assert match, line
            found.append(Write(int(match[1]), int(match[2])))
        return found

    def syncs(self, since: int = 0) -> int:
        """Calls of fdatasync on segments; of fsync there are none."""
        calls = [line for line in self.lines(since) if "sync(" in line]
        assert all("fdatasync(" in line for line in calls), calls
        return len(calls)

    def peer(self, role: str = "agent") -> Peer:
        return Peer(self.daemon, role)  # type: ignore[arg-type]


@pytest.fixture
def traced(make_daemon: Callable[..., DaemonProcess]) -> Traced:
    """With a linger so long that nothing is flushed before somebody waits."""
    made = Traced(make_daemon("--flush-linger-ms", "3000"))
    made.daemon.start()
    return made


@pytest.mark.parametrize(
    ("streams", "tokens", "token_bytes"),
    [
        (1, 1, 5),
        (1000, 15, 5),  # a thousand streams in one flush are one write
        (1000, 1, 1400),
        (40, 36, 1000),
        (10, 150, 1000),
    ],
)
def test_writes_of_a_flush_do_not_grow_with_its_streams(
    traced: Traced, streams: int, tokens: int, token_bytes: int
) -> None:
    payload = streams * tokens * token_bytes
    with ExitStack() as held:
        # As many as it takes for none to give so much that a flush comes for that.
        agents = [held.enter_context(traced.peer()) for _ in range(10)]
        since = traced.mark()
        text = b"x" * token_bytes
        for number in range(1, streams + 1):
            agents[number % 10].send(
                wire.Start(number, 0, f"r{number}", "s"),
                *(wire.Token(number, seq, text) for seq in range(1, tokens + 1)),
            )
        name, sent = 'walld_events_received_total{kind="token"}', streams * tokens
        until(lambda: traced.daemon.metrics().get(name, 0) == sent, "all of it is read")
        agents[0].drain(1)
        writes = [write for write in traced.writes(since) if write.has_records]
    total = sum(write.length for write in writes)
    print(f"{streams} streams, {total} bytes: {len(writes)} writes")
    assert total >= payload
    assert len(writes) == -(-total // limits.BATCH_BYTES_CUT)
    if payload < 150_000:
        assert len(writes) == 1
    ends = [write.offset + write.length for write in writes]
    assert [write.offset for write in writes[1:]] == ends[:-1]


def test_a_record_larger_than_the_cut_is_one_write(traced: Traced) -> None:
    with traced.peer() as agent:
        since = traced.mark()
        agent.send(wire.Start(1, 0, "r", "s"))
        agent.send(wire.Tool(1, 1, "c", "t", b"x" * (limits.TEXT_BYTES_MAX - 100)))
        agent.drain(1)
        lengths = [write.length for write in traced.writes(since) if write.has_records]
    large = [length for length in lengths if length > limits.BATCH_BYTES_CUT]
    assert len(large) == 1
    assert len(lengths) <= 2


def test_all_who_wait_share_one_sync(traced: Traced) -> None:
    """A hundred connections ask for `synced` while the daemon is stopped; then it goes on."""
    agents = [traced.peer() for _ in range(100)]
    for number, agent in enumerate(agents):
        agent.send(wire.Start(1, 0, f"r{number}", "s"))
    for agent in agents:
        agent.drain(1, "synced")
    until(
        lambda: traced.daemon.status()["written_no"] == traced.daemon.status()["synced_no"] + 1,
        "all that is synced is told",
    )
    os.kill(traced.pid, signal.SIGSTOP)
    since = traced.mark()
    try:
        for agent in agents:
            agent.send(wire.Token(1, 1, b"x"), wire.Drain(2, "synced"))
    finally:
        os.kill(traced.pid, signal.SIGCONT)
    for agent in agents:
        assert agent.hear() == wire.Drained(2, "synced")
    writes = [write for write in traced.writes(since) if write.has_records]
    syncs = traced.syncs(since)
    print(f"100 waiters: {len(writes)} writes, {syncs} syncs")
    assert len(writes) <= 3, "one, or a few where a sweep was cut"
    assert syncs <= len(writes)
    for agent in agents:
        agent.socket.close()


def test_a_reply_released_before_its_flush_costs_no_write(traced: Traced) -> None:
    with traced.peer() as agent:
        since = traced.mark()
        for number in range(1, 200):
            agent.send(
                wire.Start(number, 0, f"r{number}", "s"),
                wire.Token(number, 1, b"never on disk"),
                wire.End(number, 2, clean=True),
                wire.Release(number, 3),
            )
        agent.drain(1, "synced")
        assert [write for write in traced.writes(since) if write.has_records] == []


def test_an_idle_daemon_leaves_the_disk_alone(traced: Traced) -> None:
    with traced.peer() as agent:
        agent.send(wire.Start(1, 0, "r", "s"))
        agent.drain(1, "synced")
        until(
            lambda: traced.daemon.status()["written_no"] == 2, "an empty batch tells what is synced"
        )
        since = traced.mark()
        for number in range(2, 30):
            agent.drain(number, "synced")
        assert traced.lines(since) == []
