"""The steps of adopting: what a process that is gone had said becomes entries of its session.

Owns: which replies, the ids of their entries, the order of append and resolve. Refuses: the
messages (`recovered/entry_messages.py`), what follows of their calls (the daemon).

Invariant: a reply is resolved once its entries are synced, and an entry's id is its reply's stream
and the first seq of its step. So whoever is killed anywhere in it runs it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from walld_client.errors import Refused
from walld_client.limits import APPEND_BYTES_MAX, EVENTS_PAGE
from walld_client.query.requests import decode_bool, decode_replies
from walld_client.recovered.entry_messages import adopted_messages
from walld_client.recovered.partial import PartialReply, from_recovered
from walld_client.session.entries import Entry, draft
from walld_client.steps import Asked, Steps
from walld_client.wire import messages as wire

if TYPE_CHECKING:
    from walld_client.session.append_steps import Appending

__all__ = ["adopted", "orphans", "resolved"]

_STARTED: Final = "_wal_started_at"


def adopted(
    session: Appending, reply: PartialReply, tree: Mapping[str, Any] | None
) -> Steps[list[Entry]]:
    """The entries of a reply, which is resolved then. tree: the session's view of that name.

    An id that is taken by another entry (a stream id is free again once its reply is released), or
    by what was adopted before the reply grew, has the seq of the last event of its step behind it:
    of one step the entry that came last is shown.
    """
    turn_id, parent, leaf = _place(reply, tree)
    told = [one | {"_turn": reply.turn_id} for one in adopted_messages(reply)]
    names = []
    for one in told:
        wanted = _names(reply, one)
        name = next(wanted)
        while tree is not None and (yield from _is_taken(session, name, one, tree)):
            name = next(wanted)
        names.append(name)
    above = [parent, *names] if parent is not None else [None] * len(names)
    drafts = [
        draft("message", one, id=name, once=True, turn=turn_id, parent=before, leaf=leaf)
        for one, name, before in zip(told, names, above, strict=False)
    ]
    made: list[Entry] = []
    for entries in _requests((yield from session.made(drafts))):
        made += yield from session.placed(entries, synced=True)
    yield from resolved(session, reply)
    return made


def resolved(session: Appending, reply: PartialReply) -> Steps[None]:
    """What it says is safe elsewhere. Refused where it grew, or its owner lives."""
    answer = yield Asked(
        lambda request_id: wire.Resolve(
            request_id, reply.stream_id, reply.last_seq, None, session.seen()
        ),
        again=False,
    )
    decode_bool(answer)  # False: somebody else did it meanwhile


def _place(
    reply: PartialReply, tree: Mapping[str, Any] | None
) -> tuple[str | None, str | None, bool]:
    """Its turn (None where that is lost to damage), the entry that its first message hangs on (None
    for the leaf), and whether that moves the leaf: as the daemon places a reply that is released.
    """
    if tree is None:
        return None, None, True
    nodes = {one["id"]: one for one in tree["nodes"]}
    turn_id, begun = reply.turn_id, None
    for one in nodes.values():
        if one["type"] == "turn_submitted" and one.get("turn") == turn_id:
            begun = one
    if begun is None:
        turn_id = None
    is_there = begun["on_path"] if begun is not None else reply.parent in (None, tree["leaf"])
    if reply.parent in nodes:
        return turn_id, reply.parent, is_there
    if is_there or begun is None:
        return turn_id, None, True
    return turn_id, begun["id"], False


def _names(reply: PartialReply, message: Mapping[str, Any]) -> Iterator[str]:
    """Ids to try for an entry of a reply, always the same ones."""
    name = f"{reply.stream_id}:{message['_wal_seq']}"
    yield name
    name += f":{message['_wal_last_seq']}"
    yield name
    name += f":{round(reply.started_at * 1000)}"
    while True:
        yield name
        name += "'"


def _is_taken(
    session: Appending, name: str, message: Mapping[str, Any], tree: Mapping[str, Any]
) -> Steps[bool]:
    """Another entry has that id, of another reply of that name too, or one that says less of the
    step.
    """
    seq = next((one["seq"] for one in tree["nodes"] if one["id"] == name), None)
    if seq is None:
        return False
    line = yield from session.line(seq)
    kept = line["payload"]
    if any(kept.get(one) != message[one] for one in ("_wal_stream", "_wal_seq")):
        return True
    if (line.get("turn") or kept.get("_turn")) not in (None, message["_turn"]):
        return True
    if kept.get(_STARTED, message[_STARTED]) != message[_STARTED]:
        return True
    last_seq = kept.get("_wal_last_seq")
    return not isinstance(last_seq, int) or last_seq < message["_wal_last_seq"]


def orphans(
    session: Appending, stream_id: str | None, app: str | None
) -> Steps[list[PartialReply]]:
    """Replies of the session whose process is gone: of this application and of none (app None: of
    all), or the one that is named. Refused where that one's owner lives.
    """
    which = "orphans" if stream_id is None else "all"
    answer = yield Asked(
        lambda request_id: wire.Recover(
            request_id, which, session.session_id, stream_id, session.seen()
        )
    )
    found = decode_replies(answer)
    if stream_id is None:
        return [from_recovered(one) for one in found if app is None or one.app in (None, app)]
    if any(one.lost_reason is None for one in found):
        text = "its owner is alive: only it may save and release it"
        raise Refused("refused", stream_id, "a reply whose owner is gone", text)
    return list(map(from_recovered, found))


def _requests(entries: Sequence[wire.NewEntry]) -> Iterator[list[wire.NewEntry]]:
    """Of as many entries as one has room for."""
    held: list[wire.NewEntry] = []
    size = 0
    for one in entries:
        if held and (size + len(one.payload) > APPEND_BYTES_MAX or len(held) == EVENTS_PAGE):
            yield held
            held, size = [], 0
        held.append(one)
        size += len(one.payload)
    if held:
        yield held
