"""Runs a program with a recorder in each of its threads: which files of this tree are passed, when.

    python -P traced.py OUT python -m MODULE ARGUMENT...

A wrapper, as strace is; the program runs in this interpreter. Once it has ended, OUT has a line of
JSON for each step: the time (CLOCK_MONOTONIC, in ns), the thread, and the file that a call went
into, from the root of the tree on; "send" where a socket was given something.

Imports nothing of this package: it must not be among what it records, nor on that program's path.
"""

from __future__ import annotations

import json
import runpy
import socket
import sys
import threading
import time
from pathlib import Path
from types import FrameType

__all__ = ["main"]

_ROOT = f"{Path(__file__).resolve().parents[2]}/"
_TESTS = f"{_ROOT}tests/"
_SENDS = {"send", "sendall", "sendmsg", "sendto"}

Step = tuple[int, int, str]


class _Recorder:
    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._own: dict[str, str | None] = {}
        """By a code's file name: the path from the root on; None where it is none of ours."""

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            name = frame.f_code.co_filename
            try:
                own = self._own[name]
            except KeyError:
                own = self._own[name] = _own_path(name)
            if own is not None:
                self.steps.append((time.monotonic_ns(), threading.get_ident(), own))
        elif event == "c_call" and _is_send(argument):
            self.steps.append((time.monotonic_ns(), threading.get_ident(), "send"))


def _is_send(called: object) -> bool:
    is_of_socket = isinstance(getattr(called, "__self__", None), socket.socket)
    return is_of_socket and getattr(called, "__name__", "") in _SENDS


def _own_path(name: str) -> str | None:
    if name.startswith("<"):
        return None  # made at run time: it has no file
    path = str(Path(name).resolve())
    is_own = path.startswith(_ROOT) and not path.startswith((_TESTS, f"{_ROOT}.venv/"))
    return path.removeprefix(_ROOT) if is_own else None


def main() -> None:
    """Run the program that the arguments name."""
    out, _python, _dash_m, module, *arguments = sys.argv[1:]
    sys.argv = [module, *arguments]
    recorder = _Recorder()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        with Path(out).open("w") as file:
            file.writelines(json.dumps(step) + "\n" for step in recorder.steps)


if __name__ == "__main__":
    main()
