"""The table of who waits for a tool's result."""

from __future__ import annotations

import threading
from typing import Any

import walld_client
from walld_client.adapters.frameworks.model_call import Board
from walld_client.adapters.frameworks.recording import Opener


class Interrupting(str):
    """A run in whose hashing a finalizer comes, as the collector's may anywhere."""

    act: Any = None

    def __hash__(self) -> int:
        if self.act is not None:
            self.act()
        return 0


def test_a_run_may_be_over_while_its_own_thread_has_the_table(monkeypatch: Any) -> None:
    """The objects of a run are collected where they are, in the middle of whatever goes on."""
    monkeypatch.setenv("WALLD_ENABLED", "0")
    board = Board(Opener(walld_client.connect(), "s"))
    board.begin("other run").tool("weather", call_id="a")
    is_done, ended = threading.Event(), []

    def leave_open() -> None:
        run = Interrupting("run")
        call = board.begin(run)
        run.act = lambda: ended.append(board.run_ended("other run"))
        board.leave_open(call)
        is_done.set()

    thread = threading.Thread(target=leave_open, daemon=True)
    thread.start()
    assert is_done.wait(20), "it waits for itself"
    thread.join()
    assert ended
