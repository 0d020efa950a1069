"""Sessions that are appended to: one connection each, the next entry when the last is answered.

    python -m bench.load.appenders SOCKET SECONDS SESSIONS submit|append

Owns: entries as an application gives them, and how many a second are answered. Says so on stdout,
as JSON. Refuses: what it means.
"""

from __future__ import annotations

import itertools
import json
import os
import selectors
import sys
import time
from collections.abc import Callable, Iterator

import msgspec
from walld_client.ids import new_entry_id
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode

from bench.daemon import Daemon, Peer
from bench.report.numbers import quantile

__all__ = ["Log", "appending", "entry", "message", "payloads", "submission", "taking_turns"]

_SIZES = (23, 26, 113, 176, 203, 253, 426, 490, 520, 535, 582, 620, 684, 771, 873, 980, 1167, 1490,
          2081, 3313)  # fmt: skip
"""Bytes of a payload: the middles of the twentieths of 1,019 entries of one long session of a
coding agent, whose largest (49 KB) are not among them."""
_USUAL_BYTES = 300


def payloads() -> Iterator[bytes]:
    """Payloads of a session as sessions are, for ever: small and large ones mixed, always alike."""
    for at in itertools.count(1):
        yield message(_SIZES[at * 7 % len(_SIZES)])


def message(size: int) -> bytes:
    """A message's payload of so many bytes, or of the few that it takes at least."""
    begin, end = b'{"role":"user","content":"', b'"}'
    return begin + b"walls " * ((size - len(begin) - len(end)) // 6) + end


def entry(payload: bytes) -> wire.NewEntry:
    """A message as the client appends it."""
    return wire.NewEntry("message", payload, new_entry_id())


def submission() -> wire.NewEntry:
    """A turn as the client submits it."""
    turn_id, message_id = new_entry_id(), new_entry_id()
    content = "walls " * (_USUAL_BYTES // 6)
    payload = json.dumps({"message_id": message_id, "content": content}).encode()
    return wire.NewEntry(
        "turn_submitted", payload, turn_id, turn=turn_id, key=message_id, once=True
    )


class Log:
    """A session by raw requests: what is measured is the daemon, not the client."""

    def __init__(self, peer: Peer, session_id: str) -> None:
        self.peer = peer
        self.session_id = session_id
        self._asked = 0

    def append(self, *entries: wire.NewEntry, level: str = "written") -> bytes:
        """One request, answered."""
        self._asked += 1
        request = wire.Append(self._asked, self.session_id, list(entries), level=level)
        return self.peer.ask(request)

    def grow(self, given: Iterator[bytes], count: int, at_once: int = 50) -> None:
        """So many messages more."""
        for first in range(0, count, at_once):
            some = min(at_once, count - first)
            self.append(*(entry(next(given)) for _ in range(some)))


def appending(daemon: Daemon, seconds: float, sessions: int, kind: str) -> list[str]:
    """The command of this module, which gives way to whatever else is on its core."""
    command = ["nice", "-n", "10", sys.executable, "-m", "bench.load.appenders"]
    return [*command, daemon.socket_path, str(seconds), str(sessions), kind]


def _frame(name: str, asked: int, kind: str) -> bytes:
    made = submission() if kind == "submit" else entry(message(_USUAL_BYTES))
    level = "synced" if kind == "submit" else "written"
    return encode(wire.Append(asked, name, [made], level=level))


def taking_turns(
    peers: list[Peer], seconds: float, told: type[msgspec.Struct], said: Callable[[int, int], bytes]
) -> str:
    """Each says something, is told, and says the next. How many were told, as JSON.

    said: what the peer of that place says the nth time, from 1 on. told: what it hears then.
    """
    asking = selectors.EpollSelector()
    begun_at, count = [0.0] * len(peers), [1] * len(peers)
    took: list[float] = []
    clock = time.perf_counter
    begun = clock()
    for at, peer in enumerate(peers):
        asking.register(peer.socket, selectors.EVENT_READ, at)
        begun_at[at] = clock()
        peer.socket.sendall(said(at, 1))
    waiting = len(peers)
    while waiting:
        for key, _ in asking.select():
            at = key.data
            peers[at].hear(told)
            now = clock()
            took.append(now - begun_at[at])
            if now < begun + seconds:
                begun_at[at] = now
                count[at] += 1
                peers[at].socket.sendall(said(at, count[at]))
            else:
                waiting -= 1
    spent = clock() - begun
    for peer in peers:
        peer.socket.close()
    return json.dumps({
        "answered": len(took), "seconds": spent, "p50_ms": quantile(took, 0.5) * 1000,
        "p99_ms": quantile(took, 0.99) * 1000,
    })  # fmt: skip


def main(path: str, seconds: str, sessions: str, kind: str) -> None:
    """Each asks, is answered and asks again."""
    peers = [Peer(path, "query") for _ in range(int(sessions))]
    folder = os.urandom(4).hex()

    def said(at: int, asked: int) -> bytes:
        return _frame(f"{folder}-{at}", asked, kind)

    print(taking_turns(peers, float(seconds), wire.Answer, said))


if __name__ == "__main__":
    main(*sys.argv[1:])
