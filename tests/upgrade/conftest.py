"""The two builds, and a place for a socket whose path is short enough."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from builds import Build


@pytest.fixture(scope="session")
def new() -> Build:
    """This tree."""
    return Build.present()


@pytest.fixture(scope="session")
def old(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The build before."""
    return Build.released(tmp_path_factory.mktemp("released"))


@pytest.fixture
def socket_path() -> Iterator[str]:
    """Where the daemons of one test listen."""
    with tempfile.TemporaryDirectory(prefix="walld-") as folder:
        yield f"{folder}/s"
