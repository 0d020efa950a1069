"""An agent that reads a stream and records it, or has it switched off (WALLD_ENABLED=0).

    python -m bench.load.streamed SOCKET

Owns: what an agent does with a line, and when each token was done. A line on stdin is a provider's,
with the moment it was sent (ns of the clock all processes share) where others have seconds; an
empty one ends a block, which is answered by a line of JSON: the nanoseconds from there to the end
of each token, and those between the ends of tokens. When stdin ends it says how many tokens a
reader would get back. Refuses: what it means.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise

from walld_client import connect

__all__ = ["main"]


def main(path: str) -> None:
    """Until stdin ends."""
    client = connect(socket=path, timeout=30.0)
    reply = client.reply("streamed", auto_release=False)
    said: list[str] = []
    sent: list[int] = []
    at: list[int] = []
    clock, token = time.perf_counter_ns, reply.token
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "\n":
            late = [done - begun for begun, done in zip(sent, at, strict=True)]
            gaps = [later - earlier for earlier, later in pairwise(at)]
            print(json.dumps([late, gaps]), flush=True)
            sent.clear()
            at.clear()
            continue
        chunk = json.loads(line)
        text = chunk["choices"][0]["delta"]["content"]
        said.append(text)
        token(text)
        at.append(clock())
        sent.append(chunk["created"])
    reply.drain(30.0)
    found = client.recover("streamed")
    print(0 if found is None else found.text.count("walls "))
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
