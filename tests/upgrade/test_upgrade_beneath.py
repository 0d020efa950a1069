"""A daemon whose own files go, or are others, while it runs: it has loaded all it needs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from builds import HERE, TREE, Agent, Build, Daemon, same, settled

PACKAGES = ("walld", "clients/python/walld_client")


def installed(root: Path) -> Build:
    """A copy of this tree, to be upgraded."""
    for package in PACKAGES:
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(TREE / package, root / package, ignore=without)
    return Build("installed", root)


def upgrade(root: Path, how: str) -> None:
    """Nothing of it can be imported from here on."""
    if how == "removed":
        shutil.rmtree(root)
        root.mkdir()
        return
    for package in PACKAGES:
        for cached in (root / package).rglob("__pycache__"):
            shutil.rmtree(cached)
        for module in (root / package).rglob("*.py"):
            module.unlink()
            module.write_text('raise ImportError("of a build that is not the running one")\n')


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_daemon_goes_on_without_its_files_and_the_next_one_has_all(
    how: str, new: Build, tmp_path: Path, socket_path: str
) -> None:
    """Each public verb, what its client says meanwhile, an agent's end, a stop in order."""
    data, log = tmp_path / "data", tmp_path / "log"
    build = installed(tmp_path / "installed")
    where = build.python("-c", "import walld, walld_client; print(*walld.__path__)").stdout.strip()
    assert where == str(build.root / "walld")
    with Daemon(build, data, socket_path, log) as daemon, Agent(new, socket_path, "a") as agent:
        agent.say("one")
        upgrade(build.root, how)
        daemon.build = new  # whose client asks from here on
        agent.say("two")
        agent.say("three")
        agent.kill()
        settled(daemon, [agent])
        done = new.python(HERE / "verbs.py", socket_path, "a")
        assert done.returncode == 0, done.stderr
        outcomes = json.loads(done.stdout)
        assert {name: one for name, one in outcomes.items() if one is not True} == {}
        code, status = new.walld("status", "--json", "--socket", socket_path)
        assert (code, status["state"]) == (0, "ok")
        told = new.answers(socket_path)
        daemon.terminate()
    assert "a bug" not in log.read_text()
    assert "Error" not in log.read_text()
    with Daemon(new, data, socket_path, log) as daemon:
        same(told, new.answers(socket_path))
        daemon.terminate()
