"""What `make test-adapters` says of an SDK that cannot be installed, and the floors it holds."""

from __future__ import annotations

import re

import pytest
from adapters.__main__ import GROUPS, floors_of, trouble_of, wanted_by

MISSING = "ERROR: Could not find a version that satisfies the requirement litellm>=999"


@pytest.mark.parametrize(
    ("stderr", "trouble"),
    [
        (f"{MISSING} (from versions: 1.0, 1.1)\nERROR: No matching distribution found\n", MISSING),
        (
            "warning: slow\nERROR: Cannot install a and b because these versions conflict.\n",
            "ERROR: Cannot install a and b because these versions conflict.",
        ),
        ("killed\n", None),
    ],
)
def test_it_is_named_in_a_line(stderr: str, trouble: str | None) -> None:
    assert trouble_of(stderr) == trouble


def test_a_floor_is_held_as_that_version() -> None:
    assert floors_of(["openai>=3.54", "a.b[c,d] >= 1.0rc1; python_version < '3.14'"]) == [
        "openai==3.54",
        "a.b==1.0rc1; python_version < '3.14'",
    ]


@pytest.mark.parametrize("requirement", ["openai", "openai==3", "openai>=3,<4", "a @ file:///a"])
def test_a_requirement_without_a_floor_is_named(requirement: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(requirement))):
        floors_of([requirement])


@pytest.mark.parametrize("name", GROUPS)
def test_each_extra_of_a_group_has_floors(name: str) -> None:
    floors = floors_of(sorted(wanted_by(GROUPS[name])))
    assert bool(floors) == bool(GROUPS[name].extras)
    assert len({one.partition("==")[0] for one in floors}) == len(floors), "two floors of one"
