"""Whose a partial is: what its items say against the names it stands under.

Owns: that check. Refuses: files (`store.py`), what else the items mean (`replies/`).

A partial's header has its uid and no other name, so that a file which was moved, copied or written
back to another's place verifies there. Served, it would be somebody else's reply; resolved, it
would take that one with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from walld_client.paths import path_name
from walld_client.wire import messages as wire

from walld.errors import FormatError, Misplaced
from walld.wal.records import Begin, Happened

if TYPE_CHECKING:
    from walld.wal.records import Item

__all__ = ["check_names"]


def check_names(path: str, items: list[Item], *, is_hurt: bool) -> None:
    """Misplaced where the items of the partial at `path` are of other names, FormatError if none.

    is_hurt: damage took some of it, maybe the Move: its session's name is then all that tells of
    that, and is believed.
    """
    begin = items[0] if items else None
    if not isinstance(begin, Begin):
        raise FormatError(f"{path}: its first item is no Begin: nothing says whose it is")
    session_id = begin.session_id
    for item in items:
        if isinstance(item, Happened) and isinstance(item.event, wire.Move):
            session_id = item.event.session_id
    _, uid, session, stream = path.split("/")
    found = (str(begin.uid), path_name(session_id), path_name(begin.stream_id))
    if found != (uid, session if not is_hurt else found[1], stream):
        raise Misplaced(
            f"{path}: it belongs in {path.split('/')[0]}/{'/'.join(found)}: it was moved or "
            "copied; it is kept, `walld dump` shows what it holds"
        )
