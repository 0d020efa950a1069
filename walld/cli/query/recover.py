"""`walld recover`: print the latest reply of a session that was not released.

Owns: what is printed and the three answers: 0 here it is, 3 nothing (proven), 1 cannot know.
Refuses: appending it anywhere. `--resolve` comes after the output was written, never before.
How many others the session has is said on stderr: the JSON is that of one reply.
"""

from __future__ import annotations

import argparse
import sys

import msgspec
from msgspec.structs import replace
from walld_client.recovered.partial import PartialReply, from_recovered
from walld_client.wire import messages as wire

from walld.cli.client import Daemon, Declined, Unavailable
from walld.cli.exit_codes import CANNOT, DONE, NOTHING, complain
from walld.cli.inspect.offline import find
from walld.cli.query.resolve import resolve
from walld.cli.show import as_json, details, time
from walld.escape import escaped, escaped_line
from walld.sessions.gate.settle_targets import command_line

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
        if options.stream is None:
            _say_others(_count_others(daemon, reply, options.uid), reply.session_id)
    return DONE


def _count_others(daemon: Daemon, reply: PartialReply, uid: int | None) -> int:
    """Replies of its session that are not released, beside it. None counted where that cannot be
    told: the reply that was asked for is there all the same.
    """
    request = wire.Recover(daemon.next_id(), "all", reply.session_id, None, [], uid)
    try:
        found = msgspec.msgpack.decode(daemon.ask(request), type=list[wire.Recovered])
    except (Declined, Unavailable):
        return 0
    return sum(one.stream_id != reply.stream_id for one in found)


def _say_others(count: int, session_id: str) -> None:
    if not count:
        return
    replies = "1 other reply" if count == 1 else f"{count} other replies"
    shown, typed = escaped_line(session_id), escaped_line(command_line("ls", [session_id]))
    complain(
        f"session {shown} has {replies} not released: `{typed}` lists all,"
        " `walld recover --stream ID` prints one"
    )


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
    reply = from_recovered(replace(replies[-1], doubt=doubt or None))
    _print(reply, options)
    if options.stream is None:
        _say_others(
            sum(one.session_id == reply.session_id for one in replies) - 1, reply.session_id
        )
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
