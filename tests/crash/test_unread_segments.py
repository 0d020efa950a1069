"""A segment that one start could not read: later ones know that it has to be there (V4)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from agents.process import MakeAgent
from crash.test_newest_segment import is_missed, say
from daemon_process import DaemonProcess, MakeDaemon, needs_strace, until


def unread_once(daemon: DaemonProcess, make_agent: MakeAgent, *, held: bool) -> Path:
    """A dead agent's reply, in a segment that one start cannot read. held: behind another's."""
    daemon.start()
    if held:
        say(daemon, make_agent, "held")
        daemon.restart()
    agent = say(daemon, make_agent, "lost")
    segment = daemon.segments()[-1]
    daemon.kill()
    agent.kill()
    daemon.inject("pread64:error=EIO", segment)
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
    is_missed(daemon)


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
