"""What an import holds in memory: a few times the bytes of its file, of whichever kind."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from daemon_process import DaemonProcess, environment

_TURNS = 4_000
_SAID = "The quick brown fox jumps over the lazy dog, é and “quotes” and\nnewlines. " * 12
_TIMES_MAX = 2.8
"""40 MB and what the program itself takes are 150 MB then."""


_PROGRAM = """
import re, runpy, sys
sys.argv[0] = "walld"
try:
    runpy.run_module("walld", run_name="__main__")
except SystemExit as done:
    assert not done.code, done
print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
"""
"""What `getrusage` says of a process counts what its parent had, too."""


def _time(n: int) -> str:
    return f"2026-10-02T{9 + n // 3600 % 12:02d}:{n // 60 % 60:02d}:{n % 60:02d}.000Z"


def _codex(turns: int) -> Iterator[dict[str, Any]]:
    yield {"timestamp": _time(0), "type": "session_meta", "payload": {"id": "s", "cwd": "/w"}}
    for turn in range(turns):
        for at, (role, kind) in enumerate((("user", "input_text"), ("assistant", "output_text"))):
            blocks = [{"type": kind, "text": f"{turn} {_SAID}"}]
            said = {"type": "message", "role": role, "content": blocks}
            yield {"timestamp": _time(2 * turn + at), "type": "response_item", "payload": said}


def _claude(turns: int) -> Iterator[dict[str, Any]]:
    above = None
    for n in range(2 * turns):
        role = ("user", "assistant")[n % 2]
        said: dict[str, Any] = {"role": role, "content": [{"type": "text", "text": f"{n} {_SAID}"}]}
        if role == "assistant":
            said |= {"id": f"m{n}", "stop_reason": "end_turn"}
        uuid = f"{n:08x}-aaaa-4bbb-8ccc-{n:012x}"
        place = {"uuid": uuid, "parentUuid": above, "isSidechain": False, "sessionId": "s"}
        yield place | {"type": role, "timestamp": _time(n), "message": said}
        above = uuid


def _pi(turns: int) -> Iterator[dict[str, Any]]:
    yield {"type": "session", "version": 3, "id": "s", "timestamp": _time(0), "cwd": "/w"}
    above = None
    for n in range(2 * turns):
        role = ("user", "assistant")[n % 2]
        said = {"role": role, "content": [{"type": "text", "text": f"{n} {_SAID}"}]}
        place = {"type": "message", "id": f"{n:08x}", "parentId": above, "timestamp": _time(n)}
        yield place | {"message": said}
        above = f"{n:08x}"


def _gptme(turns: int) -> Iterator[dict[str, Any]]:
    for n in range(2 * turns):
        role = ("user", "assistant")[n % 2]
        yield {"role": role, "content": f"{n} {_SAID}", "timestamp": _time(n)}


_FORMATS = {"codex": _codex, "claude": _claude, "pi": _pi, "gptme": _gptme}


def _text(kind: str, turns: int) -> bytes:
    return "".join(json.dumps(one) + "\n" for one in _FORMATS[kind](turns)).encode()


def _peak_bytes(
    daemon: DaemonProcess, session_id: str, given: str, *options: str, piped: Path | None = None
) -> int:
    """Of the process that imports it."""
    command = ["session", "import", given, "--session", session_id, *options]
    with ExitStack() as closing:
        source = None
        if piped is not None:
            cat = closing.enter_context(subprocess.Popen(["cat", piped], stdout=subprocess.PIPE))
            source = cat.stdout
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, *command, "--socket", str(daemon.socket_path)],
            env=environment(),
            stdin=source,
            capture_output=True,
            text=True,
            check=True,
        )
    return int(done.stdout.splitlines()[-1]) * 1024


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        *((kind, "file") for kind in _FORMATS),
        *(("codex", way) for way in ("gzip", "pipe", "follow")),
    ],
)
def test_an_import_holds_a_few_times_what_its_file_has(
    daemon: DaemonProcess, tmp_path: Path, kind: str, way: str
) -> None:
    small, large = tmp_path / "small.jsonl", tmp_path / "large.jsonl"
    small.write_bytes(_text(kind, 1))
    large.write_bytes(text := _text(kind, _TURNS))
    given, options, piped = str(large), list[str](), None
    if way == "gzip":
        large.write_bytes(gzip.compress(text, 1))
    elif way == "pipe":
        given, piped = "/dev/stdin", large
    elif way == "follow":
        options = ["--follow"]
    itself = _peak_bytes(daemon, "small", str(small))
    held = _peak_bytes(daemon, "large", given, *options, piped=piped) - itself
    assert held <= _TIMES_MAX * len(text), f"{held} bytes for a file of {len(text)}"
    assert len(daemon.reader.session("large").messages()) == 2 * _TURNS
