"""WALLD_LANGCHAIN alone: a program on LangChain in which walld is not imported by anybody.

The client is installed as a user has it, from a wheel and in place, and nothing is in PYTHONPATH.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from adapters.answers import answer, told
from adapters.replay import Replay
from adapters.trial import PROGRAMS, wants
from daemon_process import ROOT, DaemonProcess, environment, until

wants("langchain-openai", "hatchling")

PROGRAM = PROGRAMS / "langchain_alone.py"
SESSION = "alone"


@pytest.fixture(scope="module")
def from_wheel(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of a venv with the client's wheel; LangChain is the group's, seen by its path."""
    home = tmp_path_factory.mktemp("installed")
    build = "import sys, hatchling.build as b; print(b.build_wheel(sys.argv[1]))"
    made = subprocess.run(
        [sys.executable, "-c", build, str(home)],
        cwd=ROOT / "clients/python",
        capture_output=True,
        text=True,
        check=True,
    )
    venv.create(home / "venv", symlinks=True)
    python = home / "venv/bin/python"
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(python), "install", "--no-deps"]
    subprocess.run([*pip, str(home / made.stdout.strip())], check=True, capture_output=True)
    (site_packages,) = home.glob("venv/lib/python*/site-packages")
    (site_packages / "zz_of_the_group.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return str(python)


@pytest.fixture(params=["wheel", "editable"])
def python(request: pytest.FixtureRequest) -> str:
    if request.param == "editable":
        return sys.executable
    return str(request.getfixturevalue("from_wheel"))


def bare(**more: str) -> dict[str, str]:
    """This environment, without anything of walld or of this tree in it."""
    kept = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    return kept | {"LANGSMITH_TRACING": "false"} | more


@pytest.fixture
def attached(kept_by: DaemonProcess) -> Iterator[dict[str, str]]:
    yield bare(WALLD_LANGCHAIN=SESSION, WALLD_SOCKET=kept_by.socket_path)
    for reply in kept_by.reader.recover_all(SESSION):
        kept_by.reader.resolve(reply.stream_id, reply.last_seq)


def test_a_program_without_a_word_of_walld(
    python: str, attached: dict[str, str], kept_by: DaemonProcess, replay: Replay
) -> None:
    command = [python, str(PROGRAM), replay.url]
    text = told(answer("chat", "text"))["text"]
    done = subprocess.run(
        [*command, "text"], env=attached, capture_output=True, text=True, check=True
    )
    assert (done.stdout.strip(), done.stderr) == (text, "")
    (reply,) = kept_by.reader.recover_all(SESSION)
    assert (reply.text, reply.status, reply.partial) == (text, "complete", False)
    assert kept_by.reader.resolve(reply.stream_id, reply.last_seq)

    frames = answer("chat", "text")
    place = [at for at, frame in enumerate(frames, 1) if frame.said][2]
    expected = told(frames[:place])["text"]
    program = subprocess.Popen([*command, f"text:frames:hold{place}"], env=attached)
    try:
        until(
            lambda: [one.text for one in kept_by.reader.recover_all(SESSION)] == [expected],
            repr(expected),
        )
    finally:
        program.kill()
        program.wait()
    (orphan,) = until(lambda: kept_by.reader.orphans(SESSION), "an orphan")
    assert (orphan.text, orphan.status) == (expected, "crashed")

    without = {name: value for name, value in attached.items() if name != "WALLD_LANGCHAIN"}
    subprocess.run([*command, "text"], env=without, capture_output=True, check=True)
    assert len(kept_by.reader.recover_all(SESSION)) == 1


def loaded(python: str, env: dict[str, str]) -> set[str]:
    """The top-level modules of walld in an interpreter that has done nothing."""
    code = "import sys; print(*{one.partition('.')[0] for one in sys.modules})"
    done = subprocess.run([python, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return {one for one in done.stdout.split() if one.startswith(("walld", "langchain"))}


def test_what_a_start_costs(python: str, attached: dict[str, str]) -> None:
    """Without the variable nothing; with it neither walld's client nor LangChain, yet."""
    assert loaded(python, bare()) == set()
    assert loaded(python, attached) == {"walld_langchain_startup"}


def test_what_goes_wrong_is_a_line_and_breaks_nothing(
    python: str, attached: dict[str, str], tmp_path: Path
) -> None:
    """A LangChain that is not what walld knows, here one with nothing in it."""
    for name in ("langchain_core", "langchain_core/tracers"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    (tmp_path / "langchain_core/tracers/context.py").write_text("here = True\n")
    code = "from langchain_core.tracers.context import here; print(here)"
    env = attached | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([python, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith("walld: WALLD_LANGCHAIN is set and nothing is recorded: ")
    code = "import langchain_core.tracers.absent"
    done = subprocess.run(
        [python, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1].startswith("ModuleNotFoundError")
    assert "walld" not in done.stderr
