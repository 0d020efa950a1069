"""A fork is opened out of its snapshot, like any session: nobody folds all it was made of."""

from __future__ import annotations

import os

from daemon_process import DaemonProcess, until

from walld.disk.real import RealDisk
from walld.ledger.snapshot import SnapshotStore
from walld.ledger.store import LedgerStore
from walld.sessions.state.session_state import SessionState


def test_a_fork_has_a_snapshot_from_the_beginning(daemon: DaemonProcess) -> None:
    session, uid = daemon.reader.session("s"), os.geteuid()
    turn = session.submit("do", message_id="m")
    turn.intent("ls", {}, side_effect="read", resume_policy="replay-from-event", call_id="c")
    session.append_many([{"type": "note", "payload": {"n": n}, "key": "k"} for n in range(300)])
    fork = session.fork(None, "fork")
    last_seq = fork.events()[-1]["seq"]
    with RealDisk(str(daemon.data), read_only=True) as disk:
        found, tail = SnapshotStore(disk).read(uid, "fork"), LedgerStore(disk).tail(uid, "fork")
    assert found is not None
    assert tail is not None
    assert (found.covers_seq, found.covers_offset) == (last_seq, tail.size) == (304, tail.size)
    assert SessionState.from_base(found.base).last_seq == last_seq
    daemon.restart()
    assert [fork.append("note", {"n": n}, key="k").seq for n in range(60)][-1] == last_seq + 60
    until(lambda: daemon.status()["wal_live_bytes"] < 10_000, "a checkpoint")
    daemon.restart()
    assert fork.find("note", "k", last=1)[0]["payload"] == {"n": 59}
    assert fork.turn(turn.turn_id).state == "interrupted"
    assert daemon.cli("fsck", str(daemon.data)).returncode == 0
