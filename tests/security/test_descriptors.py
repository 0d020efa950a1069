"""A connection belongs to who made it: passed on, inherited, or with its pid given to another."""

from __future__ import annotations

import array
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from daemon_process import DaemonProcess, environment, until
from strangers import as_user, needs_root
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode
from wire_peer import Peer, recovered, text_of

ALICE, BOB = 61001, 61002

PASS_ON = """
peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[2])
peer.sendall(bytes.fromhex(sys.argv[3]))
keep = socket.socket(fileno=os.dup(int(sys.argv[4])))
keep.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", peer.fileno()))])
keep.recv(1)
"""
"""Connect, say something, pass the connection on, and live until told."""

TAKES_ITS_PID = """
import ctypes, os, sys
wanted, last = int(sys.argv[1]), "/proc/sys/kernel/ns_last_pid"
for _ in range(2000):
    with open(last, "w") as file:
        file.write(str(wanted - 1))
    pid = os.fork()
    if pid == 0:
        if os.getpid() != wanted:
            os._exit(0)
        os.write(1, b"here")
        os.read(0, 1)
        os._exit(0)
    if pid == wanted:
        break
    os.waitpid(pid, 0)
else:
    os.write(1, b"none")
os.read(0, 1)
"""


PID_SAYS = b"".join(
    encode(one)
    for one in (
        wire.Hello(1, "agent", b"d" * 16),
        wire.Start(1, 0, "r", "s"),
        wire.Token(1, 1, b"x"),
    )
).hex()


class Passer:
    """A process of another uid that passes its connection to this one."""

    def __init__(self, daemon: DaemonProcess, uid: int, *said: object) -> None:
        here, there = socket.socketpair()
        self._here = here
        raw = b"".join(encode(one) for one in said)  # type: ignore[arg-type]
        become = f"os.setgroups([]); os.setgid({uid}); os.setuid({uid})"
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"import os, socket, struct, sys\n{become}\n{PASS_ON}", str(uid),
             daemon.socket_path, raw.hex(), str(there.fileno())],
            env=environment(),
            pass_fds=[there.fileno()],
        )  # fmt: skip
        there.close()
        here.settimeout(20)
        fds = array.array("i")
        _, ancillary, *_ = here.recvmsg(1, socket.CMSG_SPACE(4))
        fds.frombytes(ancillary[0][2])
        self.connection = socket.socket(fileno=fds[0])
        self.connection.settimeout(20)

    def leave(self) -> None:
        self._here.close()
        assert self.process.wait(20) == 0

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._here.close()
        self.connection.close()


def replies(daemon: DaemonProcess, uid: int) -> dict[str, str]:
    """Stream id -> text of a user's replies, asked as root."""
    with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
        answer = peer.ask(wire.Recover(1, "all", uid=uid))
    found = msgspec.msgpack.decode(answer, type=list[wire.Recovered])
    return {reply.stream_id: text_of(reply) for reply in found}


@needs_root
def test_what_comes_over_a_passed_connection_is_its_makers(
    make_daemon: Callable[..., DaemonProcess],
) -> None:
    """Bob who was given Alice's connection speaks as Alice, and as nobody else."""
    daemon = make_daemon("--socket-mode", "0666")
    os.chmod(daemon.folder, 0o711)
    daemon.start()
    hello = wire.Hello(1, "agent", b"a" * 16)
    alice = Passer(daemon, ALICE, hello, wire.Start(1, 0, "r", "s"), wire.Token(1, 1, b"hers"))
    try:
        alice.connection.sendall(
            encode(wire.Token(1, 2, b" too")) + encode(wire.Drain(1, "synced"))
        )
        until(lambda: replies(daemon, ALICE) == {"r": "hers too"}, "her reply")
        assert replies(daemon, os.getuid()) == {}
        alice.leave()
        until(lambda: replies_owner_gone(daemon, ALICE), "an orphan: she has exited")
        # What comes now is nobody's: the connection was hers, and it is closed.
        try:
            alice.connection.sendall(encode(wire.Token(1, 3, b" forged")))
            while alice.connection.recv(65536):
                pass
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert replies(daemon, ALICE) == {"r": "hers too"}
    finally:
        alice.close()


def replies_owner_gone(daemon: DaemonProcess, uid: int) -> bool:
    with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
        answer = peer.ask(wire.Recover(1, "orphans", uid=uid))
    return bool(msgspec.msgpack.decode(answer, type=list[wire.Recovered]))


@needs_root
def test_another_uid_later_changes_nothing(make_daemon: Callable[..., DaemonProcess]) -> None:
    """Credentials are those of connect(2): who becomes another user stays who it was."""
    daemon = make_daemon("--socket-mode", "0666")
    os.chmod(daemon.folder, 0o711)
    daemon.start()
    said = [wire.Hello(1, "agent", b"a" * 16), wire.Start(1, 0, "r", "s"), wire.Drain(9, "synced")]
    source = """
peer = socket.socket(socket.AF_UNIX)
peer.settimeout(20)
peer.connect(sys.argv[2])
os.setresuid(*[int(sys.argv[3])] * 3)
peer.sendall(bytes.fromhex(sys.argv[4]))
said = b""
while b"\\x93\\x21\\x09" not in said:
    said += peer.recv(65536)
"""
    raw = b"".join(map(encode, said)).hex()
    as_user(ALICE, source, daemon.socket_path, str(ALICE), raw)
    as_user(0, source, daemon.socket_path, str(BOB), raw)
    assert list(replies(daemon, ALICE)) == ["r"]
    assert list(replies(daemon, 0)) == ["r"], "root's, and not bob's"
    assert replies(daemon, BOB) == {}


def test_a_child_that_lives_on_keeps_no_dead_process_alive(
    daemon: DaemonProcess, tmp_path: Path
) -> None:
    """Connect, fork, exec in the child, exit: the child holds the socket open and is not the owner.

    Python's own sockets are closed at exec; another language's need not be.
    """
    said = [wire.Hello(1, "agent", b"f" * 16), wire.Start(1, 0, "r", "s"), wire.Token(1, 1, b"x")]
    raw = b"".join(map(encode, said)).hex()
    source = f"""
import os, socket, sys
peer = socket.socket(socket.AF_UNIX)
peer.connect({daemon.socket_path!r})
peer.sendall(bytes.fromhex({raw!r}))
peer.set_inheritable(True)
if os.fork() == 0:
    os.execvp("sleep", ["sleep", "60"])
    os._exit(1)
os.read(0, 1)
"""
    process = subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE)
    assert process.stdin is not None
    try:
        until(lambda: daemon.reader.recover(stream_id="r") is not None, "its reply")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        (child,) = until(lambda: children.read_text().split(), "its child")
        process.stdin.close()
        assert process.wait(20) == 0
        try:
            assert daemon.orphan("r").text == "x"
            assert Path(f"/proc/{child}").exists(), "while the child lives on"
        finally:
            os.kill(int(child), 9)
    finally:
        process.kill()
        process.wait()


@needs_root
@pytest.mark.parametrize("restarted", [False, True])
def test_a_process_that_got_the_pid_of_a_dead_agent_is_not_its_owner(
    daemon: DaemonProcess, restarted: bool
) -> None:
    source = f"""
import os, socket
peer = socket.socket(socket.AF_UNIX)
peer.connect({daemon.socket_path!r})
peer.sendall(bytes.fromhex({PID_SAYS!r}))
peer.recv(65536)
os.read(0, 1)
"""
    agent = subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE)
    assert agent.stdin is not None
    until(lambda: daemon.reader.recover(stream_id="r") is not None, "its reply")
    with Peer(daemon, "agent") as peer:  # type: ignore[arg-type]
        peer.drain(1, "synced")
    if restarted:
        daemon.kill()
    agent.kill()
    agent.wait()
    agent.stdin.close()
    squatter = subprocess.Popen(
        [sys.executable, "-c", TAKES_ITS_PID, str(agent.pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert squatter.stdin is not None
    assert squatter.stdout is not None
    try:
        if squatter.stdout.read(4) != b"here":
            pytest.skip("the pid could not be had again: others took it, or ns_last_pid is refused")
        if restarted:
            daemon.start()
        reply = daemon.orphan("r")
        assert (reply.owner_alive, reply.lost_reason) == (False, "agent_lost")
        assert Path(f"/proc/{agent.pid}").exists(), "somebody has that pid now"
    finally:
        squatter.stdin.close()
        squatter.wait()
        squatter.stdout.close()


def test_events_of_a_passed_connection_read_back(daemon: DaemonProcess) -> None:
    """Passing a connection to oneself, as a supervisor does with its workers, changes nothing."""
    with Peer(daemon, "agent", b"w" * 16) as peer:  # type: ignore[arg-type]
        peer.send(wire.Start(1, 0, "r", "s"), wire.Token(1, 1, b"one"))
        copy = socket.socket(fileno=os.dup(peer.socket.fileno()))
        peer.socket.close()
        peer.socket = copy
        copy.settimeout(20)
        peer.send(wire.Token(1, 2, b" two"))
        peer.drain()
        reply = recovered(daemon, "r", [wire.Seen(b"w" * 16, 1, 2)])  # type: ignore[arg-type]
        assert (text_of(reply), reply.status) == ("one two", "live")
