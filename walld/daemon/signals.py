"""Takes signals: SIGTERM and SIGINT stop the daemon once, others that would end it are ignored.

Owns: the stop signals, from the first line to the last of the process, and those that would end it
by default and mean nothing to it. Refuses: what a stop does (`shutdown.py`).

The stop signals are blocked in every thread, for good, and one thread waits for the first of them
(sigwait(3)). So there is no handler: none to be left when an event loop puts the default action
back in the middle of a drain, none that a flood could call within itself, and nothing that comes
after the first one is ever delivered.

The thread takes the others, too, and logs that it ignores them: whoever sends SIGUSR1 expects a
daemon that opens its log anew, or prints its state. They are blocked before the daemon is imported
(`hold_meaningless`), so what takes long to import is not at the head of this module. A signal that
was ignored when walld was started stays ignored, without a line.
"""

from __future__ import annotations

import os
import signal
import threading

__all__ = ["StopSignals", "hold_meaningless"]

_STOPPING = frozenset({signal.SIGTERM, signal.SIGINT})
_MEANINGLESS = frozenset(
    {
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGALRM,
        signal.SIGVTALRM,
        signal.SIGPROF,
        signal.SIGIO,
        signal.SIGPWR,
    }
)
"""Their default is to die, and who sends one does not mean that."""


def hold_meaningless() -> set[signal.Signals]:
    """Block those that are not ignored already, in this thread and those it starts; they wait."""
    held = {number for number in _MEANINGLESS if signal.getsignal(number) is not signal.SIG_IGN}
    signal.pthread_sigmask(signal.SIG_BLOCK, held)
    return held


class StopSignals:
    """Made in the main thread, before any other thread: all of them inherit what is blocked."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._taken = _STOPPING | hold_meaningless()
        signal.pthread_sigmask(signal.SIG_BLOCK, self._taken)
        # systemd sends it on reload; there is nothing to reload, and the default is to die.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        threading.Thread(target=self._receive, name="walld-signals", daemon=True).start()

    def _receive(self) -> None:
        import logging

        log = logging.getLogger("walld.signals")
        while (number := signal.sigwait(self._taken)) not in _STOPPING:
            log.warning("%s: ignored; SIGTERM or SIGINT stops walld", signal.Signals(number).name)
        os.write(self._writer, bytes((number,)))

    async def wait(self) -> str:
        """The name of the first one that comes."""
        import anyio

        await anyio.wait_readable(self._reader)
        return signal.Signals(os.read(self._reader, 1)[0]).name
