"""Where the socket is looked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from walld_client.link.socket_path import find_socket, is_private, socket_candidates

UID = os.geteuid()


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    monkeypatch.delenv("WALLD_SOCKET", raising=False)
    (tmp_path / "run").mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return {
        "xdg": tmp_path / "run" / "walld" / "walld.sock",
        "tmp": tmp_path / "tmp" / f"walld-{UID}" / "walld.sock",
    }


def touch(path: Path, mode: int = 0o700) -> str:
    path.parent.mkdir(exist_ok=True)
    path.parent.chmod(mode)
    path.touch()
    return str(path)


def test_the_order(places: dict[str, Path]) -> None:
    assert socket_candidates(os.environ, UID) == [
        str(places["xdg"]),
        "/run/walld/walld.sock",
        str(places["tmp"]),
    ]
    assert socket_candidates({}, 7) == ["/run/walld/walld.sock", "/tmp/walld-7/walld.sock"]
    assert socket_candidates({"XDG_RUNTIME_DIR": "relative"}, 7)[0] == "/run/walld/walld.sock"


def test_what_is_named_is_taken(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    touch(places["xdg"])
    monkeypatch.setenv("WALLD_SOCKET", "/somewhere")
    assert find_socket(None) == "/somewhere"
    assert find_socket("/else") == "/else"


def test_the_first_that_exists_wins(places: dict[str, Path]) -> None:
    if os.path.exists("/run/walld/walld.sock"):
        pytest.skip("a system daemon's socket is here")
    tmp = touch(places["tmp"])
    assert find_socket(None) == tmp
    xdg = touch(places["xdg"])
    assert find_socket(None) == xdg


def test_where_none_exists_the_first_whose_folder_could_be_made(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_socket(None) == str(places["xdg"])
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nowhere")
    assert find_socket(None) == "/run/walld/walld.sock"


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o755, 0o701])
def test_a_folder_open_to_others_is_not_used(places: dict[str, Path], mode: int) -> None:
    touch(places["tmp"], mode)
    with pytest.raises(PermissionError, match="is not trusted"):
        find_socket(None)


def test_a_link_to_a_good_folder_is_not_used(places: dict[str, Path]) -> None:
    real = places["tmp"].parent.with_name("real")
    real.mkdir(mode=0o700)
    (real / "walld.sock").touch()
    places["tmp"].parent.symlink_to(real)
    with pytest.raises(PermissionError):
        find_socket(None)


def test_a_folder_of_somebody_else_is_not_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert is_private(str(tmp_path), UID)
    assert not is_private(str(tmp_path), UID + 1)
    assert not is_private(str(tmp_path / "nothing"), UID)
