"""What `make test-adapters` says of an SDK that cannot be installed."""

from __future__ import annotations

import pytest
from adapters.__main__ import trouble_of

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
