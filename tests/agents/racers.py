"""Forks racers from one warm process: each resumes the same session, all at once.

Spec (JSON, the first argument): socket. Each line of stdin is {session, racers, winner}; winner:
what who gets it does at once: "lives", "completes", "gives up" or "dies". Leaves the session behind
a process that was killed first, and says what each racer was told: {"told": [{pid, turn | code,
got}]}. Then it lets go of a winner that lives, and says {"gone": true}.

A racer waits where its claim is about to be sent, until all of them have been judged.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import walld_client
from walld_client.wire import messages as wire


class AtOnce:
    """Asks as the client does; an append waits for the others once."""

    def __init__(self, query: Any, ready: int, go: int) -> None:
        self._query, self._ready, self._go = query, ready, go
        self._waits = True

    def ask(self, make: Any, timeout: float | None = None, *, again: bool = True) -> bytes:
        if self._waits and isinstance(make(1), wire.Append):
            self._waits = False
            os.write(self._ready, b".")
            os.read(self._go, 1)
        answer: bytes = self._query.ask(make, timeout, again=again)
        return answer


def leave_behind(client: Any, session_id: str) -> None:
    """A turn whose process is gone, and known to be."""
    pid = os.fork()
    if pid == 0:
        client.session(session_id).submit("do it", message_id="m", timeout=60)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    while client.session(session_id).state()["turns"][0]["state"] != "interrupted":
        time.sleep(0.01)


def race(session: Any, winner: str, told: int, stay: int) -> None:
    """One racer, to its end."""
    said: dict[str, object] = {"pid": os.getpid()}
    try:
        turn = session.resume(timeout=60)
    except walld_client.Refused as error:
        said |= {"code": error.code, "got": error.got}
    else:
        said["turn"] = turn.turn_id
        if winner == "completes":
            turn.completed()
        elif winner == "gives up":
            turn.interrupted("had enough")
    os.write(told, json.dumps(said).encode() + b"\n")
    if "turn" in said and winner == "lives":
        os.read(stay, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    client = walld_client.connect(json.loads(sys.argv[1])["socket"], timeout=60)
    for line in sys.stdin:
        spec = json.loads(line)
        leave_behind(client, spec["session"])
        pipes = {name: os.pipe() for name in ("ready", "go", "told", "stay")}
        children = []
        for _ in range(spec["racers"]):
            children.append(os.fork())
            if children[-1] == 0:
                for name in ("go", "stay"):
                    os.close(pipes[name][1])
                session = client.session(spec["session"])
                session._query = AtOnce(session._query, pipes["ready"][1], pipes["go"][0])
                race(session, spec["winner"], pipes["told"][1], pipes["stay"][0])
        waiting = 0
        while waiting < spec["racers"]:
            waiting += len(os.read(pipes["ready"][0], spec["racers"]))
        os.close(pipes["go"][1])
        with open(pipes["told"][0]) as lines:
            told = [json.loads(lines.readline()) for _ in children]
        print(json.dumps({"told": told}), flush=True)
        sys.stdin.readline()
        os.close(pipes["stay"][1])
        for child in children:
            os.waitpid(child, 0)
        for fd in (*pipes["ready"], pipes["go"][0], pipes["told"][1], pipes["stay"][0]):
            os.close(fd)
        print(json.dumps({"gone": True}), flush=True)


if __name__ == "__main__":
    main()
