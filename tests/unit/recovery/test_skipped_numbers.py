"""Numbers that may be in use where nothing could be read are not given again (V4).

A start that could not read a segment, or a partial, goes on far behind whatever may stand there;
what it leapt over is not missed, and what is damaged of it is said once it can be read.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from damaged_directory import AT_MS, DamagedDirectory, begin, row, text
from damaged_directory import LOG as DIRECTORY_LOG
from virtual_daemon import Home, Peer, living, recovered, run, text_of
from wal_files import LOG, BytesDisk, LogWriter
from walld_client.wire import messages as wire

from walld.disk.lock_record import LockRecord, lock_record, parse_lock
from walld.disk.real import RealDisk, RealFile
from walld.partials.file import PartialFacts
from walld.partials.store import PartialStore
from walld.recovery.directory_lock import own
from walld.recovery.startup_recovery import recover_storage
from walld.wal import records
from walld.wal.encode import settled_batches
from walld.wal.layout import EPOCH_STREAMS_BITS, Flag, Settled
from walld.wal.log_scan import LogScan
from walld.wal.unreadable_segments import READ, left
from walld.wal.verdict import _LEAP_NO_MAX, LEAPT, SEGMENT_BATCHES_BITS, Verdict

FULL = 1 << SEGMENT_BATCHES_BITS


def judged(log: LogWriter, *unreadable: int) -> Verdict:
    disk = BytesDisk(log.files)
    disk.unreadable = set(unreadable)
    scan = LogScan(disk, LOG)
    for _ in scan:
        pass
    return scan.verdict()


def restart(log: LogWriter, *unreadable: int) -> Verdict:
    """A start that cannot read some of it, and a batch that says all before it is synced."""
    verdict = judged(log, *unreadable)
    log.segment(next_no=verdict.reserved_no + 1)
    for batch in settled_batches(log.next_no, verdict.rows()):
        log.put(batch, verdict.synced_no)
    log.batch(b"new")
    log.batch(b"new")
    return verdict


def three_segments() -> LogWriter:
    """Two batches each."""
    log = LogWriter()
    for _ in range(3):
        log.segment()
        log.batch(b"x")
        log.batch(b"x")
    return log


def cut(log: LogWriter, segment_id: int, size: int) -> None:
    file = log.files[segment_id]
    assert isinstance(file, bytearray)
    del file[size:]


@pytest.mark.parametrize("unreadable", [(3,), (2, 3), (1, 2, 3)])
def test_no_batch_number_is_given_that_an_unread_segment_may_hold(
    unreadable: tuple[int, ...],
) -> None:
    bound = 4 * FULL
    log = three_segments()
    verdict = restart(log, *unreadable)
    assert verdict.reserved_no == bound
    assert log.next_no > bound
    for still in ((), unreadable, unreadable[:1]):
        again = judged(log, *still)
        assert (again.torn, again.corrupt, again.leap) == ([], [], None), still
    numbers = [batch.batch_no for _, batch in LogScan(BytesDisk(log.files), LOG)]
    assert numbers[:6] == [1, 2, 3, 4, 5, 6], "all of it, once it can be read"
    assert len(numbers) == len(set(numbers)) == 8


def test_what_is_behind_an_unread_segment_says_how_far_it_went() -> None:
    log = three_segments()
    assert judged(log, 1, 2).leap is None
    log.segment(next_no=5, again=True)
    assert judged(log, 2).leap is None
    leap = judged(log, 3).leap
    assert leap is not None, "begun to write again: what the third holds may go further"
    assert leap[1:] == (0, 5, 5 * FULL, LEAPT)


@pytest.mark.parametrize("still", [(), (4,), (3, 4)])
def test_nor_one_that_stands_behind_an_earlier_leap(still: tuple[int, ...]) -> None:
    """What was written behind a leap cannot be read, and the reason of that leap can again."""
    log = three_segments()
    for _ in range(2):
        log.batch(b"x")
    restart(log, 3)
    for _ in range(20):
        log.batch(b"new")
    restart(log, 4)
    numbers = [batch.batch_no for _, batch in LogScan(BytesDisk(log.files), LOG)]
    assert len(numbers) == len(set(numbers)) == 8 + 2 + 20 + 2, "none stands there twice"
    verdict = judged(log, *still)
    assert (verdict.torn, verdict.corrupt) == ([], [])


def test_ids_beyond_what_numbers_can_follow_leap_from_the_last_whole_segment() -> None:
    log = three_segments()
    unread = log.segment(_LEAP_NO_MAX // FULL)
    log.batch(b"x")
    leap = judged(log, unread).leap
    assert leap is not None
    assert leap.last_no == 6 + (unread - 3) * FULL


@pytest.mark.parametrize("synced", [False, True])
def test_damage_to_what_was_leapt_over_is_judged_by_what_was_synced_there(*, synced: bool) -> None:
    """V1: what a crash tore is torn, though later batches are synced."""
    log = three_segments()
    if synced:
        log.batch(b"y", synced_no=6)
    last = log.places[5]
    if synced:
        restart(log, 3)
        log.flip(3, (last.offset + last.length - 1) * 8)
    else:
        cut(log, 3, last.offset + last.length - 1)
        restart(log, 3)
    verdict = judged(log)
    found = verdict.corrupt if synced else verdict.torn
    assert [(item.first_no, item.last_no) for item in found] == [(6, 6)]
    assert len(verdict.corrupt) + len(verdict.torn) == 1
    assert verdict.synced_up_to(6) == (6 if synced else 5)
    assert verdict.synced_up_to(verdict.last_batch_no) == verdict.synced_no > FULL
    restart(log)
    assert judged(log).is_clean, "and once"


def gone(log: LogWriter) -> None:
    del log.files[3]


def headers_flipped(log: LogWriter) -> None:
    for place in log.places:
        if place.segment_id == 3:
            log.flip(3, place.offset * 8)


SPOILED: dict[str, Callable[[LogWriter], None]] = {
    "removed": gone,
    "emptied": lambda log: cut(log, 3, 0),
    "cut below its header": lambda log: cut(log, 3, 40),
    "cut to its header": lambda log: cut(log, 3, 64),
    "cut behind a batch": lambda log: cut(log, 3, log.places[5].offset),
    "cut in a batch": lambda log: cut(log, 3, log.places[5].offset + 30),
    "zeros": lambda log: log.files.__setitem__(3, bytes(len(log.files[3]))),
    "headers flipped": headers_flipped,
    "the last header flipped": lambda log: log.flip(3, log.places[5].offset * 8),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_what_could_not_be_read_must_be_there_and_whole(
    spoil: Callable[[LogWriter], None],
) -> None:
    """Nothing else tells of what it held; and it is said once."""
    log = three_segments()
    restart(log, 3)
    restart(log, 3)
    assert judged(log).is_clean
    spoil(log)
    for _ in range(2):
        assert judged(log).corrupt, "at each start that has written nothing down"
    restart(log)
    assert judged(log).is_clean


def test_once_read_it_is_judged_as_any_other() -> None:
    log = three_segments()
    restart(log, 3)
    row = Settled(3, 6, 0, 0, READ)
    assert judged(log).awaited == [row]
    restart(log)
    assert judged(log).awaited == []
    gone(log)
    verdict = judged(log)
    assert [(item.first_no, item.last_no) for item in verdict.corrupt] == [(5, 6)]
    assert not verdict.torn


def test_one_that_left_in_its_turn_is_not_missed() -> None:
    log = three_segments()
    restart(log, 1, 2, 3)
    for batch in settled_batches(log.next_no, [left(1)]):
        log.put(batch, log.next_no - 1)
    del log.files[1]
    assert judged(log, 2, 3).is_clean is False, "of those two nothing is known"
    assert judged(log, 2, 3).corrupt == []
    assert judged(log).is_clean
    del log.files[2]
    assert judged(log, 3).corrupt, "that one has not"


def test_a_stream_of_an_unread_partial_keeps_its_number(tmp_path: Path) -> None:
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    path = made.partial(7, begin(), text(1, "a"))
    made.close()
    with RealDisk(str(made.path)) as disk:
        store = PartialStore(disk)
        assert recover_storage(disk, store, DIRECTORY_LOG, 5).last_stream_no == 7
        path.rename(path.with_name("other"))
        leapt = recover_storage(disk, store, DIRECTORY_LOG, 6).last_stream_no
        assert leapt == 6 << EPOCH_STREAMS_BITS, "set aside: somebody may put it back"
        assert recover_storage(disk, store, DIRECTORY_LOG, 7).last_stream_no > leapt
        for kept in (made.path / "quarantine").iterdir():
            kept.unlink()
        assert recover_storage(disk, store, DIRECTORY_LOG, 8).last_stream_no == 0
        mend_all(disk, store, leapt + 3)
        assert recover_storage(disk, store, DIRECTORY_LOG, 9).last_stream_no == leapt + 3


def mend_all(disk: RealDisk, store: PartialStore, stream_no: int) -> None:
    """A reply of a daemon that had leapt."""
    facts = PartialFacts(DIRECTORY_LOG, stream_no, AT_MS, AT_MS, 0, 1, "agent_lost")
    items = records.join_items(
        [records.encode_item(begin("r", "s")), records.encode_item(text(1, "a"))]
    )
    store.write(os.geteuid(), "s", "r", facts, items)


def test_so_do_those_of_a_log_with_damage(tmp_path: Path) -> None:
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 1, begin(), text(1, "x"), flags=Flag.BEGIN))
    made.batch(row(2, 0, 1, begin("s2"), text(1, "x"), flags=Flag.BEGIN))
    made.batch(row(1, 2, 2, text(2, "y")))
    made.flip(2, -1)
    made.close()
    with RealDisk(str(made.path)) as disk:
        storage = recover_storage(disk, PartialStore(disk), DIRECTORY_LOG, 3)
    assert storage.last_stream_no == 3 << EPOCH_STREAMS_BITS


def test_a_leap_is_above_all_that_daemons_gave_whose_lock_and_segment_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their epochs stand in LOCK and in headers; the names of segments tell as much."""
    home, failing = Home(tmp_path), list[str]()
    whole = RealDisk.open

    def planted(disk: RealDisk, path: str) -> RealFile:
        if path in failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return whole(disk, path)

    monkeypatch.setattr(RealDisk, "open", planted)

    async def life(name: str) -> int:
        """A daemon, and a reply that it is told; the highest number it gave."""
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(wire.Start(1, 0, name, "s"), wire.Token(1, 1, name.encode()))
                await agent.drain("synced")
            await virtual.crash()
            return virtual.engine.registry.last_no

    async def main() -> None:
        await life("first")
        lock = home.data / "LOCK"
        was = parse_lock(lock.read_bytes(), "LOCK")
        assert was is not None
        # Starts that came to nothing, one after the other.
        lock.write_bytes(lock_record(was._replace(epoch=was.epoch + 40)))
        (home.data / "quarantine" / "stream-9").write_bytes(b"a doubt")
        second = await life("second")
        assert second > 1 << EPOCH_STREAMS_BITS
        lock.unlink()
        newest = max((home.data / "wal").glob("*.wal"))
        failing.append(f"wal/{newest.name}")
        assert await life("third") > second
        failing.clear()
        async with living(home) as virtual:
            for name in ("first", "second", "third"):
                assert text_of(await recovered(virtual, name)) == name.encode()

    run(main)


def test_a_slip_in_the_epoch_gives_no_number_twice(tmp_path: Path) -> None:
    """An index has 64 bits for a stream's: what an epoch has beyond them would be the same."""
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 1, begin(), text(1, "x"), flags=Flag.BEGIN))
    made.close()
    (made.path / "quarantine/x").write_bytes(b"somebody must look")
    (made.path / "LOCK").write_bytes(
        lock_record(LockRecord(8 * 10**12 + 1, DIRECTORY_LOG, had_log=True))
    )
    numbers = []
    for _ in range(2):
        with RealDisk(str(made.path)) as disk:
            owner = own(str(made.path), disk)
            storage = recover_storage(
                disk, PartialStore(disk), DIRECTORY_LOG, owner.epoch, owner.lock_before
            )
            numbers.append(storage.last_stream_no)
            owner.close()
    assert 1 << EPOCH_STREAMS_BITS < numbers[0] < numbers[1] < 1 << 40
