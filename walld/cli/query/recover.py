"""`walld recover`: print the latest reply of a session that was not released.

Owns: what is printed and the three answers: 0 here it is, 3 nothing (proven), 1 cannot know.
Refuses: appending it anywhere. `--resolve` comes after the output was written, never before.
"""

from __future__ import annotations

import argparse
import sys

import msgspec
from msgspec.structs import replace
from walld_client.recovered.partial import PartialReply, from_recovered
from walld_client.wire import messages as wire

from walld.cli.client import Daemon
from walld.cli.exit_codes import CANNOT, DONE, NOTHING, complain
from walld.cli.inspect.offline import find
from walld.cli.query.resolve import resolve
from walld.cli.show import as_json, details, time
from walld.escape import escaped

__all__ = ["run"]

_MORE = "there may be more of it, or a later one"


def run(options: argparse.Namespace) -> int:
    """Exit 0, 1 or 3."""
    if options.data is not None:
        return _from_directory(options)
    with Daemon(options.socket, options.timeout) as daemon:
        request = wire.Recover(
            daemon.next_id(), "latest", options.session, options.stream, [], options.uid
        )
        replies = msgspec.msgpack.decode(daemon.ask(request), type=list[wire.Recovered])
        if not replies:
            return _nothing(options, daemon.new_directory)
        reply = from_recovered(replies[-1])
        if reply.doubt is not None:
            complain(f"{reply.doubt}; {_MORE}")
        _print(reply, options)
        if options.resolve:
            sys.stdout.flush()
            resolve(daemon, reply.stream_id, reply.last_seq, options.uid)
    return DONE


def _from_directory(options: argparse.Namespace) -> int:
    found = find(options.data, options.uid)
    replies = [
        reply
        for reply in found.replies
        if options.session in (None, reply.session_id)
        and options.stream in (None, reply.stream_id)
        and options.uid in (None, reply.uid)
    ]
    for doubt in found.doubts:
        complain(doubt)
    if not replies and found.doubts:
        complain("it is not among what can be read; that there is none is not proven")
        return CANNOT
    if not replies:
        return _nothing(options)
    uids = sorted({reply.uid for reply in replies})
    if len(uids) > 1:
        complain(f"users {', '.join(map(str, uids))} have such a reply: say which with --uid")
        return CANNOT
    doubt = "; ".join(found.doubts) if options.stream is None else ""
    if doubt:
        complain(_MORE)
    _print(from_recovered(replace(replies[-1], doubt=doubt or None)), options)
    return DONE


def _nothing(options: argparse.Namespace, new_directory: int = 0) -> int:
    if options.json:
        print("null")
    # A mount that was not there looks like a first install: who asks for what is older knows.
    where = f" in a directory that was empty on {time(new_directory / 1000)}"
    complain("nothing to recover" + where * bool(new_directory))
    return NOTHING


def _print(reply: PartialReply, options: argparse.Namespace) -> None:
    if options.json:
        print(as_json(reply.to_dict()))
    elif options.text:
        text = escaped(reply.text)
        print(text, end="" if text.endswith("\n") else "\n")
    else:
        print(details(reply))
