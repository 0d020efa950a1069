"""Laws of the fold, of merging and of the projections, over replies nobody would think of."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from walld_client.encoding import wtf8
from walld_client.recovered.partial import PartialReply, from_recovered
from walld_client.wire import messages as wire

from walld.replies.fold import fold
from walld.replies.merge import in_order, merge, token_sizes
from walld.replies.verdict import REASONS
from walld.wal.records import Begin, Happened, Item, Owner, Text, Thought

BEGIN = Begin(1, b"p" * 16, 1, "st", "se", None, None, None, 1, Owner("b", 1, 2, 3))

tokens = st.text(
    alphabet=st.one_of(
        st.sampled_from(list("ab. \n`|#-1,:“”。？😀é\ud83d\ude00")),
        st.characters(max_codepoint=0x2FFFF),
    ),
    max_size=6,
)
encoded = tokens.map(lambda text: text.encode("utf-8", "surrogatepass"))
ids = st.sampled_from(["c1", "c2", "x:9"])
names = st.sampled_from(["t", "u"])
blobs = st.sampled_from([None, b"", b"{}", b'{"a":', b"1}", b'{"a":"\\ud83d"}', b"[]", b"\xff"])
info = st.sampled_from([None, None, b"\x01", b"\x02"])


def _event(*fields: Any) -> Callable[[int], wire.Event]:
    kind, *rest = fields
    return lambda seq: kind(1, seq, *rest)


events = st.one_of(
    st.builds(_event, st.just(wire.Token), encoded, info),
    st.builds(_event, st.just(wire.Reasoning), encoded, info),
    st.builds(_event, st.just(wire.Tool), ids, names, blobs, info),
    st.builds(_event, st.just(wire.ToolArguments), ids, blobs.map(lambda b: b or b"")),
    st.builds(
        _event,
        st.just(wire.ToolResult),
        st.one_of(st.none(), ids),
        st.one_of(st.none(), names),
        blobs.map(lambda b: b or b""),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(_event, st.just(wire.Step)),
    st.builds(_event, st.just(wire.Retry), st.none(), st.booleans()),
    st.builds(_event, st.just(wire.Custom), st.just("k"), st.just(b"\xa1x")),
    st.builds(_event, st.just(wire.Move), st.just("elsewhere")),
    st.builds(_event, st.just(wire.Finish), st.sampled_from([None, "stop", "length", "tool_use"])),
)
terminals = st.one_of(
    st.builds(_event, st.just(wire.End), st.booleans()),
    st.builds(_event, st.just(wire.AppError), st.just("boom")),
)


def _wtf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@st.composite
def told(draw: st.DrawFn) -> list[Item]:
    """A reply as it came: one item an event, at one time each, some seqs missing."""
    makers = draw(st.lists(events, max_size=25))
    if draw(st.booleans()):
        makers.append(draw(terminals))
    missing = draw(st.sets(st.integers(1, 25), max_size=3))
    items: list[Item] = []
    for seq, make in enumerate(makers, 1):
        if seq not in missing:
            event = make(seq)
            if isinstance(event, wire.Token | wire.Reasoning) and event.info is None:
                kind = Text if isinstance(event, wire.Token) else Thought
                items.append(kind(seq, seq, bytes([len(event.text)]), event.text))
            else:
                items.append(Happened(seq, event))
    return items


def folded(items: list[Item]) -> wire.Recovered:
    return fold(BEGIN, items, owner_alive=False, live=False, lost_reason="process_gone")


def reply_of(items: list[Item]) -> PartialReply:
    return from_recovered(folded(items))


def _run(items: list[Text]) -> Text:
    return type(items[0])(
        items[0].first_seq,
        items[0].after_ms,
        b"".join([one.lengths for one in items]),
        b"".join([one.text for one in items]),
    )


@st.composite
def runs_of(draw: st.DrawFn, items: list[Item]) -> list[Item]:
    """The same events with neighbouring text in runs, cut at drawn places."""
    out: list[Item] = []
    waiting: list[Text] = []
    for item in [*items, None]:
        follows = (
            isinstance(item, Text)
            and waiting
            and type(item) is type(waiting[-1])
            and item.first_seq == waiting[-1].last_seq + 1
            and draw(st.booleans())
        )
        if waiting and not follows:
            out.append(_run(waiting))
            waiting = []
        if isinstance(item, Text):
            waiting.append(item)
        elif item is not None:
            out.append(item)
    return out


def timeless(reply: wire.Recovered) -> dict[str, Any]:
    """Without the time of the last event: a run knows that of its first only."""
    fields = {name: getattr(reply, name) for name in reply.__struct_fields__}
    return fields | {"last_event_at_ms": 0}


@given(told(), st.data())
def test_how_text_is_cut_into_runs_changes_nothing(items: list[Item], data: st.DataObject) -> None:
    assert timeless(folded(data.draw(runs_of(items)))) == timeless(folded(items))


@given(told(), st.data())
def test_copies_and_resends_change_nothing(items: list[Item], data: st.DataObject) -> None:
    """Every event is there once more, in other runs, before, after or between, Begin too."""
    copies = data.draw(runs_of(items))
    assert timeless(folded([*items, *copies])) == timeless(folded(items))
    assert timeless(folded([BEGIN, *copies, BEGIN, *items])) == timeless(folded(items))
    shuffled = data.draw(st.permutations([*items, *items[: len(items) // 2]]))
    assert folded(shuffled) == folded(items)
    part = data.draw(runs_of(items))
    by_seq = sorted([*items, *part], key=_first_seq)
    assert timeless(folded(by_seq)) == timeless(folded(items))


def _first_seq(item: Item) -> int:
    assert not isinstance(item, Begin)
    return item.first_seq if isinstance(item, Text) else item.event.seq


@given(told(), st.data(), st.integers(0, 40))
def test_merging_changes_nothing(items: list[Item], data: st.DataObject, limit: int) -> None:
    runs = data.draw(runs_of(items))
    merged = merge(runs, limit)
    assert folded(merged) == folded(runs)
    assert len(merged) <= len(runs)
    for item in merged:
        if isinstance(item, Text):
            assert len(token_sizes(item.lengths)) == item.last_seq - item.first_seq + 1
            assert sum(token_sizes(item.lengths)) == len(item.text)


@given(told(), st.data())
def test_merging_parts_first_changes_nothing(items: list[Item], data: st.DataObject) -> None:
    """As records are folded: what was merged is merged again with what came after."""
    at = data.draw(st.integers(0, len(items)))
    assert timeless(folded(merge([BEGIN, *merge(items[:at]), *items[at:]]))) == timeless(
        folded(items)
    )


@given(told(), st.data())
def test_the_fold_of_a_prefix_is_a_prefix(items: list[Item], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(items)))
    early, late = folded(items[:at]), folded(items)
    assert len(early.segments) <= len(late.segments)
    for index, (before, after) in enumerate(zip(early.segments, late.segments, strict=False), 1):
        place = ("kind", "step", "first_seq", "at_ms", "call_id")
        assert [getattr(before, one) for one in place] == [getattr(after, one) for one in place]
        is_over = before.attempt < early.attempts - 1
        assert before.attempt == after.attempt or (not is_over and after.attempt > before.attempt)
        assert after.text.startswith(before.text)
        assert before.text == after.text or index == len(early.segments)
        assert before.last_seq <= after.last_seq
        assert before.outcome in {None, "unknown", after.outcome} or after.outcome != "unknown"
    assert early.gaps == late.gaps[: len(early.gaps)]
    assert (early.last_seq, early.events) <= (late.last_seq, late.events)


@given(told())
def test_every_seq_is_seen_or_missing(items: list[Item]) -> None:
    reply = folded(items)
    ended = reply.status in {"complete", "cancelled", "errored"}
    missing = sum(gap.last_seq - gap.first_seq + 1 for gap in reply.gaps)
    if not ended:
        assert reply.events + missing == reply.last_seq
    assert [one.first_seq for one in reply.segments] == sorted(
        [one.first_seq for one in reply.segments]
    )
    assert (reply.partial_reason is not None) == reply.partial
    assert reply.partial_reason in {None, *REASONS}
    assert not reply.gaps or reply.partial_reason == "gap"
    assert in_order([*items, *items]) == in_order(items) == items


def _assert_sendable(message: dict[str, Any]) -> None:
    assert not [key for key in message if key.startswith("_")]
    json.dumps(message, allow_nan=False).encode("utf-8")


@given(told())
def test_openai_messages_are_safe_to_send(items: list[Item]) -> None:
    messages = reply_of(items).messages("openai")
    answered: list[str] = []
    role = None
    for message in messages:
        _assert_sendable(message)
        assert message["role"] != role or role == "tool", "never two equal roles in a row"
        role = message["role"]
        if role == "assistant":
            assert not answered, "a call without its result"
            answered = [call["id"] for call in message.get("tool_calls", [])]
            assert answered or message["content"].strip()
            for call in message.get("tool_calls", []):
                assert isinstance(json.loads(call["function"]["arguments"]), dict)
                assert call["function"]["name"]
        else:
            assert role == "tool"
            assert message["tool_call_id"] == answered.pop(0), "a result without its call"
            assert message["content"].strip()
    assert not answered


@given(told())
def test_anthropic_messages_are_safe_to_send(items: list[Item]) -> None:
    messages = reply_of(items).messages("anthropic")
    seen: set[str] = set()
    for index, message in enumerate(messages):
        _assert_sendable(message)
        assert message["role"] == ("assistant", "user")[index % 2]
        assert message["content"]
        for block in message["content"]:
            assert block["type"] in {"text", "tool_use", "tool_result"}
            if block["type"] == "text":
                assert block["text"].strip()
        called = [one["id"] for one in message["content"] if one["type"] == "tool_use"]
        assert not seen & set(called)
        seen.update(called)
        if called:
            results = [one["tool_use_id"] for one in messages[index + 1]["content"]]
            assert results == called
        elif message["role"] == "assistant":
            assert index == len(messages) - 1


@given(told())
def test_reasoning_is_never_sent(items: list[Item]) -> None:
    marked = [
        Thought(one.first_seq, one.after_ms, b"\x06", b"SECRET")
        if isinstance(one, Thought)
        else one
        for one in items
    ]
    reply = reply_of(marked)
    assert "SECRET" not in json.dumps([reply.messages("openai"), reply.messages("anthropic")])


@given(told())
def test_a_reading_is_json_and_its_messages_tell_the_text(items: list[Item]) -> None:
    reply = reply_of(items)
    told_dict = reply.to_dict()
    assert json.loads(json.dumps(told_dict, allow_nan=False)) == told_dict
    json.dumps(told_dict, ensure_ascii=False).encode("utf-8")
    messages = reply.messages()
    joined = wtf8.join("".join([message["content"] for message in messages]))
    assert joined == reply.text
    assert all(message["_wal_seq"] <= message["_wal_last_seq"] for message in messages)
    keys = [message["_wal_seq"] for message in messages]
    assert keys == sorted(set(keys)), "(stream, first seq) is an identity"


@given(told(), st.data())
def test_a_message_keeps_its_key_and_only_grows(items: list[Item], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(items)))
    early, late = reply_of(items[:at]), reply_of(items)
    if early.attempts != late.attempts:
        return
    later = {message["_wal_seq"]: message for message in late.messages()}
    for message in early.messages():
        grown = later[message["_wal_seq"]]
        assert grown["_wal_last_seq"] >= message["_wal_last_seq"]
        if grown["_wal_last_seq"] == message["_wal_last_seq"]:
            assert grown["content"] == message["content"]


@given(st.text(alphabet=st.sampled_from(list("a😀👍🏽é\ud83d\ude00")), max_size=12), st.data())
def test_halves_split_anywhere_join_again(text: str, data: st.DataObject) -> None:
    """As a vendor that counts UTF-16 units cuts it: at any unit, also inside a character."""
    units = text.encode("utf-16-le", "surrogatepass")
    cuts = sorted(data.draw(st.sets(st.integers(0, len(units) // 2), max_size=6)))
    edges = [0, *cuts, len(units) // 2]
    parts = [
        units[2 * start : 2 * stop].decode("utf-16-le", "surrogatepass")
        for start, stop in pairwise(edges)
    ]
    items: list[Item] = [
        Text(seq, seq, bytes([len(_wtf8(part))]), _wtf8(part)) for seq, part in enumerate(parts, 1)
    ]
    expected = units.decode("utf-16-le", "surrogatepass")
    reply = reply_of(items)
    assert reply.text == expected
    assert [one.text for one in reply.segments] == [expected]
    assert all(one["content"] == expected for one in reply.messages())


@given(st.binary(max_size=40), st.binary(max_size=40), st.booleans())
def test_any_bytes_can_be_read(text: bytes, packed: bytes, is_json: bool) -> None:
    run = Text(1, 1, bytes([len(text)]), text)
    items: list[Item] = [
        run,
        Happened(2, wire.Custom(1, 2, "k", packed)),
        Happened(3, wire.Tool(1, 3, "c", "t", text, packed)),
        Happened(4, wire.ToolResult(1, 4, "c", None, packed, is_json)),
        Happened(5, wire.AppError(1, 5, "e", None, packed)),
    ]
    reply = reply_of(items)
    json.dumps(reply.to_dict(), allow_nan=False).encode("utf-8")
    for message in [*reply.messages("openai"), *reply.messages("anthropic")]:
        _assert_sendable(message)
