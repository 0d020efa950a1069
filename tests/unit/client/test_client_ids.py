"""What an id may be."""

from __future__ import annotations

from typing import Any

import pytest
from walld_client.ids import checked_id, new_stream_id


@pytest.mark.parametrize("good", ["a", ".", "..", "a/b", "x" * 1024, "é" * 512, "\0"])
def test_any_short_text_is_an_id(good: str) -> None:
    assert checked_id(good, "session_id") == good


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("", "0 bytes"),
        ("x" * 1025, "1025 bytes"),
        ("é" * 513, "1026 bytes"),
        ("ab\ud83d", "surrogate at 2"),
        (5, "got int"),
        (b"x", "got bytes"),
    ],
)
def test_the_error_names_the_field_what_it_got_and_the_limit(bad: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        checked_id(bad, "turn_id")
    assert "turn_id" in str(caught.value)


def test_new_ids_differ() -> None:
    assert len({new_stream_id() for _ in range(1000)}) == 1000
