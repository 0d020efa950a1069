"""What the tests of the command line have in common."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of the machine the tests run on, and no daemon of it either."""
    for name in [name for name in os.environ if name.startswith("WALLD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
