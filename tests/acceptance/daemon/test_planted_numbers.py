"""Segments that no daemon wrote, whole by every checksum, with numbers that none gets to.

Who can write the files can forge them; the daemon says so, loses nothing, and starts unless no
number is left for what it would write itself.
"""

from __future__ import annotations

import pytest
from agents.process import MakeAgent
from daemon_process import DaemonProcess, MakeDaemon
from wal_files import batch_of

from walld.disk.lock_record import LOCK_NAME, parse_lock
from walld.wal.layout import (
    BATCH_NO_MAX,
    SEGMENT_HEADER_BYTES,
    SEGMENT_ID_MAX,
    SegmentHeader,
    pack_segment_header,
    segment_name,
    segment_seed,
)


def plant(
    daemon: DaemonProcess, segment_id: int, before_no: int, *, has_batch: bool = True
) -> None:
    """A segment of this log with one batch, or only with a header that says what was before it."""
    lock = parse_lock((daemon.data / LOCK_NAME).read_bytes(), LOCK_NAME)
    assert lock is not None
    content = pack_segment_header(SegmentHeader(lock.log_uuid, segment_id, before_no, 2))
    if has_batch:
        batch = batch_of(before_no + 1, [b"body"])
        seed = segment_seed(lock.log_uuid, segment_id)
        content += batch.stamped(before_no, seed, SEGMENT_HEADER_BYTES)
    (daemon.data / "wal" / segment_name(segment_id)).write_bytes(content)


def said(make_daemon: MakeDaemon, make_agent: MakeAgent) -> DaemonProcess:
    daemon = make_daemon().start()
    agent = make_agent(daemon)
    agent.do("r = client.reply('session', stream_id='before')")
    agent.do("r.token('still here'); assert r.drain(20, level='synced')")
    daemon.kill()
    agent.kill()
    return daemon


@pytest.mark.parametrize(
    ("segment_id", "before_no", "has_batch"),
    [
        (SEGMENT_ID_MAX + 1, 500, True),
        (2**64 - 1, 500, False),
        (900, BATCH_NO_MAX + 1, True),
        (900, BATCH_NO_MAX + 1, False),
        (900, 2**63 - 1, True),
        (900, 2**64 - 2, True),
        (900, 2**64 - 1, False),
    ],
)
def test_numbers_beyond_all_keep_nothing_from_starting_and_cost_nothing(
    make_daemon: MakeDaemon,
    make_agent: MakeAgent,
    segment_id: int,
    before_no: int,
    has_batch: bool,
) -> None:
    daemon = said(make_daemon, make_agent)
    plant(daemon, segment_id, before_no, has_batch=has_batch)
    assert daemon.cli("fsck", str(daemon.data)).returncode in (1, 2)
    daemon.start()
    agent = make_agent(daemon)
    agent.do("r = client.reply('session', stream_id='behind')")
    agent.do("r.token('and this'); assert r.drain(20, level='synced')")
    agent.kill()
    daemon.restart()
    assert {one.text for one in daemon.reader.recover_all()} == {"still here", "and this"}
    assert daemon.metrics()["walld_lost_acked_total"] == 0


@pytest.mark.parametrize(
    ("segment_id", "before_no"),
    [
        (SEGMENT_ID_MAX, 500),
        (SEGMENT_ID_MAX - 1, 500),
        (900, BATCH_NO_MAX - 1),
        (900, BATCH_NO_MAX),
    ],
)
def test_a_start_that_has_no_number_left_says_so_and_takes_nothing(
    make_daemon: MakeDaemon, make_agent: MakeAgent, segment_id: int, before_no: int
) -> None:
    daemon = said(make_daemon, make_agent)
    plant(daemon, segment_id, before_no)
    daemon.start(wait=False)
    assert daemon.ended() == 1
    text = daemon.log_text()
    assert "no number is left" in text
    assert "Traceback" not in text
    (daemon.data / "wal" / segment_name(segment_id)).unlink()
    daemon.start()
    (reply,) = daemon.reader.recover_all()
    assert reply.text == "still here"
