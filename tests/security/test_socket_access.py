"""Who gets to the socket at all: modes, the credentials of the kernel, and no other way in; and who
can put another in its place.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from daemon_process import PATIENCE_SECONDS, DaemonProcess, MakeDaemon, environment
from strangers import NOBODY, DaemonOf, as_user, needs_root
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode
from wire_peer import Peer

CONNECT = """
peer = socket.socket(socket.AF_UNIX)
peer.settimeout(20)
try:
    peer.connect(sys.argv[2])
except OSError as error:
    print(type(error).__name__)
    sys.exit()
try:
    peer.sendall(bytes.fromhex(sys.argv[3]))
except OSError:
    pass
said = b""
try:
    while data := peer.recv(65536):
        said += data
        if len(sys.argv) > 4:
            break
except ConnectionResetError:
    pass
print(said.hex())
"""
HELLO = encode(wire.Hello(1, "agent", b"h" * 16)).hex()
FOREIGN = 'walld_protocol_errors_total{code="foreign_uid"}'


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def test_by_default_socket_and_folder_are_the_daemons_alone(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon()
    daemon.socket_path = f"{daemon.folder}/run/s"
    before = os.umask(0)  # what the daemon inherits must not matter
    try:
        daemon.start()
    finally:
        os.umask(before)
    assert mode(daemon.socket_path) == 0o600
    assert mode(f"{daemon.folder}/run") == 0o700
    assert mode(daemon.data) == 0o700


@needs_root
def test_another_user_cannot_connect(daemon: DaemonProcess) -> None:
    """By the folder's mode, and where that is open, by the socket's."""
    os.chmod(daemon.folder, 0o700)
    assert as_user(NOBODY, CONNECT, daemon.socket_path, HELLO) == "PermissionError"
    os.chmod(daemon.folder, 0o711)
    assert as_user(NOBODY, CONNECT, daemon.socket_path, HELLO) == "PermissionError"
    assert as_user(61001, CONNECT, daemon.socket_path, HELLO) == "PermissionError"


@needs_root
def test_a_user_who_cannot_be_told_from_others_is_closed_before_a_byte_is_read(
    make_daemon: MakeDaemon,
) -> None:
    daemon = make_daemon("--socket-mode", "0666")
    os.chmod(daemon.folder, 0o711)
    daemon.start()
    said = bytes.fromhex(as_user(NOBODY, CONNECT, daemon.socket_path, HELLO))
    assert b"foreign_uid" in said
    assert b"65534" in said
    is_whole = Path("/proc/self/uid_map").read_text().split() == ["0", "0", str(2**32 - 1)]
    remedy = b"run it as a user of its own" if is_whole else b"outside of that namespace"
    assert remedy in said
    assert said[4:6] == b"\x96\x23", "an Error, and no Welcome before it"
    assert daemon.metrics()[FOREIGN] == 1
    welcome = bytes.fromhex(as_user(61001, CONNECT, daemon.socket_path, HELLO, "one"))
    assert welcome[4:6] == b"\x96\x01", "a user with a uid of its own is welcome"


@needs_root
def test_a_group_opens_it_to_its_members_and_to_nobody_else(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon("--socket-group", "daemon")
    os.chmod(daemon.folder, 0o711)
    daemon.start()
    assert mode(daemon.socket_path) == 0o660
    group = os.stat(daemon.socket_path).st_gid  # a user of the same number has it as its group
    assert as_user(61001, CONNECT, daemon.socket_path, HELLO) == "PermissionError"
    assert as_user(group, CONNECT, daemon.socket_path, HELLO, "one")[8:12] == "9601"


def test_one_unix_socket_and_no_port_is_all_it_listens_at(daemon: DaemonProcess) -> None:
    assert daemon.process is not None
    own = set()
    for fd in Path(f"/proc/{daemon.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed
            found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(fd))
            own |= {found[1]} if found else set()
    for table in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6", "netlink", "packet"):
        path = Path("/proc/net") / table
        lines = path.read_text().splitlines()[1:] if path.exists() else []
        assert not [line for line in lines if own & set(line.split())], table
    # Others' names, abstract ones too, may be any bytes, ends of lines as well.
    listed = Path("/proc/net/unix").read_text(errors="surrogateescape")
    named = [line.split() for line in listed.splitlines()[1:]]
    paths = [row[7] for row in named if len(row) > 7 and row[6] in own]
    assert set(paths) <= {daemon.socket_path}, "an abstract one would begin with @"


def test_the_peer_does_not_say_who_it_is(daemon: DaemonProcess) -> None:
    """What a client puts into Hello changes no key: the uid is the kernel's word."""
    with Peer(daemon, "agent", b"0" * 16) as peer:  # type: ignore[arg-type]
        peer.send(wire.Start(1, 0, "r", "s"), wire.Token(1, 1, b"x"))
        peer.drain()
    listed = daemon.cli("ls", "--json", "--socket", daemon.socket_path)
    assert f'"uid": {os.geteuid()}'.encode() in listed.stdout


@pytest.mark.parametrize("folder_mode", [0o777, 0o707])
def test_a_folder_where_others_could_put_their_own_socket_is_refused(
    make_daemon: MakeDaemon, folder_mode: int
) -> None:
    daemon = make_daemon()
    os.chmod(daemon.folder, folder_mode)
    daemon.start(wait=False)
    assert daemon.ended() == 1
    daemon.logged(f"mode {folder_mode:04o}")
    assert not os.path.exists(daemon.socket_path)


# --- a path that another user may swap ------------------------------------------------------------
#
# Three ways to take it: a folder that his group may write, his link on the way, a folder below his.
# The folders lie below /run, where root alone may write: below /tmp the way is anybody's already.

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

COMMANDS = (
    ("status",),
    ("ls",),
    ("recover", "chat"),
    ("resolve", "chat"),
    ("session", "ls"),
    ("audit",),
    ("repair-plan", "chat"),
    ("resume-check", "chat"),
)
TYPE = f"""
import os, pkgutil, sys
import walld.cli
for one in pkgutil.walk_packages(walld.cli.__path__, "walld.cli."):
    __import__(one.name)
{BECOME}
for words in {COMMANDS!r}:
    print(words[0], walld.cli.main([*words, "--socket", sys.argv[2]]), flush=True)
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


def speak(path: str, uid: int = VICTIM, source: str = SPEAK, **variables: str) -> str:
    """What an agent of that uid finds there. Its imports come before it is somebody else."""
    done = subprocess.run(
        [sys.executable, "-c", source, str(uid), path],
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


@needs_root
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


@needs_root
@pytest.mark.parametrize("way", WAYS)
def test_a_client_says_nothing_to_a_thief(base: Path, way: str) -> None:
    path = str(lay(base, way, THIEF)[0] / "s")
    said, size = heard_at(path)
    assert size == 0, said
    assert said.count(f"uid {THIEF} listens there, this process is uid {VICTIM}") >= 3
    assert said.count("unavailable") == 2
    assert "backlog 2" in said
    assert path in said


@needs_root
@pytest.mark.parametrize("way", WAYS)
def test_no_command_says_anything_to_a_thief(base: Path, way: str) -> None:
    """As its clients: neither a session's name, nor "no reply is waiting" from whoever it is."""
    path = str(lay(base, way, THIEF)[0] / "s")
    said, size = heard_at(path, source=TYPE)
    assert size == 0, said
    cannot_ask = ("audit", "resume-check")
    answers = [f"{words[0]} {66 if words[0] in cannot_ask else 1}\n" for words in COMMANDS]
    assert [line for line in answers if line not in said] == [], said
    assert said.count(f"uid {THIEF} listens there, this process is uid {VICTIM}") == len(COMMANDS)
    assert said.count(f"WALLD_SOCKET_UID={THIEF}") == len(COMMANDS)


@needs_root
def test_a_command_asks_the_daemon_of_a_user_that_is_trusted(base: Path, tmp_path: Path) -> None:
    """One that root put a folder there for; root itself, too; and one that is named."""
    daemon = DaemonOf(tmp_path, SERVICE, "--socket-mode", "0666")
    daemon.socket_path = str(made(base / "walld", SERVICE) / "s")

    def codes(uid: int = VICTIM, **variables: str) -> dict[str, int]:
        said = speak(daemon.socket_path, uid, TYPE, **variables)
        found = re.findall(r"^(status|ls|recover) (\d+)$", said, re.MULTILINE)
        return {command: int(code) for command, code in found}

    answered = {"status": 0, "ls": 0, "recover": 3}
    try:
        daemon.start()
        assert codes() == answered
        assert codes(0) == answered
        os.chown(base, THIEF, THIEF)
        assert codes() == dict.fromkeys(answered, 1)
        assert codes(WALLD_SOCKET_UID=str(SERVICE)) == answered
    finally:
        daemon.close()


@needs_root
def test_a_socket_of_somebody_else_in_a_sticky_folder_is_told_nothing(base: Path) -> None:
    """No daemon ran there: his socket has its name."""
    said, size = heard_at(str(made(base / "open", 0, 0o1777) / "s"))
    assert (size, said.count("unavailable")) == (0, 2)
    said, size = heard_at(str(base / "open" / "t"), WALLD_SOCKET_UID=str(THIEF))
    assert size > 0, "who names that uid means it"


@needs_root
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


@needs_root
def test_roots_daemon_serves_everybody(daemon: DaemonProcess) -> None:
    """Wherever it is reached, as that of systemd, which listens as root."""
    os.chmod(daemon.folder, 0o711)
    os.chmod(daemon.socket_path, 0o666)
    assert speak(daemon.socket_path).count("answered None") == 2
