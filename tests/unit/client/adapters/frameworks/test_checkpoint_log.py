"""A LangGraph thread as entries: what is stored, what is named, what a fold of them says."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from walld_client.adapters.frameworks.checkpoint_log import (
    CHECKPOINT,
    DROP,
    WRITES,
    Known,
    blob,
    bytes_of,
    fold,
    kept_values,
    key_prefix,
    known_of,
    lasting,
)

EMPTY = blob(("null", b""))


class Log:
    """Entries as the daemon gives them back."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def add(self, type: str, checkpoint_id: str, **payload: Any) -> None:  # noqa: A002
        seq = len(self.events) + 1
        about = {"ns": payload.pop("ns", ""), "checkpoint_id": checkpoint_id}
        event = {"seq": seq, "id": f"e{seq}", "type": type, "payload": about | payload}
        self.events.append(event)

    def put(self, checkpoint_id: str, parent: str | None = None, **payload: Any) -> None:
        more = {} if parent is None else {"parent_id": parent}
        values = payload.pop("values", {})
        self.add(CHECKPOINT, checkpoint_id, values=values, **more, **payload)

    def write(
        self, checkpoint_id: str, task: str, *writes: tuple[int, str, bytes], path: str = ""
    ) -> None:
        lines = [{"index": at, "channel": one, **blob(("raw", raw))} for at, one, raw in writes]
        self.add(WRITES, checkpoint_id, task_id=task, task_path=path, writes=lines)

    def written(self, checkpoint_id: str) -> list[tuple[str, str, Any]]:
        stored = fold(self.events)["", checkpoint_id]
        return [
            (task, channel, bytes_of(held)) for task, _, _, channel, held in stored.ordered_writes()
        ]


@pytest.fixture
def log() -> Log:
    return Log()


# --- values --------------------------------------------------------------------------------------


@given(st.text(), st.binary())
def test_a_value_comes_back_byte_for_byte(form: str, raw: bytes) -> None:
    assert bytes_of(blob((form, raw))) == (form, raw)


def test_what_stands_for_a_long_value_is_seen_by_the_audit() -> None:
    """`_artifact` with sha256 and size is the form that walld looks for."""
    held = blob(("raw", b"x"), {"sha256": "ab" * 32, "size": 1})
    assert held == {"form": "raw", "_artifact": {"sha256": "ab" * 32, "size": 1}}
    assert bytes_of(held) == "ab" * 32


def test_only_the_same_version_is_named() -> None:
    """Also where two lines of history count alike, the parent's own line is asked."""
    parent = Known("e1", {"same": (1, 7), "grown": (1, 7), "told": (1, 7), "bare": (None, 7)})
    versions = {"same": 1, "grown": 2, "told": 1, "bare": 1, "new": 1}
    assert kept_values(parent, versions, {"told": 1}, versions) == {"same": 7}
    assert kept_values(None, versions, {}, versions) == {}
    assert kept_values(parent, versions, {}, ["grown"]) == {}


def test_what_is_named_is_where_the_bytes_are(log: Log) -> None:
    """A name of a name does not exist: reading follows one step."""
    log.put("c1", values={"a": {**EMPTY, "version": 1}})
    log.put("c2", "c1", values={"a": {"at": 1, "version": 1}, "b": {**EMPTY, "version": 5}})
    assert known_of(fold(log.events)["", "c2"]) == Known("e2", {"a": (1, 1), "b": (5, 2)})


def test_keys_of_namespaces_do_not_meet() -> None:
    spaces = ["", "a", "a:b", "a|b" * 500, "root", "\ud800"]
    rooms = [key_prefix(ns) for ns in spaces]
    assert len(set(rooms)) == len(spaces)
    assert all(len(room) < 20 for room in rooms)
    assert key_prefix("", "c1").startswith(key_prefix(""))
    assert not key_prefix("", "c10").startswith(key_prefix("", "c1"))


# --- the fold ------------------------------------------------------------------------------------


def test_newer_is_what_stands_later(log: Log) -> None:
    """Ids are not compared, so a clock that was set back hides nothing."""
    log.put("c9")
    log.put("c1", "c9")
    log.put("c5", ns="child")
    assert list(fold(log.events)) == [("", "c9"), ("", "c1"), ("child", "c5")]
    log.put("c9")
    assert list(fold(log.events)) == [("", "c1"), ("child", "c5"), ("", "c9")]


def test_of_one_write_told_twice_the_first_stands(log: Log) -> None:
    """An error, an interrupt, a resume are told anew."""
    log.put("c1")
    log.write("c1", "t", (0, "a", b"first"), (-1, "__error__", b"first"))
    log.write("c1", "t", (0, "a", b"again"), (1, "b", b"more"), (-1, "__error__", b"again"))
    assert log.written("c1") == [
        ("t", "__error__", ("raw", b"again")),
        ("t", "a", ("raw", b"first")),
        ("t", "b", ("raw", b"more")),
    ]


def test_writes_are_in_the_order_of_a_live_run(log: Log) -> None:
    """By path, then task, then index: a reducer that is not commutative gives the same value."""
    log.write("c1", "a", (0, "x", b"3"), path="~2")
    log.write("c1", "b", (1, "x", b"2"), (0, "x", b"1"), path="~1")
    log.write("c1", "z", (0, "x", b"0"))
    log.put("c1")
    assert [raw[1] for _, _, raw in log.written("c1")] == [b"0", b"1", b"2", b"3"]


def test_a_drop_hides_what_stands_before_it(log: Log) -> None:
    log.put("c1")
    log.write("c1", "t", (0, "a", b"old"))
    log.put("c2", "c1")
    log.add(DROP, "c1")
    assert list(fold(log.events)) == [("", "c2")]
    log.put("c1")
    assert log.written("c1") == []


def test_other_entries_of_the_session_are_passed_over(log: Log) -> None:
    log.put("c1")
    log.events.append({"seq": 2, "id": "x", "type": "message", "payload": {"role": "user"}})
    assert list(fold(log.events)) == [("", "c1")]


def test_what_lasts(log: Log) -> None:
    """The newest of each namespace; where a channel is stored as writes, back to its last value."""
    log.put("a1", values={"d": EMPTY})
    log.put("a2", "a1", values={"d": EMPTY})
    log.put("a3", "a2")
    log.put("a4", "a3")
    log.put("b1", ns="child")
    thread = fold(log.events)
    assert lasting(thread, {}) == {("", "a4"), ("child", "b1")}
    deltas = {("", "a4"): ["d"]}
    assert lasting(thread, deltas) == {("", "a4"), ("", "a3"), ("", "a2"), ("child", "b1")}
    assert lasting(thread, {("", "a4"): ["never"]}) == {*thread}


def test_it_needs_no_langgraph() -> None:
    module = "walld_client.adapters.frameworks.checkpoint_steps"
    source = f"import sys, {module}; assert 'langgraph' not in sys.modules"
    subprocess.run([sys.executable, "-c", source], check=True)
