"""Who gets to the socket at all: modes, the credentials of the kernel, and no other way in."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from daemon_process import DaemonProcess, MakeDaemon
from strangers import NOBODY, as_user, needs_root
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
