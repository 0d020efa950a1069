"""The writer of a trial: a process that appends flat out until it is told to stop, or killed.

Owns: forking it, killing it by its pid, what it does when its store fails: it tries the same event
again. Refuses: how an event is appended (each store).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Final

from . import events
from .notes import EVENTS_MAX, Notes
from .store import PATIENCE_SECONDS, Store

__all__ = ["Writing"]

_AGAIN_SECONDS: Final = 0.005
_PR_SET_PDEATHSIG: Final = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Writing:
    """One writer, forked. waits: it begins when it is told to (`go`).

    pause_seconds: between two events; 0 is flat out.
    """

    def __init__(
        self,
        store: Store,
        stream: str,
        log: Path,
        sizes: tuple[int, ...] = events.MIXED,
        *,
        waits: bool = False,
        pause_seconds: float = 0.0,
    ) -> None:
        self.stream = stream
        self.notes = Notes()
        self.log = log
        self._pause_seconds = pause_seconds
        self._gate = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self._inside(store, sizes, parent)
        os.close(self._gate[0])
        self._is_alive = True
        if not waits:
            self.go()

    def go(self) -> None:
        """It begins."""
        os.write(self._gate[1], b"1")

    def _inside(self, store: Store, sizes: tuple[int, ...], parent: int) -> None:
        """The child, to its end."""
        try:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            fd = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(fd, 2)
            sys.stderr = os.fdopen(2, "w", buffering=1)
            os.close(self._gate[1])
            if os.getppid() == parent and os.read(self._gate[0], 1):
                self._write(store, sizes)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(70)

    def _write(self, store: Store, sizes: tuple[int, ...]) -> None:
        notes, stream = self.notes, self.stream
        writer = store.writer(stream, notes)
        while not notes.stop and notes.tried < EVENTS_MAX:
            seq = notes.tried + 1
            text = events.event(stream, seq, sizes)
            notes.tried = seq
            while True:
                try:
                    writer.append(seq, text)
                    break
                except OSError as error:
                    if not notes.errors:
                        print(f"{stream}.{seq}: {error!r}", file=sys.stderr)
                    notes.errors += 1
                    time.sleep(_AGAIN_SECONDS)
            if self._pause_seconds:
                time.sleep(self._pause_seconds)
        writer.finish()
        notes.finished = 1
        while True:
            signal.pause()

    def is_alive(self) -> bool:
        if self._is_alive and os.waitpid(self.pid, os.WNOHANG)[0]:
            self._is_alive = False
        return self._is_alive

    def kill(self) -> None:
        """SIGKILL, and it is gone."""
        if self.is_alive():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self._is_alive = False
        if self._gate[1] >= 0:
            os.close(self._gate[1])
            self._gate = (-1, -1)

    def until(self, events_acked: int, *, or_error: bool = False) -> None:
        """So many are acknowledged (or a call has failed)."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.notes.acked < events_acked and not (or_error and self.notes.errors):
            assert self.is_alive(), f"the writer ended; see {self.log}"
            assert time.monotonic() < deadline, f"nothing is acknowledged; see {self.log}"
            time.sleep(0.001)

    def stop(self) -> None:
        """It says no more, and all it said is acknowledged."""
        self.notes.stop = 1
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.notes.finished:
            assert self.is_alive(), f"the writer ended; see {self.log}"
            assert time.monotonic() < deadline, f"it never ends; see {self.log}"
            time.sleep(0.001)
