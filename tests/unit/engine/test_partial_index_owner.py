"""A client that is back finds a partial under the name of its reply: its own, or another's.

Its owner was taken for gone, so the reply was kept; or somebody else's reply had that name before.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from virtual_daemon import Home, Peer, Virtual, asked, living, recovered, run, text_of, until
from walld_client.wire import messages as wire

from walld.disk.real import RealDisk
from walld.engine.partial_index import IndexedPartial
from walld.partials.file import PARTIAL_HEADER_BYTES, PartialFacts
from walld.partials.names import PartialOwner
from walld.partials.store import PartialStore

UID = os.getuid()
START = wire.Start(1, 0, "r", "s")
READ_FACTS = PartialStore.read_facts
PLACES = ["kept", "kept by an earlier daemon", "in the log"]


async def orphaned(virtual: Virtual, *, is_kept: bool = True) -> None:
    """The owner of "r" is taken for gone."""
    virtual.engine.orphan(virtual.engine.registry.by_key[UID, "r"], "agent_lost")
    virtual.daemon.maintenance.wake()
    if is_kept:
        await until(lambda: (UID, "r") not in virtual.engine.registry.by_key)


async def said(virtual: Virtual, *words: wire.FromAgent) -> Peer:
    agent = Peer(virtual)
    agent.send(START, *words)
    await agent.drain("synced")
    return agent


async def kept_alone(home: Home, *texts: str) -> Peer:
    """A reply of which its partial is all that a daemon has left; its producer, who hung up."""
    async with living(home) as virtual:
        agent = await said(virtual, *tokens(1, *texts))
        agent.socket.close()
        await orphaned(virtual)
        await until(lambda: virtual.engine.segments.oldest.is_empty)
    return agent


def read_fails(_store: PartialStore, *_names: object) -> PartialFacts:
    """In the place of `read_facts`."""
    raise OSError(errno.EIO, "planted")


def tokens(first_seq: int, *texts: str) -> list[wire.Token]:
    return [wire.Token(1, first_seq + at, text.encode()) for at, text in enumerate(texts)]


async def told(virtual: Virtual, session_id: str) -> list[tuple[str, str, bool]]:
    """(stream id, text, owner alive) of all replies of a session."""
    answer = await asked(virtual, wire.Recover(1, "all", session_id, None))
    found = msgspec.convert(answer, list[wire.Recovered])
    return [(one.stream_id, text_of(one).decode(), one.owner_alive) for one in found]


def files(home: Home) -> list[str]:
    tree = home.data / "partials"
    found = (path for path in tree.rglob("*") if path.is_file() and path.name[0] != ".")
    return sorted(str(path.relative_to(tree)) for path in found)


# --- whose it is ----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
def test_a_reply_of_another_process_is_never_gone_on_with(tmp_path: Path, place: str) -> None:
    """Its Start went to a daemon that died: it says Resume of a name that another's reply has."""

    async def comes(virtual: Virtual) -> None:
        with Peer(virtual) as other:
            other.send(wire.Resume(START, 0, -1, 4), START, *tokens(1, "B1 ", "B2 ", "B3 "))
            other.send(wire.End(1, 4, clean=True), wire.Release(1, 5))
            refused = await other.hear(wire.Refused)
            assert (refused.seq, refused.code) == (0, "stream_exists")
            await other.drain("synced")
        await anyio.sleep(60)
        assert await told(virtual, "s") == [("r", "A1 A2 A3 ", False)]
        assert virtual.engine.counters.lost_acked == 0

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            agent = await said(virtual, *tokens(1, "A1 ", "A2 ", "A3 "))
            agent.socket.close()
            await orphaned(virtual, is_kept=place != "in the log")
            if place != PLACES[1]:
                await comes(virtual)
        if place == PLACES[1]:
            async with living(home) as again:
                await comes(again)

    run(main)


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("meta", [b"", b"m" * 9000])
def test_its_producer_goes_on_with_it(tmp_path: Path, is_restarted: bool, meta: bytes) -> None:
    """Also where its Begin is longer than what a start reads of each partial at first."""
    start = wire.Start(1, 0, "r", "s", meta=meta or None)

    async def comes(virtual: Virtual, producer: bytes) -> None:
        with Peer(virtual, producer=producer) as again:
            again.send(wire.Resume(start, 3, 2, 3), *tokens(3, "three"))
            await again.drain("synced")
            assert await told(virtual, "s") == [("r", "one two three", True)]
        assert virtual.engine.counters.lost_acked == 0

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with Peer(virtual) as agent:
                agent.send(start, *tokens(1, "one ", "two "))
                await agent.drain("synced")
                await orphaned(virtual)
                if not is_restarted:
                    await comes(virtual, agent.producer)
        if is_restarted:
            async with living(home) as later:
                await comes(later, agent.producer)

    run(main)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_it_released_meanwhile_is_done_with(tmp_path: Path, is_restarted: bool) -> None:
    async def comes(virtual: Virtual, producer: bytes) -> None:
        with Peer(virtual, producer=producer) as again:
            again.send(wire.Resume(START, 3, 2, 5, released=True))
            again.send(wire.End(1, 3, clean=True), wire.Release(1, 4))
            while (1, 4, 4) not in (await again.hear(wire.Ack)).streams:
                pass
            await anyio.sleep(120)
            assert await told(virtual, "s") == []
        assert virtual.engine.counters.lost_acked == 0

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            agent = await said(virtual, *tokens(1, "one ", "two "))
            agent.socket.close()
            await orphaned(virtual)
            if not is_restarted:
                await comes(virtual, agent.producer)
        if is_restarted:
            async with living(home) as later:
                await comes(later, agent.producer)
        assert files(home) == []
        async with living(home) as last:
            assert await told(last, "s") == []

    run(main)


@pytest.mark.parametrize("has_passed", [True, False])
def test_what_a_start_could_not_read_is_begun_anew_and_put_together_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_passed: bool
) -> None:
    """Whether or not it can be read by then: its owner is taken at his word, and loses none."""

    async def main() -> None:
        home = Home(tmp_path)
        agent = await kept_alone(home, "one ", "two ")
        monkeypatch.setattr(PartialStore, "read_facts", read_fails)
        async with living(home) as unread:
            if has_passed:
                monkeypatch.setattr(PartialStore, "read_facts", READ_FACTS)
            with Peer(unread, producer=agent.producer) as again:
                again.send(wire.Resume(START, 3, 2, 3), *tokens(3, "three "))
                await again.drain("synced")
                assert not [one for one in again.heard() if isinstance(one, wire.Refused)]
            unread.engine.orphan(unread.engine.registry.by_key[UID, "r"], "agent_lost")
            await anyio.sleep(60)
            assert files(home) == [f"{UID}/s/r"], "and no other's"
            await unread.crash()
        monkeypatch.setattr(PartialStore, "read_facts", READ_FACTS)
        async with living(home) as last:
            found = await recovered(last, "r")
            assert found is not None
            assert (text_of(found), found.gaps) == (b"one two three ", [])

    run(main)


@pytest.mark.parametrize("is_read_since", [False, True])
def test_what_a_start_could_not_read_is_nobody_else_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_read_since: bool
) -> None:
    """Another process that says it has begun a reply of that name has it beside that one."""

    async def main() -> None:
        home = Home(tmp_path)
        agent = await kept_alone(home, "A1 ", "A2 ")
        monkeypatch.setattr(PartialStore, "read_facts", read_fails)
        async with living(home) as virtual:
            monkeypatch.setattr(PartialStore, "read_facts", READ_FACTS)
            if is_read_since:
                (names,) = virtual.engine.partials.all_names()
                facts = IndexedPartial(1, 2, 1, 5, whose=PartialOwner(agent.producer, 1, "s"))
                virtual.engine.partials.add(*names, facts)
            with Peer(virtual) as other:
                other.send(wire.Resume(START, 0, -1, 3), START, *tokens(1, "B1 ", "B2 "))
                if is_read_since:
                    assert (await other.hear(wire.Refused)).code == "stream_exists"
                await other.drain("synced")
            if not is_read_since:
                await orphaned(virtual, is_kept=False)
            await anyio.sleep(60)
            assert not list((home.data / "quarantine").glob("*"))
            await virtual.crash()
        async with living(home) as last:
            await anyio.sleep(60)
            if not is_read_since:  # the later one has the name until it is resolved
                await orphaned(last, is_kept=False)
                assert await told(last, "s") == [("r", "B1 B2 ", False)]
                assert await asked(last, wire.Resolve(1, "r", 2))
            assert await told(last, "s") == [("r", "A1 A2 ", False)]
        assert not list((home.data / "quarantine").glob("*"))

    run(main)


def test_who_goes_on_behind_what_a_start_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start cannot read another segment, and the last number is a partial alone."""
    unread = [""]
    for verb in ("open", "reopen"):
        whole = getattr(RealDisk, verb)

        def planted(disk: RealDisk, path: str, whole: Any = whole) -> Any:
            if path == unread[0]:
                raise OSError(errno.EIO, "planted", path)
            return whole(disk, path)

        monkeypatch.setattr(RealDisk, verb, planted)

    def newest(home: Home) -> str:
        return f"wal/{max(path.name for path in (home.data / 'wal').glob('*.wal'))}"

    async def main() -> None:
        home = Home(tmp_path, reclaim_seconds="10000")
        async with living(home) as virtual:
            agent = await said(virtual, *tokens(1, "one ", "two "))
            agent.socket.close()
            unread_next = newest(home)
            await virtual.crash()
        unread[0] = unread_next
        async with living(home) as virtual:
            with Peer(virtual, producer=agent.producer) as again:
                again.send(wire.Resume(START, 3, 2, 3), *tokens(3, "three "))
                await again.drain("synced")
            await orphaned(virtual)
            unread_next = newest(home)
            await virtual.crash()
        unread[0] = unread_next
        async with living(home) as virtual:
            with Peer(virtual, producer=agent.producer) as again:
                again.send(wire.Resume(START, 4, 3, 4), *tokens(4, "four "))
                await again.drain("synced")
                found = await recovered(virtual, "r")
                assert text_of(found) == b"one two three four "
            await virtual.crash()

    run(main)


@pytest.mark.parametrize("where", ["its first byte", "producer", "session", "text"])
def test_its_owner_begins_anew_behind_one_that_is_damaged(tmp_path: Path, where: str) -> None:
    """Wherever that is: what is lost of it is said, and goes to quarantine."""

    async def main() -> None:
        home = Home(tmp_path)
        agent = await kept_alone(home, "one ", "two ")
        (path,) = (home.data / "partials").glob("*/*/r")
        content = bytearray(path.read_bytes())
        words = {"producer": agent.producer, "session": b"\xa1s", "text": b"two "}
        at = content.index(words[where]) + 1 if where in words else PARTIAL_HEADER_BYTES
        content[at] ^= 1
        path.write_bytes(content)
        async with living(home) as later:
            with Peer(later, producer=agent.producer) as again:
                again.send(wire.Resume(START, 3, 2, 3), *tokens(3, "three "))
                again.send(wire.Drain(1, "synced"))
                while not isinstance(one := await again.hear(wire.Message), wire.Drained):
                    assert not isinstance(one, wire.Refused), one
                found = await recovered(later, "r")
                assert found is not None
                assert (text_of(found), found.gaps) == (b"three ", [wire.Gap(1, 2, "corrupt")])
            assert later.engine.counters.lost_acked == 3
            assert later.daemon.status.doubt is not None
            assert (home.data / f"quarantine/partials+{UID}+s+r").read_bytes() == content

    run(main)


@pytest.mark.parametrize("is_asked", [True, False])
def test_one_that_is_damaged_behind_its_owners_back_is_a_gap(
    tmp_path: Path, is_asked: bool
) -> None:
    """Whoever reads it finds that: a client that asks, or the round that keeps the reply."""

    async def main() -> None:
        home = Home(tmp_path)
        agent = await kept_alone(home, "one " * 3000, "two ")
        (path,) = (home.data / "partials").glob("*/*/r")
        content = bytearray(path.read_bytes())
        content[-3] ^= 1
        path.write_bytes(content)
        async with living(home) as later:
            with Peer(later, producer=agent.producer) as again:
                again.send(wire.Resume(START, 3, 2, 3), *tokens(3, "three "))
                await again.drain("synced")
            if is_asked:
                with Peer(later, "query") as reader:
                    reader.send(wire.Recover(1, "all", None, "r"))
                    assert (await reader.hear(wire.Error)).code == "unreadable"
            else:
                await orphaned(later)
            found = await recovered(later, "r")
            assert found is not None
            assert (text_of(found), found.gaps) == (b"three ", [wire.Gap(1, 2, "corrupt")])
            assert later.engine.counters.lost_acked == 3
            assert (home.data / f"quarantine/partials+{UID}+s+r").read_bytes() == content
            assert later.daemon.status.doubt is not None
        async with living(home) as last:
            found = await recovered(last, "r")
            assert found is not None
            assert text_of(found) == b"three "
            assert is_asked or found.gaps == [wire.Gap(1, 2, "corrupt")]

    run(main)


# --- where it is ----------------------------------------------------------------------------------

MOVED = wire.Token(1, 1, b"one "), wire.Move(1, 2, "t"), wire.Token(1, 3, b"two ")


@pytest.mark.parametrize("session_id", ["t", "another session: no name of a file"])
@pytest.mark.parametrize("then", ["goes on", "kept again", "crash", "restarted"])
def test_a_reply_that_moved_stays_where_it_is(tmp_path: Path, then: str, session_id: str) -> None:
    """Its producer repeats its first Start; that it moved its partial alone may know."""

    async def comes(virtual: Virtual, producer: bytes) -> None:
        with Peer(virtual, producer=producer) as again:
            again.send(wire.Resume(START, 4, 3, 4), *tokens(4, "three "))
            await again.drain("synced")
        assert await told(virtual, "s") == []
        assert await told(virtual, session_id) == [("r", "one two three ", True)]
        if then == "kept again":
            await orphaned(virtual)
        elif then == "crash":
            await virtual.crash()

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            moved = (MOVED[0], wire.Move(1, 2, session_id), MOVED[2])
            agent = await said(virtual, *moved)
            agent.socket.close()
            await orphaned(virtual)
            await until(lambda: virtual.engine.segments.oldest.is_empty)
            if then != "restarted":
                await comes(virtual, agent.producer)
        if then == "restarted":
            async with living(home) as later:
                await comes(later, agent.producer)
        async with living(home) as last:
            await anyio.sleep(30)
            assert await told(last, "s") == []
            assert [one[:2] for one in await told(last, session_id)] == [("r", "one two three ")]
        assert not list((home.data / "quarantine").glob("*"))

    run(main)


async def moves_behind_its_partial(virtual: Virtual) -> Peer:
    """Kept in "s"; then its owner is back, and moves it to "u"."""
    agent = await said(virtual, *tokens(1, "one ", "two "))
    await orphaned(virtual)
    agent.send(wire.Resume(START, 3, 2, 3), wire.Move(1, 3, "u"), *tokens(4, "three "))
    await agent.drain("synced")
    return agent


def test_its_owner_is_back_while_the_partial_of_a_moved_reply_is_made(tmp_path: Path) -> None:
    """What is durable is served, and leaves with the reply."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            agent = await moves_behind_its_partial(virtual)
            virtual.background.seconds = 1.0
            await orphaned(virtual, is_kept=False)
            await anyio.sleep(1.5)  # its place is looked at, and what is known of it taken
            assert files(home) == [f"{UID}/s/r"]
            agent.send(*tokens(5, "four "))
            await agent.drain("synced")
            await until(lambda: files(home) == [f"{UID}/u/r"])
            virtual.background.seconds = 0.0
            assert (UID, "r") in virtual.engine.registry.by_key
            found = await recovered(virtual, "r")
            assert found is not None
            assert (text_of(found), found.gaps) == (b"one two three four ", [])
            agent.send(wire.End(1, 6, clean=True), wire.Release(1, 7))
            await agent.drain("synced")
            await anyio.sleep(120)
            assert files(home) == []
            agent.socket.close()
        async with living(home) as last:
            assert await recovered(last, "r") is None

    run(main)


@pytest.mark.parametrize("fails", [1, 20])
def test_an_earlier_file_that_cannot_be_removed_is_no_second_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    """And it goes: once it can be removed, or with the reply."""
    remove, left = PartialStore.remove_named, [0]

    def planted(store: PartialStore, *names: object) -> bool:
        if left[0] > 0 and names[1] == "s":
            left[0] -= 1
            raise OSError(errno.EIO, "planted")
        return remove(store, *names)  # type: ignore[arg-type]

    monkeypatch.setattr(PartialStore, "remove_named", planted)

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            agent = await moves_behind_its_partial(virtual)
            agent.socket.close()
            left[0] = fails
            await orphaned(virtual)
            assert await told(virtual, "s") == []
            assert await told(virtual, "u") == [("r", "one two three ", False)]
            assert await asked(virtual, wire.Resolve(1, "r", 4))
            await until(lambda: left[0] == 0)
            await anyio.sleep(60)
            assert files(home) == []
            assert await told(virtual, "s") == await told(virtual, "u") == []
        async with living(home) as last:
            assert await recovered(last, "r") is None

    run(main)


def test_a_reply_that_moved_behind_its_partial_is_of_one_session(tmp_path: Path) -> None:
    """What its partial stands under is no reply by itself, for as long as its owner goes on."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            agent = await moves_behind_its_partial(virtual)
            assert await told(virtual, "s") == []
            assert await asked(virtual, wire.HasPartial(1, "s")) is False
            assert await asked(virtual, wire.Delete(1, "s")) is False
            assert await told(virtual, "u") == [("r", "one two three ", True)]
            assert await asked(virtual, wire.HasPartial(1, "u")) is True
            assert await asked(virtual, wire.Delete(1, "u")) is True
            await anyio.sleep(60)
            assert files(home) == []
            agent.socket.close()

    run(main)
