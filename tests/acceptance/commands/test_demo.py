"""`walld demo`, as a newcomer runs it: daemon, agent, kill -9, recover, resolve, gone."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from daemon_process import until


def demo(tmp_path, *arguments, **env):
    # A user's settings must not reach it: with these it could not even start.
    wrong = {"WALLD_ENABLED": "0", "WALLD_SOCKET": "/nowhere", "WALLD_FLUSH_BOUND_MS": "x"}
    return subprocess.run(
        [sys.executable, "-m", "walld", "demo", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **wrong, "TMPDIR": str(tmp_path), **env},
        check=False,
    )


@pytest.mark.parametrize("kill_after", [None, 1, 20, 60, 400])
def test_demo(tmp_path, kill_after):
    arguments = [] if kill_after is None else ["--kill-after", str(kill_after)]
    done = demo(tmp_path, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9" in done.stdout
    assert "status    crashed (agent_lost)" in done.stdout
    assert "text equal: yes" in done.stdout
    assert "nothing to recover any more" in done.stdout
    assert done.stderr == ""
    assert os.listdir(tmp_path) == []


def test_lines_that_come_at_once_all_count(tmp_path):
    """The demo is slow, the agent is not: many events lie in the pipe at its first look."""
    command = [sys.executable, "-m", "walld", "demo", "--kill-after", "1"]
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    play = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    try:
        said = ""
        while not (agent := re.search(r"^agent   pid (\d+) ", said, re.M)):
            line = play.stdout.readline()
            assert line, said
            said += line
        play.send_signal(signal.SIGSTOP)
        io = Path(f"/proc/{agent[1]}/io")
        until(lambda: int(re.search(r"^syscw: (\d+)", io.read_text(), re.M)[1]) > 20, "20 writes")
        play.send_signal(signal.SIGCONT)
        said += play.communicate()[0]
        assert "text equal: yes" in said
        assert play.returncode == 0, said
    finally:
        play.kill()
        play.wait()


@pytest.mark.parametrize("kill_after", ["0", "472", "100000"])
def test_demo_of_an_impossible_kill_is_wrong(tmp_path, kill_after):
    done = demo(tmp_path, "--kill-after", kill_after)
    assert done.returncode == 64
    assert f"--kill-after: got {kill_after}, taken is 1 to 471 events" in done.stderr
