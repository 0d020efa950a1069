"""Lines of sessions in what cannot be read of the log: none is lost in silence, no seq given twice,
no gate ok where a call may have started (Y1, P9, P11)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import walld_client
from agents.process import MakeAgent, Obedient
from daemon_process import DaemonProcess, MakeDaemon, until
from strace import needs_strace

from walld.disk.real import RealDisk
from walld.wal.scan import ScannedBatch, SegmentScan
from walld.wal.scan_report import SegmentFacts
from walld.wal.verdict import CORRUPT

PAY = (
    "t = client.session('s').submit('pay', message_id='m'); t.worker_started(); "
    "t.intent('pay', {}, call_id='k', side_effect='external-write', resume_policy='never-rerun'); "
    "t.tool_started('k'); None"
)


def seqs(daemon: DaemonProcess, session_id: str = "s") -> list[tuple[int, Any]]:
    events = daemon.reader.session(session_id).events()
    return [(one["seq"], one["payload"].get("n")) for one in events if one["type"] == "note"]


def reasons(daemon: DaemonProcess) -> list[str]:
    gate = daemon.reader.session("s").resume_check()
    assert gate is not None
    assert (gate["status"] == "blocked") is bool(gate["reasons"])
    return [one["code"] for one in gate["reasons"]]


def note(daemon: DaemonProcess, n: int, session_id: str = "s") -> int:
    entry = daemon.reader.session(session_id).append("note", {"n": n})
    return int(entry.seq)


def batches(path: Path) -> list[tuple[int, int, int]]:
    """(number, synced_no, offset) of each, but for settled rows."""
    return [(one.batch_no, one.synced_no, one.offset) for one in scanned(path)[0]]


def scanned(path: Path) -> tuple[list[ScannedBatch], SegmentFacts]:
    with RealDisk(str(path.parents[1]), read_only=True) as disk:
        file = disk.open(f"wal/{path.name}")
        try:
            scan = SegmentScan(file, int(path.stem))
            return list(scan), scan.facts
        finally:
            file.close()


def lose(daemon: DaemonProcess) -> None:
    """The daemon is killed, and a bit flipped in each header of what it had synced by now."""
    path = daemon.segments()[-1]
    lost = batches(path)
    until(lambda: batches(path)[-1][1] >= lost[-1][0], "a header that says what was synced")
    daemon.kill()
    content = bytearray(path.read_bytes())
    for _, _, offset in lost:
        content[offset + 13] ^= 1
    path.write_bytes(content)


@pytest.fixture
def holder(make_daemon: MakeDaemon, make_agent: MakeAgent) -> tuple[DaemonProcess, Obedient]:
    """A daemon in its second life, and an agent whose live reply holds its first segment."""
    daemon = make_daemon()
    daemon.start()
    agent = make_agent(daemon)
    agent.do(
        "r = client.reply('hold', stream_id='hold'); r.token('x'); r.drain(20, level='synced')"
    )
    for n in range(5):
        note(daemon, n, "filed")
    assert daemon.terminate() == 0
    daemon.start()
    return daemon, agent


@pytest.fixture
def second(holder: tuple[DaemonProcess, Obedient]) -> DaemonProcess:
    """The daemon."""
    return holder[0]


@needs_strace
@pytest.mark.parametrize("is_late", [False, True])
def test_lines_that_can_be_read_again_stand_before_those_that_came_since(
    second: DaemonProcess, is_late: bool
) -> None:
    """is_late: the file went on by then."""
    assert [note(second, n) for n in range(3)] == [1, 2, 3]
    assert [note(second, n, "filed") for n in range(5, 7)] == [6, 7]
    unread = second.segments()[-1]
    second.kill()
    second.inject("pread64:error=EIO", unread)
    second.start()
    session = second.reader.session("s")
    for ask in (session.events, session.resume_check, session.messages, session.state):
        with pytest.raises(walld_client.Unavailable):
            ask()
    new = [note(second, n) for n in range(3, 6)]
    filed = note(second, 7, "filed")
    assert new == list(range(new[0], new[0] + 3))
    assert new[0] > 4
    assert filed > 8
    assert seqs(second) == list(zip(new, range(3, 6), strict=True))
    if is_late:
        until(second.events_path("s").exists, "what came since in its file")
        until(lambda: b'"n":7' in second.events_path("filed").read_bytes(), "and in the other's")
    second.kill()
    second.wrapper = []
    second.start()
    assert seqs(second) == list(enumerate(range(3), 1)) + list(zip(new, range(3, 6), strict=True))
    expected = [*enumerate(range(7), 1), (filed, 7)]
    assert seqs(second, "filed") == expected
    assert note(second, 8, "filed") == filed + 1
    second.terminate()
    second.start()
    assert seqs(second, "filed") == [*expected, (filed + 1, 8)]
    assert reasons(second) == ["session_damaged"]  # what was leapt over, until it is repaired


@needs_strace
def test_a_segment_that_stays_unread_costs_a_session_one_leap(second: DaemonProcess) -> None:
    note(second, 0)
    unread = second.segments()[-1]
    second.kill()
    second.inject("pread64:error=EIO", unread)
    second.start()
    first = note(second, 1)
    second.kill()
    second.start()
    assert note(second, 2) == first + 1
    until(second.events_path("s").exists, "a checkpoint")
    second.kill()
    second.start()
    assert note(second, 3) == first + 2


@pytest.mark.parametrize("is_filed", [False, True])
@pytest.mark.parametrize("fault", [pytest.param("unread", marks=needs_strace), "lost"])
def test_the_gate_is_shut_where_a_start_may_be_among_what_is_lost(
    second: DaemonProcess, make_agent: MakeAgent, fault: str, is_filed: bool
) -> None:
    if is_filed:
        note(second, 0)
        assert second.terminate() == 0
        second.start()
    make_agent(second).do(PAY)
    segment = second.segments()[-1]
    if fault == "lost":
        lose(second)
    else:
        second.kill()
        second.inject("pread64:error=EIO", segment)
    second.start()
    if is_filed:
        assert reasons(second) == ["log_unreadable"]
        assert note(second, 1) > 5
    else:
        with pytest.raises(walld_client.Unavailable):
            second.reader.session("s").resume_check()
        assert note(second, 1) > 4
    assert "session_damaged" in reasons(second)
    if fault == "unread":
        second.kill()
        second.wrapper = []
        second.start()
        gate = second.reader.session("s").resume_check()
        assert gate is not None
        assert [(one["call_id"], one["may"]) for one in gate["tools"]] == [("k", "never")]


def test_once_somebody_has_looked_what_was_lost_is_settled(
    holder: tuple[DaemonProcess, Obedient],
) -> None:
    second, agent = holder
    note(second, 0)
    lose(second)
    agent.kill()  # a reply that may have lost its end has the loss said anew at each start
    second.start()
    with pytest.raises(walld_client.Unavailable):
        second.reader.session("s").events()
    assert not second.reader.session("filed").breaks
    second.reader.session("filed").events()
    assert [one["why"] for one in second.reader.session("filed").state()["chain_breaks"]] == ["log"]
    leapt = note(second, 1, "leapt")
    second.kill()
    second.start()
    assert note(second, 2, "leapt") == leapt + 1

    def is_reported() -> bool:
        rows = scanned(second.segments()[-1])[1].settled
        return any(row.verdict == CORRUPT for row in rows)

    until(is_reported, "a row that says what was lost")
    second.terminate()
    shutil.rmtree(second.data / "quarantine")
    second.start()
    assert second.reader.session("s").events() == []
    assert second.reader.delete("s") is False
    assert note(second, 5, "filed") == 6
    assert note(second, 0) == 1
    assert reasons(second) == []


def test_a_session_that_goes_on_behind_the_damage_has_lost_nothing(
    second: DaemonProcess,
) -> None:
    second.reader.session("lost").append("note", {})
    path = second.segments()[-1]
    lost = batches(path)[-1]
    assert [note(second, n) for n in range(3)] == [1, 2, 3]
    until(lambda: batches(path)[-1][1] >= lost[0], "a header that says what was synced")
    second.kill()
    content = bytearray(path.read_bytes())
    content[lost[2] + 13] ^= 1
    path.write_bytes(content)
    second.start()
    assert second.status()["start"]["corrupt"] == 1
    assert reasons(second) == []
    assert note(second, 9) == 4
    with pytest.raises(walld_client.Unavailable):
        second.reader.session("lost").events()


@needs_strace
def test_what_may_come_back_is_not_deleted_by_half(
    second: DaemonProcess, make_agent: MakeAgent
) -> None:
    note(second, 0)
    agent = make_agent(second)
    agent.do("r = client.reply('s', stream_id='q'); r.token('x'); r.drain(20, level='synced')")
    unread = second.segments()[-1]
    second.kill()
    agent.kill()
    second.inject("pread64:error=EIO", unread)
    second.start()
    for name in ("s", "filed"):
        with pytest.raises(walld_client.Unavailable, match="nothing was deleted"):
            second.reader.delete(name)
    assert second.events_path("filed").exists()
    second.kill()
    second.wrapper = []
    second.start()
    assert seqs(second) == [(1, 0)]
    assert second.reader.delete("s") is True
    assert second.reader.session("s").events() == []
    assert second.reader.recover("s") is None


def test_a_delete_does_not_say_there_was_nothing_where_that_is_not_known(
    second: DaemonProcess,
) -> None:
    note(second, 0)
    lose(second)
    second.start()
    with pytest.raises(walld_client.Unavailable):
        second.reader.delete("s")
    assert second.reader.delete("filed") is True
    assert not second.events_path("filed").exists()


@pytest.mark.parametrize("length", [40, 76])
def test_a_segment_that_was_cut_held_more_lines_than_what_is_left_of_it(
    second: DaemonProcess, length: int
) -> None:
    for n in range(20):
        note(second, n)
    path = second.segments()[-1]
    lost = batches(path)
    until(lambda: batches(path)[-1][1] >= lost[-1][0], "a header that says what was synced")
    second.kill()
    os.truncate(path, length)
    for _ in range(2):
        second.start()
        with pytest.raises(walld_client.Unavailable):
            second.reader.session("s").events()
        second.kill()
    second.start()
    assert note(second, 99) > 20
