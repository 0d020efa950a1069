"""Views by name, and arguments that cannot be used."""

from __future__ import annotations

from typing import Any

import pytest
from session_log import Log

from walld.sessions.state.errors import BadArgument, UnknownProjection
from walld.sessions.views.messages import messages
from walld.sessions.views.projections import PROJECTIONS, project

NAMES = (
    "messages state turn tree branches transcript trace audit eval pending resume explain child"
    " edit_target find"
)


def test_every_view_has_its_name() -> None:
    assert list(PROJECTIONS) == NAMES.split()


def test_arguments_reach_the_view() -> None:
    log = Log()
    log.say("user", "a")
    log.say("assistant", "b")
    given = {"format": "openai", "branch": "e1", "compacted": False}
    assert project("messages", log.events, given) == messages(log.events, "openai", "e1", False)
    assert project("messages", [], {}) is None
    found = project("find", log.events, {"type": "message", "last": 1})
    assert isinstance(found, list)
    assert [one["id"] for one in found] == ["e2"]


def test_an_unknown_view() -> None:
    with pytest.raises(UnknownProjection, match="got sums, limit messages") as error:
        project("sums", [], {})
    assert (error.value.code, error.value.got) == ("unknown_projection", "sums")


@pytest.mark.parametrize(
    ("name", "arguments", "got"),
    [
        ("messages", {"shape": "plain"}, "messages"),
        ("messages", {"format": None}, "NoneType"),
        ("messages", {"compacted": 1}, "int"),
        ("find", {"last": True}, "bool"),
        ("find", {"type": 3}, "int"),
        ("tree", {"x": 1}, "tree"),
        ("resume", {"workspace": []}, "list"),
        ("resume", {"missing_artifacts": [1]}, "1"),
        ("resume", {"missing_artifacts": ["a", {}]}, "{}"),
        ("resume", {"missing_artifacts": [{"sha256": "a", "why": None}]}, "{'sha256': 'a', "),
    ],
)
def test_arguments_that_cannot_be_used(name: str, arguments: dict[str, Any], got: str) -> None:
    with pytest.raises(BadArgument) as error:
        project(name, [], arguments)
    assert str(error.value.got).startswith(got)
    assert error.value.limit
    assert next(iter(arguments)) in error.value.message
