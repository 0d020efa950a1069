"""What people write by hand: a queue with a writer thread, open-append-close, the whole file anew.

Owns: those patterns, each as short as it is found in agents. Refuses: making them better than they
are found: a reader who has a better one should time that.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path

from bench.load.slow_disk import slowed
from bench.peers.peer import Append

__all__ = ["JsonLines", "QueueAndThread", "WholeFile"]

_HISTORY = [{"role": ("user", "assistant")[at % 2], "content": "walls " * 170} for at in range(20)]
"""The conversation so far: 20 messages of 1,020 characters."""


class _InProcess:
    """No server."""

    def why_not(self) -> str | None:
        return None

    def start(self, home: Path, cores: set[int]) -> None:
        pass

    def stop(self) -> None:
        pass


class QueueAndThread(_InProcess):
    """The floor of what moves the work elsewhere within the process."""

    name = "queue.Queue + thread"
    outlives = "nothing"
    promise = "it is in memory; a thread writes it to an open file a moment later"

    def __init__(self, write_seconds: float = 0.0) -> None:
        """write_seconds: so much longer takes each write, on a disk that is slow."""
        self._write_seconds = write_seconds

    def speak(self, home: Path, work: Callable[[Append], None]) -> None:
        waiting: queue.Queue[str | None] = queue.Queue()
        with (home / "events.jsonl").open("ab", buffering=0) as file:
            put = slowed(file.write, self._write_seconds) if self._write_seconds else file.write

            def write() -> None:
                while (text := waiting.get()) is not None:
                    put(json.dumps({"text": text}).encode() + b"\n")

            writer = threading.Thread(target=write)
            writer.start()
            try:
                work(waiting.put)
            finally:
                waiting.put(None)
                writer.join()

    def count(self, home: Path) -> int:
        return _lines(home)


class JsonLines(_InProcess):
    """An event is a line: open, append, close."""

    def __init__(self, *, fsync: bool, write_seconds: float = 0.0) -> None:
        """write_seconds: so much longer takes each write, on a disk that is slow."""
        self._fsync = fsync
        self._write_seconds = write_seconds
        self.name = "open-append-close JSON" + (" with fsync" if fsync else "")
        self.outlives = "power" if fsync else "all processes"
        self.promise = "fsync(2) returned" if fsync else "write(2) returned"

    def speak(self, home: Path, work: Callable[[Append], None]) -> None:
        path = str(home / "events.jsonl")

        def append(text: str) -> None:
            with open(path, "a") as file:
                file.write(json.dumps({"text": text}) + "\n")

        def append_synced(text: str) -> None:
            with open(path, "a") as file:
                file.write(json.dumps({"text": text}) + "\n")
                file.flush()
                os.fsync(file.fileno())

        chosen = append_synced if self._fsync else append
        work(slowed(chosen, self._write_seconds) if self._write_seconds else chosen)

    def count(self, home: Path) -> int:
        return _lines(home)


class WholeFile(_InProcess):
    """The conversation is one JSON document, which is written anew and renamed into its place."""

    name = "rewrite of the conversation"
    outlives = "all processes"
    promise = "rename(2) returned; 20 KB of earlier messages and the reply so far are in the file"

    def speak(self, home: Path, work: Callable[[Append], None]) -> None:
        path, new = str(home / "conversation.json"), str(home / "conversation.json.new")
        said: list[str] = []
        conversation = [*_HISTORY, {"role": "assistant", "content": ""}]

        def append(text: str) -> None:
            said.append(text)
            conversation[-1]["content"] = "".join(said)
            with open(new, "w") as file:
                json.dump(conversation, file)
            os.replace(new, path)

        work(append)

    def count(self, home: Path) -> int:
        text: str = json.loads((home / "conversation.json").read_text())[-1]["content"]
        return text.count("walls ")


def _lines(home: Path) -> int:
    return sum(1 for line in (home / "events.jsonl").open() if json.loads(line)["text"])
