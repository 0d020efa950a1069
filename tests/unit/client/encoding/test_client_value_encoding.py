"""Any value can be sent."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from walld_client.encoding import value_encoding


class Odd:
    def __repr__(self) -> str:
        return "<odd>"


class Worse:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def loop() -> list[Any]:
    one: list[Any] = []
    one.append(one)
    return one


VALUES = [
    None,
    1,
    2**70,
    -(2**70),
    1.5,
    float("nan"),
    "x",
    "\ud83d",
    {"a": [1, {"b": "\udc00"}]},
    {1: 2, (1, 2): 3},
    {"s": {1, 2}},
    Odd(),
    Worse(),
    {"deep": Odd()},
    datetime(2026, 1, 1, tzinfo=UTC),
    loop(),
    b"bytes",
    object,
]


def test_bytes_stay_bytes_beside_what_must_be_replaced() -> None:
    value = {"raw": b"\x00\xff", "cut": "\ud83d", "view": memoryview(b"v")}
    encoded, _ = value_encoding.payload_bytes(value, 1 << 20)
    assert msgspec.msgpack.decode(encoded) == {"raw": b"\x00\xff", "cut": "\ufffd", "view": b"v"}


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_any_value_is_one_msgpack_value_and_one_json_text(value: Any) -> None:
    encoded, true_bytes = value_encoding.payload_bytes(value, 1 << 20)
    assert true_bytes == 0
    msgspec.msgpack.decode(encoded, strict=False)
    if not isinstance(value, str):
        json.loads(value_encoding.json_bytes(value))
    msgspec.msgpack.decode(value_encoding.info_bytes({"v": value}) or b"\xc0", strict=False)


def test_what_cannot_be_encoded_travels_as_its_repr() -> None:
    info = value_encoding.info_bytes({"o": Odd(), "n": 1})
    assert info is not None
    assert msgspec.msgpack.decode(info) == {"o": "<odd>", "n": 1}


def test_a_lone_surrogate_in_info_is_replaced() -> None:
    info = value_encoding.info_bytes({"x": "a\ud83db"})
    assert info is not None
    assert msgspec.msgpack.decode(info) == {"x": "a\ufffdb"}


def test_a_long_payload_is_cut_flagged_and_still_one_value() -> None:
    encoded, true_bytes = value_encoding.payload_bytes("x" * 5000, 1000)
    assert true_bytes == 5003
    assert len(encoded) <= 1000
    assert isinstance(msgspec.msgpack.decode(encoded), bytes)


def test_long_info_says_how_long_it_was() -> None:
    info = value_encoding.info_bytes({"x": "y" * 100_000})
    assert info is not None
    assert len(info) < 64 * 1024
    assert msgspec.msgpack.decode(info)["truncated_from"] > 100_000


@given(st.text(st.characters()), st.integers(4, 50))
def test_a_cut_text_is_a_beginning_in_whole_characters(text: str, bytes_max: int) -> None:
    encoded = value_encoding.text_bytes(text)
    start = value_encoding.cut(encoded, bytes_max)
    assert len(start) <= bytes_max
    assert text.startswith(start.decode("utf-8", "surrogatepass"))
    assert len(encoded) - len(start) < 4 or len(start) > bytes_max - 4


@given(st.text(st.characters()), st.integers(1, 50))
def test_clean_text_fits_and_can_be_encoded(text: str, bytes_max: int) -> None:
    assert len(value_encoding.clean(text, bytes_max).encode()) <= bytes_max


def test_clean_text_is_left_alone() -> None:
    assert value_encoding.clean("日本 😀", 100) == "日本 😀"
    assert value_encoding.clean("\ud83d\ude00", 100) == "😀"
