"""The path of a session's end is the end of its path."""

from __future__ import annotations

import random

import pytest
from session_log import Log

from walld.sessions.state.errors import BadArgument
from walld.sessions.state.path import path_events, tail_path


def branched(rand: random.Random) -> Log:
    """Entries that go on, stand beside, move the leaf, to before the first too."""
    log = Log()
    for number in range(rand.randint(1, 25)):
        ids = [event.id for event in log.events]
        chance = rand.random()
        if chance < 0.1 and ids:
            log.add("leaf", {"target": rand.choice([*ids, None])})
        elif chance < 0.2 and ids:
            log.add("label", {"target": rand.choice(ids), "text": "here"})
        elif chance < 0.35 and ids:
            log.add("message", {"role": "user", "content": "x"}, parent=rand.choice(ids))
        elif chance < 0.45:
            log.add("note", {"text": str(number)}, leaf=False)
        else:
            log.add("message", {"role": "user", "content": "x"})
    return log


def test_an_end_has_the_end_of_the_path_or_says_that_it_is_not_there() -> None:
    none = parts = wholes = 0
    for seed in range(300):
        rand = random.Random(seed)
        events = branched(rand).events
        cut = rand.randrange(len(events))
        branch = rand.choice([None, rand.choice(events[cut:]).id])
        path, found = path_events(events, branch), tail_path(events[cut:], branch)
        at_hand = [event for event in path if event.seq > cut]
        if found is None:
            none += 1
            assert branch is None, f"seed {seed}"
            assert not path or path[-1].seq <= cut, f"seed {seed}"
            continue
        assert found == (at_hand, at_hand == path), f"seed {seed}"
        parts += at_hand != path
        wholes += at_hand == path
    assert min(none, parts, wholes) > 10


def test_a_branch_that_is_not_at_hand() -> None:
    log = Log()
    first = log.add("message", {"role": "user", "content": "x"})
    log.add("message", {"role": "user", "content": "y"})
    assert tail_path(log.events[1:], first) is None
    assert tail_path([], None) is None
    with pytest.raises(BadArgument):
        path_events(log.events[1:], first)
