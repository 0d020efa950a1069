"""A reply is let go of while its owner is taken for gone, or speaks on; and questions beside it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from virtual_daemon import Home, Peer, Virtual, asked, living, recovered, run, text_of, until
from walld_client.wire import messages as wire

from walld.engine.stream import Stream
from walld.errors import Refusal

UID = os.getuid()
START = wire.Start(1, 0, "r", "s")
WORDS = wire.Token(1, 1, b"what was said "), wire.Token(1, 2, b"before")


async def orphaned(virtual: Virtual, stream_id: str = "r") -> tuple[str, str]:
    """The owner of a stream is taken for gone, and its partial is made: its names."""
    virtual.engine.orphan(virtual.engine.registry.by_key[UID, stream_id], "agent_lost")
    virtual.daemon.maintenance.wake()
    await until(lambda: virtual.engine.partials.where(UID, stream_id))
    names = virtual.engine.partials.where(UID, stream_id)
    assert names is not None
    return names


async def said(virtual: Virtual) -> Peer:
    agent = Peer(virtual)
    agent.send(START, *WORDS)
    await agent.drain("synced")
    return agent


@pytest.mark.parametrize("is_decided", [False, True])
def test_a_resolve_and_its_owner_who_comes_back_meanwhile(tmp_path: Path, is_decided: bool) -> None:
    """Before it is decided the resolve is refused, and behind that the reply begins anew."""
    told: list[Any] = []

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            agent = await said(virtual)
            await orphaned(virtual)
            slow = virtual.worker if is_decided else virtual.background
            slow.seconds = 5.0
            with agent, Peer(virtual, "query") as reader:
                reader.send(wire.Resolve(1, "r", 2))
                await anyio.sleep(1)
                agent.send(wire.Resume(START, 3, 2, 3), wire.Token(1, 3, b" and behind"))
                answer = await reader.hear(wire.Answer if is_decided else wire.Error)
                told.append(answer)
                slow.seconds = 0.0
                await agent.drain("synced")
                assert virtual.engine.counters.lost_acked == 0
            await virtual.crash()
        async with living(home) as again:
            reply = await recovered(again, "r")
            assert reply is not None
            told.append((text_of(reply), [(one.first_seq, one.verdict) for one in reply.gaps]))

    run(main)
    if is_decided:
        assert told[1] == (b" and behind", [(1, "dropped")])
    else:
        assert told[0].code == "refused"
        assert told[1] == (b"what was said before and behind", [])


def test_no_age_ends_a_reply_whose_owner_is_back(tmp_path: Path) -> None:
    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with await said(virtual) as agent:
                await orphaned(virtual)
                agent.send(wire.Resume(START, 3, 2, 3), wire.Token(1, 3, b" and behind"))
                await agent.drain("synced")
                partial_writer = virtual.daemon.maintenance._partial_writer
                partial_writer._retention = -10.0
                await partial_writer.expire()
                agent.send(wire.Token(1, 4, b" that"))
                await agent.drain("synced")
            await virtual.crash()
        async with living(home) as again:
            reply = await recovered(again, "r")
            assert reply is not None
            assert (text_of(reply), reply.gaps) == (b"what was said before and behind that", [])

    run(main)


def test_a_partial_that_its_session_does_not_let_go_of_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Retention may be refused by it at each look: then the disk fills, and nobody knows why."""

    async def refused(*_names: object) -> None:
        raise Refusal("payload_length", "the payload is too long", 300_142, 262_144)

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with await said(virtual) as agent:
                await orphaned(virtual)
            assert agent
            partial_writer = virtual.daemon.maintenance._partial_writer
            partial_writer._retention, partial_writer.before_age = -10.0, refused
            for _ in range(3):
                await partial_writer.expire()
            assert virtual.engine.partials.where(UID, "r") is not None
            await virtual.crash()

    run(main)
    (told,) = [one for one in caplog.messages if "past its age" in one]
    assert "stays: the payload is too long (payload_length)" in told


def test_a_second_resolve_takes_no_new_reply_of_that_id(tmp_path: Path) -> None:
    """The first one removes what it was about; the other one has not come as far."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with await said(virtual) as agent:
                names = await orphaned(virtual)
            assert agent
            partial_writer = virtual.daemon.maintenance._partial_writer
            synced, may_go, waits = partial_writer._synced, anyio.Event(), [False] * 10 + [True]

            async def held(now: float) -> None:
                await synced(now)
                if waits.pop():
                    await may_go.wait()

            vars(partial_writer)["_synced"] = held
            async with anyio.create_task_group() as both:
                both.start_soon(partial_writer.resolve_partial, UID, *names)
                await anyio.sleep(1)
                if names[1] in virtual.engine.partials.of_session(UID, "s"):
                    await partial_writer.resolve_partial(UID, *names)
                await partial_writer.remove_unwanted()
                with Peer(virtual) as other:
                    other.send(START, wire.Token(1, 1, b"another reply"))
                    await other.drain("synced")
                await orphaned(virtual)
                may_go.set()
            reply = await recovered(virtual, "r")
            assert reply is not None
            assert text_of(reply) == b"another reply"

    run(main)


@pytest.mark.parametrize("comes_back", [False, True])
def test_who_speaks_on_behind_a_delete_begins_anew(tmp_path: Path, comes_back: bool) -> None:
    """What it says is kept, and what was deleted is called neither lost nor corrupt."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            agent = await said(virtual)
            with Peer(virtual, "query") as reader:
                reader.send(wire.Delete(1, "s"))
                assert await reader.hear(wire.Answer)
            assert await recovered(virtual, "r") is None
            with agent:
                if comes_back:
                    with Peer(virtual, producer=agent.producer) as again:
                        again.send(wire.Resume(START, 3, 2, 3), wire.Token(1, 3, b"behind it"))
                        await again.drain("synced")
                else:
                    agent.send(wire.Token(1, 3, b"behind it"))
                    await agent.drain("synced")
                reply = await recovered(virtual, "r")
                assert reply is not None
                gaps = [(one.first_seq, one.last_seq, one.verdict) for one in reply.gaps]
                assert (text_of(reply), gaps) == (b"behind it", [(1, 2, "dropped")])
                assert virtual.engine.counters.lost_acked == 0
                agent.send(wire.End(1, 4, True), wire.Release(1, 5))
                await agent.drain("synced")
            assert await recovered(virtual, "r") is None
            await until(lambda: home.holds(b"before") == [])

    run(main)


def test_the_latest_is_the_one_before_where_the_last_is_let_go_meanwhile(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with await said(virtual) as agent:
                agent.send(wire.Start(2, 0, "q", "s"), wire.Token(2, 1, b"a later one"))
                await agent.drain("synced")
            replies = virtual.daemon.query_server._sessions._replies
            latest = replies._latest

            async def resolved(*given: Any) -> Any:
                found = await latest(*given)
                later = virtual.engine.registry.by_key.get((UID, "q"))
                if later is not None:
                    virtual.engine.resolved.let_go(later, anyio.current_time())
                return found

            vars(replies)["_latest"] = resolved
            with Peer(virtual, "query") as reader:
                reader.send(wire.Recover(1, "latest", "s"))
                answer = await reader.hear(wire.Answer)
                assert b"what was said before" in answer.chunk

    run(main)


async def nothing_left(virtual: Virtual) -> None:
    await anyio.sleep(3)
    for stream in list(virtual.engine.registry.by_key.values()):
        virtual.engine.orphan(stream, "agent_lost")
    virtual.daemon.maintenance.wake()
    await anyio.sleep(3)
    assert virtual.engine.partials.all_names() == []
    assert await recovered(virtual, "r") is None


def test_a_reply_of_a_turn_that_was_released_stays_so_behind_the_delete(tmp_path: Path) -> None:
    """It waits to move into its session; its owner was told nothing, and says all of it again."""
    start = wire.Start(1, 0, "r", "s", "t1")
    said_whole = *WORDS, wire.End(1, 3, True), wire.Release(1, 4)

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            turns = virtual.daemon.query_server._sessions._turns
            settle = turns._settle

            async def later(_stream: Any) -> None:
                """Not yet."""

            vars(turns)["_settle"] = later
            agent = Peer(virtual)
            agent.send(start, *said_whole)
            await until(lambda: virtual.engine.turn_commit.streams)
            agent.socket.close()
            with Peer(virtual, "query") as reader:
                reader.send(wire.Delete(1, "s"))
                assert await reader.hear(wire.Answer)
            vars(turns)["_settle"] = settle
            with Peer(virtual, producer=agent.producer) as again:
                again.send(wire.Resume(start, 0, -1, 5, True), *said_whole)
                await again.drain("synced")
                await nothing_left(virtual)

    run(main)


def test_whose_end_only_the_owner_knows_of_may_still_be_released(tmp_path: Path) -> None:
    """The daemon that was restarted knows a partial by its header alone."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            agent = await said(virtual)
            agent.send(wire.End(1, 3, True))
            await agent.drain("synced")
            agent.socket.close()
            await orphaned(virtual)
        async with living(home) as virtual:
            with Peer(virtual, "query") as reader:
                reader.send(wire.Resolve(1, "r", 3))
                assert await reader.hear(wire.Answer)
            with Peer(virtual, producer=agent.producer) as again:
                again.send(wire.Resume(START, 4, 3, 4), wire.Release(1, 4))
                await again.drain("synced")
                await nothing_left(virtual)
            assert virtual.engine.counters.lost_acked == 0

    run(main)


def test_what_is_known_of_them_is_bounded_by_user(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            removed = virtual.engine.resolved
            begin = (await begun(virtual)).begin
            for uid, count in ((1, 3), (2, 100)):
                for number in range(count):
                    meta = bytes(100_000)
                    one = msgspec.structs.replace(begin, uid=uid, number=number, meta=meta)
                    removed.add(one, "s", 1, ended=False, passed_seq=-1)
            assert len(removed._users[1].known) == 3
            assert 5 <= len(removed._users[2].known) <= 10
            assert removed._users[2].bytes <= 1 << 20

    run(main)


async def begun(virtual: Virtual) -> Stream:
    with await said(virtual):
        return virtual.engine.registry.by_key[UID, "r"]


def test_what_was_not_kept_of_a_deleted_reply_is_waited_for_by_nobody(tmp_path: Path) -> None:
    """It was refused, which its process has not heard yet when it asks."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            agent = await said(virtual)
            agent.send(wire.Move(1, 3, ""))
            await agent.hear(wire.Refused)
            assert await asked(virtual, wire.Delete(1, "s"))
            with Peer(virtual, "query") as reader:
                seen = [wire.Seen(agent.producer, 1, 3)]
                reader.send(wire.Recover(1, "all", None, "r", seen=seen))
                assert (await reader.hear(wire.Answer)).last
            agent.socket.close()

    run(main)
