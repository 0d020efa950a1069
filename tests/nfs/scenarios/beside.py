"""What a reply costs on NFS, beside the designs that people write by hand: RPCs and bytes.

Owns: the load of `bench.load.disk_users` on a mount of its own for each design, and counting what
the mount asked its server for meanwhile, whatever kind of RPC. Refuses: times (the guest is
emulated).

A reply has 60 tokens; there are 20 streams. Nobody asks for a sync, but a file is synced when it is
closed on NFS, and walld syncs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

from bench.load.disk_users import DESIGNS, REPLY_TOKENS
from nfs.mountstats import difference, reading
from nfs.trial import HARD, staged

__all__ = ["run"]

_SECONDS: Final = 15.0
_NAMES: Final = {"files": "a file a stream, by a thread", "append": "open-append-close JSON"}


def run() -> list[str]:
    """A line for each design."""
    figures = []
    costs = {}
    for key in DESIGNS:
        line, costs[key] = _cost(key)
        figures.append(line)
        print(line, flush=True)
    assert costs["walld"] < min(cost for key, cost in costs.items() if key != "walld"), costs
    return figures


def _cost(key: str) -> tuple[str, float]:
    """What one design did, and its RPCs a reply."""
    with staged(f"beside-{key}", options=HARD) as trial:
        home = trial.folder
        if key == "walld":
            home = trial.started().log.parent
        agent = subprocess.Popen(
            [sys.executable, "-m", "bench.load.disk_users", key,
             str(home), "0", str(_SECONDS), str(trial.mount)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert agent.stdin is not None
            assert agent.stdout is not None
            assert agent.stdout.readline() == b"ready\n", f"the agent ended with {agent.wait()}"
            before = reading(trial.mount)
            agent.stdin.write(b"\n")
            agent.stdin.flush()
            said = json.loads(agent.stdout.readline())
            spent = difference(before, reading(trial.mount))
        finally:
            agent.kill()
            agent.wait()
    replies = said["tokens"] / REPLY_TOKENS
    asked = {kind: one.asked / replies for kind, one in spent.items()}
    sent = sum(one.bytes_sent for one in spent.values()) / replies
    most = sorted(asked.items(), key=lambda one: -one[1])[:4]
    kinds = ", ".join(f"{count:.3g} {kind}" for kind, count in most)
    assert said["missing"] == 0, f"{said['missing']} tokens are missing"
    line = (
        f"{_NAMES.get(key, key)}: {sum(asked.values()):.3g} RPCs and {sent:,.0f} bytes sent a reply"
        f" of {REPLY_TOKENS} tokens ({kinds}); {replies:.0f} replies, "
        f"{said['tokens'] / said['due']:.0%} of the pace"
    )
    return line, sum(asked.values())
