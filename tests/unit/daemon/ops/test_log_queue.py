"""The queue of the log: who logs waits for nobody, and what is written is whole and in order."""

from __future__ import annotations

import errno
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TextIO

import pytest
from daemon_process import until

from walld import limits
from walld.daemon.ops.log_queue import QueuedHandler


class Ends:
    """A pipe, and a logger that writes into it."""

    def __init__(self) -> None:
        reader, writer = os.pipe()
        self.reader = os.fdopen(reader, "rb", buffering=0)
        self.writer: TextIO = os.fdopen(writer, "w", errors="backslashreplace")
        self.handler = QueuedHandler(self.writer)
        self.log = logging.Logger("walld.test")
        self.log.addHandler(self.handler)

    def fill(self) -> int:
        """How many bytes it takes until it is full."""
        filled = 0
        os.set_blocking(self.writer.fileno(), False)
        with suppress(BlockingIOError):
            while True:
                filled += os.write(self.writer.fileno(), b".")
        os.set_blocking(self.writer.fileno(), True)
        return filled

    def read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            found += self.reader.read(size - len(found)) or b""
        return found


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.reader.close()
    made.handler.close()
    made.writer.close()


def test_the_bytes_are_those_of_a_stream_handler(ends: Ends) -> None:
    ends.log.warning("\xe9 \ud83d %d", 7)
    expected = "\xe9 \\ud83d 7\n".encode()
    assert ends.read(len(expected)) == expected


def test_what_is_logged_is_as_it_was_then(ends: Ends) -> None:
    changing = ["before"]
    filled = ends.fill()
    ends.log.warning("%s", changing)
    changing[0] = "after"
    ends.read(filled)
    assert ends.read(11) == b"['before']\n"


def test_order_and_a_line_for_those_that_were_dropped(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOG_QUEUE_BYTES_MAX", 50)
    filled = ends.fill()
    for number in range(12):
        ends.log.warning("line %03d", number)  # 9 bytes each: 5 find room
    assert ends.handler.dropped == 7
    ends.read(filled)
    kept = b"".join(b"line %03d\n" % number for number in range(5))
    said = b"7 lines were dropped here: the log was not read\n"
    assert ends.read(len(kept + said)) == kept + said
    ends.log.warning("goes on")
    assert ends.read(8) == b"goes on\n"
    assert ends.handler.dropped == 7


def test_a_line_that_is_cut_by_a_full_disk_is_made_whole(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line waits, and nothing is written behind half of it."""
    write, fails = os.write, iter([4, errno.ENOSPC, 3, errno.EIO])

    def failing(fd: int, data: bytes) -> int:
        what = next(fails, None)
        if what is None:
            return write(fd, data)
        if what in errno.errorcode and what > 4:
            raise OSError(what, os.strerror(what))
        return write(fd, data[:what])

    monkeypatch.setattr(os, "write", failing)
    monkeypatch.setattr(limits, "LOG_RETRY_SECONDS", 0.001)
    ends.log.warning("0123456789")
    ends.log.warning("next")
    assert ends.read(16) == b"0123456789\nnext\n"


def test_one_that_does_not_block_is_waited_for(ends: Ends) -> None:
    """Others share a terminal, and may have set it so."""
    filled = ends.fill()
    os.set_blocking(ends.writer.fileno(), False)
    ends.log.warning("word")
    ends.read(filled)
    assert ends.read(5) == b"word\n"


def test_a_flush_waits_for_the_last_line_and_not_for_ever(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOG_DRAIN_SECONDS", 60.0)
    ends.log.warning("word")
    ends.handler.flush()
    os.set_blocking(ends.reader.fileno(), False)
    assert ends.reader.read(5) == b"word\n"
    os.set_blocking(ends.reader.fileno(), True)
    filled = ends.fill()
    ends.log.warning("stuck")
    monkeypatch.setattr(limits, "LOG_DRAIN_SECONDS", 0.01)
    ends.handler.flush()
    ends.read(filled)
    assert ends.read(6) == b"stuck\n"


def test_who_ends_waits_once_where_nobody_reads(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop and the end of the interpreter flush, both: an end took twice as long."""
    waited = []
    wait_for = ends.handler._changed.wait_for

    def counted(is_over: Callable[[], bool], seconds: float) -> bool:
        waited.append(seconds)
        return wait_for(is_over, 0.01 if seconds else 0.0)

    monkeypatch.setattr(ends.handler._changed, "wait_for", counted)
    filled = ends.fill()
    ends.log.warning("stuck")
    ends.handler.flush()
    ends.handler.flush()
    assert waited == [limits.LOG_DRAIN_SECONDS, 0.0]
    ends.read(filled)
    assert ends.read(6) == b"stuck\n"
    until(lambda: not ends.handler._is_stuck, "the line to count as written")
    ends.handler.flush()
    assert waited[-1] == limits.LOG_DRAIN_SECONDS, "it flows again"


def no_thread(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_where_no_thread_is_to_be_had_who_logs_waits_for_nobody_either(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is taken at once is written; the rest waits for a thread, which is tried again."""
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        ends.log.warning("taken")
        assert ends.read(6) == b"taken\n"
        filled = ends.fill()
        ends.log.warning("full")  # it stood in write(2) here
        ends.handler.flush()
        ends.read(filled)
        ends.log.warning("long" * 2000)
    ends.log.warning("last")
    expected = b"full\n" + b"long" * 2000 + b"\nlast\n"
    assert ends.read(len(expected)) == expected


def test_once_threads_are_to_be_had_it_goes_on_where_lines_were_dropped(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line found room from then on, and none tried to begin the thread."""
    monkeypatch.setattr(limits, "LOG_QUEUE_BYTES_MAX", 5000)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        ends.log.warning("x" * 4998)  # more than is written without a wait
        ends.log.warning("dropped")
    ends.log.warning("the first with a thread")
    assert ends.handler._thread is not None
    said = b"x" * 4998 + b"\n2 lines were dropped here: the log was not read\n"
    assert ends.read(len(said)) == said
    ends.log.warning("goes on")
    assert ends.read(8) == b"goes on\n"


def test_it_is_gone_with_its_handler(ends: Ends) -> None:
    before = set(threading.enumerate())  # of a test before there may be one that waits still
    ends.log.warning("word")
    ends.handler.flush()
    (thread,) = [
        one for one in threading.enumerate() if one.name == "walld-log" and one not in before
    ]
    ends.handler.close()
    until(lambda: not thread.is_alive(), "the end of its thread")


def test_a_child_has_a_thread_of_its_own_and_no_line_twice(ends: Ends) -> None:
    filled = ends.fill()
    ends.log.warning("of the parent")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside other threads
        pid = os.fork()
    if pid == 0:
        ends.log.warning("of the child")
        ends.handler.flush()
        os._exit(0)
    ends.read(filled)
    both = ends.read(len(b"of the parent\nof the child\n"))
    assert sorted(both.splitlines()) == [b"of the child", b"of the parent"]
    assert os.waitpid(pid, 0)[1] == 0


def test_its_thread_takes_no_signal(ends: Ends) -> None:
    """It may be there before the stop signals are blocked in all threads."""
    ends.log.warning("word")
    ends.handler.flush()
    (thread,) = [one for one in threading.enumerate() if one.name == "walld-log"]
    with open(f"/proc/self/task/{thread.native_id}/status") as status:
        masks = dict(line.split(":\t") for line in status)
    assert int(masks["SigBlk"], 16) >> 14 & 1, "SIGTERM"
