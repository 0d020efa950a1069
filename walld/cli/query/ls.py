"""`walld ls`: the replies that are not released.

Owns: the list, from a daemon or a data directory. Refuses: text; `walld recover` prints that.
Exit 1 where there might be more than it can see.
"""

from __future__ import annotations

import argparse

import msgspec
from walld_client.recovered.partial import PartialReply, from_recovered
from walld_client.wire import messages as wire

from walld.cli.client import Daemon
from walld.cli.exit_codes import CANNOT, DONE, complain
from walld.cli.show import as_json, needs_somebody, state_of, table

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Prints one line a reply."""
    recovered, doubts = _replies(options)
    rows = [(one.uid, from_recovered(one)) for one in recovered]
    if options.needs:
        rows = [(uid, reply) for uid, reply in rows if needs_somebody(state_of(reply))]
    if options.json:
        print(as_json([_listed(uid, reply) for uid, reply in rows]))
    elif rows:
        print(table(rows))
    elif not doubts:
        print("no reply needs anybody" if options.needs else "no reply is waiting")
    for doubt in doubts:
        complain(doubt)
    if doubts:
        complain("there may be more than can be read")
    return CANNOT if doubts else DONE


def _replies(options: argparse.Namespace) -> tuple[list[wire.Recovered], list[str]]:
    if options.data is not None:
        from walld.cli.inspect.offline import find  # half of all there is to import

        found = find(options.data, options.uid)
        kept = [
            reply
            for reply in found.replies
            if reply.session_id.startswith(options.prefix) and options.uid in (None, reply.uid)
        ]
        return kept, found.doubts
    with Daemon(options.socket, options.timeout) as daemon:
        answer = daemon.ask(wire.List(daemon.next_id(), options.prefix, options.uid))
    replies = msgspec.msgpack.decode(answer, type=list[wire.Recovered])
    return replies, list(dict.fromkeys(one.doubt for one in replies if one.doubt is not None))


def _listed(uid: int, reply: PartialReply) -> dict[str, object]:
    """Without what a list does not carry."""
    fields = {
        name: value
        for name, value in reply.to_dict().items()
        if name not in ("text", "segments", "messages")
    }
    return {"uid": uid, **fields, "state": state_of(reply)}
