"""Laws of pages of messages on random ledgers: a page is a slice of the whole list (Q4)."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec import structs
from session_log import Log
from test_session_calls import EFFECTS, check_anthropic, check_openai, ledger
from test_session_messages import conversations
from test_session_unreleased import world
from walld_client.recovered.provider import anthropic_messages, in_format

from walld.daemon.session_store.message_pages import _Known
from walld.ledger.line import chain_of, header_line, make_line
from walld.sessions.state.account import Unreleased
from walld.sessions.state.call_account import arguments_hash
from walld.sessions.state.events import SETTLED, Child, Event
from walld.sessions.views.message_page import NeedsMore, cursor_seq, page
from walld.sessions.views.messages import messages
from walld.sessions.views.tail_index import TailIndex

GOES_ON = anthropic_messages([{"role": "assistant", "content": "a"}])[:1]


class Seen:
    """What a run of a law met: one that met nothing shows nothing."""

    def __init__(self) -> None:
        self.pages = self.widened = self.starts = self.tails = self.needed_more = 0
        self.other_words = 0


def index_of(events: Sequence[Event]) -> TailIndex:
    index = TailIndex()
    for event in events:
        index.take(event)
    return index


def check_pages(
    events: Sequence[Event], replies: Sequence[Unreleased], seen: Seen, told: str, **more: Any
) -> None:
    """The list by pages of a length, from all events, and from some independent places."""
    rand = random.Random(told)
    whole = messages(events, unreleased=replies, **more) or []
    index = index_of(events)
    first = index.first_of((reply.turn, reply.stream_id) for reply in replies)
    brings = any(said.get("tool_results") for reply in replies for said in reply.messages)
    starts = [one for one in index._starts if first is None or one <= first]
    starts = [] if brings else starts
    starts = rand.sample(starts, min(2, len(starts)))
    for last in [rand.choice([1, 1, 2, 2, 3, 5, max(len(whole), 1)])]:
        rest, before = len(whole), None
        while True:
            found = page(events, last=last, before=before, unreleased=replies, **more)
            assert found is not None
            listed = found["messages"]
            assert listed == whole[rest - len(listed) : rest], f"{told}, last {last} of {rest}"
            assert len(listed) >= min(last, rest), told
            seen.pages += 1
            seen.widened += len(listed) > last
            for start in starts:
                seen.starts += 1
                end = index.end_for(cursor_seq(before))
                behind = [
                    one if end is None or one.seq < end else other_words(one)
                    for one in events
                    if one.seq >= start
                ]
                seen.other_words += end is not None
                try:
                    tail = page(
                        behind,
                        last=last,
                        before=before,
                        unreleased=replies,
                        opening=index.opening(start, behind),
                        **more,
                    )
                except NeedsMore:
                    seen.needed_more += 1
                    continue
                assert tail == found, f"{told}, last {last} before {before}, from {start}"
                seen.tails += start > events[0].seq
            check_formats(whole[:rest], listed, told)
            rest -= len(listed)
            before = found["before"]
            assert (before is None) == (rest == 0), told
            if before is None:
                break


def other_words(event: Event) -> Event:
    """Where a page that ends before it has none of its own."""
    name = {"message": "content", "tool_finished": "result", "observation": "text"}.get(event.type)
    if name is None or not isinstance(event.payload.get(name), str):
        return event
    return structs.replace(event, payload=event.payload | {name: "other words"})


def check_formats(whole: list[dict[str, Any]], listed: list[dict[str, Any]], told: str) -> None:
    """A provider is sent of a page what it is sent of the whole: all but names of calls, and what
    an assistant's beginning has before it.
    """
    sent, of_all = in_format(listed, "openai"), in_format(whole, "openai")
    check_openai(sent)
    assert unnamed(sent) == unnamed(of_all)[len(of_all) - len(sent) :], told
    sent, of_all = in_format(listed, "anthropic"), in_format(whole, "anthropic")
    check_anthropic(sent)
    sent = sent[1:] if sent[:1] == GOES_ON else sent
    assert unnamed(sent) == unnamed(of_all)[len(of_all) - len(sent) :], told


def unnamed(sent: Any) -> Any:
    """Without the names of calls."""
    if isinstance(sent, list):
        return [unnamed(one) for one in sent]
    if not isinstance(sent, dict):
        return sent
    names = {"tool_call_id", "tool_use_id"}
    if sent.get("type") in ("function", "tool_use"):
        names.add("id")
    return {name: unnamed(value) for name, value in sent.items() if name not in names}


def gone(rand: random.Random, call_id: str) -> dict[str, Any]:
    """What is left of a reply that was released with a call."""
    call: dict[str, Any] = {"call_id": call_id, "name": "edit", "seq": rand.randint(1, 9)}
    call |= {"outcome": rand.choice(["unknown", "done"])}
    if rand.random() < 0.7:
        call["arguments_hash"] = arguments_hash({"k": rand.randint(0, 1)})
    told = {"stream": f"s{rand.randint(1, 2)}", "step": 0, "calls": [call]}
    return told | {"started_at_ms": rand.choice([0, 10**15]), "status": "cancelled"}


def beside(rand: random.Random, log: Log, turn: str) -> None:
    """A sub-agent's session that is a call's work, or an application's entry that is a message."""
    if rand.random() < 0.5:
        role = rand.choice(["user", "assistant", "system"])
        log.offer("app.note", {"_message": {"role": role, "content": "noted"}})
        return
    of = {"turn": turn, "call_id": f"c{rand.randint(1, 9)}"}
    log.offer("child", {"session": "c", "call_id": of["call_id"], "of": of}, leaf=False)


def looked_at(event: Event, rand: random.Random) -> Event:
    """A child's entry as a view has it."""
    if event.type != "child":
        return event
    child = Child("s1", rand.random() < 0.7, "the child said")
    return structs.replace(event, child=child)


def long_turns(seed: int, *, is_more: bool = False) -> Log:
    """Few turns of many entries: retries, words of older turns, replies, calls settled late."""
    rand, log, turns = random.Random(seed), Log(), list[str]()
    for number in range(rand.randint(5, 60)):
        kind = rand.random()
        if not turns or kind < 0.08:
            turns.append(f"t{number}")
            more: dict[str, Any] = {"calls": "journal"} if rand.random() < 0.4 else {}
            if len(turns) > 1 and rand.random() < 0.4:
                of = rand.choice(turns[:-1])
                more |= {"retry_of": of, "message_id": f"m-{of}"}
            if log.offer(
                "turn_submitted",
                {"message_id": f"m-{turns[-1]}", "content": "q"} | more,
                turn=turns[-1],
            ):
                turns.pop()
            continue
        if is_more and rand.random() < 0.2:
            beside(rand, log, rand.choice(turns[-2:]))
            continue
        turn, call_id = rand.choice([turns[-1], turns[-1], *turns[-2:]]), f"c{rand.randint(1, 9)}"
        of_turn = {"turn": turn} if rand.random() < 0.6 else {}
        named = {"_turn": turn} if rand.random() < 0.3 else {}
        call = {"call_id": call_id}
        if kind < 0.2:
            intent = call | {"tool": "edit", "arguments": {"k": rand.randint(0, 1)}} | EFFECTS
            log.offer("tool_intent", intent, turn=turn)
        elif kind < 0.3:
            log.offer("tool_started", call, turn=turn)
        elif kind < 0.38:
            log.offer("tool_finished", call | {"result": "r"}, turn=turn)
        elif kind < 0.42:
            log.offer("observation", call | {"text": "o"}, turn=turn)
        elif kind < 0.45:
            told = {"of": {"turn": turn, "call_id": call_id}, "word": rand.choice(SETTLED)}
            log.offer("tool_settled", told, leaf=False)
        elif kind < 0.6:
            said = {"role": "tool", "content": "tm", "tool_call_id": call_id}
            log.offer("message", said | named, **of_turn)
        elif kind < 0.85:
            item = {"id": call_id, "name": "edit", "arguments": {"k": 0}, "outcome": "unknown"}
            said = {"role": "assistant", "content": "txt", "tool_calls": [item]} | named
            if rand.random() < 0.3:
                said |= {"_wal_stream": f"s{rand.randint(1, 2)}", "_wal_seq": rand.randint(1, 3)}
            if rand.random() < 0.2:
                said["tool_results"] = [{"id": call_id, "outcome": "done", "result": "brought"}]
            log.offer("message", said, **of_turn)
        elif kind < 0.9:
            edited = {"role": "assistant", "content": "edited"} | named
            edited |= {"tool_calls": [{"id": call_id, "name": "edit", "arguments": {"k": 0}}]}
            names = [event.id for event in log.events]
            log.offer("message_edit", {"target": rand.choice(names), "message": edited})
        elif kind < 0.92:
            log.offer("model_call", gone(rand, call_id), leaf=False, **of_turn)
        elif kind < 0.95:
            log.offer("message", {"role": "user", "content": "and"} | named, **of_turn)
        else:
            log.offer(
                rand.choice(["turn_completed", "turn_interrupted"]), {"reason": "x"}, turn=turn
            )
    return log


def test_pages_of_long_turns_are_slices() -> None:
    seen = Seen()
    for seed in range(500):
        check_pages(long_turns(seed).events, (), seen, f"long turns {seed}")
    assert min(vars(seen).values()) > 50, vars(seen)


def test_pages_with_sub_agents_and_declared_messages_are_slices() -> None:
    seen = Seen()
    for seed in range(300):
        rand = random.Random(seed)
        events = [looked_at(one, rand) for one in long_turns(seed, is_more=True).events]
        check_pages(events, (), seen, f"beside {seed}")
    assert min(vars(seen).values()) > 20, vars(seen)


def test_pages_take_no_call_from_the_results_of_its_id() -> None:
    """Of several calls of one id, then their results, each result is of the call of its place."""
    seen = Seen()
    for seed in range(30):
        rand, log = random.Random(seed), Log()
        for number in range(rand.randint(3, 12)):
            log.submit(f"t{number}")
            for _ in range(rand.randint(1, 2)):
                calls, results = rand.randint(1, 3), rand.randint(0, 4)
                for at in range(calls):
                    item = {"id": "c", "name": "edit", "arguments": {"k": at}}
                    said = {"role": "assistant", "content": "", "tool_calls": [item]}
                    log.add("message", said, turn=f"t{number}")
                for at in range(results):
                    told = {"role": "tool", "tool_call_id": "c", "content": f"{number}.{at}"}
                    log.add("message", told, turn=f"t{number}")
        check_pages(log.events, (), seen, f"results {seed}")
    assert min(seen.pages, seen.widened, seen.tails) > 20, vars(seen)


@pytest.mark.parametrize(
    "between",
    [
        [{"content": "", "arguments": "[1]", "outcome": "done"}],
        [{"content": "", "name": "", "outcome": "done"}],
        [{"content": "", "outcome": "unknown"}],
        [{"content": "I look.", "at": 7, "outcome": "done"}],
        [{"content": "I look.", "outcome": "done"}],
        [{"content": "I look.", "at": 7}, "seen"],
        [{"content": "I look.", "at": 2, "outcome": "done"}],
        [{"content": "I look.", "at": 2}, "seen"],
        [{"content": "I look.", "at": 2, "arguments": "[1]", "outcome": "done"}],
    ],
)
def test_a_page_begins_with_no_part_of_a_message(between: list[Any]) -> None:
    """Users' messages are one where nothing of the assistant's is sent between; to Anthropic so are
    results and the user's words behind them.
    """
    log, seen = Log(), Seen()
    log.say("user", "q")
    log.say("assistant", "Yes.")
    log.say("user", "one")
    item = {"id": "c", "name": "look", "arguments": "{}", "result": "seen"} | between[0]
    content = item.pop("content")
    if len(between) > 1:
        item.pop("result")
    log.say("assistant", content, tool_calls=[item])
    if len(between) > 1:
        log.say("tool", between[1], tool_call_id="c")
    log.say("user", "two")
    check_pages(log.events, (), seen, "a page a message")
    found = page(log.events, last=1)
    assert found is not None
    check_formats(messages(log.events) or [], found["messages"], str(between))


def test_pages_with_failed_attempts_are_slices() -> None:
    """A provider is sent nothing of them: what stands around may be one."""
    seen, call = Seen(), {"name": "look", "arguments": "{}"}
    for seed in range(120):
        log, rand = Log(), random.Random(seed)
        for number in range(rand.randint(3, 12)):
            calls = [call | {"id": rand.choice("cd")}] if rand.random() < 0.4 else []
            failed = {"_attempt": "error"} if rand.random() < 0.5 else {}
            words = rand.choice(["", f"word {number}"])
            what = rand.choice(["user", "assistant", "assistant", "tool"])
            if what == "user":
                log.say("user", f"question {number}")
            elif what == "tool":
                log.say("tool", f"result {number}", tool_call_id=rand.choice("cd"))
            else:
                log.say("assistant", words, tool_calls=calls, **failed)
        check_pages(log.events, (), seen, f"attempts {seed}")
    assert min(seen.pages, seen.widened) > 20, vars(seen)


def test_pages_of_random_ledgers_are_slices() -> None:
    seen = Seen()
    for seed in range(400):
        log, rand = ledger(seed), random.Random(seed)
        branch = rand.choice([None, rand.choice(log.events).id])
        more: dict[str, Any] = {"branch": branch, "compacted": seed % 3 > 0}
        more["unknown"] = "drop" if seed % 4 == 0 else "say"
        check_pages(log.events, (), seen, f"ledger {seed}", **more)
    assert min(vars(seen).values()) > 50, vars(seen)


def test_pages_with_unreleased_replies_are_slices() -> None:
    seen = Seen()
    for seed in range(200):
        events, replies, branches = world(seed)
        for branch in branches:
            more: dict[str, Any] = {"branch": branch, "compacted": seed % 3 > 0}
            check_pages(events, replies, seen, f"ledger {seed}, branch {branch}", **more)
    assert min(seen.pages, seen.widened, seen.tails) > 10, vars(seen)


@settings(max_examples=50)
@given(conversations())
def test_pages_of_conversations_are_slices(log: Log) -> None:
    seen = Seen()
    check_pages(log.events, (), seen, "a conversation")
    check_pages(log.events, (), seen, "a conversation", compacted=False)


def test_an_index_of_lines_is_that_of_their_events() -> None:
    """Also of half characters, which not every reader of JSON takes."""
    for seed in range(100):
        log, chain, lines = ledger(seed), b"\0" * 16, list[bytes]()
        log.say("user", "half \ud800")
        for event in log.events:
            payload = json.dumps(event.payload).encode()
            fields = (event.seq, event.id, 1, event.type, payload, chain)
            lines.append(make_line(*fields, parent=event.parent, turn=event.turn, leaf=event.leaf))
            chain = chain_of(lines[-1])
        known, expected = _Known(), vars(index_of(log.events))
        cut = random.Random(seed).randint(0, len(lines))
        assert known.glance(b"".join([header_line(0, "s"), *lines[:cut]]))
        known.take(lines[cut:])
        assert vars(known.index) == expected, seed
        assert known.line == lines[-1]
        assert not known.glance(lines[0]), "a line that stands out of order"


@pytest.mark.sweep
def test_pages_of_many_random_ledgers_are_slices() -> None:
    """`WALLD_LEDGERS=10000 pytest -m sweep -k pages_of_many` tries as many of each kind."""
    seen = Seen()
    for seed in range(500, 500 + int(os.environ.get("WALLD_LEDGERS", "1000"))):
        check_pages(ledger(seed).events, (), seen, f"ledger {seed}", compacted=seed % 3 > 0)
        check_pages(long_turns(seed).events, (), seen, f"long turns {seed}")
        events, replies, branches = world(seed)
        for branch in branches:
            check_pages(events, replies, seen, f"world {seed}, branch {branch}", branch=branch)
