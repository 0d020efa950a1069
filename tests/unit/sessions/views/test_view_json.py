"""A view's JSON is what `json.dumps` makes, in bounded memory."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walld.sessions.views.view_json import TooLong, view_json

TEXTS = st.text(st.characters(), max_size=20)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=50)
        | st.dictionaries(TEXTS, inner, max_size=40)
        | st.tuples(inner, inner)
    ),
    max_leaves=80,
)


def dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode("ascii")


@settings(deadline=None)
@given(VALUES)
def test_it_is_what_dumps_makes(value: Any) -> None:
    assert view_json(value, 1 << 30) == dumped(value)


@pytest.mark.parametrize(
    "text", ["x", "é", "語", "\U0001f600", "\x01", "\ud800", "\ud83d\ude00", '"']
)
def test_a_long_text_is_written_in_pieces(text: str) -> None:
    for value in (text * 200_001, {"a": [{"b": "y" + text * 200_000}]}):
        assert view_json(value, 1 << 30) == dumped(value)


def test_beyond_its_bound_it_is_too_long() -> None:
    value = [{"role": "user", "content": "x" * 100}] * 1000
    whole = len(dumped(value))
    assert len(view_json(value, whole)) == whole
    with pytest.raises(TooLong):
        view_json(value, whole - 1)


def test_it_holds_its_bytes_once() -> None:
    """Of escapes too, each six times as long as what they stand for."""
    value = [{"content": "\x01" * 1_000_000} for _ in range(10)]
    tracemalloc.start()
    made = view_json(value, 1 << 30)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(made) > 60_000_000
    assert most < 1.3 * len(made)
