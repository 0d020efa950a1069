"""Databases: SQLite in the process, PostgreSQL beside it; a row and a commit per token.

Owns: both, by their Python clients. PostgreSQL is initdb'd in a folder of its own with its defaults
(fsync and synchronous_commit on), on a Unix socket there and no port; as it refuses to run as root,
root runs it as `postgres`, or as `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from bench.peers.peer import Append, Server, importable

__all__ = ["Postgres", "Sqlite", "program"]

_SESSION = "bench"


class Sqlite:
    """level: of PRAGMA synchronous, "NORMAL" or "FULL"."""

    def __init__(self, level: str) -> None:
        self._level = level
        self.name = f"SQLite WAL {level}"
        self.outlives = "all processes" if level == "NORMAL" else "power"
        self.promise = "committed, in the WAL" + (", synced" if level == "FULL" else "")

    def why_not(self) -> str | None:
        return None

    def start(self, home: Path, cores: set[int]) -> None:
        with closing(self._connect(home)) as connection:
            connection.execute("CREATE TABLE tokens (session, seq INTEGER PRIMARY KEY, text)")

    def stop(self) -> None:
        pass

    def _connect(self, home: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(home / "tokens.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={self._level}")
        return connection

    def speak(self, home: Path, work: Callable[[Append], None]) -> None:
        statement = "INSERT INTO tokens (session, text) VALUES (?, ?)"
        with closing(self._connect(home)) as connection:
            execute = connection.cursor().execute
            work(lambda text: execute(statement, (_SESSION, text)))

    def count(self, home: Path) -> int:
        with closing(self._connect(home)) as connection:
            (count,) = connection.execute("SELECT count(*) FROM tokens").fetchone()
        return int(count)


class Postgres:
    """One connection, autocommit, a prepared insert."""

    name = "PostgreSQL"
    outlives = "power"
    promise = "committed, its log synced"

    def __init__(self) -> None:
        self._server = Server()
        self._folder: Path | None = None

    def why_not(self) -> str | None:
        missing = program("initdb") is None or program("postgres") is None
        if missing:
            return "needs PostgreSQL's initdb and postgres (Debian: apt-get install postgresql)"
        if os.geteuid() == 0 and shutil.which("setpriv") is None:
            return "needs setpriv (Debian: util-linux): PostgreSQL refuses to run as root"
        return importable("psycopg", "psycopg[binary]")

    def start(self, home: Path, cores: set[int]) -> None:
        # Not within `home`: whom it runs as may not look into the bench's folder.
        self._folder = folder = Path(tempfile.mkdtemp(prefix="walldb-pg"))
        (home / "folder").write_text(str(folder))
        become: list[str] = []
        if os.geteuid() == 0:
            user = _user()
            os.chown(folder, user.pw_uid, user.pw_gid)
            become = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}"]
            become += ["--clear-groups"]
        cluster = folder / "cluster"
        initdb, postgres = program("initdb"), program("postgres")
        assert initdb is not None
        assert postgres is not None
        make = [*become, initdb, "-D", str(cluster), "-U", "bench", "-A", "trust"]
        make += ["-E", "UTF8", "--no-locale"]
        made = subprocess.run(make, check=False, capture_output=True, cwd="/")
        if made.returncode:
            raise RuntimeError(
                f"initdb ended with {made.returncode}: {made.stderr.decode()[-400:]}"
            )
        command = [*become, postgres, "-D", str(cluster), "-k", str(folder)]
        command += ["-c", "listen_addresses="]
        self._server.start(command, cores, home / "log", lambda: self._answers(home))
        with self._connect(home) as connection:
            connection.execute(
                "CREATE TABLE tokens (seq bigserial PRIMARY KEY, session text, text text)"
            )

    def stop(self) -> None:
        self._server.stop(signal.SIGINT)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _connect(self, home: Path) -> Any:
        import psycopg

        folder = (home / "folder").read_text()
        return psycopg.connect(host=folder, user="bench", dbname="postgres", autocommit=True)

    def _answers(self, home: Path) -> bool:
        import psycopg

        try:
            self._connect(home).close()
        except psycopg.OperationalError:
            return False
        return True

    def speak(self, home: Path, work: Callable[[Append], None]) -> None:
        statement = "INSERT INTO tokens (session, text) VALUES (%s, %s)"
        with self._connect(home) as connection, connection.cursor() as cursor:
            work(lambda text: cursor.execute(statement, (_SESSION, text), prepare=True))

    def count(self, home: Path) -> int:
        return self.rows(home, "tokens")

    def rows(self, home: Path, table: str) -> int:
        """Of a table of this server."""
        with self._connect(home) as connection:
            (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(count)


def program(name: str) -> str | None:
    """Debian keeps them out of PATH, by version: the newest."""
    folders = Path("/usr/lib/postgresql").glob("*/bin")
    newest = sorted(folders, key=lambda folder: -float(folder.parent.name))
    places = [os.environ.get("PATH", ""), *map(str, newest)]
    return shutil.which(name, path=os.pathsep.join(places))


def _user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")
