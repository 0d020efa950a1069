"""Raw connections of a later build: each message has fields behind those that are known.

Writes msgpack by hand, so that nothing of this build's messages limits what is sent.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

import msgspec


class Peer:
    """One connection."""

    def __init__(self, path: str, version: int, role: str, producer: bytes) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(60)
        self._socket.connect(path)
        self._buffer = b""
        self.say(0, version, role, producer, b"", 0, "a later client")

    def say(self, *fields: Any) -> None:
        """Two fields more than it has."""
        body = msgspec.msgpack.encode([*fields, "later", {"one": 1}])
        self._socket.sendall(len(body).to_bytes(4, "big") + body)

    def hear(self, *tags: int) -> list[Any]:
        """The next message that has one of these tags."""
        while True:
            size = int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) >= 4 and len(self._buffer) >= 4 + size:
                body, self._buffer = self._buffer[4 : 4 + size], self._buffer[4 + size :]
                message: list[Any] = msgspec.msgpack.decode(body)
                if message[0] in tags:
                    return message
                continue
            received = self._socket.recv(65536)
            assert received, "it hung up"
            self._buffer += received


def main() -> None:
    path, producer = sys.argv[1], os.urandom(16)
    agent = Peer(path, 1, "agent", producer)
    stream = f"later-{producer.hex()}"
    agent.say(2, 1, 0, stream, stream, None, None, None, 0)
    agent.say(3, 1, 1, b"said by a later build", None)
    agent.say(31, 1, 2)
    agent.say(18, 7, "synced")
    refused, drained = agent.hear(34), agent.hear(33)
    query = Peer(path, 1, "query", os.urandom(16))
    query.hear(1)
    query.say(63, 1)
    unknown = query.hear(35)
    query.say(48, 2, "all", None, stream, [[producer, 1, 1, "later"]], None)
    answer = msgspec.msgpack.decode(query.hear(64)[2])
    later = Peer(path, 2, "query", os.urandom(16)).hear(35)
    print(
        json.dumps(
            {
                "refused": [refused[3], refused[1], refused[2]],
                "drained": drained[1:3],
                "unknown": unknown[1:5],
                "texts": [segment[6].decode() for segment in answer[0][19]],
                "version": [later[1], later[3], later[4]],
            }
        )
    )


if __name__ == "__main__":
    main()
