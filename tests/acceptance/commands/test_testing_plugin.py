"""`walld_client.testing`, as a project of somebody else uses it: pytest in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from daemon_process import PATIENCE_SECONDS, ROOT, environment

KILLED = '''
    import os, subprocess, sys, walld_client

    AGENT = """
    import sys, walld_client
    reply = walld_client.connect().reply("session-1")
    for number in range(10**6):
        reply.token(f"{number} ")
        print(number, flush=True)
        if sys.stdin.readline().strip() == "sync":
            assert reply.drain(level="synced", timeout=30)
    """

    def recovered():
        client = walld_client.connect(timeout=30)
        try:
            return client.recover("session-1")
        finally:
            client.close()

    def test_a_reply_outlives_the_daemon(walld):
        agent = subprocess.Popen(
            [sys.executable, "-c", AGENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        def says(count, synced=False):
            for number in range(count):
                last = int(agent.stdout.readline())
                agent.stdin.write("sync\\n" if synced and number == count - 1 else "\\n")
                agent.stdin.flush()
            return last
        says(50)
        before = walld.pid
        walld.kill()              # in the middle of its reply
        said = says(50)
        walld.restart()
        assert walld.pid != before
        said = says(50, synced=True)
        agent.stdout.readline()   # it goes on, so all before is synced
        agent.kill()
        agent.communicate()
        kept = recovered()
        assert kept.text.split()[: said + 1] == [str(n) for n in range(said + 1)]
        print("data", walld.directory, "socket", walld.socket, "pid", walld.pid)

    def test_the_next_test_has_another_one(walld):
        assert os.environ["WALLD_SOCKET"] == walld.socket
        assert recovered() is None

    def test_without_it_nothing_is_set():
        assert "WALLD_SOCKET" not in os.environ
'''


def run(home: Path, body: str, *options: str) -> subprocess.Popen[str]:
    (home / "test_theirs.py").write_text(textwrap.dedent(body))
    (home / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    command += ["--basetemp", str(home / "t"), "-s", "test_theirs.py"]
    return subprocess.Popen(
        command,
        cwd=home,
        env=environment() | {"WALLD_FLUSH_BOUND_MS": "not for this daemon"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("way", ["conftest", "option"])
def test_a_daemon_killed_in_the_middle_of_a_reply(
    tmp_path: Path, time_limit: None, way: str
) -> None:
    options = ["-p", "walld_client.testing"]
    if way == "conftest":
        (tmp_path / "conftest.py").write_text('pytest_plugins = ["walld_client.testing"]\n')
        options = []
    ran = run(tmp_path, KILLED, *options)
    out, _ = ran.communicate(timeout=PATIENCE_SECONDS * 2)
    assert ran.returncode == 0, out
    assert "3 passed" in out
    pid = int(out.rpartition("pid ")[2].split()[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    socket = Path(out.rpartition("socket ")[2].split()[0])
    assert not socket.parent.exists()


def test_the_example_of_the_page_is_a_test_that_passes(tmp_path: Path, time_limit: None) -> None:
    page = (ROOT / "clients/python/README.md").read_text()
    (body,) = (
        block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "(walld)" in block
    )
    ran = run(tmp_path, f"import walld_client\n{body}", "-p", "walld_client.testing")
    out, _ = ran.communicate(timeout=PATIENCE_SECONDS)
    assert ran.returncode == 0, out


SHOWN = """
import json

def test_it(walld):
    seen = []

    def model(messages):
        seen.extend(messages)
        yield "It is 4 degrees."

    client = walld_client.connect(walld.socket)
    answer(client, "How cold is it?", model)
    client.close()
    assert [one["role"] for one in seen] == ["user", "assistant", "tool"], seen
    assert seen[-1]["content"] == "4 degrees"
    assert seen[1]["tool_calls"][0]["function"]["name"] == "weather"
"""


def test_the_model_of_the_session_example_sees_what_the_tool_gave(
    tmp_path: Path, time_limit: None
) -> None:
    page = (ROOT / "clients/python/README.md").read_text()
    (body,) = (
        block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "def answer" in block
    )
    ran = run(tmp_path, f"import walld_client\n{body}\n{SHOWN}", "-p", "walld_client.testing")
    out, _ = ran.communicate(timeout=PATIENCE_SECONDS)
    assert ran.returncode == 0, out


def test_a_test_that_fails_or_is_interrupted_ends_its_daemon(
    tmp_path: Path, time_limit: None
) -> None:
    body = """
        import time

        def test_it(walld):
            print("pid", walld.pid, flush=True)
            time.sleep(60)
    """
    ran = run(tmp_path, body, "-p", "walld_client.testing")
    assert ran.stdout is not None
    pid = int(next(line for line in ran.stdout if "pid" in line).rpartition(" ")[2])
    ran.send_signal(signal.SIGINT)
    out, _ = ran.communicate(timeout=PATIENCE_SECONDS)
    assert ran.returncode == 2, out
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_daemon_that_cannot_start_fails_the_test_with_its_words(
    tmp_path: Path, time_limit: None
) -> None:
    (tmp_path / "walld").write_text("#!/bin/sh\necho no disk today >&2; exit 1\n")
    (tmp_path / "walld").chmod(0o700)
    body = """
        import pytest

        @pytest.fixture(autouse=True, scope="session")
        def broken():
            import os
            os.environ["WALLD_COMMAND"] = os.path.abspath("walld")

        def test_it(walld):
            pass
    """
    ran = run(tmp_path, body, "-p", "walld_client.testing")
    out, _ = ran.communicate(timeout=PATIENCE_SECONDS)
    assert ran.returncode == 1
    assert "exit code 1: no disk today" in out


def test_the_client_alone_imports_no_pytest() -> None:
    body = "import sys, walld_client, walld_client.start; print('pytest' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", body], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
