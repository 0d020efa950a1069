"""Frameworks that keep an agent's state: LangGraph's SqliteSaver, DBOS.

Owns: for each the call its manual gives for what comes while a step runs, with its own defaults.
LangGraph's keeps it in SQLite, whose commits are synced where nothing else is set. DBOS keeps it in
PostgreSQL, the one of `databases.py`; where that is not here it is SQLite, which DBOS says is for
development, and the name says so.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from bench.peers.databases import Postgres
from bench.peers.peer import Append, importable

__all__ = ["DbosStream", "LangGraphSaver"]


class LangGraphSaver:
    """put_writes of one write, by a task of its own: a task's writes are numbered within a call."""

    name = "LangGraph SqliteSaver"
    outlives = "power"
    promise = "committed, in SQLite's WAL, synced"

    def why_not(self) -> str | None:
        return importable("langgraph.checkpoint.sqlite", "langgraph-checkpoint-sqlite")

    def start(self, home: Path, cores: set[int]) -> None:
        pass

    def stop(self) -> None:
        pass

    def speak(self, home: Path, work: Callable[[Append], None]) -> None:
        from langgraph.checkpoint.base import empty_checkpoint
        from langgraph.checkpoint.sqlite import SqliteSaver

        with SqliteSaver.from_conn_string(str(home / "saver.db")) as saver:
            asked = {"configurable": {"thread_id": "bench", "checkpoint_ns": ""}}
            config = saver.put(asked, empty_checkpoint(), {}, {})
            tasks = iter(range(1 << 30))

            def append(text: str) -> None:
                saver.put_writes(config, [("messages", text)], f"task-{next(tasks)}")

            work(append)

    def count(self, home: Path) -> int:
        with closing(sqlite3.connect(home / "saver.db")) as connection:
            (count,) = connection.execute("SELECT count(*) FROM writes").fetchone()
        return int(count)


class DbosStream:
    """write_stream from a step of a workflow, which is where a model is called."""

    outlives = "power"

    def __init__(self) -> None:
        postgres = Postgres()
        self._postgres = None if postgres.why_not() else postgres
        self.name = "DBOS write_stream" + ("" if self._postgres else " on SQLite")
        kept = "in PostgreSQL, its log" if self._postgres else "in SQLite's rollback journal,"
        self.promise = f"committed, {kept} synced"

    def why_not(self) -> str | None:
        return importable("dbos", "dbos")

    def start(self, home: Path, cores: set[int]) -> None:
        if self._postgres:
            self._postgres.start(home, cores)

    def stop(self) -> None:
        if self._postgres:
            self._postgres.stop()

    def _url(self, home: Path) -> str:
        if self._postgres:
            return f"postgresql+psycopg://bench@/postgres?host={(home / 'folder').read_text()}"
        return f"sqlite:///{home / 'dbos.db'}"

    def speak(self, home: Path, work: Callable[[Append], None]) -> None:
        from dbos import DBOS

        DBOS(config={
            "name": "bench",
            "system_database_url": self._url(home),
            "log_level": "ERROR",
        })  # fmt: skip

        @DBOS.step()
        def stream() -> None:
            work(lambda text: DBOS.write_stream("tokens", text))

        @DBOS.workflow()
        def reply() -> None:
            stream()

        DBOS.launch()
        try:
            reply()
        finally:
            DBOS.destroy()

    def count(self, home: Path) -> int:
        if self._postgres:
            return self._postgres.rows(home, "dbos.streams")
        with closing(sqlite3.connect(home / "dbos.db")) as connection:
            (count,) = connection.execute("SELECT count(*) FROM streams").fetchone()
        return int(count)
