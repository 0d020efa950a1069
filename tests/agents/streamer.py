"""An agent that streams what `words.py` says and notes on a board how far it got.

The board is a shared mapping of a file: what stands on it outlives SIGKILL at any instruction. Per
stream it holds two numbers, set before and after each send: the seq that was tried, and `sent_seq`.

Spec (JSON, the first argument, or a line of `nursery.py`):
    socket, session, streams (ids), sends (in all, round robin), pace_seconds, board (path),
    then: "kill" (SIGKILL to itself) | "stay" (silent, until it is killed) | "leave" (exit)
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import sys
import time
from typing import Any

import walld_client
from words import token


def stream(spec: dict[str, Any]) -> None:
    """Say it all, then do as the spec says."""
    with open(spec["board"], "r+b") as file:
        board = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
    client = walld_client.connect(spec["socket"])
    replies = [client.reply(spec["session"], stream_id=name) for name in spec["streams"]]
    pace_seconds = spec["pace_seconds"]
    for number in range(spec["sends"]):
        at = number % len(replies)
        reply, seq = replies[at], number // len(replies) + 1
        board[2 * at] = seq
        assert reply.token(token(at, seq)) == seq
        board[2 * at + 1] = max(0, reply.sent_seq)  # falls back when a daemon dies
        if pace_seconds:
            time.sleep(pace_seconds)
    for at, reply in enumerate(replies):
        board[2 * at + 1] = max(0, reply.sent_seq)
    board[2 * len(replies)] = 1
    if spec["then"] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if spec["then"] == "stay":
        while True:
            signal.pause()


if __name__ == "__main__":
    stream(json.loads(sys.argv[1]))
