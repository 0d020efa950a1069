"""A segment that one start could not read: later ones know that it has to be there (V4)."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from agents.process import MakeAgent
from crash.files.test_newest_segment import is_missed, say
from daemon_process import DaemonProcess, MakeDaemon, until
from strace import needs_strace


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
def test_a_start_that_can_read_it_again_has_lost_nothing(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """K8. It held the word that a reply was released, which is an orphan meanwhile, and kept."""
    daemon = make_daemon("--reclaim-seconds", "1").start()
    one, of_nobody = (say(daemon, make_agent, name) for name in ("one", "of-nobody"))
    daemon.restart()
    whole = say(daemon, make_agent, "whole")
    one.do("r.end(); r.release(); r.drain(20, level='synced')")
    segment = daemon.segments()[-1]
    daemon.kill()
    for agent in (one, of_nobody, whole):
        agent.kill()
    daemon.inject("pread64:error=EIO", segment)
    daemon.start()
    assert {one.stream_id for one in daemon.reader.orphans()} == {"one", "of-nobody"}
    until(lambda: daemon.segments()[0] == segment, "a log that has let go of what is kept")
    say(daemon, make_agent, "later").kill()
    time.sleep(3)
    assert segment.exists(), "it went in its turn"
    daemon.kill()
    daemon.wrapper = []
    daemon.start()
    assert {one.stream_id for one in daemon.reader.orphans()} == {"of-nobody", "whole", "later"}
    assert [one.doubt for one in daemon.reader.orphans()] == [None] * 3
    assert daemon.reader.recover(stream_id="one") is None
    until(lambda: segment not in daemon.segments(), "a log that has let go of it")
    assert not list((daemon.data / "quarantine").iterdir())


@needs_strace
def test_what_another_segment_has_lost_is_not_forgotten_for_it(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """The start that cannot read it puts all that is missing down to it, and lets the older go."""
    daemon = make_daemon("--reclaim-seconds", "1").start()
    lost = say(daemon, make_agent, "lost")
    daemon.restart()
    held = say(daemon, make_agent, "held")
    daemon.kill()
    lost.kill()
    held.kill()
    oldest, newest = daemon.segments()
    os.truncate(oldest, 64)
    daemon.inject("pread64:error=EIO", newest)
    daemon.start()
    until(lambda: not oldest.exists(), "an oldest segment that goes")
    daemon.kill()
    daemon.wrapper = []
    is_missed(daemon)


@needs_strace
def test_what_left_the_log_in_its_turn_is_not_missed(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """It lies in quarantine/; whoever has moved it away has nothing more to be told of."""
    daemon = make_daemon("--reclaim-seconds", "0.1")
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
