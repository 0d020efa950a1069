"""Redis with its append-only file: an XADD per event, with the event's seq as its id.

Owns: Debian's redis-server with `appendfsync everysec` (its default) and `always`. Everything else
is as shipped, but for the snapshots, which are off. The id makes what is sent twice one entry.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .notes import Notes
from .store import Found, RefusedError, Server, Writer

if TYPE_CHECKING:
    import redis

__all__ = ["RedisAof", "why_not"]

_SAYS = ("bad file format", "short read", "truncat", "corrupt", "unexpected end", "unrecoverable")


def why_not() -> str | None:
    """Why it cannot take part here; None where it can."""
    if shutil.which("redis-server") is None:
        return "needs redis-server (Debian: apt-get install redis-server)"
    try:
        import redis  # noqa: F401
    except ImportError:
        return "needs the Python package redis (the extra `rivals`)"
    return None


class _Adder:
    def __init__(self, client: redis.Redis, stream: str, notes: Notes) -> None:
        self._client = client
        self._stream = stream
        self._notes = notes

    def append(self, seq: int, text: str) -> None:
        import redis

        try:
            self._client.xadd(self._stream, {"text": text}, id=f"0-{seq}")
        except redis.RedisError as error:
            # It had it, and its answer was lost.
            if "equal or smaller" not in str(error):
                raise OSError(str(error)) from None
        self._notes.ack(seq)

    def finish(self) -> None:
        pass


class RedisAof:
    """See the top. policy: "everysec" or "always"."""

    name = "Redis AOF"
    has_server = True

    def __init__(self, home: Path, folder: Path, *, policy: str) -> None:
        self.setting = f"appendfsync {policy}"
        self.acks = "OK" if policy == "everysec" else "OK, synced"
        self._policy = policy
        self._folder = folder / "redis"
        self._socket = str(home / "redis.sock")
        self._server = Server(home / "redis.log")

    def _client(self) -> Any:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        retry = Retry(NoBackoff(), 0)
        return redis.Redis(
            unix_socket_path=self._socket,
            decode_responses=True,
            encoding_errors="replace",
            socket_timeout=5,
            retry=retry,
        )

    def _answers(self) -> bool:
        import redis

        try:
            return bool(self._client().ping())
        except (redis.RedisError, OSError):
            return False

    def start(self) -> None:
        self._folder.mkdir(exist_ok=True)
        command = ["redis-server", "--port", "0", "--unixsocket", self._socket]
        command += ["--dir", str(self._folder), "--appendonly", "yes", "--save", ""]
        command += ["--appendfsync", self._policy]
        self._server.start(command, self._answers)

    def writer(self, stream: str, notes: Notes) -> Writer:
        return _Adder(self._client(), stream, notes)

    def kill(self) -> None:
        self._server.kill()

    def stop(self) -> None:
        self._server.stop()

    def pid(self) -> int | None:
        return self._server.pid()

    def read(self) -> Found:
        import redis

        if self.pid() is None:
            self.start()
        found = Found()
        client = self._client()
        try:
            for stream in sorted(client.keys("*")):
                if client.type(stream) != "stream":
                    found.records.append(f"{stream} is no stream")
                    continue
                for _, fields in client.xrange(stream):
                    found.records.append(fields.get("text", repr(fields)))
        except redis.RedisError as error:
            raise RefusedError(str(error)) from None
        finally:
            client.close()
        found.said += [
            line
            for line in self._server.said().splitlines()
            if any(word in line.lower() for word in _SAYS)
        ]
        return found

    def repair(self) -> bool:
        """`redis-check-aof --fix`: it cuts the file off where it cannot be read."""
        manifest = self._folder / "appendonlydir/appendonly.aof.manifest"
        command = ["redis-check-aof", "--fix", str(manifest)]
        done = subprocess.run(command, input=b"y\n", capture_output=True, check=False)
        return done.returncode == 0

    def files(self) -> list[Path]:
        return sorted((self._folder / "appendonlydir").glob("*.incr.aof"))
