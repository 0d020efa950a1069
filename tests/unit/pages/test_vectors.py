"""The vectors are what the wire messages give, and what somebody wrote down by hand."""

from __future__ import annotations

import importlib
import json
import struct
import sys
import typing
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from walld_client.wire import framing
from walld_client.wire import messages as wire

from walld.engine.protocol_errors import (
    CLOSING_CODES,
    LEDGER_CODES,
    REFUSED_CODES,
    REQUEST_CODES,
    check_hello,
    explain,
)

VECTORS = Path(__file__).parents[3] / "clients" / "vectors"
FRAMES = json.loads((VECTORS / "frames.json").read_text(encoding="ascii"))
CALLS = json.loads((VECTORS / "calls.json").read_text(encoding="ascii"))
CASES = json.loads((VECTORS / "malformed.json").read_text(encoding="ascii"))["cases"]
BY_NAME: dict[str, dict[str, Any]] = {each["name"]: each for each in FRAMES["frames"]}
UNIONS = {"agent": wire.FromAgent, "query": wire.FromQuery, "daemon": wire.ToAgent | wire.ToQuery}


def module(name: str) -> ModuleType:
    """A module that lies beside the vectors, outside any package."""
    sys.path.insert(0, str(VECTORS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(VECTORS))


bytes_of = module("shape").bytes_of


def test_the_files_are_what_the_generator_gives() -> None:
    for name, text in module("generate").documents().items():
        assert (VECTORS / name).read_text(encoding="ascii") == text, (
            f"{name} is old: if the wire was meant to change, run {VECTORS}/generate.py"
        )


@pytest.mark.parametrize("kind", CALLS["kinds"], ids=lambda one: str(one["kind"]))
def test_a_kind_of_argument_takes_and_refuses_what_it_says(kind: dict[str, Any]) -> None:
    declared = module("calls").KINDS[kind["kind"]]
    for value in kind["takes"]:
        declared.of(value, "it")
    for value in kind["refuses"]:
        with pytest.raises((TypeError, ValueError), match="it "):
            declared.of(value, "it")


# Written by hand from PROTOCOL.md and the msgpack specification, never from the code.
BY_HAND = {
    "hello_agent": "0000001f 97 00 01 a56167656e74 c410000102030405060708090a0b0c0d0e0f c400 00 a0",
    "start": "00000016 9a 02 01 00 a572756e2d31 a6636861742d37 c0 c0 c0 00 c0",
    "token": "0000000c 95 03 01 01 c40548656c6c6f c0",
    "token_empty": "00000007 95 03 01 02 c400 c0",
    "token_high_half": "0000000a 95 03 01 03 c403eda0bd c0",
    "token_low_half": "0000000a 95 03 01 04 c403edb880 c0",
    "token_last_seq": "00000010 95 03 ceffffffff ceffffffff c40178 c0",
    "run_of_tokens": "0000000f 96 05 01 0b 03 c403010002 c403616263",
    "run_of_reasoning": "0000000d 96 05 01 0e 04 c40103 c403eda0bd",
    "tool": "00000015 98 06 01 14 a663616c6c2d31 a6736561726368 c0 c0 00",
    "tool_arguments": "00000012 95 07 01 16 a663616c6c2d31 c4057b2271223a",
    "tool_result": "0000001e 9a 08 01 17 a663616c6c2d31 a6736561726368"
    " c406332068697473 c2 c2 c0 00",
    "tool_result_cut_orphan": "00000014 9a 08 01 19 c0 c0 c400 c2 c2 c0 cf0000000100000000",
    "step": "00000005 94 09 01 1e c0",
    "custom_empty": "0000000c 96 0a 01 21 a0 c400 ce00100001",
    "retry": "00000006 95 0b 01 22 c0 c2",
    "retry_step": "00000009 95 0b 01 23 a3637574 c3",
    "move": "0000000b 94 0c 01 24 a6636861742d38",
    "finish_reason": "00000009 94 0d 01 26 a473746f70",
    "app_error": "0000000b 96 0e 01 28 a4626f6f6d c0 c0",
    "end_clean": "00000007 96 0f 01 2a c3 c0 c0",
    "end_cancelled": "0000000b 96 0f 01 2c c2 c0 a475736572",
    "release": "00000004 93 10 01 2d",
    "resume_nothing_held": "0000001d 97 11 9a020100a572756e2d31a6636861742d37c0c0c000c0"
    " 2e2d2e c2 c0",
    "resume_all_held": "0000001d 97 11 9a020100a572756e2d31a6636861742d37c0c0c000c0 00 ff 2e c2 c0",
    "resume_moved": "00000020 97 11 9a020100a572756e2d31a6636861742d37c0c0c000c0"
    " 2e2d2e c2 a36e6577",
    "drain_written": "0000000b 93 12 01 a77772697474656e",
    "welcome": "0000002b 96 01 01 ab77616c6c6420302e312e30"
    " c410f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff ce00100000 ce000ff000",
    "ack": "0000001f 95 20 c410f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff 08 07 92 93012d28 930200ff",
    "drained": "0000000b 93 21 01 a77772697474656e",
    "refused": "00000021 96 22 01 2e ae61667465725f7465726d696e616c a5546f6b656e a752656c65617365",
    "has_partial_empty_id": "00000005 94 31 04 a0 90",
    "resolve_last_seq": "0000000c 96 32 06 a572756e2d31 00 00 90",
    "status": "00000003 92 33 07",
    "answer_nothing": "0000000a 96 40 01 c40190 c3 c400 00",
    "answer_bool": "0000000a 96 40 03 c401c3 c3 c400 00",
}


@pytest.mark.parametrize("name", BY_HAND)
def test_bytes_written_by_hand(name: str) -> None:
    vector = BY_NAME[name]
    assert vector["canonical"]
    assert bytes_of(vector).hex() == BY_HAND[name].replace(" ", "")


def test_every_message_has_a_vector() -> None:
    tagged = {
        message.__name__
        for union in (*UNIONS.values(), wire.Event)
        for message in typing.get_args(union)
    }
    assert {each["message"] for each in FRAMES["frames"]} == tagged
    names = [each["name"] for each in FRAMES["frames"]]
    assert len(set(names)) == len(names)


def plain(value: object) -> object:
    """A decoded message in the words of a vector, written apart from the generator."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def meant(value: object) -> object:
    """What a vector's field stands for."""
    if isinstance(value, dict):
        if "message" in value:
            return {name: meant(each) for name, each in value["fields"].items()}
        if "text" in value:
            assert value["text"].encode("utf-8", "surrogatepass").hex() == value["hex"]
        return bytes_of(value)
    if isinstance(value, list):
        return [meant(each) for each in value]
    return value


@pytest.mark.parametrize("vector", FRAMES["frames"], ids=lambda vector: vector["name"])
def test_a_vector_reads_as_its_fields(vector: dict[str, Any]) -> None:
    frame = bytes_of(vector)
    (body,), rest = framing.split(frame)
    assert rest == b""
    message = msgspec.msgpack.decode(body, type=UNIONS[vector["from"]])
    assert type(message).__name__ == vector["message"]
    assert plain(message) == {name: meant(each) for name, each in vector["fields"].items()}
    assert (framing.encode(message) == frame) is vector["canonical"]


def test_the_pieces_of_an_answer_join_to_a_delivery() -> None:
    pieces = [BY_NAME[name] for name in ("answer_first_piece", "answer_last_piece")]
    joined = b"".join(bytes.fromhex(piece["fields"]["chunk"]["hex"]) for piece in pieces)
    (reply,) = msgspec.msgpack.decode(joined, type=list[wire.Recovered])
    assert (reply.stream_id, reply.last_seq, reply.gaps) == (
        "run-1",
        6,
        [wire.Gap(4, 5, "dropped")],
    )
    assert [segment.kind for segment in reply.segments] == ["text", "gap", "tool"]


@pytest.mark.parametrize("vector", FRAMES["texts"], ids=lambda vector: vector["name"])
def test_pieces_of_text_join_up(vector: dict[str, Any]) -> None:
    joined = "".join(
        bytes.fromhex(piece).decode("utf-8", "surrogatepass") for piece in vector["pieces"]
    )
    assert joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace") == vector["shown"]


def answer_of(role: str | None, frame: bytes) -> wire.Refused | wire.Error | None:
    """What bytes alone get, without a daemon; None where it takes the state of a stream."""
    if len(frame) >= 4 and (length := struct.unpack(">I", frame[:4])[0]) > framing.FRAME_BYTES_MAX:
        got, limit = str(length), str(framing.FRAME_BYTES_MAX)
        return wire.Error("frame_too_long", "", got, limit)
    (body,), rest = framing.split(frame)
    assert rest == b""
    try:
        message = msgspec.msgpack.decode(body, type=UNIONS[role or "agent"])
    except Exception as error:
        return explain(body, error, role or "")
    return check_hello(message) if role is None else None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_malformed_case_gets_its_answer(case: dict[str, Any]) -> None:
    expected = dict(case["answer"])
    message = expected.pop("message")
    codes = CLOSING_CODES if case["closes"] else REFUSED_CODES | REQUEST_CODES
    assert expected["code"] in codes
    answer = answer_of(case["role"], bytes_of(case))
    if answer is None:
        assert case["name"].startswith(("rule_", "hello_twice_"))
        return
    assert type(answer).__name__ == message
    for name, value in expected.items():
        assert value is None or getattr(answer, name) == value, name


def test_cases_have_names_of_their_own() -> None:
    names = [case["name"] for case in CASES]
    assert len(set(names)) == len(names)
    reached = {case["answer"]["code"] for case in CASES}
    needs_more_than_bytes = {
        *("slow_frame", "too_many_peers", "too_many_begun"),  # a clock, many peers
        "foreign_uid",  # another user
        *("too_many_streams", "recovering"),  # 100,000 streams, a daemon that starts
        "stream_exists",  # a reply whose owner is gone
        *("behind", "refused", "internal", "unreadable"),  # another process, a reply, a bad disk
        *(LEDGER_CODES - {"bad_level", "id_length"}),  # a session
    }
    assert reached | needs_more_than_bytes == CLOSING_CODES | REFUSED_CODES | REQUEST_CODES
