"""walld session import: another program's session file, appended to a session.

Owns: what of a file goes into one request, and saying what was not understood. Refuses: formats
(`foreign/`), what is too long for an entry (the client puts it beside the session).

The same lines give the same ids and an id is appended once, so an import that was cut short, or of
a file that has grown, is simply repeated.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator

import msgspec
from walld_client import artifacts
from walld_client.entries import in_pieces
from walld_client.errors import Refused
from walld_client.limits import APPEND_BYTES_MAX
from walld_client.requests import decode_placed
from walld_client.wire import messages as wire

from walld.cli.asking import Asking
from walld.cli.run import DONE
from walld.cli.show import as_json
from walld.errors import WalldError
from walld.escape import escaped_line
from walld.foreign.detect import read
from walld.foreign.entries import Foreign

__all__ = ["run"]

_ENTRIES_MAX = 200
"""Of one request; and its payloads are half a frame at most, so that ids have room."""
_WAITS = 60
_WAIT_SECONDS = 0.5
"""A daemon whose memory for lines is full writes them to their files meanwhile."""


def run(asking: Asking, options: argparse.Namespace) -> int:
    """Append the file's entries."""
    with open(options.file, "rb") as file:
        imported = read(file, options.format)
    known = _known_ids(asking, options.session) if any(one.key for one in imported.entries) else ()
    split = [piece for one in imported.entries for piece in _split(one)]
    wanted = [one for one in split if one.key is None or one.id not in known]
    new = 0
    for piece in _pieces(_travelling(asking, options.session, wanted)):
        new += sum(one.is_new for one in _append(asking, options.session, piece))
    count = len(split)
    told = {
        "session": options.session,
        "format": imported.format,
        "version": imported.version,
        "entries": count,
        "new": new,
        "not_understood": imported.not_understood,
        "reasons": imported.reasons,
    }
    if options.json:
        print(as_json(told))
        return DONE
    line = f"{escaped_line(options.session)}: {new} entries from {imported.format}"
    if new < count:
        line += f", {count - new} were there already"
    print(line)
    for reason, count in imported.reasons.items():
        kept = "left out" if reason == "torn" else f"kept as foreign.{imported.format}"
        print(f"  not understood: {count} lines ({escaped_line(reason)}), {kept}")
    return DONE


def _known_ids(asking: Asking, session_id: str) -> set[str]:
    """`once` would look at an entry's key and not at its id: several may have one key."""
    return {json.loads(line)["id"] for line in asking.lines(session_id) or ()}


def _split(one: Foreign) -> list[Foreign]:
    """An entry whose list of messages is too long for it as several that go on with the list.

    The last has its id: what hangs on it hangs on all of them.
    """
    name = {"message_edit": "messages", "compaction": "replacement"}.get(one.type, "")
    listed = one.payload.get(name)
    pieces = in_pieces(listed) if isinstance(listed, list) else []
    if len(pieces) < 2:
        return [one]
    made: list[Foreign] = []
    for at, piece in enumerate(pieces):
        is_last = at == len(pieces) - 1
        payload = {name: piece, "append": True} if made else one.payload | {name: piece}
        ident = one.id if is_last else f"{one.id}:{at}"
        parent = made[-1].id if made else one.parent
        made.append(msgspec.structs.replace(one, payload=payload, id=ident, parent=parent))
    return made


def _travelling(asking: Asking, session_id: str, wanted: list[Foreign]) -> Iterator[wire.NewEntry]:
    for number, one in enumerate(wanted, 1):
        try:
            payload = asking.run(artifacts.fitted(session_id, one.payload))
        except ValueError as error:
            raise WalldError(f"entry {number} ({one.id}): {error}") from None
        yield _entry(one, payload)


def _entry(one: Foreign, payload: bytes) -> wire.NewEntry:
    return wire.NewEntry(
        one.type,
        payload,
        one.id,
        one.parent,
        one.turn,
        one.cause,
        one.correlation,
        one.key,
        one.leaf,
        once=one.key is None,
        at_ms=one.at_ms,
    )


def _pieces(entries: Iterator[wire.NewEntry]) -> Iterator[list[wire.NewEntry]]:
    piece: list[wire.NewEntry] = []
    size = 0
    for entry in entries:
        if piece and (
            len(piece) == _ENTRIES_MAX or size + len(entry.payload) > APPEND_BYTES_MAX // 2
        ):
            yield piece
            piece, size = [], 0
        piece.append(entry)
        size += len(entry.payload)
    if piece:
        yield piece


def _append(asking: Asking, session_id: str, piece: list[wire.NewEntry]) -> list[wire.Placed]:
    """One request; it waits while the daemon has no room for lines."""
    for _ in range(_WAITS):
        try:
            return decode_placed(asking.ask(lambda number: wire.Append(number, session_id, piece)))
        except Refused as refused:
            if refused.code != "ledger_full":
                raise
        time.sleep(_WAIT_SECONDS)
    waited = f"{_WAITS * _WAIT_SECONDS:g} s"
    raise WalldError(f"session {session_id}: no room for {len(piece)} entries within {waited}")
