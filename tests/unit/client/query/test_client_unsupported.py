"""What an error of a daemon says of its build."""

from __future__ import annotations

import pytest
from walld_client.query.requests import is_unknown
from walld_client.wire.messages import Error

KNOWN = "format | branch | compacted"
UNKNOWN = "argument unknown cannot be used"


@pytest.mark.parametrize(
    ("message", "got", "limit", "is_of_its_build"),
    [
        (UNKNOWN, "messages", KNOWN, True),
        (UNKNOWN, "messages", f"{KNOWN} | unknown", False),
        (UNKNOWN, "pending", KNOWN, False),
        ("argument last cannot be used", "messages", f"{KNOWN} | unknown", True),
        ("argument before cannot be used", "messages", f"{KNOWN} | unknown", True),
        ("argument knowing cannot be used", "messages", KNOWN, False),
        (UNKNOWN, "forget", "say | drop", False),
    ],
)
def test_an_argument_that_a_view_has_since(
    message: str, got: str, limit: str, is_of_its_build: bool
) -> None:
    error = Error("bad_argument", message, got, limit, id=1)
    assert is_unknown(error, 56) is is_of_its_build
