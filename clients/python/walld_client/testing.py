"""A pytest plugin: the fixture `walld`, a real daemon in a temporary directory for one test.

Owns: the fixture. Refuses: starting (`start.py`); pytest is imported here and nowhere else.

    pytest_plugins = ["walld_client.testing"]   # conftest.py; or: pytest -p walld_client.testing

    def test_it_comes_back(walld):
        start_my_agent()
        walld.kill()                               # kill -9
        walld.restart()
        assert walld_client.connect().recover("session-1") is not None

It is no entry point of pytest: each run of every suite in an environment with this client would
import it then, before coverage is measured, and give the name `walld` away.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from walld_client.start import Daemon, start_daemon

__all__ = ["walld"]


@pytest.fixture
def walld(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Daemon]:
    """A daemon that answers; WALLD_SOCKET names it for this process and for what it starts.

    `kill()`, `restart()`, `stop()`, `.socket`, `.directory`, `.pid`, `.log`. Settings of the
    environment (WALLD_*) do not reach it. It ends with the test.
    """
    for name in [name for name in os.environ if name.startswith("WALLD_")]:
        if name != "WALLD_COMMAND":
            monkeypatch.delenv(name)
    with start_daemon(tmp_path_factory.mktemp("walld") / "data") as daemon:
        monkeypatch.setenv("WALLD_SOCKET", daemon.socket)
        monkeypatch.setenv("WALLD_APP", "pytest")  # the test and what it starts are one
        yield daemon
