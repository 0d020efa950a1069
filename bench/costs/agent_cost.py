"""What does recording a token cost the agent?

Three ratios, each of rivals that take turns, tick by tick, in one process. A tick is what an agent
does when a token comes: it has slept, it parses a line of a provider's stream, then the rival whose
turn it is records the text, and that alone is measured.
- token() to a bare non-blocking send of a frame of the same length to the same daemon (p50), paced
  at 500 and at 60 a second;
- token() to Queue.put with a writer thread in the same process (p99.9, the median of five blocks'
  own; p99 where there are fewer than 20,000 calls of one of them, as in `peers`);
- with WALLD_ENABLED=0, a step of an agent (parse a line of a stream, keep its text) with and
  without the call, by the medians of blocks of both. The call is within noise where the differences
  of such pairs may as well lie around 0 (`paired.py`); how single steps differ would hide any call.

The cost of reading the clock is measured in between and taken off where it is a send that token()
is held against; a tail is hundreds of times as long.
"""

from __future__ import annotations

import json
import os
import queue
import random
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from walld_client import connect
from walld_client.encoding import event_frames
from walld_client.reply.reply import Reply
from walld_client.wire import messages as wire

from bench.daemon import Daemon, Peer
from bench.report.numbers import (
    TAIL_CALLS_LEAST,
    blocks,
    crosses,
    interval,
    median,
    quantile,
    ratio,
    spread,
)
from bench.report.paired import later
from bench.report.table import Figure
from bench.run import Run

__all__ = ["measure"]

_TEXT = "walls"
_BLOCKS = 5
_SEEN_NS = 1000.0
"""A call that is switched off and takes this much must not pass for noise."""
_LINE = json.dumps(
    {
        "id": "chatcmpl-7a1", "object": "chat.completion.chunk", "created": 1750000000,
        "choices": [{"index": 0, "delta": {"content": _TEXT}, "finish_reason": None}],
    }
)  # fmt: skip


def _next_text(said: list[str]) -> str:
    """What an agent does before it records a token: parse a line, keep its text."""
    text: str = json.loads(_LINE)["choices"][0]["delta"]["content"]
    said.append(text)
    return text


def _paced(rate: float, seconds: float, run: Run, at: float, what: str) -> Callable[[], bool]:
    """Waits for the next tick; False once the time is over."""
    begun = time.perf_counter()
    ticks = 0
    told = begun

    def wait() -> bool:
        nonlocal ticks, told
        ticks += 1
        now = time.perf_counter()
        if now - told > 1:
            told = now
            run.step(at + (now - begun) / seconds / 5, what)
            now = time.perf_counter()
        due = begun + ticks / rate
        if due > now:
            time.sleep(due - now)
        return due < begun + seconds

    return wait


class _Bare:
    """The rival's connection: to the same daemon, its frames made beforehand."""

    def __init__(self, daemon: Daemon, tokens: int) -> None:
        self.peer = daemon.agent()
        self.peer.send(wire.Start(1, 0, os.urandom(8).hex(), "bare"))
        prefix = event_frames.text_prefix(event_frames.TOKEN, 1)
        self.frames = iter(
            [event_frames.plain_text(prefix, seq, _TEXT.encode()) for seq in range(1, tokens + 1)]
        )
        self.peer.socket.setblocking(False)

    def hear(self) -> None:
        """Acks, so that they do not pile up."""
        with suppress(BlockingIOError):
            self.peer.socket.recv(1 << 18)


def _against_send(
    run: Run, daemon: Daemon, reply: Reply, rate: float, seconds: float, at: float
) -> tuple[list[int], list[int], list[int]]:
    """ns of token(), of a bare send, and of nothing, in turns. Each tick is one of them."""
    bare = _Bare(daemon, int(rate * seconds) + 2)
    # By name and in the loop: a call more would hide a part of the difference.
    send, clock = bare.peer.socket, time.perf_counter_ns
    said: list[str] = []
    tokens: list[int] = []
    sends: list[int] = []
    nothing: list[int] = []
    wait = _paced(rate, seconds, run, at, f"token() against send() at {rate:.0f}/s")
    chance = random.Random(3)
    while wait():
        text = _next_text(said)
        turn = chance.randrange(3)
        if turn == 0:
            begun = clock()
            reply.token(text)
            tokens.append(clock() - begun)
        elif turn == 1:
            frame = next(bare.frames)
            begun = clock()
            send.send(frame)
            sends.append(clock() - begun)
        else:
            begun = clock()
            nothing.append(clock() - begun)
            bare.hear()
    bare.peer.socket.close()
    return tokens, sends, nothing


def _against_queue(run: Run, reply: Reply, seconds: float, at: float) -> list[list[list[int]]]:
    """Blocks of [ns of token(), ns of Queue.put]. The writer thread writes to a file."""
    waiting: queue.Queue[bytes | None] = queue.Queue()
    with tempfile.TemporaryFile(dir=run.folder) as file:

        def write() -> None:
            while (item := waiting.get()) is not None:
                os.write(file.fileno(), item)

        writer = threading.Thread(target=write)
        writer.start()
        payload, clock = _TEXT.encode() + bytes(19), time.perf_counter_ns
        said: list[str] = []
        blocks = []
        chance = random.Random(4)
        for block in range(_BLOCKS):
            tokens: list[int] = []
            puts: list[int] = []
            share = seconds / _BLOCKS
            wait = _paced(1000, share, run, at + block / 5 / _BLOCKS, "token() against Queue.put")
            while wait():
                text = _next_text(said)
                if chance.randrange(2):
                    begun = clock()
                    reply.token(text)
                    tokens.append(clock() - begun)
                else:
                    begun = clock()
                    waiting.put(payload)
                    puts.append(clock() - begun)
            blocks.append([tokens, puts])
        waiting.put(None)
        writer.join()
    return blocks


def _switched_off(run: Run, seconds: float, at: float) -> tuple[list[int], list[int]]:
    """ns of an agent's step without the call, and with it, WALLD_ENABLED=0."""
    os.environ["WALLD_ENABLED"] = "0"
    try:
        client = connect()
    finally:
        del os.environ["WALLD_ENABLED"]
    reply = client.reply("bench")
    without: list[int] = []
    with_call: list[int] = []
    said: list[str] = []
    clock, parse, line = time.perf_counter_ns, json.loads, _LINE
    wait = _paced(500, seconds, run, at, "WALLD_ENABLED=0 against no call")
    chance = random.Random(5)
    while wait():
        if chance.randrange(2):
            begun = clock()
            text = parse(line)["choices"][0]["delta"]["content"]
            said.append(text)
            without.append(clock() - begun)
        else:
            begun = clock()
            text = parse(line)["choices"][0]["delta"]["content"]
            said.append(text)
            reply.token(text)
            with_call.append(clock() - begun)
    client.close()
    return without, with_call


def _send_figures(rate: int, measured: tuple[list[int], list[int], list[int]]) -> list[Figure]:
    tokens, sends, nothing = measured
    clock = median(nothing)
    ours, bare = ([ns - clock for ns in took] for took in (tokens, sends))
    overall, ratios = ratio(ours, bare, _BLOCKS)
    name = f"token() to a bare send(), p50, {rate}/s"
    return [
        Figure("agent_cost", name, overall, "x", 1.8, spread=spread(ratios),
               note=f"{name}: limited by what Python pays beside the system call"),
        Figure("agent_cost", f"token(), p50, {rate}/s", median(ours) / 1000, "us"),
        Figure("agent_cost", f"bare send(), p50, {rate}/s", median(bare) / 1000, "us"),
    ]  # fmt: skip


def _queue_figures(blocks: list[list[list[int]]]) -> list[Figure]:
    calls = min(sum(len(block[of]) for block in blocks) for of in (0, 1))
    tail, share = ("p99.9", 0.999) if calls >= TAIL_CALLS_LEAST else ("p99", 0.99)
    tokens, puts = ([quantile(block[of], share) / 1000 for block in blocks] for of in (0, 1))
    ratios = [token / put for token, put in zip(tokens, puts, strict=True)]
    within, middles = interval(ratios), [median(one) / median(other) for one, other in blocks]
    name = "token() to Queue.put with a writer thread"
    return [
        Figure("agent_cost", f"{name}, {tail}", median(ratios), "x", 1.0, spread=within,
               undecided=crosses(within, 1.0, most=True),
               note=f"{name}: {tail} of each fifth of {calls:,} calls or more"),
        Figure("agent_cost", f"{name}, p50", median(middles), "x", spread=spread(middles)),
        Figure("agent_cost", f"token(), {tail}, 1000/s", median(tokens), "us",
               spread=spread(tokens)),
        Figure("agent_cost", f"Queue.put, {tail}, 1000/s", median(puts), "us",
               spread=spread(puts)),
    ]  # fmt: skip


def _off_figures(without: list[int], with_call: list[int], pairs: int) -> list[Figure]:
    ours, bare = ([median(ns) for ns in blocks(one, pairs)] for one in (with_call, without))
    return [
        later("agent_cost", "WALLD_ENABLED=0: longer with the call", "ns", ours, bare, _SEEN_NS),
        Figure("agent_cost", "WALLD_ENABLED=0: a step without the call", median(bare) / 1000, "us",
               spread=spread([ns / 1000 for ns in bare])),
    ]  # fmt: skip


def _warm(reply: Reply, peer: Peer) -> None:
    """The first calls make connections and caches."""
    for _ in range(300):
        reply.token(_TEXT)
    peer.socket.close()


def measure(run: Run) -> list[Figure]:
    """All three."""
    run.folder.mkdir(parents=True, exist_ok=True)
    fast, slow, tail, off = (run.pick(20, 2), run.pick(20, 3), run.pick(45, 3), run.pick(8, 1))
    figures = []
    with run.daemon() as daemon:
        client = connect(socket=daemon.socket_path)
        try:
            reply = client.reply("bench")
            _warm(reply, daemon.agent())
            figures += _send_figures(500, _against_send(run, daemon, reply, 500, fast, 0.0))
            figures += _send_figures(60, _against_send(run, daemon, reply, 60, slow, 0.2))
            figures += _queue_figures(_against_queue(run, reply, tail, 0.4))
            reply.drain(10.0)
            stats = client.stats()
            assert stats.dropped == stats.backlog == 0, stats
            reply.end()
        finally:
            client.close()
    figures += _off_figures(*_switched_off(run, off, 0.8), int(run.pick(20, 8)))
    return figures
