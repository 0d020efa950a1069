"""`walld session ls`: the sessions of a user, and where each stands.

Imports no more than it needs: it is for who looks again and again.

Owns: the list, as lines and as JSON; asking for the words a slice at a time. Refuses: what they
mean (`sessions/gate/standing.py`).

A daemon that does not know the words, or cannot say them in time, costs the column; `--needs`,
which is nothing without them, fails then. A session whose word is not known may need somebody.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from typing import Any

import msgspec
from walld_client.errors import Refused, Unsupported
from walld_client.query.requests import decode_view
from walld_client.wire import messages as wire

from walld.cli.client import Daemon, Unavailable
from walld.cli.exit_codes import DONE, complain
from walld.cli.session_client import SessionClient
from walld.cli.show import as_json, needs_somebody
from walld.escape import escaped_line

__all__ = ["run"]

_AT_ONCE = 64
"""Sessions of one question."""


def run(options: argparse.Namespace) -> int:
    """Prints one line a session."""
    with Daemon(options.socket, options.timeout) as daemon:
        return _list(SessionClient(daemon, options.uid), options)


def _list(asking: SessionClient, options: argparse.Namespace) -> int:
    answer = asking.ask(lambda number: wire.Sessions(number, options.prefix))
    found = msgspec.msgpack.decode(answer, type=list[wire.SessionFacts])
    words: dict[str, str | None] = {}
    unknown = "?"
    try:
        words = _standings(asking, [facts.session_id for facts in found])
    except (Unsupported, Refused, Unavailable) as error:
        if options.needs:
            raise
        unknown = ""
        complain(f"where the sessions stand is not known: {error}")
    if options.needs:
        found = [one for one in found if needs_somebody(words.get(one.session_id))]
    if options.json:
        print(as_json([_fields(one) | {"state": words.get(one.session_id)} for one in found]))
        return DONE
    rows = [("LAST EVENT", "UID", "EVENTS", "BYTES", "STATE", "SESSION")]
    for facts in found:
        numbers = (str(facts.uid), str(facts.last_seq), str(facts.bytes))
        state = words.get(facts.session_id) or unknown
        shown = escaped_line(facts.session_id)
        rows.append((_time(facts.last_at_ms), *numbers, escaped_line(state), shown))
        if facts.trouble:
            complain(f"session {shown}: cannot be read as it is: {facts.trouble}")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(map(str.ljust, row, widths)).rstrip())
    return DONE


def _standings(asking: SessionClient, session_ids: list[str]) -> dict[str, str | None]:
    """By session; None where the daemon cannot know it now. Unsupported of an older one."""
    words: dict[str, str | None] = {}
    left = session_ids
    while left:
        asked = left[:_AT_ONCE]
        arguments = json.dumps({"sessions": asked}).encode()
        answer = asking.ask(
            lambda number, given=arguments: wire.Project(number, "", "standing", given, breaks=True)  # type: ignore[misc]
        )
        told, _ = decode_view(answer)
        came: dict[str, str | None] = {} if told is None else json.loads(told)
        if came.keys().isdisjoint(asked):
            return words  # it does not get on: what is left is not known
        words |= came
        # What the daemon had no time for is asked again.
        left = [one for one in asked if one not in came] + left[_AT_ONCE:]
    return words


def _time(at_ms: int) -> str:
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # an application's clock can say anything
        return str(at_ms)
    return at.isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")


def _fields(facts: wire.SessionFacts) -> dict[str, Any]:
    return {name: getattr(facts, name) for name in facts.__struct_fields__}
