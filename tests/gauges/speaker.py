"""An agent that says the same thing several times, and prints when each began and had its answer.

    python -m gauges.speaker SOCKET COUNT

A line of JSON for each: what it was, and two times (CLOCK_MONOTONIC, in ns). What comes first, and
has no line, warms both processes up. It rests between two, so that what one leaves behind (a sync,
an acknowledgement that is late) is not in the window of the next.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import walld_client

__all__ = ["main"]

_WARM = 3
_REST_SECONDS = 0.1


def main() -> None:
    """Speak to the daemon of that socket."""
    socket_path, count = sys.argv[1], int(sys.argv[2])
    client = walld_client.connect(socket_path)
    session: Any = client.session("appended")  # mypy does not follow what `blocking` makes
    reply = client.reply("streamed")

    def append() -> None:
        session.append("note", {"text": "what is kept"})

    def token() -> None:
        reply.token("a word ")
        assert reply.drain(), "nothing was written in time"

    says: dict[str, Callable[[], None]] = {"append": append, "token": token}
    for what, say in says.items():
        for number in range(-_WARM, count):
            time.sleep(_REST_SECONDS)
            begun = time.monotonic_ns()
            say()
            ended = time.monotonic_ns()
            if number >= 0:
                print(json.dumps((what, begun, ended)), flush=True)
    reply.end()
    client.close()


if __name__ == "__main__":
    main()
