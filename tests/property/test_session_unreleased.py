"""Laws of unreleased and adopted replies on random ledgers: what a provider is sent is safe."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest
from msgspec import structs
from session_log import Log
from test_session_calls import ledger
from vendor_rules import check_anthropic, check_openai

from walld.foreign import claude
from walld.sessions.gate.fork import forked
from walld.sessions.state.account import Unreleased, calls_of_events
from walld.sessions.state.events import Event
from walld.sessions.views.event_memory import TELLS_NO_TEXT, shortened
from walld.sessions.views.messages import messages
from walld.sessions.views.projections import project

LONG = "y" * 1000


def replies(rand: random.Random, log: Log) -> list[Unreleased]:
    """Of some of its turns, their calls named as the journal's are, and as each other's."""
    turns = [event.turn for event in log.events if event.type == "turn_submitted"]
    found = []
    for number in range(rand.randint(1, 4)):
        steps: list[dict[str, Any]] = []
        seq = 1
        for _ in range(rand.randint(0, 3)):
            text = rand.choice(["", "text.", "Now I fix", " "])
            calls = [call(rand, seq + at, len(text)) for at in range(rand.randint(0, 2))]
            said = {"role": "assistant", "content": text, "_wal_recovered": True}
            said |= {"_wal_stream": f"s{number}", "_wal_seq": seq}
            if rand.random() < 0.3:
                said["_partial"] = True
            if rand.random() < 0.2:
                said["tool_results"] = [
                    {"id": f"c{rand.randint(1, 4)}", "outcome": "done", "result": "brought"}
                ]
            steps.append(said | ({"tool_calls": calls} if calls else {}))
            seq += 10
        earlier = tuple(
            (call(rand, 90 + at, 0), rand.random() < 0.5) for at in range(rand.randint(0, 2))
        )
        turn = rand.choice(turns) or "" if rand.random() < 0.9 else "of no entry"
        found.append(Unreleased(f"s{number}", turn, steps, rand.random() < 0.5, earlier))
    return found


def call(rand: random.Random, seq: int, length: int) -> dict[str, Any]:
    outcome = rand.choice(["unknown", "unknown", "done", "failed"])
    item = {"id": f"c{rand.randint(1, 4)}", "name": "edit", "outcome": outcome, "seq": seq}
    item |= {"arguments": f'{{"k": {rand.randint(0, 1)}}}', "at": rand.randint(0, length)}
    item["arguments_complete"] = rand.random() < 0.9
    if outcome != "unknown":
        item["result"] = rand.choice(["r", "", None, {"a": 1}, "long " * 5000])
    return item | ({"server": True} if rand.random() < 0.1 else {})


def adopt(rand: random.Random, log: Log, one: Unreleased) -> None:
    """Some of its messages, as an application appends them that may not know the turn."""
    for message in one.messages:
        if rand.random() < 0.7:
            told = message | ({"_turn": one.turn} if rand.random() < 0.7 else {})
            log.offer("message", told, turn=one.turn if rand.random() < 0.3 else None)
    if rand.random() < 0.5:
        log.submit(f"later-{one.stream_id}", "later")


def brought(rand: random.Random, log: Log) -> None:
    """Of a file of another agent: calls and results in any order, signed thoughts, blanks."""
    lines, parent = [], None
    for number in range(rand.randint(1, 8)):
        uuid, call_id = f"u{number}", f"c{rand.randint(1, 4)}"
        text = {"type": "text", "text": rand.choice(["said", " ", "It ends. "])}
        used = {"type": "tool_use", "id": call_id, "name": "edit", "input": {"k": 0}}
        gave = {"type": "tool_result", "tool_use_id": call_id, "content": rand.choice(["r", ""])}
        thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
        role = rand.choice(["user", "assistant"])
        blocks = [text, used, thought] if role == "assistant" else [text, gave]
        blocks = rand.sample(blocks, rand.randint(1, len(blocks)))
        message = {"role": role, "content": blocks, "id": f"m{rand.randint(1, 3)}", "model": "m"}
        line = {"type": role, "uuid": uuid, "parentUuid": parent, "message": message}
        lines.append(json.dumps(line | {"sessionId": "s", "isSidechain": False}))
        parent = rand.choice([uuid, uuid, uuid, parent])
    for one in claude.read(lines).entries:
        more = {} if one.parent is None else {"parent": one.parent}
        log.offer(one.type, one.payload, id=one.id, turn=one.turn, leaf=one.leaf, **more)


def world(seed: int) -> tuple[list[Event], list[Unreleased], list[str | None]]:
    """Events, unreleased replies, and the entries whose paths are looked at."""
    rand, log = random.Random(seed), ledger(seed)
    if seed % 4 == 1:
        brought(rand, log)
    found = replies(rand, log)
    for one in found:
        if rand.random() < 0.5:
            log.offer("turn_assistant_started", {"stream_id": one.stream_id}, turn=one.turn)
    for one in found:
        if rand.random() < 0.4:
            adopt(rand, log, one)
    events = forked(log.events, rand.choice(log.events).id) if seed % 5 == 0 else log.events
    return events or log.events, found, [None, rand.choice(events or log.events).id]


def check(first: int, last: int) -> int:
    said = 0
    for seed in range(first, last):
        events, found, branches = world(seed)
        for at in branches:
            more: Any = {"unreleased": found, "compacted": seed % 3 > 0}
            more["unknown"] = "drop" if seed % 4 == 0 else "say"
            told = f"ledger {seed}, branch {at}"
            try:
                openai = check_openai(messages(events, "openai", at, **more) or [])
                anthropic = check_anthropic(messages(events, "anthropic", at, **more) or [])
            except AssertionError as error:
                raise AssertionError(f"{told}: {error}") from error
            assert openai == anthropic, told
            plain = messages(events, "plain", at, **more) or []
            keys = [(one.get("_wal_stream"), one.get("_wal_seq")) for one in plain]
            edits = sum(event.type in ("message_edit", "compaction") for event in events)
            steps = [key for key in keys if key != (None, None)]
            assert edits or len(steps) == len(set(steps)), f"{told}: a step is told twice"
            said += len(steps)
    return said


def test_what_is_sent_of_random_replies_is_safe() -> None:
    assert check(0, 700) > 500, "ledgers without replies show nothing"


@pytest.mark.sweep
def test_what_is_sent_of_many_random_replies_is_safe() -> None:
    """`WALLD_LEDGERS=100000 pytest -m sweep -k many_random_replies` tries as many."""
    assert check(700, int(os.environ.get("WALLD_LEDGERS", "30000"))) > 500


def test_a_reply_changes_no_result_that_is_known() -> None:
    """What the ledger says that a call gave goes before what a reply says."""
    for seed in range(150):
        events, found, _ = world(seed)
        without = {one.intent.id: one for one in calls_of_events(events).calls if one.intent}
        for one in calls_of_events(events, found).calls:
            known = without.get(one.intent.id) if one.intent is not None else None
            if known is not None and "journal" in known.given and "said" not in known.given:
                assert one.word == known.word, seed
                assert one.given["journal"] == known.given["journal"], seed


def test_adopting_changes_nothing_of_what_is_sent() -> None:
    """Before the retry and behind its answer: the text that is cut alone is not sent then."""
    differ = 0
    for seed in range(200):
        rand, log = random.Random(seed), Log()
        log.submit("t1", "q")
        log.add("turn_assistant_started", {"stream_id": "s0"}, turn="t1")
        (one,) = [one._replace(turn="t1", earlier=()) for one in replies(rand, log)][:1]
        log.add("turn_interrupted", {"reason": "agent_lost"}, turn="t1")
        log.submit("t2", "q", retry_of="t1", message_id="m-t1")
        log.add("message", {"role": "assistant", "content": "again"}, turn="t2")
        for message in one.messages:  # where a result stands before its call, order counts
            message.pop("tool_results", None)
        for message in one.messages[-1:]:
            message.pop("_partial", None) if one.has_ended else message.update(_partial=True)
        before = messages(log.events, "openai", unreleased=[one])
        for message in one.messages:
            log.add("message", message)
        after = messages(log.events, "openai", unreleased=[one])
        assert after == messages(log.events, "openai"), seed
        differ += before != after
    assert differ <= 20, "where a step in the middle is partial alone"


def lengthened(event: Event) -> Event:
    """With long texts where a view that tells no words keeps their beginnings."""
    name = {"message": "content", "tool_finished": "result", "observation": "text"}.get(event.type)
    told = event.payload.get(name) if name is not None else None
    if isinstance(told, str) and told:
        return structs.replace(event, payload=event.payload | {name: told + LONG})
    if isinstance(told, list):
        blocks = [one | {"text": one["text"] + LONG} if "text" in one else one for one in told]
        return structs.replace(event, payload=event.payload | {name: blocks})
    return event


@pytest.mark.parametrize("name", sorted(TELLS_NO_TEXT))
def test_a_view_that_tells_no_words_needs_their_beginnings_alone(name: str) -> None:
    """The gate, above all: the same calls, reasons and verdict."""
    cut = 0
    for seed in range(60):
        events, replies, _ = world(seed)
        events = [lengthened(one) for one in events]
        short = [shortened(one) for one in events]
        cut += short != events
        of_replies = name in ("audit", "pending", "resume")
        named = [{"of": one.id} for one in events[::7]] if name == "edit_target" else [{}]
        for more in named:
            arguments: dict[str, Any] = {"replies": replies} if of_replies else more
            assert project(name, short, arguments) == project(name, events, arguments), seed
    assert cut > 30, "it met none"
