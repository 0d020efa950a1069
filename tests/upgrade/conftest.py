"""The two builds, and a place for a socket whose path is short enough."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from builds import Build, Daemon


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


@pytest.fixture(scope="module")
def daemons(
    old: Build, new: Build, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, tuple[Daemon, str]]]:
    """A daemon of each build, and the version that it calls itself."""
    with ExitStack() as stack:
        made = {}
        for build in (old, new):
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="walld-")))
            daemon = Daemon(build, home / "data", str(home / "s"), home / "log")
            stack.enter_context(daemon)
            code, told = build.walld("status", "--json", "--socket", daemon.socket_path)
            assert code == 0, told
            made[build.name] = daemon, told["version"]
        yield made
