"""What a start does to storage: what it finds, what it sets aside, what it never touches."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from damaged_directory import AT_MS, DamagedDirectory, begin, row
from damaged_directory import LOG as DIRECTORY_LOG
from damaged_directory import text as said
from engine_world import LOG, KeptAlone, LogDisk, World
from virtual_daemon import Home, Peer, Virtual, living, recovered, run, text_of
from walld_client.wire import messages as wire

from walld.cli.inspect.offline import Found, find
from walld.disk.medium import Storage
from walld.disk.real import RealDisk
from walld.disk.simulated import SimulatedDisk
from walld.engine.partial_index import IndexedPartial, PartialIndex
from walld.partials.file import PartialFacts
from walld.partials.store import PartialStore
from walld.recovery.quarantine import lost_to_power, rename_residue, report
from walld.recovery.startup_recovery import recover_storage
from walld.wal.encode import settled_batches
from walld.wal.headers import good_headers
from walld.wal.layout import (
    BATCH_HEADER_BYTES,
    EPOCH_STREAMS_BITS,
    SEGMENT_HEADER_BYTES,
    Flag,
    SegmentHeader,
    Settled,
    segment_name,
)
from walld.wal.log_scan import LogScan
from walld.wal.records import Happened, encode_item, join_items
from walld.wal.scan_report import SegmentFacts
from walld.wal.segment_files import SegmentFiles
from walld.wal.verdict import CORRUPT, RENEWED, TORN, Damage, Verdict

START = wire.Start(1, 0, "r", "s")


def kept(world: World) -> None:
    """Stream 1 becomes a partial."""
    (stream,) = world.engine.registry.by_no.values()
    world.engine.orphan(stream, "agent_lost")
    facts = IndexedPartial(
        stream.no, stream.next_seq - 1, world.engine.batches.written_no, stream.begin.at_ms
    )
    world.engine.keep(stream, "s", stream.begin.stream_id, facts)


def test_an_empty_directory_is_made_ready(tmp_path: Path) -> None:
    with RealDisk(str(tmp_path / "data")) as disk:
        storage = recover_storage(disk, PartialStore(disk), LOG)
    assert (storage.streams, storage.segments, storage.last_segment_id) == ({}, [], 0)
    assert storage.verdict.is_clean
    made = sorted(path.name for path in (tmp_path / "data").iterdir())
    assert made == ["partials", "quarantine", "sessions", "wal"]


def test_records_of_a_kept_reply_are_not_taken_for_damage() -> None:
    world = World()
    agent = world.connect()
    world.begin(agent)
    world.flush()
    world.sync()
    world.segment()
    world.say(agent, wire.Token(1, 1, b"kept already"))
    world.flush()
    world.sync()
    world.segment()
    kept(world)
    assert world.engine.segments.oldest.live_bytes == 0
    world.engine.segments.unlinked(world.engine.segments.oldest)
    del world.files[1]
    again = world.restarted(power=False, kept=world.engine.partials)
    assert again.replaced == {}
    assert again.engine.registry.by_no == {}
    assert again.engine.partials.of_session(1000, "s") == ["r1"]


def test_records_without_a_beginning_are_kept_in_quarantine(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Damage took their first segment: nobody can ask for them, and nobody deletes them."""
    world = World()
    agent = world.connect()
    world.begin(agent)
    world.flush()
    world.sync()
    world.segment()
    world.say(agent, wire.Token(1, 1, b"headless"))
    world.flush()
    world.sync()
    del world.files[1]
    with caplog.at_level(logging.ERROR):
        again = world.restarted(power=False)
    assert b"headless" in again.replaced["quarantine/stream-1"]
    assert "stream 1" in caplog.text
    assert again.engine.registry.by_no == {}


@pytest.mark.parametrize("is_damaged", [False, True])
def test_what_power_has_left_of_an_unsynced_reply_is_no_doubt(
    tmp_path: Path, *, is_damaged: bool
) -> None:
    """Its beginning was never promised: as with a torn tail nothing is in doubt for that.

    Unless something else is wrong with the log: then it may have been the damage that took it.
    """
    world = World()
    agent = world.connect()
    world.begin(agent)
    world.flush()
    world.sync()
    world.say(agent, wire.Token(1, 1, b"whole"))
    world.flush()
    world.sync()
    world.begin(agent, 2)
    world.flush()
    world.say(agent, wire.Token(2, 1, b"headless"))
    world.flush()
    file = world.files[1]
    places = {number: offset for number, _, offset in world.wrote}
    file[places[3] : places[4]] = bytes(places[4] - places[3])
    if is_damaged:
        file[places[1] + BATCH_HEADER_BYTES] ^= 1
    (tmp_path / "wal").mkdir()
    (tmp_path / "wal" / segment_name(1)).write_bytes(file)
    with RealDisk(str(tmp_path)) as disk:
        said = find(str(tmp_path)).doubts
        storage = recover_storage(disk, PartialStore(disk), LOG)
    assert bool(said) is (storage.doubt is not None) is is_damaged
    assert (tmp_path / "quarantine" / "stream-2").exists() is is_damaged
    assert [no for no, one in storage.streams.items() if one.begin is not None] == [1] * (
        not is_damaged
    )


def test_those_that_a_full_disk_has_no_room_for_stay_where_they_are() -> None:
    """K4: a start that cannot copy them goes on, sets their segment aside, and proves nothing."""

    class Full(LogDisk):
        def replace(self, path: str, data: bytes) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    world = World()
    agent = world.connect()
    world.begin(agent)
    world.flush()
    world.sync()
    for text in (b"head", b"less"):
        world.segment()
        world.say(agent, wire.Token(1, 1 + (text == b"less"), text))
        world.flush()
        world.sync()
    del world.files[1]
    storage = recover_storage(Full(dict(world.files)), cast("Any", KeptAlone(PartialIndex())), LOG)
    assert [one.unreadable for one in storage.segments] == [True, True]
    assert storage.doubt is not None
    assert "2 parts of the log" in storage.doubt


def files_of(data: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (data / "wal").iterdir()}


def test_an_old_segment_is_never_written_to(tmp_path: Path) -> None:
    """Torn or whole: the next start begins a segment of its own, and says what it found once."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, wire.Token(1, 1, b"a"))
                await agent.drain("synced")
                agent.send(wire.Token(1, 2, b"b"))
                await agent.drain("written")
                await virtual.crash()
        torn = home.data / "wal" / segment_name(1)
        torn.write_bytes(torn.read_bytes()[:-5])
        before = files_of(home.data)
        for start in (2, 3):
            async with living(home) as again:
                assert text_of(await recovered(again, "r")) == b"a"
                found = again.daemon.status.status()["start"]
                assert isinstance(found, dict)
                assert (found["torn"], found["corrupt"]) == (int(start == 2), 0)
                await again.crash()
            after = files_of(home.data)
            assert {name: after[name] for name in before} == before
            assert sorted(after) == [segment_name(no) for no in range(1, start + 1)]

    run(main)


def test_the_residue_of_a_start_is_renamed_and_met_once(tmp_path: Path) -> None:
    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START)
                await agent.drain("synced")
                await virtual.crash()
        (home.data / "wal" / segment_name(9)).write_bytes(bytes(SEGMENT_HEADER_BYTES - 1))
        async with living(home) as again:
            assert await recovered(again, "r") is not None
            names = sorted(path.name for path in (home.data / "wal").iterdir())
            assert names == [segment_name(1), f"{segment_name(9)}.residue", segment_name(10)]

    run(main)


def test_a_damaged_partial_is_set_aside_with_a_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        home = Home(tmp_path)
        home.data.mkdir(mode=0o700)
        (home.data / "wal").mkdir(mode=0o700)
        folder = home.data / "partials" / "1000" / "s"
        folder.mkdir(parents=True, mode=0o700)
        (folder / "r").write_bytes(b"no partial at all")
        async with living(home):
            assert not (folder / "r").exists()
            quarantined = sorted(path.name for path in (home.data / "quarantine").iterdir())
            assert quarantined == ["partials+1000+s+r", "partials+1000+s+r.note"]

    with caplog.at_level(logging.ERROR):
        run(main)
    assert "partials/1000/s/r" in caplog.text


def test_a_damaged_partial_that_cannot_be_set_aside_is_never_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No file in quarantine tells of it: it lies where it lay, and the next start tries again."""

    def no_room(*_: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    made = DamagedDirectory(tmp_path / "data")
    path = made.partial(1, begin(), said(1, "x"))
    made.close()
    path.write_bytes(path.read_bytes()[:-1])
    with RealDisk(str(made.path)) as disk:
        store = PartialStore(disk)
        with monkeypatch.context() as patch:
            patch.setattr(PartialStore, "quarantine", no_room)
            storage = recover_storage(disk, store, DIRECTORY_LOG, 2)
        assert storage.doubt is not None
        assert storage.last_stream_no == 2 << EPOCH_STREAMS_BITS
        assert path.exists()
        assert recover_storage(disk, store, DIRECTORY_LOG).doubt is not None
        assert not path.exists()


def test_a_spoiled_segment_that_cannot_be_read_again_is_held(tmp_path: Path) -> None:
    """Whether batches stood in it nobody knows: it is not unlinked as one that power left empty."""
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 0, begin(), flags=Flag.BEGIN))
    made.segment()
    made.batch(row(1, 1, 1, said(1, "x")))
    made.file().write_bytes(b"x" * 200)
    made.close()
    with RealDisk(str(made.path)) as disk:
        scan = LogScan(disk, DIRECTORY_LOG)
        assert len(list(scan)) == 1
        verdict = scan.verdict()
        assert [item.reason for item in verdict.torn] == ["segment header"]
        files = SegmentFiles(disk, DIRECTORY_LOG)
        made.file().rename(made.path / "away")
        assert report(files, verdict) == {2}
        (made.path / "away").rename(made.file())
        assert report(files, verdict) == set()
        assert list((made.path / "quarantine").iterdir()) != []


def test_the_earlier_partial_of_a_moved_reply_goes(tmp_path: Path) -> None:
    """Killed between its later partial and the removal of the earlier one: both are there."""
    with RealDisk(str(tmp_path / "data")) as disk:
        store = PartialStore(disk)
        disk.make_dir("wal")
        first, moved = begin("r", "old"), Happened(5, wire.Move(1, 1, "new"))
        for session_id, items in (("old", [first]), ("new", [first, moved])):
            facts = PartialFacts(LOG, 1, AT_MS, AT_MS, 0, len(items) - 1, "agent_lost")
            body = join_items([encode_item(one) for one in items])
            store.write(first.uid, session_id, "r", facts, body)
        assert list(recover_storage(disk, store, LOG).partials) == [(first.uid, "new", "r")]
        assert store.tree() == {first.uid: {"new": ["r"]}}
        assert disk.list_dir("quarantine") == []


def test_damage_below_what_is_synced_is_copied_to_quarantine_once(tmp_path: Path) -> None:
    """P9: reported, never skipped in silence, never a reason not to start."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, wire.Token(1, 1, b"first"))
                await agent.drain("synced")
                agent.send(wire.Token(1, 2, b"second"))
                await agent.drain("synced")
                agent.send(wire.Token(1, 3, b"third"))
                await agent.drain("synced")
                await virtual.crash()
        segment = home.data / "wal" / segment_name(1)
        segment.write_bytes(segment.read_bytes().replace(b"second", b"sECond"))
        for _ in range(2):
            async with living(home) as again:
                reply = await recovered(again, "r")
                assert reply is not None
                assert text_of(reply) == b"firstthird"
                assert [(gap.first_seq, gap.last_seq) for gap in reply.gaps] == [(2, 2)]
                assert reply.partial
                assert len(list((home.data / "quarantine").iterdir())) == 1
                await again.crash()

    run(main)


def test_a_segment_whose_damage_could_not_be_copied_is_set_aside_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """K4: a disk that has no room for the copy is no reason to unlink the only bytes there are."""

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START)
                for seq, text in enumerate((b"first", b"second", b"third"), 1):
                    agent.send(wire.Token(1, seq, text))
                    await agent.drain("synced")
                await virtual.crash()
        segment = home.data / "wal" / segment_name(1)
        segment.write_bytes(segment.read_bytes().replace(b"second", b"sECond"))
        with RealDisk(str(home.data)) as disk, monkeypatch.context() as patch:
            store = PartialStore(disk)
            log_uuid = next(good_headers(disk, [1])).log_uuid
            assert not recover_storage(disk, store, log_uuid).segments[0].unreadable
            for path in (home.data / "quarantine").iterdir():
                path.unlink()
            patch.setattr(SegmentFiles, "copy_aside", no_room)
            assert recover_storage(disk, store, log_uuid).segments[0].unreadable

    run(main)


def _settled_and_not_synced() -> tuple[Storage, list[Settled]]:
    """The log of a start whose rows it could write and not sync, and that was killed then."""
    medium = Storage(Random(1))
    disk = SimulatedDisk(medium)
    disk.make_dir("wal")
    files = SegmentFiles(disk, LOG)
    files.create(1, 0, 1)
    rows = [Settled(0, 0, number, number, TORN) for number in range(1000, 1200)]
    (batch,) = settled_batches(1, rows)
    files.write(1, batch, 0, SEGMENT_HEADER_BYTES)
    medium.fail = lambda verb, _path: errno.EIO if verb == "sync" else 0
    with pytest.raises(OSError, match="Input/output"):
        files.sync([1])
    medium.kill()
    return medium, rows


def test_rows_that_an_earlier_start_could_not_sync_are_durable_after_the_next() -> None:
    """What a failed sync dropped is read, and believed, as if it were there."""
    medium, rows = _settled_and_not_synced()
    medium.fail = lambda _verb, _path: 0
    disk = SimulatedDisk(medium)
    storage = recover_storage(disk, PartialStore(disk), LOG)
    assert storage.not_synced.rows() == []
    medium.cut_power()
    scan = LogScan(SimulatedDisk(medium), LOG)
    assert list(scan) == []
    assert [facts.settled for facts in scan.segments] == [rows]


def test_what_no_header_calls_synced_is_written_again_its_segments_header_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FORMAT.md, rule 3: offset 0 is the header, where nothing of the segment is known synced."""
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 1, begin(), said(1, "x"), flags=Flag.BEGIN))
    made.batch(row(1, 2, 2, said(2, "y")))
    made.segment()
    made.batch(row(1, 3, 3, said(3, "z")))
    made.close()
    asked: list[dict[int, list[int]]] = []

    def resync(_disk: object, _log_uuid: bytes, tails: dict[int, list[int]]) -> list[int]:
        asked.append(tails)
        return []

    monkeypatch.setattr("walld.recovery.startup_recovery.resync", resync)
    with RealDisk(str(made.path)) as disk:
        recover_storage(disk, PartialStore(disk), DIRECTORY_LOG)
    assert asked == [{1: [], 2: [0, 64]}]


def test_rows_that_cannot_be_synced_are_written_down_again() -> None:
    medium, rows = _settled_and_not_synced()
    disk = SimulatedDisk(medium)
    storage = recover_storage(disk, PartialStore(disk), LOG)
    assert storage.not_synced.segment_ids == [1]
    assert storage.not_synced.rows() == [*rows, Settled(0, 0, 1, 1, RENEWED)]


def test_what_a_crash_took_ends_with_its_daemon_and_counts_where_nothing_else_is_wrong(
    tmp_path: Path,
) -> None:
    header = SegmentHeader(LOG, 7, 40, 3)
    torn = Settled(5, 64, 32, 33, TORN)
    found = SegmentFacts(7, header=header, settled=[torn])
    hurt = SegmentFacts(7, header=header, settled=[torn, Settled(4, 64, 9, 9, CORRUPT)])
    now = Verdict(50, 45, torn=[Damage(8, 64, 10, 47, 48, "payload")])
    with RealDisk(str(tmp_path)) as disk:
        disk.make_dir("quarantine")
        assert lost_to_power(disk, [found], now) == [(47, 50), (32, 40)]
        assert lost_to_power(disk, [hurt], now) == []


def test_what_was_torn_is_called_so_before_a_start_writes_it_down_and_after(tmp_path: Path) -> None:
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 1, begin(), said(1, "x"), flags=Flag.BEGIN))
    torn = made.batch(row(1, 2, 2, said(2, "y")))
    made.segment()
    made.batch(row(1, 3, 3, said(3, "z")), synced_no=1)
    words = []

    def look() -> None:
        (reply,) = find(str(made.path)).replies
        words.extend((gap.first_seq, gap.verdict) for gap in reply.gaps)

    made.flip(torn, -1)
    residue = made.file(7)
    residue.write_bytes(b"")
    look()
    with RealDisk(str(made.path)) as disk:
        storage = recover_storage(disk, PartialStore(disk), DIRECTORY_LOG)
        rename_residue(disk, *storage.residues)
    assert not residue.exists()
    look()
    (found,) = (one for one in storage.verdict.rows() if one.first_no)
    assert found == Settled(1, made.places[torn][1], torn, torn, TORN)
    made.settle(found)
    made.close()
    look()
    assert words == [(2, "torn")] * 3


def test_a_residue_tells_what_power_took_until_a_row_does(tmp_path: Path) -> None:
    """A start that is killed before its rows are synced leaves it to the next one."""
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 1, begin(), said(1, "x"), flags=Flag.BEGIN), synced_no=0)
    made.segment()
    made.batch(row(1, 2, 2, said(2, "y")), synced_no=0)
    made.close()
    made.file(1).write_bytes(b"")
    for _ in range(2):
        with RealDisk(str(made.path)) as disk:
            storage = recover_storage(disk, PartialStore(disk), DIRECTORY_LOG)
        assert (storage.doubt, storage.residues) == (None, [1])
        assert find(str(made.path)) == Found()
    assert list((made.path / "quarantine").iterdir()) == []


def test_what_a_client_dropped_is_not_called_torn_for_what_was_before_it(tmp_path: Path) -> None:
    """By the daemon it was said to, beside it, and by the next, which finds it in the log."""
    home = Home(tmp_path)
    made = DamagedDirectory(home.data)
    made.segment()
    made.batch(row(1, 0, 1, begin(), said(1, "x"), flags=Flag.BEGIN))
    torn = made.batch(row(1, 2, 2, said(2, "y")))
    made.batch(row(1, 3, 3, said(3, "z")), synced_no=1)
    made.flip(torn, -1)
    made.close()
    words = []

    async def look(virtual: Virtual, stream_id: str) -> None:
        reply = await recovered(virtual, stream_id)
        assert reply is not None
        words.append(reply.gaps)

    async def main() -> None:
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(wire.Start(1, 0, "live", "s"), wire.Token(1, 1, b"a"))
                agent.send(wire.Token(1, 5, b"b"))
                await agent.drain("synced")
                await look(virtual, "live")
                beside = find(str(home.data)).replies
                words.extend(one.gaps for one in beside if one.stream_id == "live")
                await virtual.crash()
        async with living(home) as virtual:
            assert virtual.daemon.status.gap_word == "torn"
            await look(virtual, "live")
            await look(virtual, "s1")

    run(main)
    assert [(one.first_seq, one.verdict) for (one,) in words] == [
        *[(2, "dropped")] * 3,
        (2, "torn"),
    ]
