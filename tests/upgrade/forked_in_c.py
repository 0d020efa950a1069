"""A program of either build that is forked in C behind its connect, as a worker of uWSGI is.

    forked_in_c.py SOCKET

Two children say a reply each, `a` and `b`, under the number that comes next in both; the parent
goes on with its own. Prints "ready" once all is said, then waits to be killed, children and all.
Uses only what 0.1.0 has.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable

import walld_client

WORDS = 40
libc = ctypes.PyDLL(None)


def forked(work: Callable[[], object]) -> None:
    """A child that does it, and waits; returns when it is done."""
    done, is_done = os.pipe()
    if libc.fork() == 0:
        try:
            work()
            os.write(is_done, b".")
            while True:
                signal.pause()
        finally:
            os._exit(1)
    os.close(is_done)
    assert os.read(done, 1) == b".", "a child has failed"


def say(client: walld_client.Client, name: str) -> None:
    """Its words, some of them behind what another child says."""
    reply = client.reply(name, stream_id=name)
    for at in range(WORDS):
        reply.token(f"{name}{at} ")
        time.sleep(0.01)
    reply.drain(1)


def main() -> None:
    os.setpgid(0, 0)
    client = walld_client.connect(sys.argv[1])
    parent = client.reply("parent", stream_id="parent")
    parent.token("parent0 ")
    assert parent.drain(20)
    for name in ("a", "b"):
        forked(lambda name=name: say(client, name))
    for at in range(1, WORDS):
        parent.token(f"parent{at} ")
    assert parent.drain(20), "the parent is not heard any more"
    print("ready", flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
