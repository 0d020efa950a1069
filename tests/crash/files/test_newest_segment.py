"""The newest segment is taken away, or cut where a batch ends: no header behind it can tell.

LOCK does (`disk/lock.py`): of each segment one batch, the last that a start has made durable, and
the last of an orderly end.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import walld_client
from agents.process import MakeAgent, Obedient
from daemon_process import DaemonProcess, MakeDaemon

from walld.disk.real import RealDisk
from walld.wal.log_scan import LogScan


def say(daemon: DaemonProcess, make_agent: MakeAgent, name: str) -> Obedient:
    agent = make_agent(daemon)
    agent.do(f"r = client.reply('session-{name}', stream_id='{name}')")
    for number in range(3):
        agent.do(f"r.token('{number} '); r.drain(20, level='synced')")
    return agent


def is_missed(daemon: DaemonProcess) -> None:
    """By everybody, at each start, until somebody has looked."""
    assert daemon.cli("fsck", str(daemon.data)).returncode == 2
    assert daemon.cli("recover", "session-lost", "--data", str(daemon.data)).returncode == 1
    for _ in range(2):
        daemon.start()
        with pytest.raises(walld_client.Unavailable, match="tell of damage"):
            daemon.reader.recover("session-lost")
        held = daemon.reader.recover("session-held")
        assert held is not None
        assert held.text == "0 1 2 "
        daemon.kill()


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: os.truncate(path, 64)])
def test_the_newest_segment_is_missed_while_others_stand(
    make_daemon: MakeDaemon, make_agent: MakeAgent, spoil: Callable[[Path], None]
) -> None:
    daemon = make_daemon().start()
    held = say(daemon, make_agent, "held")
    daemon.restart()
    lost = say(daemon, make_agent, "lost")
    daemon.kill()
    held.kill()
    lost.kill()
    spoil(daemon.segments()[-1])
    is_missed(daemon)


def test_what_a_start_has_made_durable_is_missed(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """Its daemon was killed before the sync: of that segment the next one has the first word."""
    daemon = make_daemon().start()
    held = say(daemon, make_agent, "held")
    daemon.restart()
    lost = make_agent(daemon)
    lost.do("r = client.reply('session-lost', stream_id='lost')")
    lost.do("r.token('x'); assert r.drain(20, level='written')")
    daemon.restart()
    lost.do("assert r.drain(20, level='synced')")
    daemon.kill()
    held.kill()
    lost.kill()
    for segment in daemon.segments()[-2:]:
        segment.unlink()
    is_missed(daemon)


def test_the_last_batch_of_an_orderly_end_is_missed(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    daemon = make_daemon().start()
    held, lost = say(daemon, make_agent, "held"), say(daemon, make_agent, "lost")
    assert daemon.terminate() == 0
    held.kill()
    lost.kill()
    segment = daemon.segments()[-1]
    with RealDisk(str(daemon.data), read_only=True) as disk:
        ends = [batch for _, batch in LogScan(disk) if any(r.body_bytes for r in batch.records)]
    os.truncate(segment, ends[-1].offset)
    assert daemon.cli("fsck", str(daemon.data)).returncode == 2
    daemon.start()
    assert daemon.status()["start"]["corrupt"] == 1
    reply = daemon.reader.recover("session-lost")
    assert reply is not None
    assert [gap.verdict for gap in reply.gaps] == ["corrupt"]
    daemon.kill()


def test_what_was_released_in_its_turn_is_not_missed(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """LOCK names a batch whose segment has gone, dead and oldest as it was."""
    daemon = make_daemon("--reclaim-seconds", "0").start()
    for name in ("one", "two"):
        agent = say(daemon, make_agent, name)
        agent.do("r.end(); assert client.close()")
        agent.kill()
        for _ in range(2):
            assert daemon.terminate() == 0
            daemon.start().restart()
            assert daemon.status()["start"]["corrupt"] == 0
            assert daemon.reader.recover(f"session-{name}") is None
    assert daemon.terminate() == 0
    assert daemon.cli("fsck", str(daemon.data)).returncode == 0
