"""What a disk in trouble, or a crowd, must not make of a daemon: each was found in it once."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import msgspec
import pytest
from virtual_daemon import Home, Peer, Virtual, living, recovered, run, text_of, until
from walld_client.wire import messages as wire

from walld.errors import FormatError
from walld.partials.store import PartialStore

START = wire.Start(1, 0, "r", "s")


def tokens(first: int, last: int) -> list[wire.Token]:
    return [wire.Token(1, seq, b"word ") for seq in range(first, last + 1)]


def test_a_stop_whose_last_sync_fails_syncs_what_it_wrote_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, *tokens(1, 10))
                await agent.drain("synced")
                virtual.faults.next["sync"] = [errno.EIO, errno.EIO]
                agent.send(*tokens(11, 20))
                virtual.stop.set()
                await virtual.ended.wait()
                syncs = [number for verb, _, number in virtual.faults.told if verb == "sync"]
                assert syncs[-3:] == [errno.EIO, errno.EIO, None]
                assert virtual.engine.batches.synced_no >= virtual.engine.batches.recorded_no

    run(main)


def test_a_partial_that_cannot_be_made_is_resolved_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise FormatError("a record does not verify")

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, *tokens(1, 10))
                await agent.drain("synced")
            monkeypatch.setattr(PartialStore, "write", broken)
            virtual.background.seconds = 2.0
            virtual.engine.orphan(virtual.engine.registry.by_no[1], "agent_lost")
            virtual.daemon.maintenance.wake()
            await anyio.sleep(1.0)
            with Peer(virtual, "query") as asking:
                asking.send(wire.Resolve(1, "r", 10))
                await asking.hear(wire.Answer)
            await anyio.sleep(5)
            assert not virtual.ended.is_set()

    run(main)


def test_an_idle_daemon_finds_room_again_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, *tokens(1, 10))
                await agent.drain("synced")
                with monkeypatch.context() as patch:
                    patch.setattr(virtual.disk, "free_bytes", lambda: 0)
                    virtual.faults.next["write"] = [errno.ENOSPC, errno.ENOSPC]
                    agent.send(*tokens(11, 20), wire.End(1, 21, clean=True))
                    await anyio.sleep(20)
                    assert virtual.engine.registry.by_no[1].written_seq == 21
                    assert virtual.daemon.status.word == "disk_full"
                await anyio.sleep(5)
                assert virtual.daemon.status.word == "ok"

    run(main)


def test_on_a_full_disk_who_has_ended_does_not_wait_for_who_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as ended, Peer(virtual) as goes_on:
                goes_on.send(wire.Start(1, 0, "other", "s"), *tokens(1, 10))
                await goes_on.drain("synced")
                with monkeypatch.context() as patch:
                    patch.setattr(virtual.disk, "free_bytes", lambda: 0)
                    virtual.faults.next["write"] = [errno.ENOSPC, errno.ENOSPC]
                    ended.send(START, *tokens(1, 10))
                    await until(lambda: virtual.daemon.status.word == "disk_full")
                    goes_on.send(*tokens(11, 20), wire.Drain(9, "synced"))
                    await anyio.sleep(1)
                    ended.send(wire.End(1, 11, clean=True))
                    await ended.drain("synced")
                    assert virtual.daemon.status.word == "disk_full"
                    with pytest.raises(TimeoutError):
                        await goes_on.hear(wire.Drained, 5)
                assert (await goes_on.hear(wire.Drained)).id == 9

    run(main)


CHILD = """
import socket, sys
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode
said = [wire.Hello(1, "agent", b"c" * 16), wire.Start(1, 0, "child", "s"), wire.Token(1, 1, b"x")]
with socket.socket(socket.AF_UNIX) as peer:
    peer.connect(sys.argv[1])
    peer.send(b"".join(map(encode, said)))
"""


@pytest.mark.parametrize("crowd", [10, 60, 100])
def test_nothing_is_proven_though_many_wait_at_the_door(tmp_path: Path, crowd: int) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual, "query") as asking:
                await anyio.sleep(1)
                held = []
                for _ in range(crowd):
                    one = socket.socket(socket.AF_UNIX)
                    one.connect(virtual.home.socket_path)
                    held.append(one)
                where = os.pathsep.join(filter(None, sys.path))
                command = [sys.executable, "-c", CHILD, virtual.home.socket_path]
                subprocess.run(  # noqa: ASYNC221 - the clock stands still meanwhile
                    command, check=True, env=os.environ | {"PYTHONPATH": where}
                )
                asking.send(wire.Recover(1, "orphans"))
                answer = await asking.hear(wire.Answer)
                for one in held:
                    one.close()
                (found,) = msgspec.msgpack.decode(answer.chunk, type=list[wire.Recovered])
                assert (found.stream_id, found.last_seq) == ("child", 1)

    run(main)


def test_a_stop_on_a_full_disk_waits_until_it_has_room(tmp_path: Path) -> None:
    """Ends go to the reserve at once; what else is queued must not go with the daemon."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, *tokens(1, 10))
                await agent.drain("synced")
                virtual.faults.stuck["write"] = errno.ENOSPC
                agent.send(*tokens(11, 20))
                await anyio.sleep(3)
                virtual.stop.set()
                await anyio.sleep(20)
                assert not virtual.ended.is_set()
                virtual.faults.stuck.clear()
                await virtual.ended.wait()
        async with living(home) as again:
            reply = await recovered(again, "r")
            assert reply is not None
            assert reply.last_seq == 20

    run(main)


@pytest.mark.parametrize("verb", ["create", "write"])
def test_what_was_said_to_a_start_without_any_room_is_written_before_it_stops(
    tmp_path: Path, verb: str
) -> None:
    """It has no segment of its own, or one that takes not even a header's worth more."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, *tokens(1, 10))
                await agent.drain("synced")
            await virtual.crash()
        (home.data / "reserve").unlink()

        def full(virtual: Virtual) -> None:
            virtual.faults.stuck[verb] = errno.ENOSPC

        async with living(home, full) as virtual:
            assert virtual.daemon.status.word == "disk_full"
            assert text_of(await recovered(virtual, "r")) == b"word " * 10
            with Peer(virtual) as agent:
                agent.send(wire.Start(2, 0, "later", "s"), wire.Token(2, 1, b"one"))
                await until(lambda: virtual.engine.batches.waiting)
                virtual.stop.set()
                await anyio.sleep(20)
                assert not virtual.ended.is_set(), "what it has taken is nowhere else"
                virtual.faults.stuck.clear()
                await virtual.ended.wait()
        async with living(home) as virtual:
            assert text_of(await recovered(virtual, "r")) == b"word " * 10
            assert text_of(await recovered(virtual, "later")) == b"one"
            assert virtual.daemon.status.word == "ok"

    run(main)


def test_what_is_refused_is_said_also_by_a_daemon_without_a_segment(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its log said nothing until the disk had room, however long that took."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START)
                await agent.drain("synced")
            await virtual.crash()
        (home.data / "reserve").unlink()

        def full(virtual: Virtual) -> None:
            virtual.faults.stuck["create"] = errno.ENOSPC

        async with living(home, full) as virtual:
            with Peer(virtual) as other:
                other.send(START)
                assert (await other.hear(wire.Refused)).code == "stream_owned"
                await anyio.sleep(3)
                assert virtual.daemon.status.word == "disk_full"
                assert "its stream_id 'r' is in use" in caplog.text

    run(main)


def test_writes_that_fail_at_once_are_not_tried_as_fast_as_they_fail(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, *tokens(1, 10))
                await agent.drain("synced")
                before = len(virtual.faults.told)
                virtual.faults.stuck["write"] = errno.EIO
                agent.send(*tokens(11, 20))
                await anyio.sleep(10)
                made = [verb for verb, _, _ in virtual.faults.told[before:] if verb == "create"]
                assert 1 <= len(made) <= 12
                virtual.faults.stuck.clear()
                await anyio.sleep(20)
                assert virtual.engine.registry.by_no[1].synced_seq == 20

    run(main)


def test_syncs_that_fail_for_long_are_tried_less_and_less_often(tmp_path: Path) -> None:
    """Each try leaves a segment behind."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(START, *tokens(1, 10))
                await agent.drain("synced")
                before = len(virtual.faults.told)
                virtual.faults.stuck["sync"] = errno.EIO
                agent.send(*tokens(11, 20))
                await anyio.sleep(60)
                made = [verb for verb, _, _ in virtual.faults.told[before:] if verb == "create"]
                assert 4 <= len(made) <= 12
                assert virtual.engine.registry.by_no[1].written_seq == 20, "writes go on"
                virtual.faults.stuck.clear()
                await anyio.sleep(10)
                assert virtual.engine.registry.by_no[1].synced_seq == 20

    run(main)


def test_a_record_that_does_not_verify_is_carried_past(tmp_path: Path) -> None:
    async def main() -> None:
        home = Home(tmp_path, reclaim_seconds="2")
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(START)
                for first in (1, 11, 21):
                    agent.send(*tokens(first, first + 9))
                    await agent.drain("synced")
                agent.send(wire.Start(2, 0, "gone", "s"), wire.Token(2, 1, b"secret" * 99))
                await agent.drain("synced")
                (segment,) = (home.data / "wal").glob("*.wal")
                content = bytearray(segment.read_bytes())
                content[content.index(b"word word") + 3] ^= 1
                segment.write_bytes(content)
                agent.send(wire.End(2, 2, clean=True), wire.Release(2, 3))
                await anyio.sleep(30)
                assert home.holds(b"secret") == []
                assert len(list((home.data / "wal").glob("*.wal"))) == 1
                reply = await recovered(virtual, "r")
                assert reply is not None
                assert [(gap.verdict, gap.last_seq) for gap in reply.gaps] == [("corrupt", 10)]
                assert text_of(reply) == b"word " * 20
                (kept,) = (home.data / "quarantine").iterdir()
                assert kept.read_bytes() in bytes(content), "the damaged record, as it was"

    run(main)
