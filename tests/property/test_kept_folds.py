"""Laws of the kept fold: at every prefix it says what a fold of all says, or that of its calls."""

from __future__ import annotations

import gc
import json
import os
import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from test_session_calls import ledger
from walld_client.wire import messages as wire

from walld.daemon.session_store.reply_messages import unreleased
from walld.replies import text_end
from walld.replies.fold import fold
from walld.replies.kept_fold import KeptFold
from walld.replies.merge import seqs_of
from walld.sessions.gate.pending import pending
from walld.sessions.gate.resume import resume
from walld.sessions.state.account import Unreleased
from walld.sessions.state.events import Event
from walld.sessions.views.message_page import messages_or_page
from walld.wal.records import (
    Begin,
    Happened,
    Item,
    Owner,
    Text,
    Thought,
    decode_items,
    encode_item,
    join_items,
)

SEED = int(os.environ.get("SEED", "1"))
BEGIN = Begin(1, b"p" * 16, 1, "st", "se", None, None, None, 1, Owner("b", 1, 2, 3))
TEXTS = ["a", " ", "\n", "word. ", "é", "\u00a0", "\u2060", "😀", "\ud83d", "```", "end,"]
ASKS: list[dict[str, Any]] = [
    {},
    {"last": 1},
    {"last": 5},
    {"compacted": False},
    {"unknown": "drop"},
]
FINISHES = ["stop", "tool_use", "length", "error", "content_filter", None]


def one_item(rand: random.Random, seq: int) -> Item:
    """The next event of a reply, or a run."""
    after, call = seq * 10, f"c{rand.randint(1, 3)}"
    kind = rand.random()
    if kind < 0.35:
        words = [rand.choice(TEXTS).encode("utf-8", "surrogatepass") for _ in range(3)]
        words = words[: rand.randint(1, 3)] if rand.random() < 0.9 else [b"\x80\xff", b"\xc2"]
        made = Thought if rand.random() < 0.2 else Text
        return made(seq, after, bytes(map(len, words)), b"".join(words))
    if kind < 0.55:
        arguments = rand.choice([None, b"{}", b'{"a":1}', b'{"a":'])
        info = rand.choice([None, None, b"\x81\xa6server\xc3"])
        return Happened(after, wire.Tool(1, seq, call, rand.choice("tu"), arguments, info))
    if kind < 0.6:
        return Happened(after, wire.ToolArguments(1, seq, call, b"1}"))
    if kind < 0.75:
        named = rand.choice([(call, None), (call, "t"), (None, "t"), (None, None)])
        said = wire.ToolResult(1, seq, *named, b"r", False, rand.random() < 0.3)
        return Happened(after, said)
    if kind < 0.85:
        return Happened(after, wire.Step(1, seq))
    if kind < 0.9:
        return Happened(after, wire.Retry(1, seq, None, rand.random() < 0.5))
    if kind < 0.93:
        return Happened(after, wire.Finish(1, seq, rand.choice(FINISHES)))
    if kind < 0.95:
        return Happened(after, wire.Custom(1, seq, "k", b"\xa1x"))
    if kind < 0.97:
        return Happened(after, wire.Move(1, seq, "elsewhere"))
    if kind < 0.98:
        return Happened(after, wire.Token(1, seq, b"t", b"\x01"))
    end = wire.End(1, seq, rand.random() < 0.5, None, rand.choice(FINISHES))
    return Happened(after, rand.choice([end, wire.AppError(1, seq, "no", None, None)]))


def reply_of(rand: random.Random) -> list[Item]:
    """All of one, with seqs that are missing here and there."""
    found: list[Item] = []
    seq = 1
    for _ in range(rand.randint(1, 60)):
        found.append(one_item(rand, seq))
        seq = seqs_of(found[-1])[1] + 1 + (rand.randint(1, 3) if rand.random() < 0.03 else 0)
    return found


def judged(reply: Unreleased) -> dict[str, Any]:
    """What of a reply is no text: of that whether there is any, and where calls stand in it."""
    told = reply._asdict()
    told["messages"] = []
    of_text = ("partial", "partial_reason")
    told["facts"] = {name: fact for name, fact in reply.facts.items() if name not in of_text}
    for message in reply.messages:
        seen = {key: value for key, value in message.items() if key != "reasoning"}
        seen["content"] = bool(message["content"])
        seen.pop("_partial_reason", None)
        if message is reply.messages[-1] and not reply.has_ended:
            seen["_partial"] = True  # it was cut, whatever its text
        seen["tool_calls"] = [one | {"at": None} for one in message.get("tool_calls", ())]
        told["messages"].append(seen)
    return told


def same(kept: Unreleased, fresh: Unreleased, told: str) -> None:
    assert judged(kept) == judged(fresh), told
    assert resume([], replies=[kept]) == resume([], replies=[fresh]), told
    assert pending([], replies=[kept]) == pending([], replies=[fresh]), told


@pytest.mark.parametrize("part", range(4))
def test_it_says_of_calls_what_a_fold_of_all_says_at_every_prefix(part: int) -> None:
    kinds = set[str]()
    for number in range(part, 400, 4):
        rand = random.Random(f"{SEED}:{number}")
        items, kept, made = reply_of(rand), KeptFold(BEGIN, "dropped"), dict[int, Any]()
        placed_to = taken = 0
        while True:
            facts: dict[str, Any] = {"owner_alive": True, "live": rand.random() < 0.5}
            facts |= {"lost_reason": "agent_lost"}
            last = seqs_of(items[taken - 1])[1] if taken else 0
            facts["known_seq"] = last + rand.choice([0, 0, 0, 2])
            split = rand.randint(placed_to, taken)
            assert kept.go_on(items[placed_to:split], items[split:taken]), f"seed {number}"
            placed_to = split
            again = unreleased(kept.fold.recovered(**facts), kept.fold.ended_before_retry, made)
            ended = set[int]()
            whole = [BEGIN, *items[:taken]]
            found = fold(
                BEGIN, whole, gap_verdicts=lambda *_: "dropped", ended_before_retry=ended, **facts
            )
            same(again, unreleased(found, ended), f"SEED={SEED}, {number} at {taken}")
            kinds |= {again.status, f"has ended {again.has_ended}", f"{bool(again.earlier)}"}
            if taken == len(items):
                break
            taken = min(len(items), taken + rand.randint(0, 8))
    kinds -= {"live", "complete", "cancelled", "errored", "crashed"}
    assert kinds == {"has ended True", "has ended False", "True", "False"}


@pytest.mark.parametrize("part", range(4))
def test_with_text_messages_are_those_of_a_fold_of_all_at_every_prefix(part: int) -> None:
    """Byte for byte, of random ledgers; no ask changes what was made for the next one."""
    told, again = 0, 0
    for number in range(part, 120, 4):
        rand = random.Random(f"{SEED}:text:{number}")
        events = ledger(number).events
        turns = [one.turn for one in events if one.type == "turn_submitted"] or ["of no entry"]
        begin = Begin(1, b"p" * 16, 1, "st", "se", rand.choice(turns), None, None, 1, BEGIN.owner)
        items, made = reply_of(rand), dict[int, Any]()
        kept = KeptFold(begin, "dropped", with_text=True)
        placed_to = taken = 0
        while taken < len(items):
            taken = min(len(items), taken + rand.randint(1, 12))
            last = seqs_of(items[taken - 1])[1]
            facts: dict[str, Any] = {"owner_alive": True, "live": rand.random() < 0.5}
            facts |= {"lost_reason": "agent_lost", "known_seq": last + rand.choice([0, 0, 2])}
            split = rand.randint(placed_to, taken)
            assert kept.go_on(items[placed_to:split], items[split:taken]), f"seed {number}"
            placed_to, ended, again = split, set[int](), again + bool(made)
            fresh = unreleased(
                fold(
                    begin,
                    items[:taken],
                    gap_verdicts=lambda *_: "dropped",
                    ended_before_retry=ended,
                    **facts,
                ),
                ended,
            )
            one = unreleased(kept.fold.recovered(**facts), kept.fold.ended_before_retry, made)
            assert one == fresh, f"SEED={SEED}, {number} at {taken}"
            asked = rand.choice(ASKS) | {"format": rand.choice(["plain", "openai", "anthropic"])}
            shown = seen(events, [fresh], asked)
            assert seen(events, [one], asked) == shown, f"SEED={SEED}, {number} at {taken}"
            told += shown != seen(events, [], asked)
    assert told > 20, "a reply that no message shows shows nothing"
    assert again > 20, "of steps that were made before"


def seen(events: list[Event], replies: list[Unreleased], asked: dict[str, Any]) -> str:
    return json.dumps(messages_or_page(events, unreleased=replies, **asked))


def test_what_went_or_came_in_between_is_seen() -> None:
    """What had no place in the log comes again, and nothing else that it was behind of."""
    for number in range(100):
        rand = random.Random(f"{SEED}:gone:{number}")
        items = reply_of(rand)
        if len(items) < 4:
            continue
        cut = rand.randint(2, len(items) - 1)
        kept, split = KeptFold(BEGIN, "dropped"), rand.randint(0, cut - 1)
        assert kept.go_on(items[:split], items[split:cut])
        gone = rand.randint(split, cut - 1)
        assert not kept.go_on([], items[split:gone] + items[gone + 1 :]), f"seed {number}"
        if split:
            assert not kept.go_on(items[split - 1 : cut], items[cut:]), f"seed {number}"
        first = seqs_of(items[0])[0]
        holes = [at for at in range(first, seqs_of(items[cut - 1])[1]) if not _is_there(items, at)]
        if holes:
            late = Happened(1, wire.Step(1, holes[0]))
            assert not kept.go_on([*items[split:cut], late], items[cut:]), f"seed {number}"
        assert kept.go_on(items[split:cut], items[cut:]), "and as it should be it goes on"


def _is_there(items: list[Item], seq: int) -> bool:
    return any(first <= seq <= last for first, last in map(seqs_of, items))


def test_what_is_surely_said_is_said_however_it_goes_on() -> None:
    rand, sure = random.Random(SEED), 0
    for _ in range(5_000):
        pieces = [rand.choice(TEXTS).encode("utf-8", "surrogatepass") for _ in range(4)]
        text = b"".join(pieces) + bytes(rand.choices(range(256), k=rand.randint(0, 4)))
        cut = rand.randint(0, len(text))
        if text_end.is_surely_said(text[:cut]):
            sure += 1
            assert not text_end.is_blank(text), (text, cut)
    assert sure > 500


def test_texts_reasoning_and_payloads_are_not_kept() -> None:
    secret = b"secret " * 1000
    items: list[Item] = [
        Text(1, 0, bytes([127, 54]) * 1, secret[:181]),
        Thought(3, 0, bytes([100]), secret[:100]),
        Happened(0, wire.Custom(1, 4, "k", secret)),
        Happened(0, wire.Token(1, 5, secret, b"\x01")),
    ]
    kept = KeptFold(BEGIN, "dropped")
    assert kept.go_on(items, [])
    told = kept.fold.recovered(owner_alive=True, live=True, lost_reason=None)
    assert b"secret" not in b"".join(one.text + (one.result or b"") for one in told.segments)
    (message,) = unreleased(told, set()).messages
    assert "secret" not in json.dumps(message)


@pytest.mark.parametrize("with_text", [False, True])
@pytest.mark.parametrize(
    "item",
    [
        lambda seq: Happened(0, wire.Tool(1, seq, "c" * 1000, "read", b"{}")),
        lambda seq: Happened(0, wire.Tool(1, seq, "c", "n" * 1000 + str(seq), b"{}")),
        lambda seq: Happened(0, wire.Tool(1, seq, f"c{seq}", "read", b'{"a":"' + b"x" * 1000)),
        lambda seq: Happened(0, wire.Tool(1, seq, f"c{seq}", "read", info=b"i" * 1000)),
        lambda seq: Happened(0, wire.ToolArguments(1, seq, "c", b"x" * 1000)),
        lambda seq: Happened(0, wire.ToolArguments(1, seq, "c", b"x")),
        lambda seq: Happened(0, wire.ToolResult(1, seq, f"c{seq}", "read", b"x" * 1000)),
        lambda seq: Happened(0, wire.Token(1, seq, b"t", b"%d" % seq * 500)),
        lambda seq: Happened(0, wire.Custom(1, seq, "k" * 1000, b"x")),
        lambda seq: Happened(0, wire.Step(1, seq)) if seq % 2 else Text(seq, 0, b"\1", b"t"),
        lambda seq: Text(seq, 0, b"\1", b" " * 1000),
        lambda seq: Text(seq, 0, b"\1", b"t"),
        lambda seq: Text(seq, 0, b"\1", "😀".encode() + b"t" * 1000),
        lambda seq: Thought(seq, 0, b"\1", "😀".encode() + b"t" * 1000),
        lambda seq: Happened(0, wire.Token(1, seq, "😀".encode() + b"t" * 1000, b"%d" % seq)),
        lambda seq: Happened(0, wire.Custom(1, seq, "k", b"x" * 1000)),
    ],
)
def test_what_it_takes_of_memory_is_counted(item: Callable[[int], Item], with_text: bool) -> None:
    items = [item(seq) for seq in range(1, 501)]
    encoded = join_items([encode_item(one) for one in items])
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept, made = KeptFold(BEGIN, "dropped", with_text=with_text), dict[int, Any]()
    step = Happened(0, wire.Step(1, 501))
    assert kept.go_on([*decode_items(encoded), step, Text(502, 0, b"\1", b"t")], [])
    unreleased(kept.fold.recovered(owner_alive=True, live=True, lost_reason=None), set(), made)
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert held < 1.5 * kept.fold.held_bytes + 20_000, (held, kept.fold.held_bytes)
