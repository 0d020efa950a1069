"""The play: daemon up, agent streams, kill -9, recover, compare, resolve, gone.

Owns: the processes it starts and what is printed. Refuses: settings; a user's WALLD_* variables are
kept from it, so the demo is the same everywhere.

Invariants: every process it starts is ended and its folder removed, whatever happens; nothing
waits longer than its bound; the verdict compares with the recording, never with what walld says of
itself.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import walld_client
from walld_client.start import Daemon, start_daemon

from walld.cli.demo.recording import Call, load, text_of
from walld.cli.exit_codes import CANNOT, DONE, USAGE, complain
from walld.escape import escaped, escaped_line

__all__ = ["run"]

SESSION = "demo"
START_SECONDS_MAX = 20.0
STREAM_SECONDS_MAX = 30.0
DISK_SECONDS_MAX = 10.0
KILLED_AT_SHARE = 0.725
"""In the middle of a code block: the verdict sees more than half a sentence."""


class _Failed(Exception):
    """The demo cannot go on; the message is for the person watching."""


def run(options: argparse.Namespace) -> int:
    """Exit 0 only if what came back equals what was sent."""
    for name in [name for name in os.environ if name.startswith("WALLD_")]:
        del os.environ[name]
    recording = load()
    kill_after = options.kill_after
    if kill_after is None:
        kill_after = int(len(recording) * KILLED_AT_SHARE)
    if not 1 <= kill_after < len(recording):
        complain(f"--kill-after: got {kill_after}, taken is 1 to {len(recording) - 1} events")
        return USAGE
    try:
        with _folder() as folder, _daemon(folder) as daemon:
            return _play(folder, daemon.socket, recording, kill_after)
    except (_Failed, walld_client.WalldError) as error:
        complain(str(error))
        return CANNOT


def _play(folder: Path, socket_path: str, recording: list[Call], kill_after: int) -> int:
    sent_seq = _stream_and_kill(socket_path, recording, kill_after)
    client = walld_client.connect(socket=socket_path, timeout=5.0)
    try:
        before = time.perf_counter()
        reply = client.recover(SESSION)
        took_ms = (time.perf_counter() - before) * 1000
        if reply is None:
            raise _Failed(f"nothing was recovered of {sent_seq} events sent")
        # The kill may fall between a send and the line about it: then there is one event more.
        exact = sent_seq <= reply.last_seq <= sent_seq + 1
        made = recording[: reply.last_seq]
        same = exact and not reply.gaps and reply.text == text_of(made, "token")
        _print_recovered(reply, took_ms)
        print(f"  sent      {sent_seq} events, as the agent said before it died")
        print(f"  back      {reply.last_seq} events; text equal: {'yes' if same else 'NO'}")
        # That it is on the disk before is what makes "not on the disk" worth saying.
        kept = _settles(folder / "data", made, on_disk=True)
        client.resolve(reply.stream_id, reply.last_seq)
        left = client.recover(SESSION)
        gone = left is None and _settles(folder / "data", made, on_disk=False)
    finally:
        client.close()
    print()
    if left is not None:
        print("resolved, and it is still there: a bug")
    elif not (kept and gone):
        print(f"resolved; its words on the disk before: {kept}, after: {not gone}: a bug")
    else:
        print("resolved: nothing to recover any more, and no word of it is on the disk")
    return DONE if same and kept and gone and left is None else CANNOT


# --- the agent ------------------------------------------------------------------------------------


def _stream_and_kill(socket_path: str, recording: list[Call], kill_after: int) -> int:
    """Runs the agent until it has sent `kill_after` events. Returns its last sent_seq."""
    agent = subprocess.Popen(
        [sys.executable, "-m", "walld.cli.demo.agent", socket_path, SESSION],
        stdout=subprocess.PIPE,
    )
    assert agent.stdout is not None
    print(f"agent   pid {agent.pid} streams a recorded reply of {len(recording)} events")
    sent_seq = 0
    try:
        lines = _lines(agent.stdout.fileno(), STREAM_SECONDS_MAX)
        for sent_seq in lines:
            _progress(sent_seq, len(recording))
            if sent_seq >= kill_after:
                break
        if agent.poll() is not None:
            raise _Failed(f"the agent ended by itself after {sent_seq} events")
        agent.send_signal(signal.SIGKILL)
        agent.wait()
        # What it wrote between that line and its death counts, too, also what was read with it.
        sent_seq = max([sent_seq, *lines])
    finally:
        if agent.poll() is None:
            agent.kill()
            agent.wait()
        agent.stdout.close()
    _progress(None, 0)
    print(f"kill -9 {agent.pid} after event {sent_seq}: it saved nothing\n")
    return sent_seq


def _lines(fd: int, seconds_max: float) -> Iterator[int]:
    """Whole lines from a pipe, as numbers, until its end."""
    give_up = time.monotonic() + seconds_max
    rest = b""
    while True:
        if not select.select([fd], [], [], max(0.0, give_up - time.monotonic()))[0]:
            raise _Failed(f"the agent did not get on within {seconds_max:g} s")
        data = os.read(fd, 4096)
        if not data:
            return
        *whole, rest = (rest + data).split(b"\n")
        yield from map(int, whole)


def _progress(sent_seq: int | None, total: int) -> None:
    """A bar while the agent streams, for a terminal only; None takes it away."""
    if not sys.stdout.isatty():
        return
    if sent_seq is None:
        print("\r\x1b[K", end="")
        return
    done = 40 * sent_seq // total
    print(f"\r        [{'#' * done}{'.' * (40 - done)}] {sent_seq}/{total}", end="", flush=True)


# --- the daemon -----------------------------------------------------------------------------------


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    base = tempfile.gettempdir()
    # The socket's path must fit into sun_path (108 bytes).
    path = tempfile.mkdtemp(prefix="walld-demo-", dir=base if len(base) < 60 else "/tmp")
    try:
        yield Path(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _daemon(folder: Path) -> Daemon:
    """`walld serve` of this interpreter, ready."""
    daemon = start_daemon(
        folder / "data",
        socket=folder / "walld.sock",
        log=folder / "log",
        options=["--reclaim-seconds", "0"],
        timeout=START_SECONDS_MAX,
        command=[sys.executable, "-m", "walld"],
    )
    print(f"daemon  pid {daemon.pid}, socket {daemon.socket}")
    return daemon


# --- the verdict ----------------------------------------------------------------------------------


def _print_recovered(reply: walld_client.PartialReply, took_ms: float) -> None:
    print(f"recovered, {took_ms:.1f} ms after asking:\n")
    for line in escaped(reply.text).split("\n"):
        for shown in textwrap.wrap(line, 92) or [""]:
            print(f"  │ {shown}".rstrip())
    print()
    lost = f" ({escaped_line(reply.lost_reason)})" if reply.lost_reason else ""
    print(f"  status    {reply.status}{lost}")
    reason = f"yes: {escaped_line(reply.partial_reason or '')}" if reply.partial else "no"
    print(f"  partial   {reason}")


def _settles(data: Path, made: list[Call], *, on_disk: bool) -> bool:
    """Waits until the words of the reply are in the data directory, or in no file of it."""
    longest = sorted({call.text for call in made}, key=len)[-20:]
    words = [word.encode() for word in longest]
    give_up = time.monotonic() + DISK_SECONDS_MAX
    while time.monotonic() < give_up:
        # Not what lies beside the folders: the reserve is random bytes, `made` and LOCK are words.
        paths = [path for path in data.rglob("*/*") if path.is_file()]
        files = [_bytes(path) for path in paths]
        if any(word in content for word in words for content in files) == on_disk:
            return True
        time.sleep(0.02)
    return False


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
