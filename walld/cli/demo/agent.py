"""The agent of `walld demo`: streams the recording and tells how far the kernel took it.

Run as a process of its own, which is killed: `python -m walld.cli.demo.agent SOCKET SESSION`.
Each line on stdout is `Reply.sent_seq` after a call.
"""

from __future__ import annotations

import sys
import time

import walld_client

from walld.cli.demo.recording import load

__all__ = ["main"]

PACE_SECONDS = 0.005


def main(socket_path: str, session_id: str) -> None:
    """Streams until the end of the recording, or until somebody kills it."""
    client = walld_client.connect(socket=socket_path)
    reply = client.reply(session_id, turn_id="turn-1", model="demo-model")
    for call in load():
        call.make(reply)
        sys.stdout.write(f"{reply.sent_seq}\n")
        sys.stdout.flush()
        time.sleep(PACE_SECONDS)
    client.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
