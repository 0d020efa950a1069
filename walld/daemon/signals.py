"""SIGTERM and SIGINT: one stops the daemon, and no number of them stops the stopping.

Owns: the stop signals, from the first line to the last of the process. Refuses: what a stop means.

They are blocked in every thread, for good, and one thread waits for the first of them (sigwait(3)).
So there is no handler: none to be left when an event loop puts the default action back in the
middle of a drain, none that a flood could call within itself, and nothing that comes after the
first one is ever delivered.
"""

from __future__ import annotations

import os
import signal
import threading

import anyio

__all__ = ["StopSignals"]

_STOPPING = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Made in the main thread, before any other thread: all of them inherit what is blocked."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
        # systemd sends it on reload; there is nothing to reload, and the default is to die.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        threading.Thread(target=self._receive, name="walld-signals", daemon=True).start()

    def _receive(self) -> None:
        os.write(self._writer, bytes((signal.sigwait(_STOPPING),)))

    async def wait(self) -> str:
        """The name of the first one that comes."""
        await anyio.wait_readable(self._reader)
        return signal.Signals(os.read(self._reader, 1)[0]).name
