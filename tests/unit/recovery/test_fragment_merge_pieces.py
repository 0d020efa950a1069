"""The pieces of a reply, some of which a start cannot read: nothing of it is lost or comes back."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import anyio
import msgspec
import pytest
from damaged_directory import DamagedDirectory, begin, ended, row, text
from unit.daemon.startup.test_deferred_recovery import gaps
from unit.recovery.test_fragment_merge import EARLIER, LATER, failing, said
from virtual_daemon import Home, Peer, asked, living, recovered, run, text_of, until
from walld_client.wire import messages as wire

from walld.cli.inspect.offline import find
from walld.daemon.transport import credentials
from walld.disk.real import RealDisk
from walld.wal.layout import EPOCH_STREAMS_BITS, Flag
from walld.wal.records import Begin

ANEW = 2 << EPOCH_STREAMS_BITS
"""The number of a reply that was begun anew while its first one could not be read."""
LAST = text(6, "f ", "g ")


@pytest.fixture(autouse=True)
def at_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)  # what is kept here is not too old


def held() -> Begin:
    """Of a reply whose owner is this process: its segment stays, and those behind it."""
    pid = os.getpid()
    fd = os.pidfd_open(pid)
    try:
        owner = credentials.describe(pid, fd, credentials.boot_id())
    finally:
        os.close(fd)
    return msgspec.structs.replace(begin("held"), producer=b"h" * 16, owner=owner)


def in_three(data: Path, last_no: int, *, is_held: bool = True) -> DamagedDirectory:
    """A reply whose middle has a segment of its own; last_no: the number of its end."""
    made = DamagedDirectory(data)
    made.segment()
    if is_held:
        made.batch(row(7, 0, 0, held(), flags=Flag.BEGIN))
    made.batch(row(1, 0, 3, begin(), EARLIER, flags=Flag.BEGIN))
    made.segment()
    made.batch(row(1, 4, 5, LATER))
    made.segment()
    if last_no != 1:
        made.batch(row(last_no, 0, 0, begin(), flags=Flag.BEGIN))
    made.batch(row(last_no, 6, 7, LAST))
    made.batch()
    made.close()
    return made


async def kept(home: Home) -> list[tuple[int, int, str]]:
    """A life in which s1 is kept as it can be read. Its gaps."""
    async with living(home) as virtual:
        await until(lambda: not virtual.engine.orphans)
        reply = await recovered(virtual, "s1")
        assert text_of(reply) == b"a b c f g "
        return gaps(reply)


@pytest.mark.parametrize("last_no", [1, ANEW])
def test_what_can_be_read_again_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last_no: int
) -> None:
    """Its partial was made, or put together, without that."""
    made = in_three(tmp_path / "data", last_no)
    fails = failing(monkeypatch, RealDisk, "open", errno.EIO, made.file(2).name)

    async def main() -> None:
        for _ in range(2):
            assert await kept(Home(tmp_path)) == [(4, 5, "unknown")]

    run(main)
    fails.clear()
    assert said(Home(tmp_path)) == [b"a b c d e f g "] * 6


def test_its_first_segment_may_go_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partial has the beginning."""
    made = in_three(tmp_path / "data", 1)
    fails = failing(monkeypatch, RealDisk, "open", errno.EIO, made.file(2).name)

    async def main() -> None:
        await kept(Home(tmp_path))

    run(main)
    fails.clear()
    made.file(1).unlink()
    assert said(Home(tmp_path), 2) == [b"a b c d e f g "] * 4


def test_more_of_a_piece_may_be_unread_for_ten_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is kept in quarantine from then on."""
    made = in_three(tmp_path / "data", ANEW, is_held=False)
    fails = failing(monkeypatch, RealDisk, "open", errno.EIO, made.file(2).name)

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            await until(lambda: not virtual.engine.orphans)
            await anyio.sleep(500)
            assert made.file(1).exists()
            await anyio.sleep(700)
        fails.clear()
        async with living(Home(tmp_path)) as virtual:
            assert gaps(await recovered(virtual, "s1")) == [(4, 5, "unknown")]
            assert virtual.daemon.status.doubt is not None

    run(main)
    content = b"".join(path.read_bytes() for path in made.path.rglob("*") if path.is_file())
    assert b"d " in content


def test_the_end_of_the_later_piece_is_feared(tmp_path: Path) -> None:
    """It is lost in the start that puts both together."""
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 3, begin(), EARLIER, flags=Flag.BEGIN))
    made.batch(row(ANEW, 0, 0, begin(), flags=Flag.BEGIN))
    made.batch(row(ANEW, 4, 5, LATER))
    made.batch()
    made.flip(3, -6)
    made.close()

    async def main() -> None:
        for _ in range(3):
            async with living(Home(tmp_path)) as virtual:
                reply = await recovered(virtual, "s1")
                assert gaps(reply) == [(4, 5, "corrupt")]
                await until(lambda: not virtual.engine.orphans)
                assert await recovered(virtual, "s1") == reply

    run(main)


def test_what_its_producer_sends_again_fills_the_gap(tmp_path: Path) -> None:
    """What is feared to be lost was not taken."""
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    own = msgspec.structs.replace(held(), stream_id="s1")
    made.batch(row(1, 0, 3, own, EARLIER, flags=Flag.BEGIN))
    made.batch(row(ANEW, 0, 0, own, flags=Flag.BEGIN))
    made.batch(row(ANEW, 4, 5, LATER))
    made.batch()
    made.flip(3, -6)
    made.close()

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual, producer=b"h" * 16) as agent:
                agent.send(wire.Resume(wire.Start(1, 0, "s1", "chat"), 4, 3, 6))
                agent.send(wire.Token(1, 4, b"d "), wire.Token(1, 5, b"e "))
                stream = virtual.engine.registry.by_no[ANEW]
                await until(lambda: stream.next_seq == 6)
                reply = await recovered(virtual, "s1")
                assert (text_of(reply), gaps(reply)) == (b"a b c d e ", [])
                agent.send(wire.End(1, 6, True, "stop"), wire.Release(1, 7))
                await until(lambda: stream.gone)
                await anyio.sleep(60)
        for path in (made.path / "quarantine").iterdir():
            path.unlink()
        async with living(Home(tmp_path)) as virtual:
            assert await recovered(virtual, "s1") is None

    run(main)


# --- done with ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("flag", [Flag.RELEASED, Flag.RESOLVED])
def test_what_was_released_does_not_come_back_under_its_first_number(
    tmp_path: Path, flag: int, is_kept: bool
) -> None:
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 3, begin(), EARLIER, flags=Flag.BEGIN))
    made.batch(row(ANEW, 0, 0, begin(), flags=Flag.BEGIN))
    made.batch(row(ANEW, 4, 5, LATER), row(ANEW, 6, 6, flags=flag))
    made.batch()
    if is_kept:
        made.partial(1, begin(), EARLIER)
    made.close()

    async def main() -> None:
        for _ in range(2):
            async with living(Home(tmp_path)) as virtual:
                assert await recovered(virtual, "s1") is None
                await anyio.sleep(60)

    run(main)
    assert not any(path.is_file() for path in (made.path / "partials").rglob("*"))


@pytest.mark.parametrize("is_whole", [False, True])
def test_nor_where_nothing_was_written_of_the_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    """It ended before its first flush, or while there was no daemon."""
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(7, 0, 0, held(), flags=Flag.BEGIN))
    made.segment()
    made.batch(row(1, 0, 3, begin(), EARLIER, flags=Flag.BEGIN))
    made.segment()
    made.batch(row(8, 0, 0, msgspec.structs.replace(held(), number=2, stream_id="o"), flags=1))
    made.batch()
    made.close()
    fails = failing(monkeypatch, RealDisk, "open", errno.EIO, made.file(2).name)

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual, producer=b"p" * 16) as agent:
                start, end = wire.Start(1, 0, "s1", "chat"), wire.End(1, 4, True, "stop")
                if is_whole:
                    agent.send(wire.Resume(start, 6, 4, 6, released=True))
                else:
                    agent.send(wire.Resume(start, 4, 3, 4), end, wire.Release(1, 5))
                agent.send(wire.Drain(1, "synced"))
                await until(lambda: any(isinstance(one, wire.Drained) for one in agent.heard()))
        fails.clear()
        for _ in range(2):
            async with living(Home(tmp_path)) as virtual:
                assert await recovered(virtual, "s1") is None
                await anyio.sleep(60)

    run(main)


def test_nor_under_a_later_one_that_could_not_be_read_when_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of two starts could not read another part of it."""
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(7, 0, 0, held(), flags=Flag.BEGIN))
    made.batch(row(1, 0, 3, begin(), EARLIER, flags=Flag.BEGIN))
    made.segment()
    made.batch(row(ANEW, 0, 5, begin(), LATER, flags=Flag.BEGIN))
    made.segment()
    made.batch()
    made.close()
    fails = failing(monkeypatch, RealDisk, "open", errno.EIO, made.file(2).name)

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual, producer=b"p" * 16) as agent:
                agent.send(wire.Resume(wire.Start(1, 0, "s1", "chat"), 6, 5, 6))
                agent.send(wire.End(1, 6, True, "stop"), wire.Release(1, 7))
                await agent.drain("synced")
        fails.clear()
        for _ in range(2):
            assert [one.stream_id for one in find(str(made.path)).replies] == ["held"]
            async with living(Home(tmp_path)) as virtual:
                assert await recovered(virtual, "s1") is None
                await anyio.sleep(60)

    run(main)


# --- one id ---------------------------------------------------------------------------------------


def of_another(session_id: str = "other") -> Begin:
    return msgspec.structs.replace(begin(session_id=session_id), producer=b"q" * 16)


@pytest.mark.parametrize("is_unread", [False, True])
@pytest.mark.parametrize("session_id", ["other", "chat"])
def test_an_id_that_was_given_to_another_takes_nothing_from_who_had_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session_id: str, is_unread: bool
) -> None:
    """What was not released is served, or it is said that something is there."""
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 3, begin(), EARLIER, flags=Flag.BEGIN))
    made.segment()
    made.batch(row(3, 0, 1, begin("s3"), text(1, "x "), flags=Flag.BEGIN))
    made.segment()
    made.batch(row(9, 0, 5, of_another(session_id), LATER, flags=Flag.BEGIN))
    made.batch()
    made.close()
    fails = failing(monkeypatch, RealDisk, "open", errno.EIO, made.file(2).name)
    if not is_unread:
        fails.clear()

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            await anyio.sleep(30)
            fails.clear()
            told = await asked(virtual, wire.Recover(1, "all"))
            texts = [text_of(one) for one in msgspec.convert(told, list[wire.Recovered])]
            if session_id == "other" and not is_unread:
                assert sorted(texts) == [b"a b c ", b"d e ", b"x "]
            else:
                assert virtual.daemon.status.doubt is not None
            await anyio.sleep(1000)

    run(main)
    content = b"".join(path.read_bytes() for path in made.path.rglob("*") if path.is_file())
    assert b"a " in content


def test_who_had_an_id_that_another_has_now_is_refused(tmp_path: Path) -> None:
    """Its reply is kept as it was."""
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch(row(1, 0, 3, begin(), EARLIER, flags=Flag.BEGIN))
    other = msgspec.structs.replace(of_another(), owner=held().owner)
    made.batch(row(9, 0, 5, other, LATER, flags=Flag.BEGIN))
    made.batch()
    made.close()

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual, producer=b"p" * 16) as agent:
                agent.send(wire.Resume(wire.Start(1, 0, "s1", "chat"), 4, 3, 4))
                refused = await agent.hear(wire.Refused)
                assert refused.code == "stream_owned"
            told = await asked(virtual, wire.Recover(1, "all"))
            found = msgspec.convert(told, list[wire.Recovered])
            assert sorted(map(text_of, found)) == [b"a b c ", b"d e "]

    run(main)


def test_two_partials_of_one_id_are_both_there(tmp_path: Path) -> None:
    """Each is listed, and resolved, the last one first."""
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    made.batch()
    made.partial(9, of_another(), LATER, ended(6))
    made.partial(1, begin(), EARLIER)
    made.close()

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            for left in (["chat", "other"], ["chat"], []):
                told = await asked(virtual, wire.Recover(1, "all"))
                found = msgspec.convert(told, list[wire.Recovered])
                assert sorted(one.session_id for one in found) == left
                assert await asked(virtual, wire.Resolve(1, "s1")) is bool(left)

    run(main)
