"""Decides whether a stream may begin or be continued.

Owns: the checks of a Start and of a Resume, and how much of the memory one user's live streams may
take. Refuses: what is done about it (`event_handlers.py`), streams that startup recovery restored:
they are in already.

A live stream is memory for as long as its reply is not released: what the daemon knows of it, its
ids and its `meta`, which may be a frame long. So it is bytes that are bounded, and those of a user:
more connections are no more room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walld import limits
from walld.errors import ProtocolError

if TYPE_CHECKING:
    from walld_client.wire import messages as wire

    from walld.engine.partial_index import PartialIndex
    from walld.engine.registry import Registry
    from walld.engine.stream import Connection

__all__ = [
    "AT_MS_MAX",
    "SEQ_MAX",
    "Problem",
    "check_order",
    "check_producer",
    "id_length",
    "resume_problem",
    "start_problem",
]

SEQ_MAX = 2**32 - 1
AT_MS_MAX = 2**53 - 1
"""A client's clock is a label; what an item counts from it must fit a msgpack integer."""
Problem = tuple[str, str, str]
"""(code, got, limit) of a refusal."""


def id_length(value: str | None) -> int:
    """In bytes of UTF-8."""
    return 0 if value is None else len(value.encode("utf-8", "surrogatepass"))


def check_producer(connection: Connection, start: wire.Start) -> None:
    """Raises ProtocolError where two processes speak as one producer: a number has two streams.

    A program that was forked below a client which does not notice has two processes on one socket,
    later on two. Behind such a number nobody knows whose a word is.
    """
    known = connection.producer.streams.get(start.stream)
    if known is not None and known.begin.stream_id != start.stream_id:
        raise _shared(start.stream)


def check_order(connection: Connection, start: wire.Start) -> None:
    """The same of a Start whose number has no stream: Starts come in the order of their numbers, so
    behind a later one it is another process's, and what had its number is done with.
    """
    number, stream_id = connection.started
    if start.stream < number or (start.stream == number and start.stream_id != stream_id):
        raise _shared(start.stream)
    connection.started = start.stream, start.stream_id


def _shared(number: int) -> ProtocolError:
    return ProtocolError(
        "producer_shared",
        "two processes speak as one producer: the program was forked after it had connected, where "
        "its walld client did not notice; update that, or connect behind the fork (uWSGI: "
        "lazy-apps)",
        f"number {number} again",
        "a number for each stream",
    )


def start_problem(
    registry: Registry, partials: PartialIndex, uid: int, event: wire.Start, *, is_anew: bool
) -> Problem | None:
    """What keeps a stream from beginning. The number is in its range. is_anew: its producer says
    that it has begun already.
    """
    problem = _shape_problem(event)
    if problem is not None:
        return problem
    live = registry.live.get(uid)
    if live is not None and live.bytes >= limits.LIVE_BYTES_PER_UID_MAX:
        got = f"{live.count} live streams of {live.bytes} bytes"
        limit = f"{limits.LIVE_BYTES_PER_UID_MAX} bytes of a user: {limits.LIVE_STREAM_BYTES} each"
        return "too_many_streams", got, f"{limit}, and its ids and meta"
    other = registry.by_key.get((uid, event.stream_id))
    if other is not None:
        code = "stream_owned" if other.lost_reason is None else "stream_exists"
        limit = "one producer" if code == "stream_owned" else "resolve the earlier one first"
        return code, "a stream_id in use", limit
    if is_anew and partials.may_be_own(uid, event.stream_id):
        return None
    if partials.where(uid, event.stream_id) is not None:
        return "stream_exists", "a stream_id in use", "resolve the earlier one first"
    return None


def resume_problem(resume: wire.Resume) -> Problem | None:
    """What no client can mean by a Resume: it is answered, and counted with, as it stands."""
    start = resume.start
    if not 1 <= start.stream <= SEQ_MAX:
        return "bad_seq", f"stream {start.stream}", f"1..{SEQ_MAX}"
    for name, least, most in (
        ("held_from", 0, SEQ_MAX + 1),
        ("synced", -1, SEQ_MAX),
        ("next_seq", 0, SEQ_MAX + 1),
    ):
        if not least <= (got := getattr(resume, name)) <= most:
            return "bad_seq", f"{name} {got}", f"{least}..{most}"
    problem = _shape_problem(start)
    if problem is not None:
        return problem
    length = id_length(resume.moved_to)
    if length > limits.ID_BYTES_MAX or (length == 0 and resume.moved_to is not None):
        return "id_length", f"moved_to of {length} bytes", f"1..{limits.ID_BYTES_MAX}"
    return None


def _shape_problem(event: wire.Start) -> Problem | None:
    if event.seq != 0:
        return "bad_seq", f"start with seq {event.seq}", "0"
    if not 0 <= event.at_ms <= AT_MS_MAX:
        return "malformed_event", f"at_ms {event.at_ms}", f"0..{AT_MS_MAX}"
    for name in ("stream_id", "session_id", "turn_id", "parent", "app"):
        length = id_length(getattr(event, name))
        if length > limits.ID_BYTES_MAX or (length == 0 and name in ("stream_id", "session_id")):
            return "id_length", f"{name} of {length} bytes", f"1..{limits.ID_BYTES_MAX}"
    return None
