"""Sends a reply's events into its link, under the link's lock.

The long way, and the short one of texts that come less often than tokens do (`reply.py` has that of
tokens spelled out).

Owns: seqs, the first-terminal-wins rule, and when a release is legal. Refuses: what an event
means (`reply.py`), sockets (`connection.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from walld_client.encoding import event_frames
from walld_client.encoding.event_frames import ID
from walld_client.ids import Entry, id_in
from walld_client.limits import SHORT_TEXT_BYTES_MAX
from walld_client.link import process
from walld_client.link.fork_flag import is_owner
from walld_client.link.link import Link
from walld_client.link.lock import Reentered
from walld_client.link.stream import Stream
from walld_client.wire import messages
from walld_client.wire.messages import Event

__all__ = ["let_go", "release", "say", "say_arguments", "say_reasoning", "say_text"]

_log = logging.getLogger("walld")


def say(
    link: Link,
    stream: Stream,
    events: Sequence[Event | Callable[[int], Event]],
    *,
    terminal: bool = False,
    released: bool = False,
) -> int:
    """Send events whose stream and seq are ID, the last perhaps a terminal, then a release.

    An event that needs its own seq is given as a function of it. Returns the last event's seq
    (not that of the release), or 0 where the stream takes nothing any more, or where the call
    interrupted another one in this thread: then it is said as soon as that is done.
    """
    process.check_fork()
    bodies = [event if callable(event) else event_frames.body_of(event) for event in events]
    seq = 0
    say_one = link.put if terminal else link.give
    try:
        with link.mutex, link:
            if terminal:
                link.catch_up()  # what was refused has no end
            if _is_late(link, stream):
                return 0
            for body in bodies:
                seq = stream.next_seq
                made = event_frames.body_of(body(seq)) if callable(body) else body
                say_one(stream, event_frames.place(made, stream.number, seq))
            if terminal:
                stream.terminal = stream.long_way_only = True
                if released:
                    _put_release(link, stream)
                link.push()
    except Reentered:
        link.deferred.append(
            partial(say, link, stream, events, terminal=terminal, released=released)
        )
    return seq


def say_text(
    link: Link, stream: Stream, tag: int, pieces: Sequence[bytes], info: bytes | None
) -> int:
    """Send text as one event a piece. Returns the last one's seq, or 0."""
    process.check_fork()
    kind = messages.Token if tag == event_frames.TOKEN else messages.Reasoning
    if info is not None:
        return say(link, stream, [kind(ID, ID, piece, info) for piece in pieces])
    prefix = stream.token_prefix if tag == event_frames.TOKEN else stream.reasoning_prefix
    seq = 0
    try:
        with link.mutex, link:
            if _is_late(link, stream):
                return 0
            for piece in pieces:
                seq = stream.next_seq
                link.give(stream, event_frames.plain_text(prefix, seq, piece))
    except Reentered:
        link.deferred.append(partial(say_text, link, stream, tag, pieces, info))
    return seq


def say_reasoning(link: Link, stream: Stream, text: object) -> int:
    """The short way of reasoning without info. Its seq, or 0: it must go the long one."""
    return _say_short(link, stream, None, text)


def say_arguments(link: Link, stream: Stream, call_id: str | Entry, delta: object) -> int:
    """The same of a piece of a call's arguments. ValueError for what is no id."""
    known, packed = stream.call
    if type(call_id) is not str or call_id != known:
        plain = id_in(call_id, "call_id")  # a class of its own may be equal to another id
        packed = msgspec.msgpack.encode(plain)
        stream.call = plain, packed
    return _say_short(link, stream, packed, delta)


def _say_short(link: Link, stream: Stream, call_id: bytes | None, text: object) -> int:
    """As `Reply.token`. call_id: packed, of a call whose arguments it is; None: it is reasoning."""
    if not is_owner[0] or type(text) is not str:
        return 0
    try:
        payload = text.encode()
    except UnicodeEncodeError:
        return 0
    if len(payload) > SHORT_TEXT_BYTES_MAX:
        return 0
    with link.mutex:
        if link.held or stream.long_way_only:
            return 0
        with link:
            seq = stream.next_seq
            if call_id is None:
                frame = event_frames.plain_text(stream.reasoning_prefix, seq, payload)
            else:
                frame = event_frames.short_arguments(stream.arguments_prefix, seq, call_id, payload)
            link.give(stream, frame)
    return seq


def release(link: Link, stream: Stream) -> int:
    """Send Release. ValueError before a terminal: the reply is not whole, nothing may go yet."""
    process.check_fork()
    seq, is_early = 0, False
    try:
        with link.mutex, link:
            if stream.lingers:
                link.disown(stream)
            is_early = not stream.terminal and not stream.gone
            if not is_early:
                if stream.released or stream.gone:
                    link.late_events += 1
                    return 0
                seq = stream.next_seq
                _put_release(link, stream)
                link.push()
    except Reentered:
        link.deferred.append(partial(release, link, stream))
    if is_early:
        raise ValueError(
            f"reply {stream.stream_id!r} has not ended; call end(), cancel() or error() first"
            " (one that a framework's adapter opened ends with its run, or with the last result of"
            " its tools: release it then)"
        )
    return seq


def let_go(link: Link, stream: Stream) -> None:
    """Nobody takes a response up again for which a reply was left open: it ends as it was cut."""
    process.check_fork()
    try:
        with link.mutex, link:
            if stream.lingers and not stream.terminal:
                link.disown(stream)
                link.push()
    except Reentered:
        link.deferred.append(partial(let_go, link, stream))


def _put_release(link: Link, stream: Stream) -> None:
    stream.released = True
    link.registry.release(stream)
    link.put(
        stream,
        event_frames.place(
            event_frames.body_of(messages.Release(ID, ID)), stream.number, stream.next_seq
        ),
    )
    is_wanted = stream.start.turn_id is not None  # its messages go to the session of its turn
    if not stream.introduced and not link.is_pushing_next() and not is_wanted:
        # No daemon has heard of it and none needs to: what waits of it is never sent.
        stream.stop_sending()
    link.registry.tidy(stream)


def _is_late(link: Link, stream: Stream) -> bool:
    """Nothing is taken after a terminal, or on a stream that is gone: counted, not sent."""
    if not stream.terminal and not stream.gone:
        return False
    link.late_events += 1
    if stream.inherited and not link.told_inherited:
        link.told_inherited = True
        _log.warning(
            "reply %r belongs to the parent of this forked process: its calls do nothing here; "
            "open another one with client.reply()",
            stream.stream_id,
        )
    return True
