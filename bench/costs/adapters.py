"""What does an adapter add to a chunk?

A stream of text of each wire, one event a chunk as providers send them, into a reply of a real
daemon: the time a chunk is recorded in, which is what the hooks on bytes add, but for the step of a
generator. Beside it, where openai and anthropic are installed, `tee` on the objects that they make.
Whole answers of 256 tokens, one after the other, as fast as they go; the first event of each, which
opens the reply, and the last one, which ends it, are in it.

The cost of reading the clock is measured in between and taken off.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from walld_client import connect
from walld_client.adapters import tee
from walld_client.adapters.frameworks.recording import Opener, Recording
from walld_client.adapters.wires.body import Body
from walld_client.client import Client

from bench.report.numbers import median, quantile, spread
from bench.report.table import Figure
from bench.run import Run

__all__ = ["measure"]

_TOKENS = 256
_GOAL_MICROSECONDS = 10.0


def _chat() -> list[dict[str, Any]]:
    about = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}

    def chunk(delta: dict[str, str], reason: str | None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**about, "service_tier": "default", "choices": [choice], "usage": None}

    said = [chunk({"content": f" word{at}"}, None) for at in range(_TOKENS)]
    return [chunk({"role": "assistant", "content": ""}, None), *said, chunk({}, "stop")]


def _responses() -> list[dict[str, Any]]:
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "logprobs": []}
    response = {"id": "resp_1", "object": "response", "status": "in_progress", "model": "m"}
    said = [
        {
            "type": "response.output_text.delta",
            "sequence_number": number,
            "delta": f" word{number}",
            "obfuscation": "x1y2z3",
            **at,
        }
        for number in range(1, _TOKENS + 1)
    ]
    created = {"type": "response.created", "sequence_number": 0, "response": response}
    done = {"type": "response.completed", "sequence_number": 999, "response": response}
    return [created, *said, done]


def _messages() -> list[dict[str, Any]]:
    def delta(text: str) -> dict[str, Any]:
        inner = {"type": "text_delta", "text": text}
        return {"type": "content_block_delta", "index": 0, "delta": inner}

    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
    said = [delta(f" word{at}") for at in range(_TOKENS)]
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *said,
        {"type": "message_stop"},
    ]


_WIRES: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "OpenAI Chat": _chat,
    "OpenAI Responses": _responses,
    "Anthropic Messages": _messages,
}


def _chunks(events: list[dict[str, Any]]) -> list[bytes]:
    named = [(f"event: {event['type']}\n" if "type" in event else "").encode() for event in events]
    return [
        name + b"data: " + json.dumps(event).encode() + b"\n\n"
        for name, event in zip(named, events, strict=True)
    ]


def _of_bytes(client: Client, chunks: list[bytes]) -> Iterator[float]:
    """Seconds of each chunk of one answer."""
    opener = Opener(client, "bench", auto_release=True)
    recording = Recording(opener=opener.open)
    clock = time.perf_counter
    for chunk in chunks:
        begun = clock()
        recording.chunk(chunk)
        took = clock() - begun
        yield took - (clock() - begun - took)


def _of_objects(client: Client, items: list[Any]) -> Iterator[float]:
    """Seconds that a tee adds to each object of one answer."""
    reply = client.reply("bench")
    clock = time.perf_counter
    bare = iter(items)
    yield from _beyond(tee(items, reply), clock, bare)
    if reply.sent_seq < _TOKENS:
        raise RuntimeError(f"{_TOKENS} tokens were to be recorded, {reply.sent_seq} were")
    reply.end()


def _beyond(stream: Any, clock: Callable[[], float], bare: Iterator[Any]) -> Iterator[float]:
    """Seconds of `next` on the tee beyond those on the list beneath it."""
    while True:
        begun = clock()
        if next(stream, None) is None:
            return
        took = clock() - begun
        begun = clock()
        next(bare)
        yield took - (clock() - begun)


def _objects(name: str, events: list[dict[str, Any]]) -> list[Any] | None:
    """The SDK's own objects, or None where it is not installed."""
    try:
        if name == "OpenAI Chat":
            from openai.types.chat import ChatCompletionChunk as Chunk

            return [Chunk.construct(**event) for event in events]
        if name == "Anthropic Messages":
            from anthropic._models import construct_type
            from anthropic.types import RawMessageStreamEvent

            return [construct_type(type_=RawMessageStreamEvent, value=one) for one in events]
    except ImportError:
        return None
    return None


def measure(run: Run) -> list[Figure]:
    """One figure a wire and way."""
    figures = []
    answers = int(run.pick(200, 30))
    with run.daemon() as daemon:
        client = connect(daemon.socket_path)
        for at, (name, make) in enumerate(_WIRES.items()):
            run.step(at / len(_WIRES), name)
            events = make()
            chunks = _chunks(events)
            assert Body().feed(b"".join(chunks)), "the fold must know what is measured"
            figures.append(_figure(f"hook, {name}", partial(_of_bytes, client, chunks), answers))
            items = _objects(name, events)
            if items is not None:
                figures.append(
                    _figure(f"tee, {name}", partial(_of_objects, client, items), answers)
                )
        dropped = client.stats().dropped
        client.close()
    figures.append(Figure("adapters", "events dropped", float(dropped), "", 0.0))
    return figures


def _figure(name: str, once: Callable[[], Iterator[float]], answers: int) -> Figure:
    blocks = []
    everything: list[float] = []
    for _ in range(5):
        times = [1e6 * took for _ in range(max(1, answers // 5)) for took in once()]
        blocks.append(median(times))
        everything += times
    note = f"{name}: p99 {quantile(everything, 0.99):.1f} us, {len(everything):,} chunks"
    return Figure(
        "adapters", f"{name}: a chunk, p50", median(blocks), "us", _GOAL_MICROSECONDS,
        spread=spread(blocks), note=note,
    )  # fmt: skip
