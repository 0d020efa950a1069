"""Laws of what names a call: who settles it by that settles that call, and no other."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from test_session_unreleased import world

from walld.sessions.gate.resume import resume
from walld.sessions.state.account import Unreleased, calls_of_events
from walld.sessions.state.call_account import CallAccount
from walld.sessions.state.events import Event, check_payload

ENDS = ("ran", "did_not_run")


def behind(events: list[Event], kind: str, payload: dict[str, Any], **more: Any) -> list[Event]:
    assert check_payload(kind, payload) is None, payload
    seq = events[-1].seq + 1
    fields: dict[str, Any] = {"id": f"behind {seq}", "parent": events[-1].id} | more
    return [*events, Event(seq=seq, type=kind, payload=payload, **fields)]


def settled(events: list[Event], of: dict[str, Any], word: str) -> list[Event]:
    return behind(events, "tool_settled", {"of": of, "word": word}, leaf=False)


def is_it(call: CallAccount, row: dict[str, Any]) -> bool:
    """What the settlement names it by, or else is known of it."""
    of = row["of"]
    if "seq" in of:
        at = call.said_at or {}
        place = at.get("stream"), at.get("seq")
        return (call.turn, *place) == (row["turn"], of["stream"], of["seq"])
    same = (call.turn, call.call_id) == (row["turn"], row["call_id"])
    intent = None if call.intent is None else call.intent.id
    is_named = row["tool"] not in ("", "unknown")  # of a start whose intent is lost
    return same and intent == row["intent"] and (not is_named or call.name == row["tool"])


def named(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], str]:
    """Open calls of a gate, and what may be done with each."""
    return {
        (one["turn"], one["stream"], one["call_id"], one["n"]): one["may"]
        for one in rows
        if one["may"] != "read_result"
    }


def released(rand: random.Random, events: list[Event], replies: list[Unreleased]) -> list[Event]:
    """In any order, behind all that is there."""
    for reply in rand.sample(replies, len(replies)):
        for message in reply.messages:
            events = behind(events, "message", message, turn=reply.turn)
    return events


def check(first: int, last: int) -> int:
    several = 0
    for seed in range(first, last):
        events, replies, _ = world(seed)
        rand, gate = random.Random(seed), resume(events, replies=replies)
        rows = [one for one in gate["calls"] if one["may"] != "read_result"]
        names = [tuple(sorted(one["of"].items())) for one in gate["calls"]]
        assert len(set(names)) == len(names), f"ledger {seed}: two calls have one name"
        for row in rows:
            told = f"ledger {seed}, {row['of']}"
            after = settled(events, row["of"], rand.choice(ENDS))
            left = named(resume(after, replies=replies)["calls"])
            key = (row["turn"], row["stream"], row["call_id"], row["n"])
            before = named(gate["calls"])
            assert left.keys() == before.keys() - {key}, told
            for log, ahead in ((after, replies), (released(rand, after, replies), [])):
                calls = calls_of_events(log, ahead).calls
                by_it = [one for one in calls if one.settled is log[len(events)]]
                is_there = any(is_it(one, row) for one in calls)
                assert len(by_it) == is_there, told
                assert all(is_it(one, row) for one in by_it), told
            several += len(row["of"]) > 2
    return several


def test_what_the_gate_names_is_settled_and_nothing_else() -> None:
    assert check(0, 250) > 200, "ledgers in which no id comes twice show nothing"


@pytest.mark.sweep
def test_what_the_gate_names_is_settled_in_many_ledgers() -> None:
    assert check(250, 20000) > 200


def test_a_name_is_of_the_same_call_where_lines_are_lost() -> None:
    """A number would be of the next one then."""
    for seed in range(120):
        events, replies, _ = world(seed)
        rand = random.Random(seed)
        for row in resume(events, replies=replies)["calls"]:
            if row["may"] == "read_result" or len(row["of"]) < 3:
                continue
            whole = settled(events, row["of"], "ran")
            lost = rand.randrange(len(events))
            log = [*whole[:lost], *(msgspec.structs.replace(one) for one in whole[lost + 1 :])]
            for one in calls_of_events(log, replies).calls:
                if one.settled is not None:
                    assert is_it(one, row), f"ledger {seed} without {lost}, {row['of']}"
