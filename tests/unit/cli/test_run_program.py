"""Where `walld run` looks for a daemon, and whose folder it does not trust."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from walld.cli.run_program import _place
from walld.daemon.settings import load

OTHER_UID = 12345


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the socket of a user without a runtime directory is: another one has made it."""
    for name in ("XDG_RUNTIME_DIR", "WALLD_SOCKET", "WALLD_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: OTHER_UID)
    made = tmp_path / f"walld-{OTHER_UID}"
    made.mkdir()
    return made


def test_a_folder_that_another_user_made_is_not_used(folder: Path) -> None:
    settings = load({"data": "/nowhere"}, os.environ, OTHER_UID)
    assert settings.socket == str(folder / "walld.sock")
    with pytest.raises(PermissionError, match="remove it or give --socket"):
        _place(settings)


def test_nor_is_a_socket_that_stands_there(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as planted:
        planted.bind("walld.sock")
        planted.listen()
        with pytest.raises(PermissionError, match="not trusted; remove it or set WALLD_SOCKET"):
            _place(load({"data": "/nowhere"}, os.environ, OTHER_UID))
        planted.settimeout(0)
        with pytest.raises(BlockingIOError):
            planted.accept()


def test_a_socket_that_is_named_is_taken_as_it_is(folder: Path) -> None:
    settings = load({"data": "/nowhere", "socket": "/nowhere/s"}, os.environ, OTHER_UID)
    assert _place(settings) == "/nowhere/s"
