"""The units: they load, they are tight, and the daemon starts from a socket it did not open."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys

import pytest

UNITS = pathlib.Path(__file__).parents[3] / "systemd"
ROOT = UNITS.parent


def tool(name):
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed (Debian: apt-get install systemd)")
    return path


def run(*command, env=None):
    environment = {**os.environ, "SYSTEMD_COLORS": "0", "PAGER": "cat", **(env or {})}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=environment, check=False
    )


def installed(folder, unit):
    """A copy of a unit whose ExecStart= exists here: verify looks at that, too."""
    text = (UNITS / unit).read_text()
    command = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    assert command.endswith("/walld serve")
    copy = folder / pathlib.Path(unit).name
    copy.write_text(text.replace(command, "ExecStart=/bin/true serve"))
    return copy


def test_system_units_load(tmp_path):
    analyze = tool("systemd-analyze")
    service = installed(tmp_path, "walld.service")
    listening = shutil.copy(UNITS / "walld.socket", tmp_path)
    done = run(analyze, "verify", str(service), str(listening))
    assert (done.returncode, done.stderr) == (0, "")


def test_user_units_load(tmp_path):
    analyze = tool("systemd-analyze")
    service = installed(tmp_path, "user/walld.service")
    listening = shutil.copy(UNITS / "user/walld.socket", tmp_path)
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    done = run(analyze, "--user", "verify", str(service), str(listening), env=env)
    assert (done.returncode, done.stderr) == (0, "")


def test_verify_would_see_a_mistake(tmp_path):
    analyze = tool("systemd-analyze")
    service = installed(tmp_path, "walld.service")
    service.write_text(service.read_text().replace("ProtectSystem=strict", "ProtectSystem=maybe"))
    assert "Failed to parse protect system" in run(analyze, "verify", str(service)).stderr


def exposure(tmp_path, threshold):
    return run(
        tool("systemd-analyze"),
        "security",
        "--offline=true",
        "--no-pager",
        f"--threshold={threshold}",
        str(tmp_path / "walld.service"),
    )


def test_exposure_is_at_most_one(tmp_path):
    shutil.copy(UNITS / "walld.service", tmp_path)
    done = exposure(tmp_path, 10)
    assert done.returncode == 0, done.stdout[-2000:]


def test_the_threshold_can_fail_and_metrics_open_loopback_only(tmp_path):
    shutil.copy(UNITS / "walld.service", tmp_path)
    (tmp_path / "walld.service.d").mkdir()
    shutil.copy(UNITS / "drop-ins/metrics.conf", tmp_path / "walld.service.d")
    assert exposure(tmp_path, 10).returncode == 1
    done = exposure(tmp_path, 20)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "only localhost entries" in done.stdout


def test_a_unit_that_waits_for_its_data_loads_and_is_never_given_up(tmp_path):
    analyze = tool("systemd-analyze")
    service = installed(tmp_path, "walld.service")
    listening = shutil.copy(UNITS / "walld.socket", tmp_path)
    (tmp_path / "walld.service.d").mkdir()
    drop_in = shutil.copy(UNITS / "drop-ins/expect-data.conf", tmp_path / "walld.service.d")
    done = run(analyze, "verify", str(service), str(listening))
    assert (done.returncode, done.stderr) == (0, "")
    lines = service.read_text().splitlines() + pathlib.Path(drop_in).read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if "=" in line and line[0] != "#")
    tries = int(settings["StartLimitIntervalSec"]) / int(settings["RestartSec"].removesuffix("s"))
    assert tries < int(settings["StartLimitBurst"])


def test_peers_stay_themselves():
    for unit in ("walld.service", "user/walld.service"):
        settings = [
            line
            for line in (UNITS / unit).read_text().splitlines()
            if not line.startswith("#") and "=" in line
        ]
        assert not [line for line in settings if line.startswith(("PrivateUsers", "DynamicUser"))]
        assert "Type=notify" in settings


@pytest.fixture
def manager(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(30)
        yield listening


def test_started_by_a_socket_it_reaches_ready(tmp_path, manager):
    activate = tool("systemd-socket-activate")
    path = str(tmp_path / "walld.sock")
    log = tmp_path / "log"
    packages = os.pathsep.join((str(ROOT), str(ROOT / "clients/python")))
    with open(log, "wb") as stderr:
        starter = subprocess.Popen(
            [
                *(activate, "-l", path, "--fdname=walld"),
                *("-E", f"NOTIFY_SOCKET={manager.getsockname()}", "-E", f"PYTHONPATH={packages}"),
                *(sys.executable, "-m", "walld", "serve", "--data", str(tmp_path / "data")),
            ],
            stderr=stderr,
        )
    try:
        said = until_ready(starter, path, manager, log)
        assert "STATUS=" in said
        # The daemon answers at the socket that it was handed.
        done = run(
            *(sys.executable, "-m", "walld", "status", "--json", "--socket", path),
            *("--timeout", "10"),
            env={"PYTHONPATH": packages},
        )
        assert done.returncode == 0, done.stderr + log.read_text()
        starter.send_signal(signal.SIGTERM)
        assert starter.wait(30) == 0, log.read_text()
        assert "STOPPING=1" in drained(manager)
        # It is the manager's socket: the daemon leaves it where it was.
        assert os.path.exists(path)
    finally:
        if starter.poll() is None:
            starter.kill()
            starter.wait()


def until_ready(starter, path, manager, log):
    """Connects, which is what makes the starter run the daemon; returns what came with READY=1."""
    with socket.socket(socket.AF_UNIX) as first:
        first.settimeout(10)
        while True:
            assert starter.poll() is None, log.read_text()
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                first.connect(path)
                break
        said = manager.recv(4096).decode()
        while "READY=1" not in said:
            said = manager.recv(4096).decode()
        return said


def drained(manager):
    manager.setblocking(False)
    said = ""
    with contextlib.suppress(BlockingIOError):
        while True:
            said += manager.recv(4096).decode() + "\n"
    return said


@pytest.mark.parametrize(
    ("unit", "data"),
    [("walld.service", "/var/lib/walld"), ("user/walld.service", "%h/.local/state/walld")],
)
def test_a_unit_waits_for_the_mount_that_its_data_is_on(unit, data):
    """Or a start would find the empty directory beneath it."""
    lines = (UNITS / unit).read_text().split("[Service]")[0].splitlines()
    assert f"RequiresMountsFor={data}" in lines
