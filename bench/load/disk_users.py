"""An agent whose tokens go to a slow disk: 20 streams of 60 a second, in replies of 60 tokens.

    python -m bench.load.disk_users DESIGN HOME DELAY_MS SECONDS [DISK]

Owns: the designs that are compared, and timing each token of theirs. A rival's write takes DELAY_MS
more and is counted, as walld's are (`slow_disk.py`). A reply that is over has been saved elsewhere
and may go: walld's is released, a rival's file unlinked, and the stream's next one begins. Rivals'
files lie in DISK, in HOME where that is not said. Begins at a line on stdin; says on stdout, as
JSON, what its calls took, and stays until stdin ends.
Refuses: what it means.

- walld: token(); the daemon writes for all streams together.
- files: a thread writes what it was handed, four times a second as walld does on a quick disk, to a
  file of each stream that stays open while the reply lasts.
- append: each token opens its stream's file, appends a line of JSON and closes it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from walld_client import connect

from bench.load.slow_disk import Tally, slowed
from bench.report.numbers import quantile

__all__ = ["DESIGNS", "REPLY_TOKENS", "STREAMS", "line_of", "main", "session_of"]

STREAMS, REPLY_TOKENS = 20, 60
_RATE = 60
_TEXT = "walls "
_LINGER_SECONDS = 0.25
_PATIENCE_SECONDS = 60.0


def session_of(stream: int) -> str:
    """walld's session of a stream, a rival's file."""
    return f"stream-{stream}"


def line_of(text: str) -> bytes:
    """An event as the rivals write it."""
    return json.dumps({"text": text}).encode() + b"\n"


class _Design(Protocol):
    """What a token is given to. behind: the longest that one waited to be written, in seconds."""

    behind: float

    def token(self, stream: int) -> object:
        """One more."""

    def end(self, stream: int) -> None:
        """Its reply is over and saved elsewhere."""

    def close(self) -> list[int]:
        """All is written. Tokens of each stream's unfinished reply that can be read back."""


class _Walld:
    behind = float("nan")  # the daemon says

    def __init__(self, home: Path, _disk: Path, _delay: float) -> None:
        self._client = connect(socket=str(home / "s"), timeout=_PATIENCE_SECONDS)
        self._replies = [self._client.reply(session_of(at)) for at in range(STREAMS)]

    def token(self, stream: int) -> object:
        return self._replies[stream].token(_TEXT)

    def end(self, stream: int) -> None:
        self._replies[stream].end()
        self._replies[stream] = self._client.reply(session_of(stream))

    def close(self) -> list[int]:
        there = []
        for reply in self._replies:
            if not reply.drain(_PATIENCE_SECONDS):
                raise RuntimeError(f"not written: {self._client.stats()}")
            found = self._client.recover(stream_id=reply.stream_id)
            there.append(0 if found is None else found.text.count(_TEXT))
        dropped = self._client.stats().dropped
        if dropped:
            raise RuntimeError(f"walld's client dropped {dropped} events")
        return there


class _Files:
    """Its own disk: what a write takes more, and the count."""

    def __init__(self, home: Path, disk: Path, delay: float) -> None:
        self._disk = disk
        self.behind = 0.0
        self._write = slowed(Tally(home / "tally").of_write(os.write), delay)

    def _path(self, stream: int) -> Path:
        return self._disk / session_of(stream)

    def _open(self, stream: int) -> int:
        return os.open(self._path(stream), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def _there(self) -> list[int]:
        paths = [self._path(stream) for stream in range(STREAMS)]
        return [path.read_bytes().count(b"\n") if path.exists() else 0 for path in paths]


class _Append(_Files):
    def token(self, stream: int) -> object:
        file = self._open(stream)
        self._write(file, line_of(_TEXT))
        os.close(file)
        return None

    def end(self, stream: int) -> None:
        self._path(stream).unlink()

    def close(self) -> list[int]:
        return self._there()


class _Buffered(_Files):
    """files: see the top. Nobody waits for the thread but at the end."""

    def __init__(self, home: Path, disk: Path, delay: float) -> None:
        super().__init__(home, disk, delay)
        self._lock = threading.Lock()
        self._waiting: list[list[tuple[float, bytes]]] = [[] for _ in range(STREAMS)]
        self._ended: list[int] = []
        self._opened: dict[int, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def token(self, stream: int) -> object:
        with self._lock:
            self._waiting[stream].append((time.monotonic(), line_of(_TEXT)))
        return None

    def end(self, stream: int) -> None:
        # What of it has not been written need not be any more.
        with self._lock:
            self._waiting[stream].clear()
            self._ended.append(stream)

    def _flush(self) -> None:
        for stream in range(STREAMS):
            with self._lock:
                ended, self._ended = self._ended, []
                given, self._waiting[stream] = self._waiting[stream], []
            for one in ended:
                if one in self._opened:
                    os.close(self._opened.pop(one))
                    self._path(one).unlink()
            if given:
                if stream not in self._opened:
                    self._opened[stream] = self._open(stream)
                self._write(self._opened[stream], b"".join(line for _, line in given))
                self.behind = max(self.behind, time.monotonic() - given[0][0])

    def _run(self) -> None:
        while not self._over.wait(_LINGER_SECONDS):
            self._flush()
        self._flush()

    def close(self) -> list[int]:
        self._over.set()
        self._thread.join()
        return self._there()


DESIGNS: dict[str, Callable[[Path, Path, float], _Design]] = {
    "walld": _Walld,
    "files": _Buffered,
    "append": _Append,
}
"""By the name on the command line."""


def main(key: str, folder: str, delay_ms: str, seconds: str, disk: str = "") -> None:
    """Speak for so long, at the pace or as near to it as the calls allow."""
    design: _Design = DESIGNS[key](Path(folder), Path(disk or folder), float(delay_ms) / 1000)
    # Begun in the middle of their replies, so that ends are spread from the first second on.
    said = [0] * STREAMS
    left = [REPLY_TOKENS - at * REPLY_TOKENS // STREAMS for at in range(STREAMS)]
    took: list[int] = []
    print("ready", flush=True)
    sys.stdin.readline()
    clock = time.perf_counter_ns
    begun, due = time.perf_counter(), 0
    until = begun + float(seconds)
    while time.perf_counter() < until:
        stream = due % STREAMS
        before = clock()
        design.token(stream)
        took.append(clock() - before)
        said[stream] += 1
        left[stream] -= 1
        if not left[stream]:
            design.end(stream)
            said[stream], left[stream] = 0, REPLY_TOKENS
        due += 1
        time.sleep(max(0.0, begun + due / STREAMS / _RATE - time.perf_counter()))
    spent = time.perf_counter() - begun
    there = design.close()
    print(json.dumps({
        "tokens": len(took), "due": spent * _RATE * STREAMS, "behind": design.behind,
        "p50_us": quantile(took, 0.5) / 1000, "p99_us": quantile(took, 0.99) / 1000,
        "p999_us": quantile(took, 0.999) / 1000,
        "missing": sum(abs(a - b) for a, b in zip(said, there, strict=True)),
    }), flush=True)  # fmt: skip
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
