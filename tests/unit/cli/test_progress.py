"""The bar of a long command stays in one line of its terminal, and is taken away from there."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import termios
from collections.abc import Iterator

import pytest

from walld.cli import progress
from walld.cli.progress import Progress

WHAT = "reading the log"


class Terminal:
    """What stderr is, and what it was told."""

    def __init__(self) -> None:
        self._seen, self._slave = pty.openpty()
        self.stream = os.fdopen(self._slave, "w")

    def has(self, columns: int) -> None:
        size = struct.pack("HHHH", 24, columns, 0, 0)
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, size)

    def drawn(self) -> list[str]:
        """Each redraw, once no more of them comes."""
        told = b""
        while select.select([self._seen], [], [], 0.3)[0]:
            told += os.read(self._seen, 65536)
        return told.decode().split("\r")[1:]

    def close(self) -> None:
        self.stream.close()
        os.close(self._seen)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    terminal = Terminal()
    monkeypatch.setattr(progress, "_PERIOD_SECONDS", 0.0)
    yield terminal
    terminal.close()


@pytest.mark.parametrize("columns", [2, 5, 6, 20, 27, 28, 29, 30, 40, 53, 54, 80, 0])
def test_it_fits(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    terminal.has(columns)
    with Progress(WHAT, 9) as bar:
        for done in range(10):
            bar.reached(done)
    *drawn, blank, end = terminal.drawn()
    room = (columns or 80) - 1
    assert len(drawn) == 10
    assert max(map(len, [*drawn, blank])) <= room
    assert (blank.strip(), end) == ("", "")
    if room >= 29:
        assert drawn[0].startswith(f"{WHAT} [.")
        assert "#]" in drawn[-1]
    if room >= 53:
        assert drawn[-1] == f"{WHAT} [{'#' * 30}] 100%"
    if room >= 5:
        assert drawn[-1].endswith("100%")


def test_it_fits_where_it_gets_narrower(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    terminal.has(80)
    with Progress(WHAT, 9) as bar:
        bar.reached(1)
        terminal.has(30)
        bar.reached(2)
        terminal.has(20)
    assert [len(line) for line in terminal.drawn()] == [53, 29, 19, 0]
