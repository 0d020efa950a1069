"""An agent that records tokens with one peer, when it is told to.

    python -m bench.peers.speaking PEER HOME

Owns: the pace and the timing of each call. Each line on stdin is `RATE SECONDS CALLS` (rate 0: flat
out; whichever of the two ends first), each answer a line of JSON: the nanoseconds of every call,
less what reading the clock takes. When stdin ends it says how many it appended and how many can be
read back. Refuses: what it means.

A tick is what an agent does when a token comes: it has slept, it parses a line of a provider's
stream, then it records the text, and that alone is timed.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from pathlib import Path
from statistics import median

from bench.peers.known import PEERS
from bench.peers.peer import Append

__all__ = ["main"]

_TEXT = "walls "
_WARM_CALLS = 60
"""The first make connections and caches."""
_LINE = json.dumps(
    {
        "id": "chatcmpl-7a1", "object": "chat.completion.chunk", "created": 1750000000,
        "choices": [{"index": 0, "delta": {"content": _TEXT}, "finish_reason": None}],
    }
)  # fmt: skip


def _round(append: Append, rate: float, seconds: float, calls: int) -> list[int]:
    clock, parse, line = time.perf_counter_ns, json.loads, _LINE
    took: list[int] = []
    clocks: list[int] = []
    begun = time.perf_counter()
    until = clock() + int(seconds * 1e9)
    while len(took) < calls:
        if rate:
            time.sleep(max(0.0, begun + len(took) / rate - time.perf_counter()))
        text = parse(line)["choices"][0]["delta"]["content"]
        first = clock()
        second = clock()
        append(text)
        third = clock()
        clocks.append(second - first)
        took.append(third - second)
        if third > until:
            break
    less = int(median(clocks))
    return [one - less for one in took]


def _say(what: object) -> None:
    sys.__stdout__.write(json.dumps(what) + "\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


def main(key: str, folder: str) -> None:
    """Until stdin ends."""
    peer, home = PEERS[key](), Path(folder)
    appended = 0

    def work(append: Append) -> None:
        nonlocal appended
        for _ in range(_WARM_CALLS):
            append(_TEXT)
        appended += _WARM_CALLS
        gc.collect()
        gc.freeze()  # what a peer's imports keep is no matter of its calls
        _say({})
        for line in sys.stdin:
            rate, seconds, calls = line.split()
            took = _round(append, float(rate), float(seconds), int(calls))
            appended += len(took)
            _say(took)

    peer.speak(home, work)
    _say([appended, peer.count(home)])


if __name__ == "__main__":
    main(*sys.argv[1:])
