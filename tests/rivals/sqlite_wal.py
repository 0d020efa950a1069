"""SQLite with a write-ahead log: a row and a commit per event.

Owns: that, with synchronous NORMAL and FULL, in the writer's process. Asked for damage it runs
`PRAGMA quick_check`, which its users would have to do themselves.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from .notes import Notes
from .store import Found, RefusedError, Writer

__all__ = ["SqliteWal"]

_TABLE = "CREATE TABLE IF NOT EXISTS events (stream, seq, text, UNIQUE (stream, seq))"


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


class _Inserter:
    def __init__(self, connection: sqlite3.Connection, stream: str, notes: Notes) -> None:
        self._connection = connection
        self._stream = stream
        self._notes = notes

    def append(self, seq: int, text: str) -> None:
        try:
            self._connection.execute(
                "INSERT OR IGNORE INTO events VALUES (?, ?, ?)", (self._stream, seq, text)
            )
        except sqlite3.Error as error:
            raise OSError(str(error)) from None
        self._notes.ack(seq)

    def finish(self) -> None:
        pass


class SqliteWal:
    """See the top. level: "NORMAL" or "FULL"."""

    name = "SQLite WAL"
    has_server = False

    def __init__(self, _home: Path, folder: Path, *, level: str) -> None:
        self.setting = f"synchronous={level}"
        self.acks = "committed" if level == "NORMAL" else "committed, synced"
        self._level = level
        self._path = folder / "events.db"

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=10)
        connection.text_factory = _text
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA synchronous={self._level}")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def start(self) -> None:
        try:
            connection = self._connect()
            connection.execute(_TABLE)
            connection.close()
        except sqlite3.Error as error:
            raise RefusedError(str(error)) from None

    def writer(self, stream: str, notes: Notes) -> Writer:
        return _Inserter(self._connect(), stream, notes)

    def kill(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def pid(self) -> int | None:
        return None

    def read(self) -> Found:
        """Row by row: those before a damaged page are there."""
        found = Found()
        try:
            connection = self._connect()
        except sqlite3.Error as error:
            raise RefusedError(str(error)) from None
        with closing(connection):
            try:
                for (text,) in connection.execute("SELECT text FROM events ORDER BY rowid"):
                    found.records.append(text if isinstance(text, str) else repr(text))
            except sqlite3.Error as error:
                found.said.append(str(error))
            try:
                verdict = connection.execute("PRAGMA quick_check(1)").fetchone()
                if verdict != ("ok",):
                    found.said.append(str(verdict))
            except sqlite3.Error as error:
                found.said.append(str(error))
        return found

    def repair(self) -> bool:
        return False

    def files(self) -> list[Path]:
        both = [self._path, self._path.with_name("events.db-wal")]
        return [path for path in both if path.exists()]
