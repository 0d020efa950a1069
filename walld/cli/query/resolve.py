"""`walld resolve`: exit 0 removed or unknown, 1 refused or no daemon.

Owns: the words. Refuses: resolving without the daemon, which alone knows who lives.
"""

from __future__ import annotations

import argparse
import json

import msgspec
from walld_client.wire import messages as wire

from walld.cli.client import Daemon
from walld.cli.exit_codes import DONE
from walld.escape import escaped_line

__all__ = ["resolve", "run"]


def resolve(daemon: Daemon, stream_id: str, last_seq: int | None, uid: int | None) -> bool:
    """True where it was removed, False where there is none. Declined where it must stay."""
    answer = daemon.ask(wire.Resolve(daemon.next_id(), stream_id, last_seq, uid))
    return msgspec.msgpack.decode(answer, type=bool)


def run(options: argparse.Namespace) -> int:
    """Removes one reply."""
    with Daemon(options.socket, options.timeout) as daemon:
        removed = resolve(daemon, options.stream, options.last_seq, options.uid)
    if options.json:
        print(json.dumps({"stream_id": options.stream, "removed": removed}))
    elif removed:
        print(f"removed {escaped_line(options.stream)}")
    else:
        print(f"nothing to remove: no reply {escaped_line(options.stream)} is kept")
    return DONE
