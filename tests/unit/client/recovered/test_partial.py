"""PartialReply: from the wire, and to messages an application takes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from partial_reply import call, open_call, piece, recovered, reply
from walld_client.encoding import wtf8
from walld_client.recovered.partial import Gap, PartialReply, ReplyError, from_recovered
from walld_client.wire import messages as wire

HIGH, LOW = "\ud83d", "\ude00"
EMOJI = HIGH.encode("utf-16-le", "surrogatepass") + LOW.encode("utf-16-le", "surrogatepass")
GRIN = EMOJI.decode("utf-16-le")


# --- fields ---------------------------------------------------------------------------------------


def test_every_field_of_the_api() -> None:
    got = reply(
        piece("text", 1, "Hi"),
        turn_id="t",
        parent="p",
        meta=msgspec.msgpack.encode({"model": "m", "n": 1}),
        status="errored",
        owner_alive=True,
        error=wire.ReplyError("no key", "auth", msgspec.msgpack.encode([401])),
        finish_reason="stop",
        gaps=[wire.Gap(2, 3, "torn")],
        attempts=1,
        events=1,
    )
    assert (got.stream_id, got.session_id, got.turn_id, got.parent) == ("st", "se", "t", "p")
    assert got.meta == {"model": "m", "n": 1}
    assert (got.status, got.owner_alive, got.lost_reason) == ("errored", True, "process_gone")
    assert got.error == ReplyError("no key", "auth", [401])
    assert got.finish_reason == "stop"
    assert (got.started_at, got.last_event_at, got.last_seq) == (0.5, 9.5, 1)
    assert got.gaps == [Gap(2, 3, "torn")]
    assert (got.attempts, got.events) == (1, 1)
    assert (got.partial, got.partial_reason, got.wal_recovered) == (True, "mid_sentence", True)
    assert (got.text, got.segments[0].text, got.segments[0].at) == ("Hi", "Hi", 1.5)
    assert reply().meta == {}


def test_opaque_values_become_objects_and_cut_ones_stay_bytes() -> None:
    cut = msgspec.msgpack.encode({"a": "long"})[:3]
    got = reply(
        piece("custom", 1, name="cost", result=msgspec.msgpack.encode({"usd": 2}), info=b"\x01"),
        piece("custom", 2, name="cost", result=cut, truncated_from=8),
        piece("custom", 3, name="deep", result=b"\x91" * 100_000),
        meta=b"\xa1\xff",
    )
    assert (got.segments[0].result, got.segments[0].info) == ({"usd": 2}, 1)
    assert (got.segments[1].result, got.segments[1].truncated) == (cut, 8)
    assert got.segments[2].result == b"\x91" * 100_000
    assert got.meta == b"\xa1\xff"
    json.dumps(got.to_dict(), allow_nan=False).encode("utf-8")


def test_a_tool_result_is_text_or_decoded_json() -> None:
    def result(value: bytes, is_json: bool) -> Any:
        return reply(call(1, result=value, result_json=is_json)).segments[0].result

    assert result(b'{"n": 1}', False) == '{"n": 1}'
    assert result(b'{"n": 1}', True) == {"n": 1}
    assert result(b'{"n": ', True) == '{"n": '
    assert result(b"NaN", True) == "NaN"
    assert result(b"[" * 100_000, True) == "[" * 100_000
    assert reply(open_call(1)).segments[0].result is None


def test_text_is_that_of_the_last_attempt_all_steps_joined() -> None:
    assert reply().text == ""
    assert reply(piece("reasoning", 1, "hm"), open_call(2)).text == ""
    got = reply(
        piece("text", 1, "Hel"),
        piece("text", 3, "Hel", attempt=1),
        piece("reasoning", 4, "hm", attempt=1),
        piece("text", 5, "lo", attempt=1, step=1),
        attempts=2,
    )
    assert got.text == "Hello"
    assert [one.text for one in got.segments if one.attempt == 0] == ["Hel"]
    assert [one["content"] for one in got.messages()] == ["Hel", "lo"]


def test_halves_of_a_character_join_where_they_meet() -> None:
    together = reply(piece("text", 1, "a" + HIGH + LOW + "b"))
    assert together.text == together.segments[0].text == f"a{GRIN}b"
    apart = reply(piece("text", 1, HIGH), piece("custom", 2, name="k"), piece("text", 3, LOW))
    assert (apart.text, apart.segments[0].text) == (GRIN, HIGH)
    assert apart.messages()[0]["content"] == GRIN
    assert apart.messages("openai")[0]["content"] == GRIN


def test_halves_that_stay_alone_are_replaced_only_where_they_must() -> None:
    got = reply(piece("text", 1, f"a{LOW}{HIGH}."), piece("reasoning", 2, HIGH))
    assert got.text == f"a{LOW}{HIGH}."
    assert got.messages()[0]["content"] == got.text
    assert got.messages("openai")[0]["content"] == "a\ufffd\ufffd."
    assert got.messages("anthropic")[0]["content"][0]["text"] == "a\ufffd\ufffd."
    told = got.to_dict()
    assert told["text"] == told["messages"][0]["content"] == "a\ufffd\ufffd."
    assert told["segments"][1]["text"] == "\ufffd"


def test_bytes_that_are_no_text_are_replaced() -> None:
    raw = b"a\xffb" + HIGH.encode("utf-8", "surrogatepass") + b"\xe2\x82"
    assert wtf8.decode(raw) == f"a\ufffdb{HIGH}\ufffd"


def test_twenty_readings_are_the_same_reading() -> None:
    packed = msgspec.msgpack.encode(recovered(piece("text", 1, "a"), call(2), open_call(3)))
    readings = [
        from_recovered(msgspec.msgpack.decode(packed, type=wire.Recovered)) for _ in range(20)
    ]
    assert all(one == readings[0] for one in readings)
    assert len({json.dumps(one.to_dict()) for one in readings}) == 1


# --- plain messages -------------------------------------------------------------------------------


def test_a_plain_message_names_its_place_in_the_log() -> None:
    got = reply(piece("text", 1, "Hel"), last_seq=4)
    assert got.messages() == [
        {
            "role": "assistant",
            "content": "Hel",
            "_wal_recovered": True,
            "_partial": True,
            "_partial_reason": "mid_sentence",
            "_wal_stream": "st",
            "_wal_seq": 1,
            "_wal_last_seq": 4,
            "_wal_started_at": 1.5,
            "_wal_last_event_at": 9.5,
        }
    ]
    assert got.to_message() == got.messages()[0]
    whole = reply(piece("text", 1, "Hel"), partial=False, partial_reason=None).to_message()
    assert whole is not None
    assert not {"_partial", "_partial_reason"} & set(whole)


def test_a_plain_message_holds_reasoning_calls_and_orphan_results() -> None:
    message = reply(
        piece("reasoning", 1, "h"),
        piece("text", 2, "a"),
        piece("reasoning", 3, "m"),
        call(4, result=b"[1]", result_json=True, outcome="failed"),
        open_call(5, call_id="c2", arguments=b'{"q"', arguments_complete=False),
        piece("tool_result", 6, call_id="c9", name="t", result=b"r", outcome="done"),
        piece("text", 7, "b"),
    ).to_message()
    assert message is not None
    assert (message["content"], message["reasoning"]) == ("a\n\nb", "hm")
    assert message["tool_calls"] == [
        {
            "id": "c1",
            "name": "search",
            "arguments": '{"q": "x"}',
            "arguments_complete": True,
            "outcome": "failed",
            "result": [1],
        },
        {
            "id": "c2",
            "name": "search",
            "arguments": '{"q"',
            "arguments_complete": False,
            "outcome": "unknown",
            "result": None,
        },
    ]
    assert message["tool_results"] == [{"id": "c9", "name": "t", "outcome": "done", "result": "r"}]


def test_two_messages_and_no_reasoning_for_a_provider() -> None:
    got = reply(
        piece("reasoning", 1, "a"),
        piece("text", 2, "b"),
        call(3, last_seq=4),
        piece("reasoning", 6, "c", step=1),
        piece("text", 7, "d", step=1),
        last_seq=7,
    )
    plain = got.messages()
    assert [(one["content"], one["reasoning"]) for one in plain] == [("b", "a"), ("d", "c")]
    assert [(one["_wal_seq"], one["_wal_last_seq"]) for one in plain] == [(1, 5), (6, 7)]
    assert [one.get("_partial", False) for one in plain] == [False, True]
    assert got.messages("openai") == [
        {
            "role": "assistant",
            "content": "b",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "search", "arguments": '{"q": "x"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
        {"role": "assistant", "content": "d"},
    ]
    assert got.messages("anthropic") == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "b"},
                {"type": "tool_use", "id": "c1", "name": "search", "input": {"q": "x"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "found"}],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "d"}]},
    ]


def test_a_message_recovered_early_is_replaced_by_the_later_one() -> None:
    """Its first seq stays, its last seq only grows, and so does what is known of it."""
    first = piece("text", 1, "One.", last_seq=3)
    seen = [
        reply(piece("text", 1, "On", last_seq=2), last_seq=2),
        reply(first, last_seq=4, partial=False, partial_reason=None),  # Finish at 4
        reply(first, last_seq=5, partial_reason="answer_missing"),  # Step at 5
        reply(first, piece("text", 8, "Tw", step=1), last_seq=9),
    ]
    messages = [one.messages()[0] for one in seen]
    assert [one["_wal_seq"] for one in messages] == [1, 1, 1, 1]
    assert [one["_wal_last_seq"] for one in messages] == [2, 4, 5, 7]
    assert [one.get("_partial", False) for one in messages] == [True, False, False, False]


def test_a_step_is_partial_for_what_it_holds_itself() -> None:
    got = reply(
        piece("text", 1, "a."),
        piece("gap", 2, verdict="torn"),
        open_call(4, step=1),
        piece("text", 6, "b.", step=2),
        partial_reason="gap",
    )
    assert [one["_partial_reason"] for one in got.messages()] == ["gap", "tool_open", "gap"]


def test_to_message_is_for_a_single_message() -> None:
    two = reply(piece("text", 1, "a"), piece("text", 3, "b", step=1))
    with pytest.raises(ValueError, match="2 plain messages, limit 1"):
        two.to_message()
    with pytest.raises(ValueError, match="2 openai messages, limit 1"):
        reply(call(1)).to_message("openai")
    assert two.to_message("openai") == {"role": "assistant", "content": "a\n\nb"}
    with pytest.raises(ValueError, match="'xml' is none of"):
        two.messages("xml")  # type: ignore[arg-type]


def test_what_said_nothing_gives_no_message() -> None:
    nothing = reply(status="errored", error=wire.ReplyError("boom"))
    beside = reply(piece("custom", 1, name="k", result=b"\xc0"), piece("gap", 2, verdict="torn"))
    for got in (nothing, beside):
        for format_ in ("plain", "openai", "anthropic"):
            assert got.messages(format_) == []
        assert got.to_message() is None
        assert got.to_dict()["messages"] == []


def test_reasoning_only_is_a_plain_message_and_none_for_a_provider() -> None:
    got = reply(piece("reasoning", 1, "hm"), open_call(2))
    message = got.to_message()
    assert message is not None
    assert (message["content"], message["reasoning"]) == ("", "hm")
    assert message["tool_calls"][0]["outcome"] == "unknown"
    assert got.messages("openai") == got.messages("anthropic") == []


# --- to_dict --------------------------------------------------------------------------------------


def test_to_dict_has_the_fields_the_messages_and_only_json() -> None:
    got = reply(
        piece("text", 1, "a", info=msgspec.msgpack.encode({"i": b"\x00", "f": float("nan")})),
        call(2),
        piece("custom", 3, name="k", result=msgspec.msgpack.encode({1: [None, 2.5]})),
        piece("gap", 4, verdict="torn", last_seq=6),
        piece("tool_result", 7, call_id=None, name="t", result=b"r", outcome="failed"),
        gaps=[wire.Gap(4, 6, "torn")],
        error=wire.ReplyError("e", None, msgspec.msgpack.encode({"k": 1})),
    )
    told = got.to_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert set(told) == {*PartialReply.__struct_fields__, "messages"}
    assert told["wal_recovered"] is True
    assert told["gaps"] == [{"first_seq": 4, "last_seq": 6, "verdict": "torn"}]
    assert told["error"] == {"message": "e", "kind": None, "detail": {"k": 1}}
    assert told["messages"] == got.messages()
    place = ("kind", "step", "attempt", "first_seq", "last_seq", "at")
    assert [set(one) - set(place) for one in told["segments"]] == [
        {"text", "info"},
        {"call_id", "name", "arguments", "arguments_complete", "result", "outcome", "truncated"},
        {"name", "result", "truncated"},
        {"verdict"},
        {"call_id", "name", "result", "outcome", "truncated"},
    ]
    assert told["segments"][0]["info"] == {"i": "AA==", "f": None}
    assert told["segments"][2]["result"] == {"1": [None, 2.5]}


def test_jsonable_takes_whatever_msgpack_gives() -> None:
    deep: Any = []
    for _ in range(500):
        deep = [deep]
    stamp = msgspec.msgpack.decode(msgspec.msgpack.encode({"t": msgspec.msgpack.Ext(5, b"x")}))
    told = wtf8.jsonable({"deep": deep, "ext": stamp, HIGH: (1, {2}), "inf": float("inf")})
    assert isinstance(told, dict)
    assert told["ext"] == {"t": {"code": 5, "data": "eA=="}}
    assert told["\ufffd"] == [1, [2]]
    assert told["inf"] is None
    assert "nested deeper than 200" in json.dumps(told)
