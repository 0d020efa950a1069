"""Runs the probes in a process of their own, so that a hung disk cannot hang the command.

Owns: starting it, passing on what it tells, and its end: told to at the deadline, killed a little
later, left behind where the kernel does not let it go. Refuses: touching the directory.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe

__all__ = ["Hear", "Watched"]

_LEAST_SECONDS = 3.0
"""What is tried once each has this time, however short a time was asked for."""
_GRACE_SECONDS = 2.0
"""From the deadline on a call may still return, and the folder be removed."""
_KILLED_SECONDS = 0.5
"""Where SIGKILL ends a process that is not in the kernel it does so at once."""
_OF_ITSELF_SECONDS = 0.25
"""It looks at the deadline between two probes itself; so much later it is told to end."""
_CODE = "from walld.cli.selftest.trials import main; main()"


Hear = Callable[[str, object], None]
"""What `trials.py` tells."""


class Watched:
    """The process, until `follow` returns; a signal raised out of that wants `end`."""

    def __init__(self, directory: str, folder: str, seconds: float) -> None:
        """Raises OSError where no process can be started. Signals are to be `held`."""
        self.begun = time.monotonic()
        self.deadline = self.begun + max(seconds, _LEAST_SECONDS)
        self._told, telling = Pipe(duplex=False)
        path = os.pathsep.join(part for part in sys.path if part)
        times = (self.begun, seconds, self.deadline)
        try:
            # Nothing of ours but the pipe: who reads our output would wait for its end, too.
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CODE, str(telling.fileno()), directory, folder]
                + [repr(number) for number in times],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[telling.fileno()],
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )
        except BaseException:
            self._told.close()
            raise
        finally:
            telling.close()

    def follow(self, hear: Hear) -> bool:
        """Pass on what it tells, until its time is over. False: it could not be ended."""
        if self._heard(hear, self.deadline + _OF_ITSELF_SECONDS):
            return self._gone()
        is_gone = self.end(signal.SIGTERM)
        self._heard(hear, time.monotonic())
        return is_gone

    def end(self, number: int) -> bool:
        """It removes its folder and ends. False: it could not, and its folder may stay.

        Reads nothing: a signal may have fallen into the middle of a message.
        """
        self._process.send_signal(number)
        if self._waited(_GRACE_SECONDS):
            return True
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._waited(_KILLED_SECONDS)
        return False

    def _heard(self, hear: Hear, until: float) -> bool:
        """True: it has told all it ever will, as only its end closes the pipe."""
        while self._told.poll(max(0.0, until - time.monotonic())):
            try:
                kind, value = self._told.recv()
            except EOFError:
                return True
            hear(kind, value)
        return False

    def _gone(self) -> bool:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # a writer that outlived it
        return self._waited(_KILLED_SECONDS)  # closing a file may hang, too

    def _waited(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True
