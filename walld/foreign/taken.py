"""Entries of a file whose ids other words have in the session it goes to, and words of its calls.

Owns: which those are, what they are called there, and which words would be of another call there.
Refuses: keeping them (the command line).

An id is a session's own: two applications that count their entries both have an entry 1. What the
session has under that id is another entry, so that of the file is not there, nor is the turn or the
call that it began. It gets an id out of its own words, the same each time, and what names it in the
file names it so.

A call id may be given again, on another branch too. A word of an earlier call of it that comes late
stands behind the newest one in the session, and would be of that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, TypeVar

import msgspec

from walld.foreign.entries import Foreign
from walld.limits import LEDGER_PAYLOAD_BYTES_MAX
from walld.sessions.gate.turn_history import History, history_of
from walld.sessions.state.events import Event
from walld.sessions.state.tools import named_call

__all__ = ["misplaced", "renamed", "taken"]

_Entry = TypeVar("_Entry", Event, Foreign)
_NAMES: Final = ("target", "first_kept", "retry_of", "of_turn", "begun", "ended", "as_of")
_LISTS: Final = ("started", "mixed")
"""Fields of payloads that name entries."""
_SAID: Final = ("role", "content")
_RAN: Final = ("role", "_foreign")
"""Of a command that pi's user ran: what it is told in is words of walld's."""
_RETOLD: Final = frozenset(("branch_summary", "compaction"))


def taken(entries: Sequence[Foreign], format: str, there: Mapping[str, Event]) -> dict[str, str]:  # noqa: A002
    """Id -> that which its entry gets. there: by id, what the session has."""
    return {
        one.id: _drawn(one, format)
        for one in entries
        if (event := there.get(one.id)) is not None and not _is_of(one, event, format)
    }


def renamed(one: _Entry, names: Mapping[str, str]) -> _Entry:
    """The entry as it names itself and others there."""
    if not names:
        return one

    def name(given: Any) -> Any:
        return names.get(given, given) if isinstance(given, str) else given

    payload = one.payload
    for field in [*_NAMES, *_LISTS, "calls"]:
        value = payload.get(field)
        if field in _NAMES:
            value = name(value)
        elif isinstance(value, list):
            value = [
                one | {"turn": name(one.get("turn"))} if isinstance(one, dict) else name(one)
                for one in value
            ]
        if value != payload.get(field):
            payload = payload | {field: value}
    return msgspec.structs.replace(
        one, id=name(one.id), parent=name(one.parent), turn=name(one.turn), payload=payload
    )


def misplaced(
    entries: Sequence[Foreign], there: Sequence[Event], calls: Mapping[str, str]
) -> frozenset[str]:
    """Ids of those that would be of another call, were they appended to what is there.

    calls: of what came, as `calls_of` says.
    """
    account, found = history_of(there), set[str]()
    for one in entries:
        event = Event(
            seq=account.state.last_seq + 1,
            id=one.id,
            parent=one.parent or account.state.leaf,
            type=one.type,
            turn=one.turn,
            key=one.key,
            leaf=one.leaf,
            payload=one.payload,
        )
        is_taken = account.state.check(event) is None
        if is_taken and not _is_placed(event, account, calls):
            found.add(one.id)
            is_taken = False
        account.take(
            event if is_taken else msgspec.structs.replace(event, type="foreign", payload={})
        )
    return frozenset(found)


def _is_placed(event: Event, account: History, calls: Mapping[str, str]) -> bool:
    key, begun_by = named_call(event), calls.get(event.id)
    if key is None or begun_by is None or "of_call" in event.payload:
        return True
    newest = account.calls.newest(*key)
    if begun_by == event.id:
        return event.type == "tool_intent" or newest is None or not newest.state.may_start
    return newest is not None and newest.begun.id == begun_by


def _is_of(one: Foreign, event: Event, format: str) -> bool:  # noqa: A002
    """The session has that entry, or its line as text.

    A fork tells anew what it did not copy, and another version of walld may read other programs'
    lines a little differently: of those it is enough that the same was said.
    """
    if event.type == f"foreign.{format}":
        return True
    if (event.type, event.turn) != (one.type, one.turn):
        return False
    if one.type in _RETOLD or (format != "walld" and one.type != "message"):
        return True
    if format == "walld":
        return _is_same(one.payload, event.payload)
    fields = _RAN if _is_command(one.payload) else _SAID
    told, kept = (
        {name: said.get(name) for name in fields} for said in (one.payload, event.payload)
    )
    return _is_same(told, kept)


def _is_command(payload: Mapping[str, Any]) -> bool:
    foreign = payload.get("_foreign")
    return isinstance(foreign, dict) and foreign.get("role") == "bashExecution"


def _is_same(given: dict[str, Any], kept: dict[str, Any]) -> bool:
    """Of what is too long for an entry the rest, and which fields there are, are compared."""
    if given == kept:
        return True
    is_long = len(json.dumps(given)) > LEDGER_PAYLOAD_BYTES_MAX // 2
    return is_long and given.keys() == kept.keys() - {"_artifact"}


def _drawn(one: Foreign, format: str) -> str:  # noqa: A002
    said = json.dumps([one.id, one.type, one.turn, one.payload], sort_keys=True)
    return f"{format}.{blake2b(said.encode(), digest_size=9).hexdigest()}"
