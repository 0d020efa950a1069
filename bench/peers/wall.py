"""The wall: recv and write of the same bytes, without looking at them.

    python -m bench.peers.wall SOCKET FILE

Owns: the least that any store of this shape must do, in a loop of Python whose calls move 256 KiB
each. Refuses: parsing, ordering, acknowledging one event; when a sender shuts its side, it is told
that all of it is written.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
from pathlib import Path

from walld_client.encoding import event_frames

from bench.daemon import environment
from bench.peers.peer import Pipe, Server

__all__ = ["EVENT", "Wall"]

_TAKEN_BYTES = 256 * 1024
EVENT = event_frames.plain_text(
    event_frames.text_prefix(event_frames.TOKEN, 1), 1_000_000, b"abcde"
)
"""A frame of walld's: as long whatever the seq."""


class Wall:
    """Only pipelined: of a single token it could say nothing."""

    name = "recv + write"

    def __init__(self) -> None:
        self.server = Server()

    def why_not(self) -> str | None:
        """It always can."""

    def start(self, home: Path, cores: set[int]) -> None:
        """Listens."""
        command = [sys.executable, "-m", "bench.peers.wall", str(home / "s"), str(home / "file")]
        self.server.start(command, cores, home / "log", (home / "s").exists, environment())

    def stop(self) -> None:
        """Gone."""
        self.server.stop()

    def count(self, home: Path) -> int:
        """Whole events in the file: of the last flood."""
        return (home / "file").stat().st_size // len(EVENT)

    def pipe(self, home: Path, number: int) -> Pipe:
        """One answer, to the last byte."""
        connection = socket.socket(socket.AF_UNIX)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        connection.connect(str(home / "s"))
        return Pipe(connection, EVENT, lines=0, window=1 << 40)


def main(path: str, name: str) -> None:
    """Until it is ended."""
    watched = selectors.EpollSelector()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    watched.register(listener, selectors.EVENT_READ)
    senders = 0
    room = memoryview(bytearray(_TAKEN_BYTES))
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        for key, _ in watched.select():
            if key.fileobj is listener:
                if not senders:
                    os.ftruncate(file, 0)  # of the flood before
                senders += 1
                watched.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            sender = key.fileobj
            assert isinstance(sender, socket.socket)
            taken = sender.recv_into(room)
            if taken:
                os.write(file, room[:taken])
            else:
                senders -= 1
                watched.unregister(sender)
                sender.sendall(b"\n")
                sender.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
