"""Where a conversation goes on: messages alone fork it and choose its leaf, in whichever order
their lines stand.
"""

from __future__ import annotations

import itertools
import json

import pytest
import test_foreign_pi as pi_lines
from imported_session import told_texts
from test_foreign_claude import TEXT, assistant, call, line, result, user

from walld.foreign import claude, pi
from walld.foreign.entries import Imported

NOTES = ("progress", "system", "attachment", "hologram")
"""The last is of a type that nobody knows."""


def texts(imported: Imported) -> list[str]:
    return [text for _, text in told_texts(imported, "plain")]


def say(uuid: str, parent: str | None) -> str:
    return assistant(uuid, parent, f"m-{uuid}", {"type": "text", "text": uuid})


def ask(uuid: str, parent: str | None) -> str:
    return user(uuid, parent, uuid)


def note(kind: str, uuid: str, parent: str | None) -> str:
    attached = {"attachment": {"type": "file", "content": "x"}} if kind == "attachment" else {}
    return line(kind, uuid, parent, subtype="turn_duration", **attached)


@pytest.mark.parametrize("kind", NOTES)
@pytest.mark.parametrize("hangs_on", ["a1", "u1", "n1"])
def test_a_message_behind_a_note_goes_on_where_the_conversation_stands(kind: str, hangs_on: str):
    """The note hangs beside what came behind it."""
    imported = claude.read(
        [
            ask("u1", None),
            say("a1", "u1"),
            note(kind, "n1", hangs_on if hangs_on != "n1" else "a1"),
            ask("u2", "a1"),
            say("a2", "u2"),
            note(kind, "n2", hangs_on),
            ask("u3", "n2"),
            say("a3", "u3"),
        ]
    )
    assert texts(imported) == ["u1", "a1", "u2", "a2", "u3", "a3"]


@pytest.mark.parametrize("kind", NOTES)
def test_notes_of_a_call_part_nothing(kind: str):
    imported = claude.read(
        [
            ask("u1", None),
            assistant("a1", "u1", "m1", call("t")),
            note(kind, "p1", "a1"),
            note(kind, "p2", "p1"),
            user("r1", "a1", [result("t", "3 failed")]),
            say("a2", "r1"),
            ask("u2", "p2"),
            say("a3", "u2"),
        ]
    )
    assert texts(imported) == ["u1", "[tool_use]", "3 failed", "a2", "u2", "a3"]


@pytest.mark.parametrize("kind", NOTES)
@pytest.mark.parametrize("parent", ["u1", "a1", "a2", None, "gone"])
def test_a_late_note_does_not_choose_the_leaf(kind: str, parent: str | None):
    turns = [ask("u1", None), say("a1", "u1"), ask("u2", "a1"), say("a2", "u2")]
    last = json.dumps({"type": "last-prompt", "leafUuid": "a2"}) + "\n"
    late = note(kind, "n", parent)
    for lines in ([*turns, late], [*turns, last, late], [*turns, late, last]):
        assert texts(claude.read(lines)) == ["u1", "a1", "u2", "a2"]


def test_who_goes_back_behind_a_note_forks():
    """The note stood on the path: both questions hang on it."""
    for kind in NOTES:
        imported = claude.read(
            [
                ask("u1", None),
                say("a1", "u1"),
                note(kind, "n1", "a1"),
                note(kind, "n2", "n1"),
                ask("u2", "n2"),
                say("a2", "u2"),
                ask("again", "n2"),
                say("a3", "again"),
            ]
        )
        assert texts(imported) == ["u1", "a1", "again", "a3"]


def test_a_note_of_the_branch_that_was_left_does_not_lead_back_into_its_middle():
    imported = claude.read(
        [
            ask("u1", None),
            say("a1", "u1"),
            ask("u2", "a1"),
            say("a2", "u2"),
            ask("other", "a1"),
            say("a3", "other"),
            note("system", "n", "u2"),
            ask("u3", "n"),
        ]
    )
    assert texts(imported) == ["u1", "a1", "u2", "a2", "u3"]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_children_may_stand_before_their_parents(order: tuple[int, ...]):
    turns = [ask("u1", None), say("a1", "u1"), ask("u2", "a1"), say("a2", "u2")]
    imported = claude.read([turns[place] for place in order])
    assert texts(imported) == ["u1", "a1", "u2", "a2"]
    assert imported.orphans == []


def test_a_leaf_that_the_file_names_by_a_note_is_its_message():
    fork = [ask("u1", None), say("a1", "u1"), note("system", "n", "a1"), ask("u2", None)]
    last = json.dumps({"type": "last-prompt", "leafUuid": "n"}) + "\n"
    assert texts(claude.read([*fork, last])) == ["u1", "a1"]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_pi_takes_parents_wherever_they_stand(order: tuple[int, ...]):
    """Its leaf is the last line, as pi reads it."""
    entries = [
        pi_lines.entry("a", None, message=pi_lines.user("a")),
        pi_lines.entry("b", "a", message=pi_lines.user("b")),
        pi_lines.entry("c", "b", message=pi_lines.user("c")),
    ]
    imported = pi.read(pi_lines.lines(pi_lines.header(), *(entries[place] for place in order)))
    assert texts(imported) == ["a", "b", "c"][: order[-1] + 1]
    assert imported.orphans == []


@pytest.mark.parametrize("named", [False, True])
def test_a_file_that_names_no_parents_is_read_in_its_order_and_says_so(named: bool):
    turns = [ask("u1", None), say("a1", None), ask("u2", None), say("a2", None)]
    entries = [pi_lines.entry(id_, None, message=pi_lines.user(id_)) for id_ in ("a", "b", "c")]
    if not named:
        turns = [_without(one, "parentUuid") for one in turns]
        entries = [{k: v for k, v in one.items() if k != "parentId"} for one in entries]
    imported = claude.read(turns)
    assert texts(imported) == ["u1", "a1", "u2", "a2"]
    assert imported.notes == ["no_parents"]
    imported = pi.read(pi_lines.lines(pi_lines.header(), *entries))
    assert texts(imported) == ["a", "b", "c"]
    assert imported.notes == ["no_parents"]


def test_lines_without_ids_are_read_in_their_order():
    turns = [ask("u1", None), assistant("a1", None, "m1", TEXT), ask("u2", None)]
    imported = claude.read([_without(_without(one, "uuid"), "parentUuid") for one in turns])
    assert texts(imported) == ["u1", "hello", "u2"]
    assert imported.notes == ["no_parents"]


def test_a_file_that_names_a_parent_says_nothing_of_it():
    assert claude.read([ask("u1", None), say("a1", "u1")]).notes == []
    assert claude.read([ask("u1", None)]).notes == []


def _without(text: str, name: str) -> str:
    return json.dumps({k: v for k, v in json.loads(text).items() if k != name}) + "\n"
