"""An agent that talks at a steady pace until it is told otherwise, and times every call.

Owns: the pace, the reins by which it is led, the times its calls took. Refuses: what is
acknowledged being true (`kernel.judge`).

Like the agents of `kernel.load` it notes every ack as it is read off the socket. It is led by
shared memory: no file, no socket, nothing that a server that is away could hold up.
"""

from __future__ import annotations

import math
import mmap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import walld_client
from kernel import load, words
from kernel.board import TOKENS_MAX, Board
from kernel.processes import Agent

__all__ = ["END", "HUSH", "RELEASE", "TALK", "Pace", "PacedAgent", "Reins", "named", "percentile"]

TALK: Final = 0
HUSH: Final = 1
END: Final = 2
"""End every reply, and know all of it synced."""
RELEASE: Final = 3
"""The same, and release the first."""
_TIMES_MAX: Final = 1 << 16
_DRAIN_SECONDS: Final = 0.3
_LOOK_SECONDS: Final = 0.01


@dataclass(frozen=True)
class Pace:
    """tokens_per_second: of each stream. drains_every: tokens between two waits; 0 is never."""

    streams: int = 1
    tokens_per_second: float = 20.0
    drains_every: int = 0
    drain_level: str = "synced"
    drain_seconds: float = _DRAIN_SECONDS


class Reins:
    """What an agent is told, and how long its calls took: token(), and drain() beyond its time."""

    def __init__(self) -> None:
        self._words = memoryview(mmap.mmap(-1, 8 * 4)).cast("q")
        self._times = memoryview(mmap.mmap(-1, 8 * _TIMES_MAX)).cast("d")

    @property
    def wish(self) -> int:
        return self._words[0]

    @wish.setter
    def wish(self, wish: int) -> None:
        self._words[0] = wish

    @property
    def is_quiet(self) -> bool:
        """It has heard HUSH."""
        return self._words[2] == HUSH

    def heard(self, wish: int) -> None:
        self._words[2] = wish

    def took(self, seconds: float) -> None:
        at = self._words[1]
        if at < _TIMES_MAX:
            self._times[at] = seconds
            self._words[1] = at + 1

    def overstayed(self, seconds: float) -> None:
        """A drain came back that much later than asked for."""
        self._words[3] = max(self._words[3], int(seconds * 1e9))

    @property
    def drain_late_seconds(self) -> float:
        return self._words[3] / 1e9

    def times(self, first: int = 0) -> list[float]:
        """Of all calls of token() since the `first`, shortest first."""
        return sorted(self._times[first : self._words[1]].tolist())

    @property
    def calls(self) -> int:
        return self._words[1]


class PacedAgent(Agent):
    """A process of its own."""

    def __init__(self, folder: Path, socket_path: str, name: str, pace: Pace) -> None:
        self.name = name
        self.board = board = Board()
        self.log = folder / "agents.log"
        self.reins = reins = Reins()
        # Not Agent's own start: another load, the same process.
        super(Agent, self).__init__(lambda: _talk(socket_path, name, board, reins, pace), self.log)

    @property
    def synced(self) -> list[int]:
        """What was acknowledged as synced, by stream."""
        return [self.board.row(at).synced for at in range(self.board.streams)]

    @property
    def said(self) -> list[int]:
        return [self.board.row(at).tried for at in range(self.board.streams)]

    @property
    def is_all_synced(self) -> bool:
        return bool(self.said) and all(
            synced >= said for synced, said in zip(self.synced, self.said, strict=True)
        )


def named(prefix: str, bytes_min: int, bytes_max: int) -> str:
    """A name whose first stream says tokens of about that size (`kernel.words`)."""
    for number in range(10_000):
        name = f"{prefix}{number}"
        if bytes_min <= len(words.spoken(f"{name}.0", 100)) <= bytes_max:
            return name
    raise AssertionError(f"no stream says {bytes_min} to {bytes_max} bytes a token")


def _talk(socket_path: str, name: str, board: Board, reins: Reins, pace: Pace) -> None:
    load._listen_in(board)
    client = walld_client.connect(socket_path, timeout=5.0)
    replies = []
    for at in range(pace.streams):
        assert board.begin() == at
        stream_id = f"{name}.{at}"
        replies.append(client.reply(f"session {name}", stream_id=stream_id, auto_release=False))
    seq, due = 0, time.monotonic()
    while reins.wish < END:
        reins.heard(reins.wish)
        if reins.wish == HUSH or seq + 3 >= TOKENS_MAX:
            _note(replies, board)
            due = time.monotonic()
            time.sleep(_LOOK_SECONDS)
            continue
        seq += 1
        for at, reply in enumerate(replies):
            _token(reply, at, seq, board, reins, words.spoken(f"{name}.{at}", seq))
        if pace.drains_every and seq % pace.drains_every == 0:
            _drain(replies[0], seq, board, reins, pace)
        _note(replies, board)
        due = max(due + 1 / pace.tokens_per_second, time.monotonic() - 0.2)
        time.sleep(max(0.0, due - time.monotonic()))
    releases = reins.wish == RELEASE
    for at, reply in enumerate(replies):
        board.put(at, "tried", seq + 1)
        board.put(at, "ended", seq + 1)
        reply.end("stop")
        if releases and at == 0:
            board.put(at, "tried", seq + 2)
            board.put(at, "released", seq + 2)
            reply.release()
    while not all(reply.drain(1.0, "synced") for reply in replies):
        _note(replies, board)
    board.finish()
    while True:
        _note(replies, board)
        time.sleep(_LOOK_SECONDS)


def _token(reply: Any, at: int, seq: int, board: Board, reins: Reins, text: str) -> None:
    board.put(at, "tokens", seq)
    board.put(at, "tried", seq)
    begun = time.monotonic()
    number = reply.token(text)
    reins.took(time.monotonic() - begun)
    if number != seq:
        board.fail()


def _drain(reply: Any, seq: int, board: Board, reins: Reins, pace: Pace) -> None:
    begun = time.monotonic()
    if reply.drain(pace.drain_seconds, pace.drain_level):
        board.told(0, seq, seq if pace.drain_level == "synced" else -1)
    reins.overstayed(time.monotonic() - begun - pace.drain_seconds)


def _note(replies: list[Any], board: Board) -> None:
    """`durable_seq` reads what the daemon has said meanwhile; it never runs ahead of the words."""
    for at, reply in enumerate(replies):
        if reply.durable_seq > board.row(at).tried:
            board.fail()


def percentile(times: list[float], share: float) -> float:
    """Of sorted times."""
    return times[min(len(times) - 1, math.ceil(share * len(times)) - 1)] if times else 0.0
