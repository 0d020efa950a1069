"""An agent under a loop: the real client, which streams, asks how far it is, ends and releases.

Owns: what it does, drawn from a seed, and its notes on the board. Refuses: being killed
(`processes.py`).

The acks are noted as the client reads them off the socket, number by number, so the board holds
what the daemon said and not what the client made of it.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from random import Random
from typing import Any

import walld_client
from walld_client.link.ack_handler import AckHandler
from walld_client.reply.reply import Reply
from walld_client.wire.messages import Ack

from . import words
from .board import STREAMS_MAX, TOKENS_MAX, Board

__all__ = ["Habits", "stream"]

_LOOK_SECONDS = 0.002


@dataclass(frozen=True)
class Habits:
    """levels: what it drains to, drawn each time. drains: how often a burst ends with one."""

    levels: tuple[str, ...] = ("synced", "synced", "written")
    drains: float = 0.4
    streams: int = STREAMS_MAX
    bursts: int = 12
    releases: bool = True
    patience_seconds: float = 30.0


@dataclass
class _Open:
    """A reply that goes on."""

    reply: Reply
    at: int
    stream_id: str
    seq: int = 0
    bursts_left: int = 0


def stream(socket_path: str, name: str, seed: int, board: Board, habits: Habits) -> None:
    """Say all of it, know all of it synced, and then listen until it is killed."""
    random = Random(f"load {seed} {name}")
    _listen_in(board)
    client = walld_client.connect(socket_path, timeout=habits.patience_seconds)
    kept: list[_Open] = []  # a reply that is let go of is ended by the client
    still_open: list[_Open] = []
    while len(kept) < habits.streams or still_open:
        if len(kept) < habits.streams and (not still_open or random.random() < 0.1):
            kept.append(_begin(client, name, board, random, habits))
            still_open.append(kept[-1])
        chosen = random.choice(still_open)
        if chosen.bursts_left:
            _burst(chosen, random, board, habits)
        else:
            still_open.remove(chosen)
            _end(chosen, random, board, habits)
        _note_sent(client, kept, board)
        time.sleep(random.choice((0.0, 0.0, 0.0005, 0.003)))
    while not kept[-1].reply.drain(habits.patience_seconds, "synced"):
        pass
    board.finish()
    while True:
        _note_sent(client, kept, board)
        assert kept[-1].reply.durable_seq <= board.row(kept[-1].at).tried
        time.sleep(_LOOK_SECONDS)


def _listen_in(board: Board) -> None:
    """Note every ack. Of this process alone: it was forked for one agent."""
    heard = AckHandler._acked

    def acked(acks: AckHandler, ack: Ack) -> None:
        for number, written, synced in ack.streams:
            board.told(number - 1, written, synced)
        heard(acks, ack)

    AckHandler._acked = acked  # type: ignore[method-assign, assignment]


def _begin(client: Any, name: str, board: Board, random: Random, habits: Habits) -> _Open:
    at = board.begin()
    stream_id = f"{name}.{at}"
    reply = client.reply(f"session {name}", stream_id=stream_id, auto_release=False)
    assert reply._stream.number == at + 1, "a process numbers its streams from 1"
    return _Open(reply, at, stream_id, bursts_left=random.randrange(1, habits.bursts))


def _note_sent(client: Any, kept: list[_Open], board: Board) -> None:
    """What the kernel has of every reply, all for the same daemon, and which one that is."""
    before = _peer(client)
    for one in kept:
        board.put(one.at, "sent", max(0, one.reply.sent_seq))
    board.put_peer(before if _peer(client) == before else 0)


def _peer(client: Any) -> int:
    """Pid of the daemon at the other end; 0 without one."""
    connection = client._link._socket
    try:
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    except (AttributeError, OSError):
        return 0
    pid: int = struct.unpack("iII", found)[0]
    return pid


def _burst(chosen: _Open, random: Random, board: Board, habits: Habits) -> None:
    """Some tokens, and perhaps a wait for what was said so far."""
    chosen.bursts_left -= 1
    reply, at = chosen.reply, chosen.at
    for _ in range(random.choice((1, 2, 5, 30))):
        if chosen.seq + 1 >= TOKENS_MAX:
            break
        chosen.seq += 1
        text = words.spoken(chosen.stream_id, chosen.seq)
        board.put(at, "tokens", chosen.seq)
        board.put(at, "tried", chosen.seq)
        now = time.monotonic()
        board.sent_at(at, chosen.seq, now)
        if reply.token(text) != chosen.seq:
            board.fail()
        board.took(time.monotonic() - now)
    if not board.is_told() or random.random() < habits.drains:
        level = random.choice(habits.levels) if board.is_told() else "synced"
        if reply.drain(habits.patience_seconds, level):
            board.told(at, chosen.seq, chosen.seq if level == "synced" else -1)
    elif reply.durable_seq > chosen.seq:
        board.fail()


def _end(chosen: _Open, random: Random, board: Board, habits: Habits) -> None:
    """One of the ways a reply ends, or none."""
    reply, at = chosen.reply, chosen.at
    ending = random.choice(("release", "release", "keep", "cancel", "silent"))
    if ending == "silent":
        return
    last = chosen.seq + 1
    board.put(at, "tried", last)
    board.put(at, "ended", last)
    if ending == "cancel":
        reply.cancel("stopped")
    else:
        reply.end("stop")
    if ending == "release" and habits.releases:
        board.put(at, "tried", last + 1)
        board.put(at, "released", last + 1)
        reply.release()
