"""The table of who waits for a tool's result."""

from __future__ import annotations

import threading
from typing import Any

import walld_client
from walld_client.adapters.model_call import Board


class Interrupting(str):
    """A call id in whose hashing a finalizer comes, as the collector's may anywhere."""

    __slots__ = ("act",)
    act: Any

    def __hash__(self) -> int:
        self.act()
        return 0


def test_a_run_may_be_over_while_its_own_thread_has_the_table(monkeypatch: Any) -> None:
    """The objects of a run are collected where they are, in the middle of whatever goes on."""
    monkeypatch.setenv("WALLD_ENABLED", "0")
    board = Board(walld_client.connect(), "s")
    board.begin("other run").tool("weather", call_id="a")
    is_done = threading.Event()

    def wait() -> None:
        call_id = Interrupting("b")
        call_id.act = lambda: board.run_ended("other run")
        board.wait(call_id, board.begin("run"))
        is_done.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert is_done.wait(20), "it waits for itself"
    thread.join()
