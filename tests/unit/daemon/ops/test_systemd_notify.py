"""sd_notify and LISTEN_FDS, against real sockets."""

import os
import resource
import secrets
import socket
import subprocess
import sys
import textwrap

import pytest

from walld.daemon.ops.systemd import Notifier, listen_fds
from walld.errors import ConfigError


@pytest.fixture
def manager(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(10)
        yield listening


def lines(manager):
    return manager.recv(4096).decode().split("\n")


def test_lines(manager):
    env = {"NOTIFY_SOCKET": manager.getsockname(), "OTHER": "1"}
    notifier = Notifier.from_environment(env, os.getpid())
    assert env == {"OTHER": "1"}
    notifier.extend(2.5)
    assert lines(manager) == ["EXTEND_TIMEOUT_USEC=2500000"]
    notifier.ready("listening")
    assert lines(manager) == ["READY=1", "STATUS=listening"]
    notifier.status("two\nlines\x1b")
    assert lines(manager) == ["STATUS=two\\nlines\\x1b"]
    notifier.watchdog()
    assert lines(manager) == ["WATCHDOG=1"]
    notifier.stopping()
    assert lines(manager) == ["STOPPING=1", "STATUS=stopping"]
    notifier.close()
    notifier.status("after close")


def test_abstract_socket():
    name = f"walld-test-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("\0" + name)
        listening.settimeout(10)
        notifier = Notifier("@" + name)
        notifier.watchdog()
        assert listening.recv(100) == b"WATCHDOG=1"
        notifier.close()


@pytest.mark.parametrize("address", [None, "", "vsock:2:1234"])
def test_no_manager_is_fine(address):
    notifier = Notifier(address)
    notifier.ready("x")
    notifier.close()


def test_what_could_not_be_sent_goes_with_the_next(tmp_path):
    path = str(tmp_path / "late")
    notifier = Notifier(path)
    notifier.status("one")
    notifier.ready("two")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(path)
        listening.settimeout(10)
        notifier.watchdog()
        assert set(lines(listening)) == {"READY=1", "STATUS=two", "WATCHDOG=1"}
    notifier.close()


def test_a_manager_that_does_not_read_never_blocks(manager):
    notifier = Notifier(manager.getsockname())
    for number in range(5000):
        notifier.status(str(number))
    notifier.close()


@pytest.mark.parametrize(
    ("env", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_watchdog_interval(env, seconds):
    assert Notifier.from_environment(env, os.getpid()).watchdog_seconds == seconds
    assert env == {}


@pytest.mark.parametrize("usec", ["9" * 400, "9" * 5000, str(2**64)])
def test_a_watchdog_interval_beyond_all_is_not_used(usec, caplog):
    env = {"WATCHDOG_USEC": usec}
    assert Notifier.from_environment(env, os.getpid()).watchdog_seconds is None
    (line,) = caplog.messages
    assert line.startswith("WATCHDOG_USEC ")
    assert usec[:20] in line or len(usec) > 1000
    assert line.endswith("is above 31536000000000000: not used")


@pytest.mark.parametrize("count", ["99999999999", "9" * 400, "9" * 5000])
def test_more_fds_than_there_can_be_are_refused_by_both_numbers(count):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 3
    env = {"LISTEN_FDS": count, "LISTEN_PID": str(os.getpid())}
    with pytest.raises(
        ConfigError, match=rf"LISTEN_FDS is \d+.*can have {most} of them"
    ) as refused:
        listen_fds(env, os.getpid())
    assert len(str(refused.value)) < 200
    assert env == {}


def test_fds_of_another_process_are_not_ours():
    env = {"LISTEN_FDS": "1", "LISTEN_PID": "1", "LISTEN_FDNAMES": "walld"}
    assert listen_fds(env, os.getpid()) == []
    assert env == {}
    assert listen_fds({}, os.getpid()) == []
    assert listen_fds({"LISTEN_FDS": "x", "LISTEN_PID": str(os.getpid())}, os.getpid()) == []


CHILD = """
import os, socket, sys
from walld.daemon.ops.systemd import listen_fds
from walld.errors import ConfigError
env = {"LISTEN_FDS": sys.argv[1], "LISTEN_PID": str(os.getpid()), "LISTEN_FDNAMES": "walld"}
try:
    fds = listen_fds(env, os.getpid())
except ConfigError as error:
    print("refused:", error)
else:
    print(fds, env, os.get_inheritable(fds[0]), os.get_blocking(fds[0]))
"""


def in_child(fd, count="1"):
    """Runs the check in a process whose descriptor 3 is `fd`, as systemd hands it over."""
    script = f"import os, sys; os.dup2({fd}, 3); os.execv(sys.executable, sys.argv[1:])"
    inner = [sys.executable, "-c", textwrap.dedent(CHILD), count]
    done = subprocess.run(
        [sys.executable, "-c", script, *inner],
        pass_fds=[fd],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_listening_unix_stream_socket_is_taken(tmp_path):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        script_out = in_child(listening.fileno())
    assert script_out == "[3] {} False False"


def test_anything_else_is_refused_by_name(tmp_path):
    with socket.socket(socket.AF_UNIX) as quiet:
        quiet.bind(str(tmp_path / "q"))
        assert "that does not listen" in in_child(quiet.fileno())
    with socket.socket(socket.AF_INET) as tcp:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        assert "descriptor 3 (walld) is a AF_INET SOCK_STREAM" in in_child(tcp.fileno())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(str(tmp_path / "d"))
        assert "SOCK_DGRAM" in in_child(datagrams.fileno())
    with open(tmp_path / "f", "w") as file:
        assert "is no socket" in in_child(file.fileno())
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "two"))
        listening.listen()
        assert "descriptor 4 (unnamed) is not open" in in_child(listening.fileno(), "2")
