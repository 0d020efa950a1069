"""A WSGI program that speaks to walld when it is imported; then its server forks the workers.

Each request is a reply of its own session, `/NAME`: its words say its name, and it is asked back.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import walld_client
from walld_client import Unavailable

WORDS = 40
_PATIENCE_SECONDS = 60

client = walld_client.connect(os.environ["WALLD_SOCKET"])
boot = client.reply("boot", stream_id="boot")
boot.token("boot")
assert boot.drain(20), "there is no daemon at the start"
assert client.recover("boot") is not None


def patiently(ask: Callable[[], Any], is_it: Callable[[Any], bool]) -> Any:
    """Its answer, also where a daemon is away meanwhile."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            answer = ask()
            if is_it(answer):
                return answer
            error = RuntimeError(f"answered {answer!r}")
        except Unavailable as unavailable:
            error = RuntimeError(str(unavailable))
        if time.monotonic() > deadline:
            raise error
        time.sleep(0.02)


def stream(name: str) -> Iterator[str]:
    """Say it, and ask for it in the middle and at the end."""
    reply = client.reply(f"of {name}", stream_id=name, auto_release=False)
    for at in range(WORDS):
        reply.token(f"{name}:{at} ")
        if at in (WORDS // 2, WORDS - 1):
            patiently(lambda: reply.drain(5), bool)
            mine = patiently(lambda: client.recover(f"of {name}"), lambda _answer: True)
            yield "nothing" if mine is None else mine.stream_id
            yield str(patiently(lambda: client.recover(f"not {name}"), lambda _answer: True))
    reply.end()
    patiently(lambda: reply.drain(5), bool)


def application(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """What it was told, and by which process."""
    assert boot.token("never") == 0, "a reply of the parent has spoken"
    told = list(stream(environ["PATH_INFO"].strip("/")))
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"pid": os.getpid(), "told": told}).encode()]
