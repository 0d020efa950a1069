"""The whole data directory is an older copy of itself: a snapshot, a backup that was put back.

It is whole, and its log the same. Only who was told of what came behind the copy can know.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from agents.process import MakeAgent
from daemon_process import DaemonProcess, MakeDaemon, until, walld

KNOWS = """
    session = client.session("q")
    session.submit("hi 0", message_id="m0")
    reply = client.reply("S", stream_id="S")
    reply.token("one ")
    assert reply.drain(20, "synced")
"""
GOES_ON = """
    session.submit("hi 1", message_id="m1")
    reply.token("two ")
    assert reply.drain(20, "synced")
"""
RETURNS = """
    reply.token("three")
    assert reply.drain(20, "synced")
"""


@pytest.fixture
def copied(make_daemon: MakeDaemon, tmp_path: Path) -> tuple[DaemonProcess, Path]:
    return make_daemon().start(), tmp_path / "copy"


def test_who_was_told_of_more_is_told_what_is_lost_and_nobody_else_can_be(
    copied: tuple[DaemonProcess, Path], make_agent: MakeAgent
) -> None:
    daemon, copy = copied
    agent = make_agent(daemon)
    agent.do(KNOWS)
    daemon.kill()
    shutil.copytree(daemon.data, copy)
    daemon.start()
    agent.do(GOES_ON)
    gone = make_agent(daemon)
    gone.do("r = client.reply('G', stream_id='G'); r.token('x'); assert r.drain(20, 'synced')")
    gone.kill()
    assert daemon.cli("recover", "G", "--socket", daemon.socket_path).returncode == 0

    daemon.kill()
    shutil.rmtree(daemon.data)
    copy.rename(daemon.data)
    daemon.start()
    agent.do(RETURNS)
    found = daemon.arrived("S", 3)
    assert found.text == "one three"
    assert [(gap.first_seq, gap.last_seq) for gap in found.gaps] == [(2, 2)]
    daemon.logged("lost_acked: uid")
    until(lambda: daemon.status()["start"]["attested_missing"], "batches that are missing")
    assert agent.do("[one['content'] for one in session.messages()]") == ["hi 0"]
    (lost,) = agent.do("[(b['first_seq'], b['last_seq'], b['why']) for b in session.breaks]")
    assert lost[2] == "missing"
    status = daemon.status()
    assert status["lost_acked"] >= 2, "of the reply and of the session"
    assert status["new_directory"] is not None, "the copy says when it was made"
    assert daemon.cli("recover", "G", "--socket", daemon.socket_path).returncode == 3, (
        "nobody is left who was told of it: that is what FAULTS.md says"
    )
    assert daemon.terminate() == 0
    assert walld("fsck", daemon.data).returncode in (1, 2), "and it is written down"
