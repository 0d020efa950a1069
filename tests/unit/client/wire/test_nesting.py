"""How deep msgpack nests, without a decoder; and that a reader's stack is safe from it."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from walld_client.wire.nesting import nests_deeper

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=300)
    | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=40,
)


def depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0) if value else 0
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0) if value else 0
    return 0


@given(values)
def test_it_is_as_deep_as_it_is(value: object) -> None:
    """An empty array or map holds nothing, so nothing is deeper in it."""
    packed = msgspec.msgpack.encode(value)
    # Many bytes that could begin an array, so that it is walked.
    padded = msgspec.msgpack.encode([b"\x91" * 300, value])
    assert not nests_deeper(packed, depth(value))
    assert not nests_deeper(padded, depth(value) + 1)
    if depth(value):
        assert nests_deeper(padded, depth(value))


@given(st.binary(max_size=400), st.integers(0, 5))
def test_any_bytes_are_walked_to_an_end(data: bytes, limit: int) -> None:
    nests_deeper(data, limit)


@pytest.mark.parametrize("head", [b"\x91", b"\x81\xa0", b"\xdc\x00\x01", b"\xdf\0\0\0\1\xc0"])
def test_a_bomb_is_deep(head: bytes) -> None:
    assert nests_deeper(head * 20_000 + b"\xc0", 128)
    assert not nests_deeper(head * 128 + b"\xc0", 128)


def test_a_thread_with_a_small_stack_survives_it() -> None:
    script = (
        "import threading; from walld_client.recovered.segments import opaque; "
        "bomb = b'\\x91' * 20000 + b'\\xc0'; threading.stack_size(131072); "
        "found = []; t = threading.Thread(target=lambda: found.append(opaque(bomb) == bomb)); "
        "t.start(); t.join(); assert found == [True]"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
