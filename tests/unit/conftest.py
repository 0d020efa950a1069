"""A scripted daemon for the client's tests, in the place of the real one, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import walld_client
from fake_daemon import FakeDaemon, fake_daemon
from fake_ledger import FakeLedger
from walld_client.link import process


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where a client of this process looks; its streams are numbered from 1."""
    monkeypatch.setattr(process, "_numbers", count(1))
    return str(tmp_path / "s")


@pytest.fixture
def daemon(path: str) -> Iterator[FakeDaemon]:
    with fake_daemon(path) as daemon:
        yield daemon


@pytest.fixture
def client(path: str) -> Iterator[walld_client.Client]:
    client = walld_client.connect(path)
    yield client
    client.close(0.0)


@pytest.fixture
def ledger(daemon: FakeDaemon) -> FakeLedger:
    """The sessions of the scripted daemon."""
    return FakeLedger(daemon)
