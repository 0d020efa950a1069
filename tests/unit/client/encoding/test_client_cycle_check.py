"""Values that contain themselves: what is sent of them, and that the call returns."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from walld_client.encoding import value_encoding
from walld_client.encoding.cycle_check import CycleFound, Trail, taken_apart
from walld_client.encoding.redaction import redacted, redacted_json
from walld_client.reply.terminal_events import app_error
from walld_client.session import entries


def tree() -> dict[str, Any]:
    """Nodes that name their parent: back at the root in as many ways as it has children."""
    root: dict[str, Any] = {"name": "root", "place": (), "children": []}
    for name in ("a", "b"):
        root["children"].append({"name": name, "parent": root, "place": (), "children": []})
    return root


def hidden(text: str) -> str:
    return text.replace("root", "***")


TOLD = {
    "name": "root",
    "place": [],
    "children": [
        {"name": name, "parent": "<dict>", "place": [], "children": []} for name in ("a", "b")
    ],
}
WAYS = {
    "msgpack": lambda value: msgspec.msgpack.decode(value_encoding.value_bytes(value)),
    "json": lambda value: json.loads(value_encoding.json_bytes(value)),
    "entry": lambda value: json.loads(entries.json_text(value)),
    "redacted": lambda value: json.loads(entries.json_text(redacted(value, str))),
    "detail": lambda value: msgspec.msgpack.decode(app_error("", None, value, str).detail or b""),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_part_of_it_is_sent_once(way: str) -> None:
    assert WAYS[way](tree()) == TOLD


def test_what_is_said_to_a_model_is_looked_through_once() -> None:
    entries.check_said("message", {"content": tree()})
    bad = tree()
    bad["children"][1]["at"] = [1.0, float("nan")]
    with pytest.raises(ValueError, match=r"content\['children'\]\[1\]\['at'\]\[1\] of a message"):
        entries.check_said("message", {"content": bad})


@pytest.mark.parametrize("way", WAYS)
def test_what_merely_comes_twice_is_sent_twice(way: str) -> None:
    twice = {"odd": "\ud83d", "n": [1, 2]}
    found = WAYS[way]([twice, twice, {1: twice}])
    assert found[0] == found[1] == (found[2].get("1") or found[2].get(1))
    assert found[0]["n"] == [1, 2]


def test_a_row_within_itself() -> None:
    class Row(msgspec.Struct):
        name: str
        all: list[Any]

    row = Row("a", [])
    row.all += [row, row]
    assert json.loads(entries.json_text({"row": row})) == {
        "row": {"name": "a", "all": ["<Row>", "<Row>"]}
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("count", [12, 150])
def test_where_each_part_holds_all_others(way: str, count: int) -> None:
    """As many ways through it as there are orders of its parts: its repr has no end either."""
    parts: list[dict[str, Any]] = [
        {"pad": "x" * 10_000 if count == 12 else ""} for _ in range(count)
    ]
    for one in parts:
        one.update({str(at): other for at, other in enumerate(parts)})
    assert WAYS[way](parts[0])


def test_a_loop_that_nests_too_deep_for_an_entry() -> None:
    parts: list[list[Any]] = [[] for _ in range(300)]
    for one in parts:
        one += reversed(parts)
    with pytest.raises(ValueError, match="an entry has 200 levels at most"):
        entries.json_text(parts[0])
    assert WAYS["redacted"](parts[0])
    assert WAYS["msgpack"](parts[0])


def test_redact_passes_over_what_nests_too_deep_for_an_entry() -> None:
    deep: Any = ["root"]
    for _ in range(600):
        deep = [deep]
    assert b"root" not in entries.json_text(redacted(deep, hidden))
    text = json.dumps(deep)
    assert "root" not in redacted_json(text, hidden)
    assert redacted_json(text, str) == text
    assert b"<list>" in entries.json_text(redacted(deep, hidden))


def test_what_fails_on_the_way_leaves_the_trail() -> None:
    part: list[Any] = []

    def take(trail: Trail) -> int:
        for _ in range(2):
            assert trail.enters(part)
            trail.leaves(part)
        return 7

    assert taken_apart(take) == 7
    trail = Trail(once=False)
    assert trail.enters(part)
    with pytest.raises(CycleFound):
        trail.enters(part)
