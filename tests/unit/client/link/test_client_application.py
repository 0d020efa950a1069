"""Whose the replies of a process are, where the program does not say so."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from daemon_process import environment
from walld_client.limits import ID_BYTES_MAX
from walld_client.link import application

SAYS = "from walld_client.link.application import application; print(*application(None), sep='|')"


def said(*words: str, cwd: Path, app: str = "") -> str:
    """What a program's own client finds, run in `cwd`."""
    env = environment() | {"WALLD_APP": app}
    done = subprocess.run(
        [sys.executable, *words], env=env, cwd=cwd, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_it_is_the_path_of_the_main_program(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(SAYS)
    path = f"{tmp_path}/main.py|False"
    assert said("main.py", cwd=tmp_path) == path
    assert said(f"{tmp_path}/main.py", cwd=Path("/")) == path
    assert said("-m", "main", cwd=tmp_path) == path


def test_of_a_launcher_it_is_the_working_directory(tmp_path: Path) -> None:
    for launcher in ("uvicorn", "gunicorn"):
        (tmp_path / launcher).mkdir()
        (tmp_path / launcher / "__main__.py").write_text(SAYS)
        assert said("-m", launcher, cwd=tmp_path) == f"{launcher} in {tmp_path}|False"
    (tmp_path / "celery").write_text(SAYS)
    assert said("celery", cwd=tmp_path) == f"celery in {tmp_path}|False"
    assert said("-c", SAYS, cwd=tmp_path) == f"-c in {tmp_path}|False"


def test_a_worker_that_is_spawned_is_its_parents(tmp_path: Path) -> None:
    """As uvicorn starts its workers."""
    (tmp_path / "hypercorn").write_text(
        "import multiprocessing as mp\nfrom walld_client.link.application import application\n"
        "def work(): print(*application(None), sep='|', flush=True)\n"
        "if __name__ == '__main__':\n"
        "    one = mp.get_context('spawn').Process(target=work); one.start(); one.join(); work()\n"
    )
    assert said("hypercorn", cwd=tmp_path).split("\n") == [f"hypercorn in {tmp_path}|False"] * 2


def test_the_environment_and_the_program_may_say_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert said("-c", SAYS, cwd=tmp_path, app="shop") == "shop|False"
    assert said("-c", SAYS, cwd=tmp_path, app="*") == f"-c in {tmp_path}|True"
    monkeypatch.setenv("WALLD_APP", "shop")
    assert application.application(None) == ("shop", False)
    assert application.application("mine") == ("mine", False)


def test_a_server_is_told_once_to_say_whose_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.delenv("WALLD_APP", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "/venv/bin/uvicorn", raising=False)
    with caplog.at_level(logging.WARNING, "walld"):
        for _ in range(2):
            assert application.application(None) == (f"uvicorn in {tmp_path}", False)
    (line,) = caplog.messages
    assert "connect(app=...)" in line


def test_a_path_that_is_longer_than_an_id_is_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WALLD_APP", raising=False)
    path = "/" + os.sep.join(["é" * 100] * 20) + "/main.py"
    monkeypatch.setattr(sys.modules["__main__"], "__file__", path, raising=False)
    name, _ = application.application(None)
    assert path.endswith(name)
    assert ID_BYTES_MAX - 1 <= len(name.encode()) <= ID_BYTES_MAX
