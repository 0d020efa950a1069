"""A socket's path that another user may swap: no daemon listens there, and no agent speaks.

Three ways to take it: a folder that his group may write, his link on the way, a folder below his.
The folders lie below /run, where root alone may write: below /tmp the way is anybody's already.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_process import PATIENCE_SECONDS, DaemonProcess, environment
from strangers import DaemonOf, needs_root

pytestmark = needs_root

VICTIM, THIEF, SERVICE = 61001, 61002, 61003
WAYS = ("group", "link", "below")
BECOME = "os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))"
LISTEN = f"""
import os, socket, sys
{BECOME}
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[2])
os.chmod(sys.argv[2], 0o666)
listener.listen()
print("listening", flush=True)
sys.stdin.read()
listener.setblocking(False)
heard, came = b"", 0
while True:
    try:
        peer, _ = listener.accept()
    except BlockingIOError:
        break
    came += 1
    peer.settimeout(0.1)
    try:
        while data := peer.recv(65536):
            heard += data
    except OSError:
        pass
listener.close()
print(came, len(heard))
"""
SPEAK = f"""
import asyncio, os, sys
import walld_client, walld_client.aio, walld_client.preload
{BECOME}
client = walld_client.connect(sys.argv[2], timeout=2.0)
reply = client.reply("chat")
reply.token("a secret")
print(walld_client.check(sys.argv[2]))
def told(ask):
    try:
        return f"answered {{ask()!r}}"
    except walld_client.Unavailable as error:
        return f"unavailable {{error}}"
print(told(lambda: client.recover("other")))
async def ask():
    return await walld_client.aio.connect(sys.argv[2], timeout=2.0).recover("other")
print(told(lambda: asyncio.run(ask())))
print("backlog", client.stats().backlog, flush=True)
os._exit(0)
"""


@pytest.fixture
def base() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="walld-", dir="/run"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def made(path: Path, uid: int, mode: int = 0o755) -> Path:
    path.mkdir()
    path.chmod(mode)
    os.chown(path, uid, uid)
    return path


def lay(base: Path, way: str, uid: int) -> tuple[Path, Path]:
    """The folder of a socket, which `uid` has now, and what the thief may change on its way."""
    if way == "group":
        folder = made(base / "shared", 0, 0o775)
        os.chown(folder, 0, THIEF)
        return made(folder / "walld", uid), folder
    if way == "link":
        made(base / "real", uid)
        (base / "link").symlink_to("real")
        os.lchown(base / "link", THIEF, THIEF)
        return base / "link", base / "link"
    his = made(base / "his", THIEF)
    return made(his / "walld", uid), his


def speak(path: str, uid: int = VICTIM, **variables: str) -> str:
    """What an agent of that uid finds there. Its imports come before it is somebody else."""
    done = subprocess.run(
        [sys.executable, "-c", SPEAK, str(uid), path],
        env=environment() | variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS * 2,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def heard_at(path: str, **variables: str) -> tuple[str, int]:
    """What an agent says of a thief's socket, and how many bytes the thief had of it."""
    command = [sys.executable, "-c", LISTEN, str(THIEF), path]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as thief:
        assert thief.stdin is not None
        assert thief.stdout is not None
        assert thief.stdout.readline() == "listening\n"
        said = speak(path, **variables)
        thief.stdin.close()
        came, size = map(int, thief.stdout.read().split())
    assert came > 0, "it did connect: what it says is of this server"
    return said, size


@pytest.mark.parametrize("way", WAYS)
def test_no_daemon_listens_where_another_user_may_swap_its_folder(
    base: Path, tmp_path: Path, way: str
) -> None:
    folder, his = lay(base, way, VICTIM)
    daemon = DaemonOf(tmp_path, VICTIM)
    daemon.socket_path = str(folder / "s")
    try:
        daemon.start(wait=False)
        assert daemon.ended() == 1
        daemon.logged(f"{his} ")
        mend = {"group": "chmod go-w", "link": f"chown -h {VICTIM}", "below": f"chown {VICTIM}"}
        daemon.logged(f"{mend[way]} {his}, or give another --socket")
        assert not os.path.lexists(daemon.socket_path)
    finally:
        daemon.close()


@pytest.mark.parametrize("way", WAYS)
def test_a_client_says_nothing_to_a_thief(base: Path, way: str) -> None:
    path = str(lay(base, way, THIEF)[0] / "s")
    said, size = heard_at(path)
    assert size == 0, said
    assert said.count(f"uid {THIEF} listens there, this process is uid {VICTIM}") >= 3
    assert said.count("unavailable") == 2
    assert "backlog 2" in said
    assert path in said


def test_a_socket_of_somebody_else_in_a_sticky_folder_is_told_nothing(base: Path) -> None:
    """No daemon ran there: his socket has its name."""
    said, size = heard_at(str(made(base / "open", 0, 0o1777) / "s"))
    assert (size, said.count("unavailable")) == (0, 2)
    said, size = heard_at(str(base / "open" / "t"), WALLD_SOCKET_UID=str(THIEF))
    assert size > 0, "who names that uid means it"


def test_a_daemon_of_a_user_of_its_own_serves_others(base: Path, tmp_path: Path) -> None:
    """Root put a folder there for it: a system-wide daemon that binds its socket itself."""
    folder = made(base / "walld", SERVICE)
    daemon = DaemonOf(tmp_path, SERVICE, "--socket-mode", "0666")
    daemon.socket_path = str(folder / "s")
    try:
        daemon.start()
        said = speak(daemon.socket_path)
        assert said.count("answered None") == 2, said
        assert said.startswith("recoverable")
    finally:
        daemon.close()


def test_roots_daemon_serves_everybody(daemon: DaemonProcess) -> None:
    """Wherever it is reached, as that of systemd, which listens as root."""
    os.chmod(daemon.folder, 0o711)
    os.chmod(daemon.socket_path, 0o666)
    assert speak(daemon.socket_path).count("answered None") == 2
