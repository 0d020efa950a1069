"""What damage cost stays told: at every start, with a daemon and without, until it is released."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from damaged_directory import DamagedDirectory, begin, ended, row, text
from virtual_daemon import Home, Peer, asked, living, recovered, run, text_of, until
from walld_client.wire import messages as wire

from walld.cli import main
from walld.daemon.storage.partial_writer import PartialWriter
from walld.daemon.transport import credentials
from walld.disk.lock import Owner
from walld.disk.lock_record import LOCK_NAME, parse_lock
from walld.disk.real import RealDisk
from walld.wal.layout import Flag

GAP = [(4, 6, "corrupt")]
"""As the directory of the damaged batch claims it."""


def with_a_lost_end(data: Path) -> DamagedDirectory:
    """Batch 3 was synced and is damaged: s1 said more in it; s2 had ended, s3 stands behind it."""
    made = DamagedDirectory(data)
    made.segment()
    made.batch(row(1, 0, 3, begin(), text(1, "a ", "b ", "c "), flags=Flag.BEGIN))
    two = begin("s2"), text(1, "x "), ended(2)
    made.batch(row(2, 0, 2, *two, flags=Flag.BEGIN | Flag.TERMINAL))
    made.batch(row(1, 4, 6, text(4, "d ", "e ", "f ")))
    made.batch(row(3, 0, 1, begin("s3"), text(1, "y "), flags=Flag.BEGIN))
    made.batch()
    made.flip(3, -6)
    made.close()
    return made


def gaps(reply: wire.Recovered | None) -> list[tuple[int, int, str]]:
    assert reply is not None
    return [(gap.first_seq, gap.last_seq, gap.verdict) for gap in reply.gaps]


def offline(data: Path, capsys: pytest.CaptureFixture[str], stream_id: str = "s1") -> object:
    """Gaps, as `walld recover --data` has them."""
    capsys.readouterr()
    main(["recover", "chat", "--data", str(data), "--stream", stream_id, "--json"])
    reply = json.loads(capsys.readouterr().out)
    return [tuple(gap.values()) for gap in reply["gaps"]]


def test_a_reply_whose_end_is_lost_is_told_so_by_everyone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """K5."""
    made = with_a_lost_end(tmp_path / "data")
    assert offline(made.path, capsys) == GAP
    assert offline(made.path, capsys, "s2") == [], "its end is there"
    assert offline(made.path, capsys, "s3") == [], "it began behind the damage"
    assert main(["salvage", str(made.path), "--to", str(tmp_path / "new" / "data")]) == 1
    assert "missing (corrupt): 4 to 6 or more" in capsys.readouterr().out
    assert offline(tmp_path / "new" / "data", capsys) == GAP

    async def main_walld() -> None:
        for home in (Home(tmp_path), Home(tmp_path / "new")):
            async with living(home) as virtual:
                assert gaps(await recovered(virtual, "s1")) == GAP
                assert gaps(await recovered(virtual, "s2")) == []
                assert gaps(await recovered(virtual, "s3")) == []

    run(main_walld)


def test_of_a_batch_whose_directory_is_lost_one_event_is_told_or_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = with_a_lost_end(tmp_path / "data")
    made.flip(3, 5)
    assert offline(made.path, capsys) == [(4, 4, "corrupt")]
    assert main(["recover", "chat", "--data", str(made.path), "--stream", "s1"]) == 0
    assert "[gap: events 4 to 4, or more, are missing (corrupt)]" in capsys.readouterr().out
    assert main(["salvage", str(made.path), "--to", str(tmp_path / "new" / "data")]) == 1
    assert "missing (corrupt): 4 to 4 or more" in capsys.readouterr().out

    async def main_walld() -> None:
        for home in (Home(tmp_path), Home(tmp_path / "new")):
            async with living(home) as virtual:
                assert gaps(await recovered(virtual, "s1")) == [(4, 4, "corrupt")]

    run(main_walld)


def test_it_is_told_at_each_start_until_a_partial_says_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """K6: killed before the partial is made, a later start must not call the rest whole."""
    made = with_a_lost_end(tmp_path / "data")

    async def never(*_: object) -> None:
        pass

    async def main_walld() -> None:
        home = Home(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(PartialWriter, "keep", never)
            for _ in range(3):
                async with living(home) as virtual:
                    assert gaps(await recovered(virtual, "s1")) == GAP
                    assert virtual.daemon.compaction._guard.holds_segments
                assert made.file(1).exists()
                assert offline(made.path, capsys) == GAP
                assert main(["fsck", str(made.path)]) == 2
        async with living(home) as virtual:
            await until(lambda: not made.file(1).exists())
            assert gaps(await recovered(virtual, "s1")) == GAP
        async with living(home) as virtual:
            assert gaps(await recovered(virtual, "s1")) == GAP
            assert virtual.daemon.status.status()["start"]["corrupt"] == 0  # type: ignore[index]
        assert offline(made.path, capsys) == GAP

    run(main_walld)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("told", [3, 6])
def test_what_is_feared_lost_is_taken_from_who_still_has_it(
    tmp_path: Path, told: int, *, restarted: bool
) -> None:
    """The partial says how far the reply is feared to have got: that is not in it, nor acked."""
    with_a_lost_end(tmp_path / "data")
    rest = [
        wire.Token(1, seq, one) for seq, one in zip((4, 5, 6), (b"d ", b"e ", b"f "), strict=True)
    ]

    async def main_walld() -> None:
        home = Home(tmp_path)
        if restarted:
            async with living(home) as virtual:
                await until(lambda: virtual.engine.partials.where(os.getuid(), "s1"))
        async with living(home) as virtual:
            await until(lambda: virtual.engine.partials.where(os.getuid(), "s1"))
            assert gaps(await recovered(virtual, "s1")) == GAP
            with Peer(virtual, producer=b"p" * 16) as again:
                again.send(wire.Resume(wire.Start(1, 0, "s1", "chat"), 7, told, told + 1))
                again.send(*rest[told - 3 :])
                await again.drain("synced")
                if told == 3:
                    assert gaps(await recovered(virtual, "s1")) == []
                    assert text_of(await recovered(virtual, "s1")) == b"a b c d e f "
                    assert virtual.engine.counters.lost_acked == 0
                else:
                    assert gaps(await recovered(virtual, "s1")) == [(4, 6, "corrupt")]
                    assert virtual.engine.counters.lost_acked == 3
            await virtual.crash()
        async with living(home) as virtual:
            # What its producer was told stands nowhere else, until that says it again.
            assert gaps(await recovered(virtual, "s1")) == (GAP if told == 6 else [])

    run(main_walld)


def no_room(_disk: object, path: str, *_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def three_segments(data: Path) -> DamagedDirectory:
    """A reply each; the second goes."""
    made = DamagedDirectory(data)
    for no in (1, 2, 3):
        made.segment()
        made.batch(row(no, 0, 1, begin(f"s{no}"), text(1, "x"), flags=Flag.BEGIN))
        made.batch()
    made.close()
    return made


def lose(made: DamagedDirectory, what: str) -> None:
    if what == "a segment":
        made.file(2).unlink()
    else:
        for path in (made.path / "wal").iterdir():
            path.unlink()
        (made.path / "wal").rmdir()


@pytest.mark.parametrize("what", ["a segment", "the log"])
def test_a_note_that_found_no_room_is_written_before_a_segment_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """K4: what is left in the log is all that tells of it; the next start must know."""
    made = three_segments(tmp_path / "data")
    lose(made, what)
    home = Home(tmp_path)

    def notes() -> list[str]:
        return [path.name for path in (made.path / "quarantine").iterdir()]

    async def main_walld() -> None:
        replace = RealDisk.replace

        def full(disk: RealDisk, path: str, *given: Any) -> None:
            (no_room if path.startswith("quarantine") else replace)(disk, path, *given)

        with monkeypatch.context() as patch:
            patch.setattr(RealDisk, "replace", full)
            async with living(home) as virtual:
                assert virtual.daemon.status.doubt is not None
                await until(lambda: virtual.daemon.maintenance.trouble)
                assert virtual.daemon.compaction._guard.holds_segments
                assert notes() == []
                patch.undo()
                await until(notes)
                await until(lambda: not virtual.daemon.compaction._guard.holds_segments)
                assert virtual.daemon.status.doubt is not None
        async with living(home) as virtual:
            assert virtual.daemon.status.doubt is not None

    run(main_walld)


def test_the_reserve_has_the_room_for_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = three_segments(tmp_path / "data")
    lose(made, "a segment")
    reserve = made.path / "reserve"
    reserve.write_bytes(b"\0")
    replace = RealDisk.replace

    def full(disk: RealDisk, path: str, *given: Any) -> None:
        (no_room if reserve.exists() else replace)(disk, path, *given)

    monkeypatch.setattr(RealDisk, "replace", full)

    async def main_walld() -> None:
        async with living(Home(tmp_path)):
            assert [path.name for path in (made.path / "quarantine").iterdir()] == ["batches-3-4"]

    run(main_walld)


@pytest.mark.parametrize("later", [0, 2])
def test_a_reply_begun_anew_is_one_with_what_can_be_read_again(tmp_path: Path, later: int) -> None:
    """Its segment could not be read at one start, so its producer, which was alive, resumed it."""
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    first = text(1, "a ", "b ", "c ")
    made.batch(row(1, 0, 3, begin(), first, flags=Flag.BEGIN))
    again = begin()
    made.batch(row(9, 0, 0, again, flags=Flag.BEGIN))
    if later:
        made.batch(row(9, 4, 5, text(4, "d ", "e ")))
    made.batch()
    made.close()

    async def main_walld() -> None:
        home = Home(tmp_path)
        for _ in range(3):
            async with living(home) as virtual:
                reply = await recovered(virtual, "s1")
                assert text_of(reply) == (b"a b c d e " if later else b"a b c ")
                assert gaps(reply) == []
        async with living(home) as virtual:
            await until(lambda: not virtual.engine.orphans)
            assert await asked(virtual, wire.Resolve(1, "s1"))
        async with living(home) as virtual:
            assert await recovered(virtual, "s1") is None

    run(main_walld)


def with_a_living_owner(data: Path) -> DamagedDirectory:
    """The same of a reply whose owner is this process: it is live, and says nothing more."""
    pid = os.getpid()
    fd = os.pidfd_open(pid)
    try:
        owner = credentials.describe(pid, fd, credentials.boot_id())
    finally:
        os.close(fd)
    made = DamagedDirectory(data)
    made.segment()
    own = msgspec.structs.replace(begin(), owner=owner)
    made.batch(row(1, 0, 3, own, text(1, "a ", "b ", "c "), flags=Flag.BEGIN))
    made.batch(row(1, 4, 6, text(4, "d ", "e ", "f ")))
    third = msgspec.structs.replace(begin("s3"), number=3)
    made.batch(row(3, 0, 1, third, text(1, "y "), flags=Flag.BEGIN))
    made.batch()
    made.flip(2, -6)
    made.close()
    return made


def test_what_its_producer_says_counts_once_it_is_written(tmp_path: Path) -> None:
    """K6: a row before that, and a kill, would leave nothing that tells of the loss."""
    with_a_living_owner(tmp_path / "data")

    async def before() -> None:
        async with living(Home(tmp_path)) as virtual:
            await until(lambda: not virtual.engine.orphans)
            with Peer(virtual, producer=b"p" * 16) as agent:
                agent.send(wire.Resume(wire.Start(1, 0, "s1", "chat"), 7, 6, 7))
                stream, deferred_recovery = (
                    virtual.engine.registry.by_no[1],
                    virtual.daemon._deferred_recovery,
                )
                await until(lambda: stream.connection is not None)
                agent.send(wire.Token(1, 7, b"h "))
                await until(lambda: stream.next_seq == 8)
                assert stream.has_waiting
                await deferred_recovery.finish()
                await virtual.crash()

    async def after() -> None:
        async with living(Home(tmp_path)) as virtual:
            assert gaps(await recovered(virtual, "s1"))

    run(before)
    run(after)


def test_one_that_says_nothing_more_holds_the_log_for_a_while_only(tmp_path: Path) -> None:
    """P5: others' released text leaves the disk though a damaged reply stays live for ever."""
    with_a_living_owner(tmp_path / "data")

    async def main_walld() -> None:
        async with living(Home(tmp_path)) as virtual:
            deferred_recovery = virtual.daemon._deferred_recovery
            await anyio.sleep(60)
            assert deferred_recovery.holds_segments
            await anyio.sleep(900)
            assert not deferred_recovery.holds_segments
            assert gaps(await recovered(virtual, "s1")) == GAP

    run(main_walld)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_lock_is_told_once_there_is_room_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_stopped: bool
) -> None:
    """A segment went untold from a disk that was full: until then a start would miss it."""

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def first_no() -> int:
        told = parse_lock((tmp_path / "data" / LOCK_NAME).read_bytes(), LOCK_NAME)
        assert told is not None
        return told.first_no

    async def main_walld() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as peer:
                peer.send(wire.Start(1, 0, "s1", "chat"))
                await peer.drain("synced")
                deferred_recovery, before = virtual.daemon.compaction._guard, first_no()
                with monkeypatch.context() as patch:
                    patch.setattr(Owner, "_put_lines", no_room)
                    with pytest.raises(OSError, match="No space left"):
                        await deferred_recovery.tell_first(before + 1)
                    virtual.engine.disk_full = True
                    await deferred_recovery.tell_first(before + 1)
                    assert first_no() == before
                virtual.engine.disk_full = False
                if is_stopped:
                    peer.send(wire.Token(1, 1, b"more"))
                    await peer.drain()
            if not is_stopped:
                await until(lambda: first_no() == before + 1)
        assert first_no() == before + 1

    run(main_walld)
