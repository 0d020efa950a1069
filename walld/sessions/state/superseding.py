"""Open calls that later ones of the same user message took the place of.

Owns: which those are, and what is one call's name for another. Refuses: what a call is and what
became of it (`account.py`).

Invariants: computed over all calls, never stored: one that is denied after all closes nothing. An
equal call of another user message is another wish. One pass over the turns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from walld.sessions.state.account import CallAccount

__all__ = ["OPEN", "json_key", "supersede"]

OPEN: Final = frozenset(("pending", "unknown"))
"""Outcomes of calls that nobody said the end of."""
_AS_JSON: Final = msgspec.json.Encoder(order="deterministic")


def supersede(calls: Sequence[CallAccount], turns: Mapping[str, str | None]) -> None:
    """Open calls that later ones took the place of, in a later turn of the same user message.

    By equal tools and arguments, by an equal key, or by name. One that may have run is closed by
    one that started, the others by an intent; one that was denied closes nothing.
    """
    first: dict[str, str] = {}
    of_turn: dict[str, list[CallAccount]] = {}
    for turn, retried in turns.items():
        first[turn] = turn if retried is None else first.get(retried, retried)
    for call in calls:
        if call.turn in first:
            of_turn.setdefault(call.turn, []).append(call)
    pending: dict[object, list[CallAccount]] = {}
    unknown: dict[object, list[CallAccount]] = {}
    for turn, chain in first.items():
        listed = of_turn.get(turn, ())
        for later in listed:
            if later.intent is None or later.is_denied:
                continue
            has_run = "started" in later.seqs or later.has_result
            for name in (*_found_by(later), ("named", later.supersedes)):
                for there in (pending, unknown) if has_run else (pending,):
                    for call in there.pop((chain, *name), ()):
                        call.superseded_by = call.superseded_by or later
        for call in listed:
            if (outcome := call.outcome) in OPEN:
                there = unknown if outcome == "unknown" else pending
                for name in (*_found_by(call), ("named", call.call_id)):
                    there.setdefault((chain, *name), []).append(call)


def _found_by(call: CallAccount) -> Iterator[tuple[object, ...]]:
    yield "call", call.name, json_key(call.arguments)
    if isinstance(call.key, str) and call.key:
        yield "key", call.key


def json_key(arguments: object) -> object:
    """Equal for arguments that are equal as JSON."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return arguments
    try:
        return _AS_JSON.encode(arguments)
    except (ValueError, OverflowError, RecursionError):
        pass  # half a character, a number beyond 64 bits
    try:
        return json.dumps(arguments, sort_keys=True)
    except (ValueError, RecursionError):
        return id(arguments)
