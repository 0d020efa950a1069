"""Writes log lines to stderr from a bounded queue, in the one thread that waits for a reader.

Owns: the queue, its thread, and the count of what found no room. Refuses: what a line looks like,
and which are worth one (`logs.py`).

Invariants: who logs does not wait. Where nobody reads stderr (a pager, a log shipper that hangs,
journald on a disk that does), or a write fails, the thread alone waits. Lines are written whole and
in the order they were logged. Once a line has found no room none does until the queue is empty, so
that one line, in the place of all that were dropped, says how many there were.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
from collections import deque
from typing import TextIO

from walld import limits

__all__ = ["QueuedHandler"]


class QueuedHandler(logging.Handler):
    """Writes lines to the descriptor of a stream, as a `logging.StreamHandler` would.

    Its thread begins with the first line, and anew in a child process: that has none of its
    parent's, and no line of it is written twice.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._fd = stream.fileno()
        self.dropped = 0
        """Lines that found no room, in all."""
        self._begin()

    def _begin(self) -> None:
        """An empty queue, of this process."""
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._lines: deque[bytes] = deque()
        """Oldest first: that one is being written."""
        self._bytes = 0
        self._untold = 0
        """Dropped, and not said yet."""
        self._is_failing = False
        self._is_stuck = False
        """Somebody has waited in vain, and nothing was written since: nobody waits again."""
        self._is_closed = False

    def emit(self, record: logging.LogRecord) -> None:
        """Put its line into the queue, as it is now, or drop it."""
        try:
            line = self._line(record)
        except Exception:
            self.handleError(record)
            return
        if self._pid != os.getpid():
            self._begin()
        with self._changed:
            if self._untold or self._bytes + len(line) > limits.LOG_QUEUE_BYTES_MAX:
                self._untold += 1
                self.dropped += 1
            else:
                self._put(line)
            if self._thread is None:  # also where it was dropped: else none would find room again
                self._start()

    def flush(self) -> None:
        """Wait for the last line to be written, `LOG_DRAIN_SECONDS` at most."""
        if self._pid != os.getpid():
            return
        with self._changed:
            if self._lines and self._thread is None:
                self._start()
            self._is_stuck |= not self._changed.wait_for(
                lambda: self._is_failing or not (self._lines or self._untold),
                0.0 if self._is_stuck or self._thread is None else limits.LOG_DRAIN_SECONDS,
            )

    def close(self) -> None:
        """Let the thread end once the queue is empty, or a write fails."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        super().close()

    def _line(self, record: logging.LogRecord) -> bytes:
        stream = self._stream
        text = f"{self.format(record)}\n"
        return text.encode(stream.encoding or "utf-8", stream.errors or "strict")

    def _put(self, line: bytes) -> None:
        self._lines.append(line)
        self._bytes += len(line)
        self._changed.notify_all()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="walld-log", daemon=True)
        # It inherits what is blocked: no signal that the process waits for is to end up in it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            thread.start()
        except RuntimeError:  # no thread is to be had: tried again with the next line
            self._write_at_once()
        else:
            self._thread = thread
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _write_at_once(self) -> None:
        """As many lines as are taken without a wait; the others wait for a thread."""
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        while self._lines and len(self._lines[0]) <= select.PIPE_BUF and poll.poll(0):
            line = self._lines[0]
            try:
                count = os.write(self._fd, line)
            except OSError:
                return
            self._bytes -= count
            self._lines[0] = line[count:]
            if count == len(line):
                self._lines.popleft()

    # --- in its thread --------------------------------------------------------------------------

    def _run(self) -> None:
        while (line := self._next()) is not None:
            if not self._write(line):
                return
            with self._changed:
                self._bytes -= len(self._lines.popleft())
                self._is_stuck = False
                self._changed.notify_all()

    def _next(self) -> bytes | None:
        """The next line to be written, which stays in the queue; None at the end."""
        with self._changed:
            while not self._lines:
                if self._untold:
                    text = "%d lines were dropped here: the log was not read"
                    told, self._untold = (self._untold,), 0
                    level = logging.WARNING
                    self._put(
                        self._line(
                            logging.LogRecord("walld.logs", level, __file__, 0, text, told, None)
                        )
                    )
                elif self._is_closed:
                    return None
                else:
                    self._changed.wait()
            return self._lines[0]

    def _write(self, rest: bytes) -> bool:
        """Write all of it, however long that takes. False: it failed, and the handler is closed."""
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
                self._is_failing = False
            except BlockingIOError:
                poll = select.poll()
                poll.register(self._fd, select.POLLOUT)
                poll.poll(limits.LOG_RETRY_SECONDS * 1000)
            except OSError:
                if not self._wait_to_retry():
                    return False
        return True

    def _wait_to_retry(self) -> bool:
        """The reader is gone, or the disk of a log file is full. False: closed, so no other try."""
        with self._changed:
            self._is_failing = True
            self._changed.notify_all()  # who flushes is not to wait for it
            self._changed.wait_for(lambda: self._is_closed, limits.LOG_RETRY_SECONDS)
            return not self._is_closed
