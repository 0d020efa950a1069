"""Ctrl-C, SIGTERM and SIGHUP: at any moment they end all of a bench, with one line.

Owns: two processes. The one that was started supervises: it waits for a signal and for the end of
the other. The other one, its worker, does the work, in a process group of its own. A terminal sends
Ctrl-C to each process of the foreground group. Servers and agents end at that, in any order, and
what talked to them crashes: so they are not in that group.

1. The worker is told by SIGTERM, which is an exception in its main thread: what it has started is
   ended on its way out. It is told until it has heard: Python runs a handler between two steps of
   the program, so a signal just before a call that blocks is heard behind that call.
2. What its children write to stderr goes through a pipe to the supervisor: after a signal it is
   dropped. The worker's own stderr is the terminal's, for the progress line.
3. What the worker leaves behind becomes the supervisor's (PR_SET_CHILD_SUBREAPER), and is killed.
4. A supervisor that is killed takes the worker with it (PR_SET_PDEATHSIG).

Refuses: what was answered by then, and how that is kept.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, Never

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

__all__ = ["STOPPED", "Stopped", "finishing", "say_stopped", "stopping", "supervised"]

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
STOPPED: Final = 128 + signal.SIGTERM
"""The exit code of a worker that was told to end."""
_LOST_SECONDS: Final = 0.01
_AGAIN_SECONDS: Final = 0.25
"""Until the worker is told once more. One that has heard it takes no more notice."""


class Stopped(SystemExit):
    """The worker is to end; its main thread gets it wherever that is."""


def supervised(work: Callable[[], int]) -> int:
    """The exit code of `work`, done in a worker; 128 and the signal where one ended it."""
    # One that the caller had ignored (nohup, a script's background) stays so.
    ends = {
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    taken = ends | {signal.SIGTSTP, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, taken)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    reader, writer = os.pipe()
    supervisor = os.getpid()
    worker = os.fork()
    if worker == 0:
        os.close(reader)
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != supervisor:
            os._exit(STOPPED)
        _Worker(writer).do(work, before - {signal.SIGTERM})
    os.close(writer)
    with suppress(OSError):  # the worker has done it, or has ended
        os.setpgid(worker, worker)
    told = threading.Event()
    relay = threading.Thread(target=_relay, args=(reader, told))
    relay.start()
    first, code = _wait(worker, taken, told)
    _kill_what_is_left()
    relay.join()
    if first is None:
        return code
    if code != STOPPED:
        print(f"bench: {first.name} came at the end; all is done", file=sys.stderr)
    return 128 + first


def _wait(
    worker: int, taken: set[signal.Signals], told: threading.Event
) -> tuple[signal.Signals | None, int]:
    """(the first signal that ends the worker, the worker's exit code)."""
    first = None
    while True:
        if first is None:
            number = signal.Signals(signal.sigwait(taken))
        elif (told_now := signal.sigtimedwait(taken, _AGAIN_SECONDS)) is None:
            os.kill(worker, signal.SIGTERM)
            continue
        else:
            number = signal.Signals(told_now.si_signo)
        if number == signal.SIGCHLD:
            pid, status = os.waitpid(worker, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                return first, code if code >= 0 else 128 - code
        elif number == signal.SIGTSTP:
            os.killpg(worker, signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            os.killpg(worker, signal.SIGCONT)
        elif first is None:
            first = number
            told.set()
            os.kill(worker, signal.SIGTERM)


def _relay(reader: int, told: threading.Event) -> None:
    """What children say on stderr, until there is a signal; then it is of how they are ended."""
    with open(reader, "rb") as lines:  # whole, so that none stands before the one of the end
        for line in lines:
            if not told.is_set():
                with suppress(OSError):  # a terminal that is gone
                    sys.stderr.buffer.write(line)
                    sys.stderr.buffer.flush()


def _kill_what_is_left() -> None:
    with suppress(ChildProcessError):
        while True:
            for pid in _children():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)


def _children() -> Iterator[int]:
    """By /proc/PID/stat: not every kernel has /proc/PID/task/*/children."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                yield int(folder.name)


# --- in the worker --------------------------------------------------------------------------------

_stopping = False


def stopping() -> bool:
    """Was this process told to end? Whatever crashes from then on is of that."""
    return _stopping


def say_stopped(answered: Iterable[str]) -> None:
    """The one line, in the place of a terminal's line of progress."""
    clear = "\r\x1b[2K" if sys.stderr.isatty() else ""
    there = ", ".join(answered) or "nothing"
    print(f"{clear}bench: stopped; answered by then: {there}", file=sys.stderr)


def finishing() -> None:
    """From here on the worker comes to its end: results and pages are not left half written."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


class _Worker:
    def __init__(self, children_stderr: int) -> None:
        # Text of a terminal's, as Python makes it; descriptor 2 is what children inherit.
        sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
        os.dup2(children_stderr, 2)
        os.close(children_stderr)

    def do(self, work: Callable[[], int], mask: set[int]) -> Never:
        """Ends this process."""
        import logging  # not before the supervisor waits for signals, nor once they come here

        code = 1
        try:
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # stty tostop: it is in the background
            self._hush = logging.disable
            signal.signal(signal.SIGTERM, self._stop)
            signal.signal(signal.SIGALRM, self._stop)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            code = work()
        except Stopped:
            code = STOPPED
            say_stopped(())
        except SystemExit as ended:  # argparse's
            code = ended.code if isinstance(ended.code, int) else 1
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            # A thread of the question that was stopped may wait for ever; all else is ended.
            with suppress(OSError):
                sys.stdout.flush()
            os._exit(code)

    def _stop(self, _number: int, _frame: FrameType | None) -> Never:
        """What threads and clients here have to say of it is no news."""
        global _stopping
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _stopping = True
        threading.excepthook = lambda _: None
        sys.unraisablehook = self._lost
        self._hush()
        raise Stopped(STOPPED)

    @staticmethod
    def _lost(what: UnraisableHookArgs) -> None:
        """It came within a __del__ or a weak reference's callback, which raise nothing: again."""
        if what.exc_type is Stopped:
            signal.setitimer(signal.ITIMER_REAL, _LOST_SECONDS)
