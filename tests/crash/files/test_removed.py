"""Somebody removes files of a running daemon: what an operator does by mistake."""

from __future__ import annotations

import shutil
import subprocess
import sys

from agents.process import MakeAgent
from daemon_process import DaemonProcess, MakeDaemon, environment, until
from walld_client import Unavailable

BEGIN = """
    reply = client.reply("S", stream_id="R")
    reply.token("before ")
    reply.drain(20)
"""


def text(daemon: DaemonProcess) -> str:
    """What can be recovered now. Of a directory whose agents know another nothing is proven."""
    try:
        reply = daemon.reader.recover(stream_id="R")
    except Unavailable:
        return ""
    return "" if reply is None else reply.text


def gone(daemon: DaemonProcess) -> bool:
    """Is the directory? It may write into it meanwhile."""
    shutil.rmtree(daemon.data, ignore_errors=True)
    return not daemon.data.exists()


def test_a_daemon_whose_directory_is_gone_ends_and_says_so(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """Waiting for a disk that comes back would be waiting for ever."""
    daemon = make_daemon().start()
    agent = make_agent(daemon)
    agent.do(BEGIN)
    until(lambda: gone(daemon), "a directory that is gone")
    assert daemon.terminate() == 1
    daemon.logged(f"{daemon.data} was removed: what was not synced is lost")
    daemon.start()
    until(lambda: text(daemon) == "before ", "what the agent still has")


def test_it_ends_while_it_tries_to_make_a_segment_there(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """A failed sync moves what is not synced, and no stop cuts that short; here nothing ever will
    be moved.
    """
    daemon = make_daemon("--flush-bound-ms", "100").start()
    agent = make_agent(daemon)
    agent.do(BEGIN)
    until(lambda: gone(daemon), "a directory that is gone")
    agent.do("reply.token('after'); None")
    daemon.logged("write to a new segment: No such file")
    assert daemon.terminate() == 1
    daemon.logged(f"{daemon.data} was removed: what was not synced is lost")


def test_a_daemon_whose_log_is_gone_begins_another(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    daemon = make_daemon().start()
    agent = make_agent(daemon)
    agent.do(BEGIN)
    shutil.rmtree(daemon.data / "wal")
    agent.do("reply.token('after'); reply.drain(20, 'synced')")
    assert list((daemon.data / "wal").iterdir())
    assert daemon.status()["trouble"] is None
    agent.kill()
    daemon.restart()
    assert text(daemon) == "before after"


def test_where_lock_was_removed_no_second_daemon_starts(daemon: DaemonProcess) -> None:
    (daemon.data / "LOCK").unlink()
    command = [sys.executable, "-m", "walld", "serve", "--data", str(daemon.data)]
    command += ["--socket", f"{daemon.socket_path}2"]
    second = subprocess.run(
        command, env=environment(), capture_output=True, timeout=30, check=False
    )
    assert second.returncode == 1
    assert b"another walld owns this data directory" in second.stderr
    daemon.reader.session("S").message("user", "goes on")
    daemon.restart()
    assert len(daemon.reader.session("S").events()) == 1
