"""An agent that uses the client: ten replies at 60 tokens a second each.

    python -m bench.load.talker SOCKET SECONDS

Owns: timing each token() and finding out, at the end, whether each reply came back whole. Says so
on stdout, as JSON. Refuses: what it means.
"""

from __future__ import annotations

import json
import sys
import time

from walld_client import connect

from bench.report.numbers import quantile

_REPLIES = 10
_RATE = 60


def main(path: str, seconds: str) -> None:
    """Speak, drain, compare, end."""
    client = connect(socket=path, timeout=30.0)
    replies = [client.reply(f"talker{at}") for at in range(_REPLIES)]
    took: list[int] = []
    due = begun = time.perf_counter()
    clock = time.perf_counter_ns
    while due < begun + float(seconds):
        for reply in replies:
            at = clock()
            reply.token("walls ")
            took.append(clock() - at)
        due += 1 / _RATE
        time.sleep(max(0.0, due - time.perf_counter()))
    each = len(took) // _REPLIES
    missing = 0
    for at, reply in enumerate(replies):
        assert reply.drain(60.0), "the disk is there again"
        found = client.recover(f"talker{at}")
        missing += each - (0 if found is None else found.text.count("walls "))
        reply.end()
    stats = client.stats()
    client.close()
    said = {
        "calls": len(took),
        "p50_us": quantile(took, 0.5) / 1000,
        "p99_us": quantile(took, 0.99) / 1000,
        "p999_us": quantile(took, 0.999) / 1000,
        "most_us": max(took) / 1000,
        "missing": missing + stats.dropped,
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
