"""Ids to file names."""

from __future__ import annotations

import hashlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from walld_client.paths import HASHED_PREFIX, path_name


@pytest.mark.parametrize("safe", ["a", "A-b_c.9", "_", "-", "0", "x" * 96, "a..b", "h", "h-"])
def test_a_safe_id_is_its_own_name(safe: str) -> None:
    assert path_name(safe) == safe


@pytest.mark.parametrize(
    "unsafe",
    ["", ".", "..", ".x", "a/b", "a\0b", "a b", "é", "x" * 97, "h~", "h~abc", "a\n", "\ud83d", "~"],
)
def test_any_other_id_is_hashed(unsafe: str) -> None:
    digest = hashlib.sha256(unsafe.encode("utf-8", "surrogatepass")).hexdigest()
    assert path_name(unsafe) == "h~" + digest[:40]


@given(st.text(st.characters(), max_size=200))
def test_a_name_is_one_safe_component(any_id: str) -> None:
    name = path_name(any_id)
    assert name == os.path.basename(name)
    assert name.isascii()
    assert 1 <= len(name) <= 96
    assert not name.startswith(".")
    assert "\0" not in name


@given(st.text(max_size=100), st.text(max_size=100))
def test_no_two_ids_share_a_name(one: str, other: str) -> None:
    assert (path_name(one) == path_name(other)) == (one == other)


@given(st.text(max_size=100))
def test_no_id_can_pose_as_the_hash_of_another(any_id: str) -> None:
    hashed = path_name(any_id + "/")
    assert hashed.startswith(HASHED_PREFIX)
    assert path_name(hashed) != hashed
