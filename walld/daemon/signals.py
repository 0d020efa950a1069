"""SIGTERM and SIGINT: one stops the daemon, and no number of them stops the stopping.

Owns: the handlers, from the first line to the last of the process. Refuses: what a stop means.

The event loops' own receivers put the default action back when they are left, and a second SIGTERM
in that moment would end the process in the middle of its drain. The first signal makes the kernel
ignore all that follow, and writes a byte to a pipe that the loop waits on.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

import anyio

__all__ = ["StopSignals"]

_STOPPING = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Made in the main thread, before there is a loop."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        for number in _STOPPING:
            signal.signal(number, self._received)
        # systemd sends it on reload; there is nothing to reload, and the default is to die.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _received(self, number: int, _frame: FrameType | None) -> None:
        self.ignore()  # first of all: a flood of them would call this within itself without end
        os.write(self._writer, bytes((number,)))

    async def wait(self) -> str:
        """The name of the first one that comes."""
        await anyio.wait_readable(self._reader)
        return signal.Signals(os.read(self._reader, 1)[0]).name

    @staticmethod
    def ignore() -> None:
        """Nothing that comes from here on is to change how the daemon ends."""
        for number in _STOPPING:
            signal.signal(number, signal.SIG_IGN)
