"""An agent that streams until it is killed, or told to stop.

    python -m bench.load.doomed PEER HOME WRITE_MS

Owns: 20 streams of 60 tokens a second, each token given to a peer (`bench.peers`) by its call, and
a count of what the peer took that outlives this process. walld's streams are 20 replies; a rival's
share its one session. A call that fails is counted and not made again: what the agent says next is
the next token. Begins at a line on stdin; told to stop by the board, it waits until walld has
written all that it said, which counts as taken then. WRITE_MS: so much longer takes each write that
the agent makes itself; a daemon's writes are the daemon's. Refuses: judging what is found later.
"""

from __future__ import annotations

import mmap
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from walld_client import connect

from bench.peers.by_hand import JsonLines, QueueAndThread
from bench.peers.known import PEERS
from bench.peers.peer import Peer

__all__ = ["RATE", "STREAMS", "TEXT", "Board", "main", "stream_id"]

STREAMS, RATE = 20, 60
TEXT = "walls "
_PATIENCE_SECONDS = 30.0


def stream_id(number: int) -> str:
    """Of walld's reply of that number, from 0."""
    return f"doomed-{number}"


class Board:
    """Numbers that are shared with the bench, in a file: a process that is killed leaves them."""

    def __init__(self, home: Path) -> None:
        path = home / "board"
        size = 8 * (3 + STREAMS)
        if not path.exists():
            path.write_bytes(bytes(size))
        with path.open("r+b") as file:
            self._slots = memoryview(mmap.mmap(file.fileno(), size)).cast("Q")

    @property
    def stopping(self) -> bool:
        """The agent is to end."""
        return self._slots[0] != 0

    def stop(self) -> None:
        """From here on."""
        self._slots[0] = 1

    @property
    def failed(self) -> int:
        """Calls that raised."""
        return self._slots[1]

    def fail(self) -> None:
        """One more."""
        self._slots[1] += 1

    @property
    def longest_seconds(self) -> float:
        """Of all calls."""
        return self._slots[2] / 1e9

    def lasted(self, nanoseconds: int) -> None:
        """A call."""
        if nanoseconds > self._slots[2]:
            self._slots[2] = nanoseconds

    @property
    def taken(self) -> int:
        """Tokens: of walld those that the kernel took, else those whose call returned."""
        return sum(self._slots[3:])

    def take(self, stream: int, count: int) -> None:
        """So many of one stream by now."""
        self._slots[3 + stream] = count


_Say = Callable[[int], int]
"""A token on a stream of that number: how many of it are taken by now."""


@contextmanager
def _replies(home: Path, board: Board) -> Iterator[_Say]:
    client = connect(socket=str(home / "s"), timeout=_PATIENCE_SECONDS)
    replies = [
        client.reply(stream_id(at), stream_id=stream_id(at), auto_release=False)
        for at in range(STREAMS)
    ]

    def say(stream: int) -> int:
        said[stream] = replies[stream].token(TEXT)  # its Start is 0, so this is how many tokens
        sent[stream] = max(sent[stream], replies[stream].sent_seq)
        return sent[stream]

    said, sent = [0] * STREAMS, [0] * STREAMS
    yield say
    for at, reply in enumerate(replies):
        if not reply.drain(_PATIENCE_SECONDS):
            raise RuntimeError(f"not written: {client.stats()}")
        board.take(at, said[at])
    client.close()


def _stream(say: _Say, board: Board) -> None:
    """Until told to stop."""
    clock = time.perf_counter_ns
    begun, ticks = time.perf_counter(), 0
    while not board.stopping:
        for stream in range(STREAMS):
            before = clock()
            try:
                board.take(stream, say(stream))
            except Exception:  # a rival's, whatever it is: its server is gone
                board.fail()
            board.lasted(clock() - before)
        ticks += 1
        time.sleep(max(0.0, begun + ticks / RATE - time.perf_counter()))


def _peer(key: str, write_ms: str) -> Peer:
    write_seconds = float(write_ms) / 1000
    if not write_seconds:
        return PEERS[key]()
    if key == "queue":
        return QueueAndThread(write_seconds)
    assert key == "json", "no other rival writes by itself here"
    return JsonLines(fsync=False, write_seconds=write_seconds)


def main(key: str, folder: str, write_ms: str) -> None:
    """Until killed or stopped."""
    home = Path(folder)
    board = Board(home)

    def work(say: _Say) -> None:
        for stream in range(STREAMS):
            board.take(stream, say(stream))  # the first makes connections and caches
        print("ready", flush=True)
        sys.stdin.readline()
        _stream(say, board)

    if key == "walld":
        with _replies(home, board) as say:
            work(say)
        return
    counts = [0] * STREAMS

    def speak(append: Callable[[str], object]) -> None:
        def say(stream: int) -> int:
            append(TEXT)
            counts[stream] += 1
            return counts[stream]

        work(say)

    _peer(key, write_ms).speak(home, speak)


if __name__ == "__main__":
    main(*sys.argv[1:])
