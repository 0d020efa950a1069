"""The tree as a view, and paths through it."""

from __future__ import annotations

import msgspec
from session_log import Log

from walld.sessions.state.path import path_events, places
from walld.sessions.views.tree import branches, labels_of, tree


def branched() -> Log:
    log = Log()
    log.say("user", "a")
    log.say("assistant", "b" * 500)
    log.add("leaf", {"target": "e1", "name": "second try"})
    log.say("assistant", "c")
    log.add("branch_summary", {"target": "e2", "text": "went wrong"})
    log.add("label", {"target": "e2", "text": "old"})
    return log


def test_nodes_say_where_they_hang() -> None:
    view = tree(branched().events)
    nodes = {node["id"]: node for node in view["nodes"]}
    assert (view["leaf"], view["roots"], view["tips"]) == ("e5", ["e1"], ["e2", "e5"])
    assert view["names"] == {"second try": "e1"}
    assert nodes["e1"]["children"] == ["e2", "e4"]
    assert nodes["e4"]["parent"] == "e1"
    assert [one for one, node in nodes.items() if node["on_path"]] == ["e1", "e4", "e5"]
    assert [one for one, node in nodes.items() if node["leaf"]] == ["e5"]
    assert nodes["e2"]["label"] == "old"
    assert nodes["e2"]["summaries"] == ["went wrong"]
    assert len(nodes["e2"]["text"]) == 120
    assert "label" not in nodes["e1"]


def ends(log: Log) -> dict[str, tuple[str | None, str | None]]:
    return {name: (one["at"], one["leaf"]) for name, one in branches(log.events).items()}


def test_a_branch_with_a_name_goes_on_where_its_last_entry_is_the_leaf() -> None:
    log = branched()
    assert ends(log) == {"second try": ("e1", "e5")}
    log.add("leaf", {"target": "e1", "name": "third"})
    log.add("leaf", {"target": "e1", "name": "fourth"})
    assert ends(log)["third"] == ends(log)["fourth"] == ("e1", "e1")
    log.say("user", "on the fourth")  # e9
    log.add("leaf", {"target": "e5"})
    log.say("user", "on the second, by its last entry")
    log.add("leaf", {"target": "e4"})
    log.say("user", "on none: beside it")
    log.add("leaf", {"target": "e1", "name": "third"})
    log.say("user", "on the third")
    told = {"second try": ("e1", "e11"), "third": ("e1", "e15"), "fourth": ("e1", "e9")}
    assert ends(log) == told
    log.add("leaf", {"target": "e9", "name": "fourth"})
    log.add("tool_settled", {"of": {"turn": "t", "call_id": "c"}, "word": "ran"}, leaf=False)
    log.say("user", "on the fourth, by its name")
    assert ends(log)["fourth"] == ("e1", "e18")
    log.add("leaf", {"target": "e2", "name": "fourth"})
    assert ends(log)["fourth"] == ("e2", "e2"), "the name is another branch's now"
    log.add("leaf", {"target": None, "name": "from nothing"})
    assert ends(log)["from nothing"] == (None, None)
    log.say("user", "anew")
    assert ends(log)["from nothing"] == (None, "e21")


def test_a_label_is_the_last_one_given() -> None:
    log = branched()
    log.add("label", {"target": "e2", "text": "new"})
    assert labels_of(log.events) == {"e2": "new"}
    log.add("label", {"target": "e2", "text": None})
    assert labels_of(log.events) == {}


def test_a_lost_parent_is_the_entry_before() -> None:
    log = branched()
    assert [event.id for event in path_events(log.events)] == ["e1", "e4", "e5"]
    assert [event.id for event in path_events(log.events[1:])] == ["e2", "e3", "e4", "e5"]
    forward = msgspec.structs.replace(log.events[0], parent="e5")
    assert places([forward, *log.events[1:]]).parents[0] == -1


def test_bookkeeping_is_no_tip() -> None:
    log = branched()
    log.add("tool_settled", {"of": {"turn": "t", "call_id": "c"}, "word": "ran"}, leaf=False)
    log.add("model_call", {"stream": "s", "calls": []}, leaf=False)
    view = tree(log.events)
    assert view["tips"] == ["e2", "e5"]
    kept = [node["id"] for node in view["nodes"] if node.get("bookkeeping")]
    assert kept == ["e3", "e6", "e7", "e8"]
    log.add("model_call", {"of": "the application's own"})
    view = tree(log.events)
    assert (view["leaf"], view["tips"]) == ("e9", ["e2", "e9"])
    assert "bookkeeping" not in view["nodes"][-1]


def test_the_tree_of_nothing() -> None:
    told = {"leaf": None, "roots": [], "tips": [], "names": {}, "branches": {}, "nodes": []}
    assert tree([]) == told
