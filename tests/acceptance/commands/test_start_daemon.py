"""`start_daemon`: a daemon that answers, or an error that says why there is none."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import walld_client
from daemon_process import PATIENCE_SECONDS, ROOT, environment, until
from walld_client.link.socket_path import runtime_folder
from walld_client.start import Daemon, NotStarted, start_daemon, status_of

OPTIONS = ("--reclaim-seconds", "0")


@pytest.fixture(autouse=True)
def alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, time_limit: None
) -> None:
    for name in [name for name in os.environ if name.startswith(("WALLD_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with start_daemon(tmp_path / "data", options=OPTIONS) as running:
        yield running


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_what_was_said_is_there_after_a_kill(daemon: Daemon) -> None:
    first = daemon.pid
    assert first is not None
    client = walld_client.connect(daemon.socket, timeout=PATIENCE_SECONDS)
    reply = client.reply("s")
    reply.token("before ")
    assert reply.drain(level="synced", timeout=PATIENCE_SECONDS)
    daemon.kill()
    assert daemon.pid is None
    assert not is_there(first)
    daemon.kill()  # nothing to do
    reply.token("after")
    daemon.restart()
    assert daemon.pid not in (None, first)
    assert reply.drain(level="synced", timeout=PATIENCE_SECONDS)
    kept = client.recover("s")
    assert kept is not None
    assert kept.text == "before after"
    client.close()


def test_a_stop_is_its_exit_code_and_a_close_leaves_the_data_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with start_daemon(data) as daemon:
        assert status_of(daemon.socket) is not None
        assert daemon.stop() == 0
        assert daemon.stop() is None
        assert status_of(daemon.socket) is None
        assert "SIGTERM: stopping" in daemon.log
        daemon.restart()
        until(lambda: daemon.log.count("ready:") == 2, "the line of the second start")
    assert not Path(daemon.log_path).parent.exists()
    assert (data / "LOCK").exists()


def test_one_that_does_not_stop_is_killed(daemon: Daemon) -> None:
    assert daemon.pid is not None
    os.kill(daemon.pid, signal.SIGSTOP)
    assert daemon.stop(timeout=0.2) == -signal.SIGKILL
    daemon.restart()


def test_the_socket_and_the_log_that_are_named_are_used_and_stay(tmp_path: Path) -> None:
    home = tmp_path / "h"
    home.mkdir()
    os.symlink(home, short := f"/tmp/walld-test-{os.getpid()}")
    try:
        with start_daemon(tmp_path / "data", socket=f"{short}/run/s", log=home / "l") as daemon:
            assert daemon.socket == f"{short}/run/s"
            assert status_of(daemon.socket) is not None
        assert "listening" in (home / "l").read_text()
    finally:
        os.unlink(short)


def test_a_path_beyond_what_a_socket_can_have_is_refused(tmp_path: Path) -> None:
    long = "/tmp/" + "x" * 103
    with pytest.raises(ValueError, match=r"at most 107 bytes, /tmp/x+ has 108"):
        start_daemon(tmp_path / "data", socket=long)
    assert not (tmp_path / "data").exists()


def test_a_temporary_directory_with_a_long_name_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("d" * 100)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    with start_daemon(tmp_path / "data") as daemon:
        assert daemon.socket.startswith(f"/tmp/walld-{os.geteuid()}/")
    assert list(long.iterdir()) == []


def test_a_folder_that_others_can_use_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Path(f"/tmp/walld-test-{os.getpid()}")
    monkeypatch.setenv("TMPDIR", str(short))
    shared = short / f"walld-{os.geteuid()}"
    shared.mkdir(parents=True)
    shared.chmod(0o777)
    try:
        with pytest.raises(PermissionError, match="only uid"):
            start_daemon(tmp_path / "data")
    finally:
        shared.rmdir()
        short.rmdir()


# --- two at a time --------------------------------------------------------------------------------


def test_the_second_of_one_directory_is_told_that_it_is_in_use(daemon: Daemon) -> None:
    with pytest.raises(NotStarted, match="another walld owns this data directory") as told:
        start_daemon(daemon.directory)
    assert told.value.exit_code == 1
    assert "stop it, or give --data another one" in told.value.log
    now = status_of(daemon.socket)
    assert now is not None
    assert now["pid"] == daemon.pid, "the first one is as it was"


def test_a_second_one_joins_where_it_is_asked_to(daemon: Daemon) -> None:
    with start_daemon(daemon.directory, join=True) as joined:
        assert (joined.is_own, joined.pid, joined.socket) == (False, daemon.pid, daemon.socket)
        for verb in ("kill", "stop", "restart"):
            with pytest.raises(RuntimeError, match=f"cannot {verb} .*another process started it"):
                getattr(joined, verb)()
    assert status_of(daemon.socket) is not None


def test_it_joins_no_daemon_of_another_directory(daemon: Daemon, tmp_path: Path) -> None:
    with pytest.raises(NotStarted, match=r"is of .*/data, not of .*/other: give another socket"):
        start_daemon(tmp_path / "other", socket=daemon.socket, join=True)
    with pytest.raises(NotStarted, match="another process answers at this socket"):
        start_daemon(tmp_path / "other", socket=daemon.socket)


def test_an_owner_that_listens_at_another_socket_is_named_at_once(
    daemon: Daemon, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """There is nothing to wait for: a timeout of ages is not waited out."""
    with tempfile.TemporaryDirectory(prefix="walld-") as folder:
        other = f"{folder}/s"
        with pytest.raises(NotStarted) as told:
            start_daemon(daemon.directory, socket=other, join=True, timeout=10**6)
        text = f"another walld (pid {daemon.pid}) owns {daemon.directory} and listens at "
        text += f"{daemon.socket}, not at {other}: give that socket, stop it, or give another"
        assert str(told.value).startswith(text)
        assert told.value.exit_code == 1
        assert told.value.log.endswith("stop it, or give --data another one")
        assert "\n" not in str(told.value)
    now = status_of(daemon.socket)
    assert now is not None
    assert now["pid"] == daemon.pid, "the first one is as it was"


def test_an_owner_that_listens_nowhere_is_said_at_the_end(tmp_path: Path) -> None:
    """Also where the last try is cut before it has said anything."""
    data = tmp_path / "data"
    start_daemon(data).close()
    tries: list[subprocess.Popen[bytes]] = []

    def launched(
        command: list[str], env: Mapping[str, str], stderr: int
    ) -> subprocess.Popen[bytes]:
        """The first one is waited for; those after it say nothing for long."""
        words = ["sleep", "600"] if tries else command
        tries.append(subprocess.Popen(words, env=env, stderr=stderr, start_new_session=True))
        if len(tries) == 1:
            tries[0].wait(PATIENCE_SECONDS)
        return tries[-1]

    with (data / "LOCK").open() as lock, tempfile.TemporaryDirectory(prefix="walld-") as folder:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(NotStarted) as told:
            start_daemon(data, socket=f"{folder}/s", join=True, timeout=3, launch=launched)
    text = f"another walld owns {data}, and within 3 s nobody answered at {folder}/s: stop it, give"
    assert str(told.value).startswith(text)
    assert told.value.exit_code == 1
    assert told.value.log.endswith(
        "another walld owns this data directory: stop it, or give --data another one"
    )
    assert "\n" not in str(told.value)


def test_it_joins_one_that_takes_its_time_to_answer(tmp_path: Path) -> None:
    """On a busy machine or a slow disk: `timeout` says how long that may be."""
    data = tmp_path / "data"
    folder = Path(runtime_folder(str(data)))
    first = subprocess.Popen(
        [sys.executable, "-m", "walld", "serve", "--data", data, "--socket", folder / "s"],
        env=environment(), stderr=subprocess.DEVNULL,
    )  # fmt: skip
    thaw = threading.Timer(6.0, first.send_signal, [signal.SIGCONT])
    try:
        until(lambda: (data / "LOCK").exists() and is_owned(data), "its lock")
        first.send_signal(signal.SIGSTOP)
        thaw.start()
        with start_daemon(data, join=True, timeout=PATIENCE_SECONDS) as joined:
            assert (joined.is_own, joined.pid) == (False, first.pid)
    finally:
        thaw.cancel()
        first.kill()
        first.wait()
    shutil.rmtree(folder)


def is_owned(data: Path) -> bool:
    with (data / "LOCK").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_many_at_once_are_one_daemon(tmp_path: Path) -> None:
    made: list[Daemon] = []
    threads = [
        threading.Thread(target=lambda: made.append(start_daemon(tmp_path / "data", join=True)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 4
    assert len({one.pid for one in made}) == 1
    owners = [one for one in made if one.is_own]
    assert len(owners) == 1
    owners[0].close()


# --- none -----------------------------------------------------------------------------------------


def test_none_is_installed(tmp_path: Path) -> None:
    """Of another interpreter's environment: the client alone."""
    body = (
        "import sys\nfrom walld_client.start import NotStarted, start_daemon\n"
        "try:\n    start_daemon(sys.argv[1])\n"
        "except NotStarted as error:\n    print(error, error.exit_code)\n"
    )
    alone = tmp_path / "alone"
    alone.mkdir()
    os.symlink(ROOT / "clients/python/walld_client", alone / "walld_client")
    import msgspec

    os.symlink(Path(msgspec.__file__).parent, alone / "msgspec")
    env = {"PYTHONPATH": str(alone), "PATH": "/nowhere", "TMPDIR": "/tmp"}
    done = subprocess.run(
        [sys.executable, "-S", "-c", body, str(tmp_path / "data")],
        env=env, capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout.startswith("walld is not installed: not in PATH, nor for ")
    assert done.stdout.endswith("pip install walld, or set WALLD_COMMAND None\n")


@pytest.mark.parametrize(
    ("command", "told", "code"),
    [
        (["/nowhere/walld"], "cannot run /nowhere/walld: No such file or directory", None),
        (["sh", "-c", "echo because >&2; exit 9"], "exit code 9: because$", 9),
        (["sh", "-c", "kill -9 $$"], "with signal 9: it logged nothing$", -9),
        (
            ["sh", "-c", "exec sleep 60"],
            r"does not answer at .* within 1 s \(nobody listens\)",
            None,
        ),
    ],
)
def test_what_does_not_start_says_why_and_leaves_nothing(
    tmp_path: Path, command: list[str], told: str, code: int | None
) -> None:
    with pytest.raises(NotStarted, match=told) as raised:
        start_daemon(tmp_path / "data", command=command, timeout=1 if code is None else 20)
    assert raised.value.exit_code == code
    assert not Path(runtime_folder(str(tmp_path / "data")), "log").exists()
    os.rmdir(runtime_folder(str(tmp_path / "data")))


def test_the_last_lines_are_of_this_start(tmp_path: Path) -> None:
    with start_daemon(tmp_path / "data") as daemon:
        daemon.stop()
        with pytest.raises(NotStarted, match="flush_bound_ms from --flush-bound-ms: got 'x'") as no:
            start_daemon(tmp_path / "data", options=["--flush-bound-ms", "x"])
        assert no.value.exit_code == 64
        assert "listening" not in no.value.log
        assert "listening" in daemon.log


def test_a_command_that_wraps_it_is_killed_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = tmp_path / "walld"
    wrapper.write_text(f'#!/bin/sh\n{sys.executable} -m walld "$@"\nexit $?\n')
    wrapper.chmod(0o700)
    monkeypatch.setenv("WALLD_COMMAND", str(wrapper))
    with start_daemon(tmp_path / "data") as daemon:
        pid = daemon.pid
        assert pid is not None
        daemon.kill()
        until(lambda: not is_there(pid), "its end")
        daemon.restart()
        assert daemon.stop() == 0


def test_it_does_not_speak_to_the_service_manager_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/notify")
    with start_daemon(tmp_path / "data") as daemon:
        assert "service manager" not in daemon.log


def test_who_runs_it_may_be_given_and_not_waited_for(tmp_path: Path) -> None:
    """By its pid it is known where it has no session of its own."""
    run: list[subprocess.Popen[bytes]] = []

    def launch(command: list[str], env: Mapping[str, str], stderr: int) -> subprocess.Popen[bytes]:
        run.append(subprocess.Popen(command, env=env, stderr=stderr))
        return run[-1]

    with start_daemon(tmp_path / "data", launch=launch) as daemon:
        assert daemon.pid == run[0].pid
        assert os.getsid(run[0].pid) == os.getsid(0)
        daemon.restart()
        assert daemon.pid == run[1].pid
    with start_daemon(tmp_path / "data", launch=launch, wait=False) as daemon:
        assert daemon.pid is None
    assert [one.poll() is not None for one in run] == [True, True, True]
