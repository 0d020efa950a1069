"""A segment that one start could not read: later ones know that it has to be there (V4)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import walld_client
from agents.process import Obedient
from daemon_process import DaemonProcess, until

MakeDaemon = Callable[..., DaemonProcess]
MakeAgent = Callable[..., Obedient]


needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed: no fault can be injected"
)


def newest(daemon: DaemonProcess) -> Path:
    return max((daemon.data / "wal").glob("*.wal"))


def say(daemon: DaemonProcess, make_agent: MakeAgent, name: str) -> Obedient:
    agent = make_agent(daemon)
    agent.do(f"r = client.reply('session-{name}', stream_id='{name}')")
    for number in range(10):
        agent.do(f"r.token('{number} '); r.drain(20, level='synced')")
    return agent


def unread_once(daemon: DaemonProcess, make_agent: MakeAgent, *, held: bool) -> Path:
    """A dead agent's reply, in a segment that one start cannot read. held: behind another's."""
    daemon.start()
    if held:
        say(daemon, make_agent, "held")
        daemon.restart()
    agent = say(daemon, make_agent, "lost")
    segment = newest(daemon)
    daemon.kill()
    agent.kill()
    daemon.wrapper = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=pread64"]
    daemon.wrapper += ["-e", "inject=pread64:error=EIO", "-P", str(segment)]
    daemon.start()
    return segment


@needs_strace
@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: os.truncate(path, 64)])
def test_what_is_gone_once_it_could_be_read_is_said(
    make_daemon: MakeDaemon, make_agent: MakeAgent, spoil: Callable[[Path], None]
) -> None:
    daemon = make_daemon()
    segment = unread_once(daemon, make_agent, held=True)
    say(daemon, make_agent, "later").kill()
    daemon.kill()
    daemon.wrapper = []
    spoil(segment)
    assert daemon.cli("fsck", str(daemon.data)).returncode == 2
    assert daemon.cli("recover", "session-lost", "--data", str(daemon.data)).returncode == 1
    for _ in range(2):
        daemon.start()
        with pytest.raises(walld_client.Unavailable, match="tell of damage"):
            daemon.reader.recover("session-lost")
        daemon.kill()


@needs_strace
def test_what_left_the_log_in_its_turn_is_not_missed(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """It lies in quarantine/; whoever has moved it away has nothing more to be told of."""
    daemon = make_daemon()
    segment = unread_once(daemon, make_agent, held=False)
    aside = daemon.data / "quarantine" / segment.name
    until(aside.exists, "the segment, set aside")
    daemon.kill()
    daemon.wrapper = []
    shutil.rmtree(daemon.data / "quarantine")
    assert daemon.cli("fsck", str(daemon.data)).returncode == 0
    daemon.start()
    assert daemon.status()["start"]["corrupt"] == 0
    assert daemon.reader.recover("session-lost") is None
