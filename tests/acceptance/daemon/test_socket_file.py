"""The socket's file is removed beneath a daemon: by a cleaner, or by logind at the last logout."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import walld_client
from daemon_process import DaemonProcess, MakeDaemon, environment, until
from walld_client.wire import messages as wire
from wire_peer import Peer

AS_A_MANAGER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
os.execv(sys.argv[2], sys.argv[2:])
"""


def connects(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as peer:
        return peer.connect_ex(path) == 0


def durable(path: str, session_id: str) -> bool:
    """What a new program says there is synced."""
    client = walld_client.connect(path, timeout=30)
    try:
        reply = client.reply(session_id)
        reply.token("word")
        return reply.drain(30, level="synced")
    finally:
        client.close()


def trouble(peer: Peer) -> str:
    """As somebody is told who connected before."""
    status = msgspec.msgpack.decode(peer.ask(wire.Status(1)), type=dict[str, object])
    return str(status["trouble"])


@pytest.mark.parametrize("goes", ["file", "folder"])
def test_it_is_bound_anew(daemon_on_each: DaemonProcess, goes: str) -> None:
    daemon = daemon_on_each
    reply = daemon.reader.reply("here before")
    reply.token("one ")
    assert reply.drain(30, level="synced")
    if goes == "file":
        os.unlink(daemon.socket_path)
    else:
        shutil.rmtree(daemon.folder)
    until(lambda: connects(daemon.socket_path), "a socket at its path")
    assert durable(daemon.socket_path, "new")
    reply.token("two")
    assert reply.drain(30, level="synced"), "who was connected still is"
    status = daemon.status()
    assert (status["state"], status["socket_bound_anew"]) == ("ok", 1)
    line = f"socket {daemon.socket_path}: its file was removed; bound anew"
    daemon.logged(line)
    assert daemon.log_text().count(line) == 1
    assert daemon.terminate() == 0
    assert not os.path.lexists(daemon.socket_path)


def test_what_another_has_put_there_stays(daemon: DaemonProcess) -> None:
    with Peer(daemon, "query") as before:  # type: ignore[arg-type]
        os.unlink(daemon.socket_path)
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(daemon.socket_path)
            other.listen()
            inode = os.lstat(daemon.socket_path).st_ino
            daemon.logged("another process answers")
            assert "another process answers" in trouble(before)
            assert os.lstat(daemon.socket_path).st_ino == inode
        os.unlink(daemon.socket_path)  # it has gone
        until(lambda: connects(daemon.socket_path), "a socket at its path")
        assert trouble(before) == "None"
    assert durable(daemon.socket_path, "new")


def test_an_end_leaves_what_another_has_put_there(daemon: DaemonProcess) -> None:
    os.unlink(daemon.socket_path)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(daemon.socket_path)
        other.listen()
        daemon.logged("another process answers")
        assert daemon.terminate() == 0
        assert connects(daemon.socket_path)


def test_one_of_the_service_manager_is_said(tmp_path: Path, make_daemon: MakeDaemon) -> None:
    """A socket of our own in its place would be one that the manager knows nothing of."""
    daemon = make_daemon()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(daemon.socket_path)
    listening.listen()
    fd = str(listening.fileno())
    command = [sys.executable, "-c", AS_A_MANAGER, fd, sys.executable, "-m", "walld", "serve"]
    with daemon.log_path.open("wb") as log:
        daemon.process = subprocess.Popen(
            [*command, "--data", str(daemon.data), "--socket", str(tmp_path / "unused")],
            env=environment(),
            pass_fds=[listening.fileno()],
            stderr=log,
        )
    listening.close()
    until(daemon.is_ready, "a daemon that answers")
    with Peer(daemon, "query") as before:  # type: ignore[arg-type]
        os.unlink(daemon.socket_path)
        said = f"socket {daemon.socket_path}: its file was removed or replaced: it is the service"
        daemon.logged(said)
        assert said in trouble(before)
        assert not os.path.lexists(daemon.socket_path)
    assert daemon.terminate() == 0
    assert daemon.log_text().count(said) == 1
