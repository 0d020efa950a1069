"""Everything at once into a peer that takes events without an answer to each in between.

    python -m bench.peers.pouring PEER HOME EVENTS CONNS

Owns: frames encoded beforehand, non-blocking sends of at most 64 KiB, counting the answers, as
`bench.load.flood` does it for walld. Says on stdout, as JSON, how long it took from the first byte
to the last answer. Refuses: what the server made of it, which is counted there.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from walld_client.limits import FOLD_AFTER_EVENTS

from bench.peers.jetstream import JetStream
from bench.peers.peer import Pipe, Pipelined
from bench.peers.redis_streams import RedisStreams
from bench.peers.wall import Wall

__all__ = ["POURED", "TOGETHER"]

TOGETHER = FOLD_AFTER_EVENTS
"""Tokens of a message of those that are given many at once: as many as walld's client folds."""

POURED: dict[str, Callable[[], Pipelined]] = {
    "redis": lambda: RedisStreams("everysec"),
    "jetstream": JetStream,
    "redis-together": lambda: RedisStreams("everysec", TOGETHER),
    "jetstream-together": lambda: JetStream(TOGETHER),
    "wall": Wall,
}
"""Those that have such a form."""
_SLICE_BYTES = 64 * 1024


class _Poured:
    """One connection: what is sent, what is answered."""

    def __init__(self, pipe: Pipe, messages: int) -> None:
        self.pipe = pipe
        self._bytes = len(pipe.event) * messages
        self._slice = memoryview(pipe.event * (2 * _SLICE_BYTES // len(pipe.event)))
        self._sent = 0
        self._lines = 0
        self._lines_wanted = pipe.lines * messages if pipe.lines else 1
        pipe.socket.setblocking(False)

    def _may_send(self) -> int:
        if not self.pipe.lines:
            return self._bytes - self._sent
        answered = self._lines // self.pipe.lines
        most = min((answered + self.pipe.window) * len(self.pipe.event), self._bytes)
        return most - self._sent

    def send(self) -> bool:
        """Whether there is nothing more that it may send now."""
        size = min(_SLICE_BYTES, self._may_send())
        if size <= 0:
            return True
        at = self._sent % len(self.pipe.event)
        try:
            self._sent += self.pipe.socket.send(self._slice[at : at + size])
        except BlockingIOError:
            return False
        if self._sent == self._bytes and not self.pipe.lines:
            self.pipe.socket.shutdown(socket.SHUT_WR)
        return self._may_send() <= 0

    def hear(self) -> bool:
        """Whether all is answered."""
        said = self.pipe.socket.recv(1 << 18)
        if not said:
            raise ConnectionError("the server closed the connection")
        self._lines += said.count(b"\n")
        return self._lines >= self._lines_wanted


def main(key: str, home: str, events: str, conns: str) -> None:
    """One flood."""
    peer = POURED[key]()
    watched = selectors.EpollSelector()
    pipes = [peer.pipe(Path(home), at) for at in range(int(conns))]
    each = int(events) // len(pipes) // pipes[0].tokens
    poured = [_Poured(pipe, each) for pipe in pipes]
    both = selectors.EVENT_READ | selectors.EVENT_WRITE
    for one in poured:
        watched.register(one.pipe.socket, both, one)
    left = len(poured)
    begun = time.perf_counter()
    while left:
        for chosen, ready in watched.select():
            one = chosen.data
            if ready & selectors.EVENT_READ and one.hear():
                watched.unregister(one.pipe.socket)
                left -= 1
                continue
            waits = bool(ready & selectors.EVENT_WRITE) and one.send()
            if waits == bool(chosen.events & selectors.EVENT_WRITE):
                watched.modify(one.pipe.socket, selectors.EVENT_READ if waits else both, one)
    took = time.perf_counter() - begun
    messages, pipe = each * len(pipes), pipes[0]
    said = {"events": messages * pipe.tokens, "bytes": messages * len(pipe.event)}
    print(json.dumps(said | {"seconds": took}))


if __name__ == "__main__":
    main(*sys.argv[1:])
