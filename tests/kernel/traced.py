"""One short history of a daemon whose system calls fail, or end it, where strace says so.

Owns: attaching strace before the daemon does anything, the history, reading from strace's output
what was injected, one fault after the other. Refuses: which call and what happens at it
(`errnos.py`, `kill_points.py`), what must hold (`lives.py`).

The history makes the daemon do all it ever does to a disk: agents stream, drain, end, release; one
is killed, so partials are made; some are resolved; dead segments go. Whenever the daemon dies
another comes, without strace, and the agents, which notice nothing, go on.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from .lives import Life
from .load import Habits
from .loop import Loop, options
from .processes import PATIENCE_SECONDS, Daemon, ForkedDaemon

__all__ = ["Fault", "History", "command", "inject", "why_not"]

_SMALL: Final[dict[str, float]] = {
    "SEGMENT_BYTES_MAX": 8192,
    "UNSYNCED_BYTES_MAX": 65536,
    "DISK_RETRY_SECONDS": 0.05,
    "DISK_RETRY_SECONDS_MAX": 0.1,
}
"""Several segments in a short run, and a disk that failed is tried again soon."""
_DYING: Final = Habits(streams=3, bursts=5, releases=False)
_LIVING: Final = Habits(streams=4, bursts=6)


def why_not() -> str | None:
    """Why nothing can be injected here; None where it can."""
    if shutil.which("strace") is None:
        return "needs strace (Debian: apt-get install strace)"
    tried = subprocess.run(
        ["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True, check=False
    )
    return f"strace cannot trace here: {tried.stderr!r}" if tried.returncode else None


@dataclass(frozen=True)
class Fault:
    """rules: what strace is to inject. is_lie: the kernel says it did what it did not."""

    rules: tuple[str, ...]
    is_lie: bool = False

    @property
    def calls(self) -> str:
        return ",".join(rule.partition(":")[0] for rule in self.rules)


class _TracedDaemon(ForkedDaemon):
    """Waits until strace has it, then starts."""

    def __init__(self, folder: Path, data: Path, fault: Fault, **flags: str) -> None:
        ready, go = os.pipe()

        def wait() -> None:
            os.close(go)
            assert os.read(ready, 1), "strace never came"
            os.close(ready)

        super().__init__(folder, data, small=_SMALL, spoil=wait, **flags)
        os.close(ready)
        self.trace = folder / "strace.log"
        command = ["strace", "-f", "-qq", "-y", "-o", str(self.trace), "-p", str(self.pid)]
        command += ["-e", f"trace={fault.calls}", "-e", "signal=none"]
        for rule in fault.rules:
            command += ["-e", f"inject={rule}"]
        self._strace = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            self._attached()
            os.write(go, b"1")
        finally:
            os.close(go)

    def _attached(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while "TracerPid:\t0\n" in Path(f"/proc/{self.pid}/status").read_text():
            assert self._strace.poll() is None, "strace does not take these rules"
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def kill(self) -> None:
        super().kill()
        self._strace.wait()

    def injected(self) -> list[str]:
        """Lines of strace about calls that did not do what they were asked to."""
        return [line for line in self._traced() if "(INJECTED)" in line]

    def ended_with(self, line: str) -> bool:
        """It is about the last call that strace saw."""
        return self._traced()[-1] == line

    def _traced(self) -> list[str]:
        text = self.trace.read_text(errors="replace") if self.trace.exists() else ""
        return text.splitlines()


class History(Life):
    """One run."""

    def __init__(self, loop: Loop, seed: int, fault: Fault, folder: Path) -> None:
        self.fault = fault
        self.is_lie = fault.is_lie
        self.random = Random(f"traced {seed}")
        self._of_the_start = 0
        """How much of the log a start has written that could not be."""
        super().__init__(loop, seed, folder, small=_SMALL)

    def first_daemon(self) -> Daemon:
        self.first = _TracedDaemon(self.folder, self.data, self.fault, **self.flags)
        return self.first

    def live(self) -> None:
        """All of it; raises where anything was lost, invented, or never came."""
        try:
            with self.lived():
                self.until_listens()
                self._stream()
                orphans = [r for r in self.check_answers() if r.stream_id.startswith("a0.")]
                for reply in orphans[:2]:
                    self.resolve(reply)
                self.until_finished()
                self.end()
        finally:
            self.first.kill()
        self._was_said()

    def _stream(self) -> None:
        dying = self.spawn(_DYING)
        self.spawn(_LIVING)
        self.until(dying.board.is_told, "a first ack")
        self.until(lambda: dying.board.is_finished or self.random.random() < 0.2, "its time")
        dying.kill()
        self.promise("written")
        self.until_finished()

    def died(self) -> None:
        """It may, by a signal or at its start; what it acknowledged is there all the same."""
        assert self.daemon is self.first, f"the second one must live; see {self.daemon.log}"
        self.first.kill()
        code = self.first.code
        if code != -signal.SIGKILL:
            text = super().logged(self.first.log)
            assert " ready: " not in text, f"exit {code} while it served: {text[-1500:]}"
            how = "with a traceback" if "Traceback" in text else "in a sentence"
            self.loop.tally.did(f"starts that ended {how}, exit {code}")
            self._of_the_start = len(text)
        super().died()

    def logged(self, path: Path) -> str:
        """Without what a start has written that could not be."""
        text = super().logged(path)
        return text[self._of_the_start :] if path == self.first.log else text

    def _was_said(self) -> None:
        """An error of a write or sync of a segment, once serving, stands in the log."""
        injected = self.first.injected()
        if injected:
            self.loop.tally.did("runs with a call that failed")
        log = self.logged(self.first.log)
        if self.deaths or " ready: " not in log:
            return
        for line in injected:
            if self.first.ended_with(line):
                continue  # it may have been killed before it could say so
            found = re.search(r"(?:pwrite64|fdatasync)\(\d+<\S+/wal/\S+\.wal>.* = -1 (\w+)", line)
            if found and found[1] != "EINTR":
                words = os.strerror(getattr(errno, found[1]))
                assert words in log, f"nothing was said of: {line}"


def inject(name: str, faults: Sequence[Fault], count: int, seed: int) -> Loop:
    """So many of them; `seed` is the place of the first. Beyond all each comes again."""
    loop = Loop(name)
    for number in range(seed, seed + count):
        fault = faults[number % len(faults)]
        loop.cycle(number, partial(_one, loop, number, fault))
        loop.tally.did(f"at {fault.calls}")
    return loop


def _one(loop: Loop, seed: int, fault: Fault, folder: Path) -> None:
    history = History(loop, seed, fault, folder)
    try:
        history.live()
    except AssertionError as error:
        error.args = (f"{fault.rules}: {error}",)
        raise
    if history.deaths:
        loop.tally.did("daemons that died of it")


def command(name: str, faults: Sequence[Fault], arguments: Sequence[str] | None, count: int) -> int:
    """The command that injects them: its exit code."""
    chosen = options(name, arguments, count)
    reason = why_not()
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    return inject(name, faults, chosen.count, chosen.seed).end(chosen.count)
