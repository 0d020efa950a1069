"""Makes the programs of `.ci/` importable; nothing of a make above reaches those below."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

CI = Path(__file__).resolve().parents[2] / ".ci"
sys.path.insert(0, str(CI))


@pytest.fixture(autouse=True)
def _no_make_above(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES"):
        monkeypatch.delenv(name, raising=False)
    # What a hook of git hands on would make these tests act on the repository around them.
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
