"""Redis Streams: an XADD per token, its append-only file on.

Owns: redis-server on a Unix socket, no port, no snapshots, no rewrites of its file (they would only
slow it down), with `appendfsync everysec` or `always`. The agent's end is redis-py with hiredis.
Pipelined, the commands are encoded beforehand, so that what is measured is the server; there a
command may have many tokens, a field each.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.peers.peer import Append, Pipe, Server, found, importable

__all__ = ["RedisStreams"]

_SESSION = "bench"


class RedisStreams:
    """policy: "everysec" or "always". tokens: of a command that is poured."""

    def __init__(self, policy: str, tokens: int = 1) -> None:
        self._policy = policy
        self._tokens = tokens
        self.name = f"Redis XADD {policy}"
        if tokens > 1:
            self.name = f"Redis XADD, {tokens} tokens a command"
        self.outlives = "all processes" if policy == "everysec" else "power"
        self.promise = {
            "everysec": "answered, written to its file, which is synced once a second",
            "always": "answered, its file synced",
        }[policy]
        self.server = Server()

    def why_not(self) -> str | None:
        if found("redis-server") is None:
            return "needs redis-server (Debian: apt-get install redis-server)"
        return importable("redis", "redis[hiredis]")

    def start(self, home: Path, cores: set[int]) -> None:
        program = found("redis-server")
        assert program is not None
        command = [program, "--port", "0", "--unixsocket", str(home / "s"), "--dir", str(home)]
        command += ["--appendonly", "yes", "--appendfsync", self._policy, "--save", ""]
        command += ["--auto-aof-rewrite-percentage", "0"]
        self.server.start(command, cores, home / "log", lambda: self._answers(home))

    def _answers(self, home: Path) -> bool:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(1)
            peer.connect(str(home / "s"))
            peer.sendall(b"PING\r\n")
            return peer.recv(100) == b"+PONG\r\n"
        return False

    def stop(self) -> None:
        self.server.stop()

    def _client(self, home: Path) -> Any:
        import redis

        return redis.Redis(unix_socket_path=str(home / "s"))

    def speak(self, home: Path, work: Callable[[Append], None]) -> None:
        with self._client(home) as client:
            work(lambda text: client.xadd(_SESSION, {"text": text}))

    def count(self, home: Path) -> int:
        with self._client(home) as client:
            return self._tokens * sum(int(client.xlen(stream)) for stream in client.keys("*"))

    def pipe(self, home: Path, number: int) -> Pipe:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(home / "s"))
        words = [b"XADD", b"s%d" % number, b"*"] + [b"t", b"abcde"] * self._tokens
        command = b"*%d\r\n" % len(words)
        command += b"".join([b"$%d\r\n%s\r\n" % (len(word), word) for word in words])
        return Pipe(connection, command, 2, 10_000 // self._tokens, self._tokens)
