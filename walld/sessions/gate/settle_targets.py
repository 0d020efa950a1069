"""What names a call to who settles it, also where its turn, or its reply, gave its id again.

Owns: `of` of a `tool_settled`, and the number that a person tells calls of one id apart by.
Refuses: which call a settlement is about (`state/account.py`, `possibly_run.py`).

A call whose id nothing else of its turn has, or of its reply where it has no turn, is named by
those. Another one by what no later entry changes: the entry that began it; or, as long as a reply
alone has said it, its place there. A number among those of one id would be another call's once an
entry is lost, or replies are released in another order than they were begun in.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from walld.sessions.state.call_account import CallAccount

__all__ = ["SETTLE_FLAGS", "command_line", "names_of", "settle_command"]

SETTLE_FLAGS: Final = {
    "ran": "--ran",
    "did_not_run": "--did-not-run",
    "granted": "--grant",
    "denied": "--deny",
}
"""Word of a settlement -> how a person types it."""


def names_of(
    calls: Sequence[CallAccount], elsewhere: Sequence[CallAccount]
) -> dict[int, tuple[int, dict[str, Any]]]:
    """By `id()` of a call: how often its id came by then in the session, and what names it.

    calls: all of them, in order. elsewhere: those of which a `forked` or an `imported` entry told.
    """
    counts = Counter(_place(one) for one in (*calls, *elsewhere))
    came = Counter[str]()
    said = Counter[tuple[str, str]]()
    found: dict[int, tuple[int, dict[str, Any]]] = {}
    for call in calls:
        place = _place(call)
        came[call.call_id] += 1
        said[entry := (call.said_in.id, call.call_id)] += 1
        is_alone = counts[place] == 1 and place[:2] != (None, None)
        of = _of(call) if is_alone else _apart(call, said[entry])
        found[id(call)] = came[call.call_id], of
    for call in elsewhere:
        came[call.call_id] += 1
        of = {"turn": call.turn, "entry": call.begun.id, "call_id": call.call_id}
        found[id(call)] = came[call.call_id], of
    return found


def settle_command(
    session: str, call: Mapping[str, Any], calls: Sequence[Mapping[str, Any]], word: str
) -> str:
    """What a person types to say that word of a call of the gate. calls: all that it has,
    those among which a settlement finds the one that is meant.
    """
    options: list[tuple[str, str]] = []
    same = [
        one
        for one in calls
        if one["call_id"] == call["call_id"]
        if one["may"] != "read_result" or one["settled"] is not None
    ]
    for name in ("turn", "stream"):
        if len(same) > 1 and call[name] is not None:
            options.append((f"--{name}", call[name]))
            same = [one for one in same if one[name] == call[name]]
    if len(same) > 1:
        options.append(("--n", str(call["n"])))
    return command_line("session settle", (session, call["call_id"]), options, SETTLE_FLAGS[word])


def command_line(
    verb: str,
    named: Sequence[str] = (),
    options: Sequence[tuple[str, str]] = (),
    flag: str = "",
) -> str:
    """As a person types it. An id that begins with a dash is no option: all of them may have been
    chosen by a model, or by who wants another command to be typed.
    """
    told = [
        f"{name}={shlex.quote(value)}" if value.startswith("-") else f"{name} {shlex.quote(value)}"
        for name, value in options
    ]
    told += [flag] if flag else []
    ids = [shlex.quote(one) for one in named]
    looks_like_one = any(one.startswith("-") for one in named)
    words = [*told, "--", *ids] if looks_like_one else [*ids, *told]
    return " ".join([f"walld {verb}", *words])


def _place(call: CallAccount) -> tuple[str | None, ...]:
    return call.turn, call.stream if call.turn is None else None, call.call_id


def _of(call: CallAccount) -> dict[str, Any]:
    where = {"stream": call.stream} if call.turn is None else {"turn": call.turn}
    return where | {"call_id": call.call_id}


def _apart(call: CallAccount, number: int) -> dict[str, Any]:
    """number: of those of its id that the same entry said first."""
    of: dict[str, Any] = {} if call.turn is None else {"turn": call.turn}
    if call.intent is not None:
        return of | {"entry": call.intent.id, "call_id": call.call_id}
    if call.said_at is not None:
        return of | {"call_id": call.call_id} | call.said_at
    of |= {"entry": call.said_in.id, "call_id": call.call_id}
    return of | ({"n": number} if number > 1 else {})
