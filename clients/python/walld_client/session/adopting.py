"""The steps of adopting: what a process that is gone had said becomes entries of its session.

Owns: which replies, the ids of their entries, the order of append and resolve. Refuses: the
messages (`recovered/entry_messages.py`), what follows of their calls (the daemon).

Invariant: a reply is resolved once its entries are synced, and an entry's id is its reply's stream
and the first seq of its step. So whoever is killed anywhere in it runs it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from walld_client.errors import Refused
from walld_client.limits import APPEND_BYTES_MAX, EVENTS_PAGE
from walld_client.query.requests import decode_bool, decode_replies
from walld_client.recovered.entry_messages import entry_messages
from walld_client.recovered.partial import PartialReply, from_recovered
from walld_client.session.entries import Entry, draft
from walld_client.steps import Asked, Steps
from walld_client.wire import messages as wire

if TYPE_CHECKING:
    from walld_client.session.append_steps import Appending

__all__ = ["adopted", "orphans"]


def adopted(session: Appending, reply: PartialReply, turn_id: str | None) -> Steps[list[Entry]]:
    """The entries of a reply, which is resolved then. turn_id: of the turn that they are of."""
    drafts = [
        draft("message", one, id=f"{reply.stream_id}:{one['_wal_seq']}", once=True, turn=turn_id)
        for one in (told | {"_turn": reply.turn_id} for told in entry_messages(reply))
    ]
    made: list[Entry] = []
    for entries in _requests((yield from session.made(drafts))):
        made += yield from session.placed(entries, synced=True)
    answer = yield Asked(
        lambda request_id: wire.Resolve(
            request_id, reply.stream_id, reply.last_seq, None, session.seen()
        ),
        again=False,
    )
    decode_bool(answer)  # False: somebody else did it meanwhile
    return made


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
