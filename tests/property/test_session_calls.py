"""Laws of calls on random ledgers: what a provider is sent is safe, whoever spoke of a call."""

from __future__ import annotations

import random

import pytest
from session_log import Log
from vendor_rules import check_anthropic, check_openai

from walld.sessions.state.account import calls_of_events
from walld.sessions.views.messages import messages

EFFECTS = {"side_effect": "read", "resume_policy": "rerun-after-check"}


def ledger(seed: int) -> Log:
    """Journals, messages, edits, undos, compactions and branches, as a daemon takes them."""
    rand, log, turns = random.Random(seed), Log(), 0
    for _ in range(rand.randint(3, 40)):
        kind, turn, call_id = rand.random(), f"t{turns}", f"c{rand.randint(1, 4)}"
        names = [event.id for event in log.events]
        if not turns or kind < 0.1:
            turns += 1
            log.submit(f"t{turns}", f"q{turns}")
        elif kind < 0.25:
            call = {"call_id": call_id, "tool": "edit", "arguments": {"k": rand.randint(0, 1)}}
            log.offer("tool_intent", call | EFFECTS, turn=turn)
        elif kind < 0.33:
            log.offer("tool_started", {"call_id": call_id}, turn=turn)
        elif kind < 0.45:
            log.offer("tool_finished", {"call_id": call_id, "result": "r"}, turn=turn)
        elif kind < 0.5:
            log.offer("observation", {"call_id": call_id, "text": "o"}, turn=turn)
        elif kind < 0.55:
            told = {"role": "tool", "content": "tm", "tool_call_id": call_id}
            log.offer("message", told, turn=turn)
        elif kind < 0.7:
            item = {"id": call_id, "name": "edit", "arguments": {"k": 0}, "outcome": "unknown"}
            item["at"] = rand.randint(0, 3)
            calls = {"tool_calls": [item]} if rand.random() < 0.6 else {}
            log.offer("message", {"role": "assistant", "content": "txt"} | calls, turn=turn)
        elif kind < 0.76:
            log.offer("undo", {"n": rand.randint(1, 3)})
        elif kind < 0.82:
            edited = {"role": rand.choice(["user", "assistant"]), "content": "edited"}
            log.offer("message_edit", {"target": rand.choice(names), "message": edited})
        elif kind < 0.85:
            log.offer("message_edit", {"messages": [{"role": "user", "content": "new"}]})
        elif kind < 0.9:
            log.offer("compaction", {"summary": "sum", "first_kept": rand.choice(names)})
        elif kind < 0.95:
            log.offer("leaf", {"target": rand.choice(names)})
        else:
            log.offer("turn_interrupted", {"reason": "x"}, turn=turn)
    return log


def check(first: int, last: int) -> int:
    results = 0
    for seed in range(first, last):
        log = ledger(seed)
        branch = random.Random(seed).choice(log.events).id
        for at in (None, branch):
            try:
                openai = check_openai(messages(log.events, "openai", at) or [])
                anthropic = check_anthropic(messages(log.events, "anthropic", at) or [])
            except AssertionError as error:
                raise AssertionError(f"ledger {seed}, branch {at}: {error}") from error
            assert openai == anthropic, f"ledger {seed}, branch {at}"
            results += openai
    return results


def test_what_is_sent_of_a_random_ledger_is_safe() -> None:
    assert check(0, 2000) > 1000, "ledgers without results show nothing"


@pytest.mark.sweep
def test_what_is_sent_of_many_random_ledgers_is_safe() -> None:
    assert check(2000, 30000) > 1000


@pytest.mark.parametrize("first", [0, 250])
def test_each_call_is_one_fact(first: int) -> None:
    """An intent begins one call; the same events give the same account; a result is never lost."""
    for seed in range(first, first + 250):
        log = ledger(seed)
        found = calls_of_events(log.events)
        intents = [event.id for event in log.events if event.type == "tool_intent"]
        assert sorted(one.intent.id for one in found.calls if one.intent) == sorted(intents)
        again = calls_of_events(log.events).calls
        assert [one.outcome for one in found.calls] == [one.outcome for one in again]
        for call in found.calls:
            if "started" in call.seqs and not call.has_result and "observed" not in call.seqs:
                assert call.outcome == "unknown", seed
            if call.superseded_by is not None:
                assert call.superseded_by.turn != call.turn
