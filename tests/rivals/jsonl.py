"""A JSON line per event, as most agents keep their transcripts: open, append, close.

Owns: that, with and without fsync. A line that is no JSON is left out by its reader, who can see
that.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from .notes import Notes
from .store import Found, Writer

__all__ = ["Jsonl"]


class _Appender:
    def __init__(self, path: Path, notes: Notes, *, fsync: bool) -> None:
        self._path = path
        self._notes = notes
        self._fsync = fsync

    def append(self, seq: int, text: str) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps({"text": text}) + "\n")
            file.flush()
            if self._fsync:
                os.fsync(file.fileno())
        self._notes.ack(seq)

    def finish(self) -> None:
        pass


class Jsonl:
    """See the top."""

    name = "JSON lines"
    has_server = False

    def __init__(self, _home: Path, folder: Path, *, fsync: bool) -> None:
        self.setting = "write + fsync" if fsync else "write"
        self.acks = "fsync returned" if fsync else "write returned"
        self._fsync = fsync
        self._path = folder / "events.jsonl"

    def start(self) -> None:
        self._path.touch()

    def writer(self, _stream: str, notes: Notes) -> Writer:
        return _Appender(self._path, notes, fsync=self._fsync)

    def kill(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def pid(self) -> int | None:
        return None

    def read(self) -> Found:
        found = Found()
        for line in self._path.read_bytes().split(b"\n"):
            if not line:
                continue
            try:
                found.records.append(json.loads(line)["text"])
            except (ValueError, KeyError, TypeError):
                found.broken.append(line.decode(errors="replace"))
        if found.broken:
            found.said.append(f"{len(found.broken)} lines that are no JSON")
        return found

    def repair(self) -> bool:
        return False

    def files(self) -> list[Path]:
        return [self._path]
