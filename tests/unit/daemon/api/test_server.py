"""Queries: what is answered, to whom, and when nothing is said but "ask again" (Q1, Q2)."""

from __future__ import annotations

import logging
import os
import tracemalloc
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from asking import UID, orphaned, refused, replies, say
from virtual_daemon import Home, Peer, Virtual, asked, living, recovered, run, text_of, until
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode

from walld import limits
from walld.daemon.transport import credentials

# --- what is answered -----------------------------------------------------------------------------


def test_latest_all_and_orphans(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            agents = [await say(virtual, f"r{n}", b"%d" % n) for n in range(4)]
            agents.append(await say(virtual, "other", b"o", "t"))
            await orphaned(virtual, "r1", "r3")
            every = await replies(virtual, "all")
            assert [reply.stream_id for reply in every] == ["r0", "r1", "r2", "r3", "other"]
            assert [reply.status for reply in every][:4] == ["live", "crashed", "live", "crashed"]
            assert [r.stream_id for r in await replies(virtual, "orphans")] == ["r1", "r3"]
            (latest,) = await replies(virtual, "latest", session_id="s")
            assert latest.stream_id == "r3"
            (latest,) = await replies(virtual, "latest", session_id="t")
            assert latest.stream_id == "other"
            (one,) = await replies(virtual, "latest", stream_id="r0")
            assert (one.stream_id, text_of(one)) == ("r0", b"0")
            assert await replies(virtual, "all", session_id="t", stream_id="r0") == []
            assert await replies(virtual, "latest", session_id="nobody's") == []
            for agent in agents:
                agent.socket.close()

    run(main)


def test_a_list_has_no_text_and_a_prefix(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with await say(virtual, "r", b"x", "chat-1"), await say(virtual, "q", b"y", "mail"):
                listed = msgspec.convert(
                    await asked(virtual, wire.List(1, "chat")), list[wire.Recovered]
                )
                assert [(r.stream_id, r.last_seq, r.segments) for r in listed] == [("r", 1, [])]

    run(main)


def test_has_partial_is_yes_or_no(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with await say(virtual, "r", b"x"):
                assert await asked(virtual, wire.HasPartial(1, "s")) is True
                assert await asked(virtual, wire.HasPartial(1, "t")) is False
                await orphaned(virtual, "r")
                assert await asked(virtual, wire.HasPartial(1, "s")) is True
                assert await asked(virtual, wire.Resolve(1, "r")) is True
                assert await asked(virtual, wire.HasPartial(1, "s")) is False

    run(main)


def test_asked_twice_gives_the_same_and_changes_nothing(tmp_path: Path) -> None:
    """P11."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with await say(virtual, "r", b"x"), await say(virtual, "q", b"y"):
                await orphaned(virtual, "q")
                await anyio.sleep(3)
                files = {path: path.stat() for path in home.data.rglob("*")}
                first = await asked(virtual, wire.Recover(1, "all"))
                for _ in range(20):
                    assert await asked(virtual, wire.Recover(1, "all")) == first
                after = {path: path.stat() for path in home.data.rglob("*")}
                assert after.keys() == files.keys()
                assert all(after[path].st_mtime_ns == files[path].st_mtime_ns for path in files)

    run(main)


def test_a_long_answer_comes_in_pieces(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent, Peer(virtual, "query") as reader:
                agent.send(wire.Start(1, 0, "r", "s"))
                for seq in range(1, 11):
                    agent.send(wire.Token(1, seq, bytes([seq]) * 100_000))
                    await agent.drain()
                reader.send(wire.Recover(1, "all"))
                chunks = [await reader.hear(wire.Answer)]
                while not chunks[-1].last:
                    chunks.append(await reader.hear(wire.Answer))
                assert len(chunks) > 3
                assert all(len(chunk.chunk) <= limits.ANSWER_CHUNK_BYTES for chunk in chunks)
                assert text_of(await recovered(virtual, "r"))[::100_000] == bytes(range(1, 11))

    run(main)


def test_requests_on_one_connection_are_answered_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual, "query") as reader:
                raw = b"".join(encode(wire.HasPartial(n, "s")) for n in range(1, 51))
                for at in range(0, len(raw), 7):
                    reader.socket.send(raw[at : at + 7])
                    await anyio.sleep(0.001)
                found = [(await reader.hear(wire.Answer)).id for _ in range(50)]
                assert found == list(range(1, 51))

    run(main)


# --- whose ----------------------------------------------------------------------------------------


def test_one_users_replies_do_not_exist_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q2, P12: the uid comes from the peer's credentials."""
    here = [UID]

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            here[0] = 70_001
            with await say(virtual, "r", b"theirs", "same"):
                here[0] = 70_002
                with await say(virtual, "r", b"mine", "same"):
                    assert text_of(await recovered(virtual, "r")) == b"mine"
                    assert [text_of(r) for r in await replies(virtual, "all")] == [b"mine"]
                    error = await refused(virtual, wire.Recover(1, "all", uid=70_001))
                    assert (error.code, error.got, error.limit) == ("foreign_uid", "70001", "70002")
                    error = await refused(virtual, wire.Resolve(1, "r", uid=70_001))
                    assert error.code == "foreign_uid"
                    error = await refused(virtual, wire.List(1, uid=70_001))
                    assert error.code == "foreign_uid"
                    here[0] = 70_003
                    assert await replies(virtual, "all") == []
                    assert await asked(virtual, wire.HasPartial(1, "same")) is False
                    assert await asked(virtual, wire.Resolve(1, "r")) is False
                    here[0] = os.geteuid()
                    (theirs,) = await replies(virtual, "all", uid=70_001)
                    assert (theirs.uid, text_of(theirs)) == (70_001, b"theirs")

    monkeypatch.setattr(
        credentials,
        "credentials",
        lambda _peer: credentials.PeerCredentials(os.getpid(), here[0], 0),
    )
    run(main)


# --- when it cannot know --------------------------------------------------------------------------


def test_while_the_log_is_read_it_is_not_said_that_there_is_nothing(tmp_path: Path) -> None:
    """Q1, P11."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            (await say(virtual, "r", b"x")).socket.close()
            await virtual.crash()
        late: list[Peer] = []

        def slow(virtual: Virtual) -> None:
            virtual.background.seconds = 2.5
            for request in (
                wire.Recover(1, "all"),
                wire.HasPartial(1, "s"),
                wire.Resolve(1, "r"),
                wire.Status(1),
            ):
                late.append(Peer(virtual, "query"))
                late[-1].send(request)

        async with living(home, before=slow) as virtual:
            errors = [await peer.hear(wire.Error) for peer in late[:3]]
            assert [error.code for error in errors] == ["recovering"] * 3
            status = msgspec.msgpack.decode((await late[3].hear(wire.Answer)).chunk)
            assert status["state"] == "recovering"
            virtual.background.seconds = 0.0
            assert text_of(await recovered(virtual, "r")) == b"x"
            for peer in late:
                peer.socket.close()

    run(main)


def test_what_this_process_sent_is_waited_for_and_not_for_ever(tmp_path: Path) -> None:
    """Q1: it names what it has handed the kernel."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                begun = anyio.current_time()
                seen = [wire.Seen(agent.producer, 1, 3)]
                error = await refused(virtual, wire.Recover(1, "all", None, "r", seen))
                assert error.code == "behind"
                assert 1.0 < anyio.current_time() - begun < 2.0
                with Peer(virtual, "query") as reader:
                    reader.send(wire.Recover(1, "all", None, "r", seen))
                    await anyio.sleep(0.5)
                    agent.send(wire.Start(1, 0, "r", "s"))
                    agent.send(*(wire.Token(1, seq, b"x") for seq in (1, 2, 3)))
                    answer = await reader.hear(wire.Answer)
                    (reply,) = msgspec.msgpack.decode(answer.chunk, type=list[wire.Recovered])
                    assert reply.last_seq == 3
                agent.send(wire.End(1, 4, clean=True), wire.Release(1, 5))
                seen = [wire.Seen(agent.producer, 1, 5)]
                answer = await asked(virtual, wire.Recover(1, "all", None, "r", seen))
                assert answer == []

    run(main)


def test_a_partial_that_cannot_be_read_is_an_error_and_not_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            (await say(virtual, "r", b"x")).socket.close()
            await orphaned(virtual, "r")
            file = home.data / "partials" / str(UID) / "s" / "r"
            file.write_bytes(file.read_bytes()[:-1] + b"\xff")
            error = await refused(virtual, wire.Recover(1, "all"))
            assert error.code == "unreadable"
            assert "partials/" in error.message
            assert virtual.engine.counters.recoveries["unavailable"] == 1

    run(main)


@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("size", [10, 100_000])
def test_a_record_that_changed_on_disk_is_a_gap_and_never_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, size: int, synced: bool
) -> None:
    """A short reply is read on the loop, a long one by the background: both look at the CRC."""

    async def main() -> None:
        home = Home(tmp_path)
        async with living(home) as virtual:
            with await say(virtual, "r", b"before ") as agent, await say(virtual, "q", b"whole"):
                agent.send(wire.Token(1, 2, b"x" * size))
                await agent.drain()
                agent.send(wire.Token(1, 3, b" after"))
                await agent.drain("synced" if synced else "written")
                (file,) = (home.data / "wal").glob("*.wal")
                with file.open("r+b") as log:
                    log.seek(file.read_bytes().index(b"xxxxx") + 2)
                    log.write(b"X")
                for _ in range(2):
                    reply = await recovered(virtual, "r")
                    assert reply is not None
                    if synced:
                        gaps = [wire.Gap(2, 2, "corrupt")]
                        assert (text_of(reply), reply.gaps) == (b"before  after", gaps)
                        assert (reply.partial_reason, reply.last_seq) == ("gap", 3)
                        assert "stream 1: a record of" in caplog.text
                    else:
                        assert text_of(reply) == b"before " + b"x" * size + b" after"
                        assert (reply.gaps, caplog.text) == ([], ""), "read from memory"
                assert text_of(await recovered(virtual, "q")) == b"whole"

    with caplog.at_level(logging.ERROR):
        run(main)


@pytest.mark.parametrize("cached", [False, True])
def test_a_short_reply_is_read_at_once_only_where_no_disk_has_to_be_waited_for(
    tmp_path: Path, cached: bool
) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with await say(virtual, "r", b"x") as agent:
                await agent.drain("synced")
                if not cached:
                    virtual.daemon._files.read_cached = lambda *_: None  # type: ignore[method-assign]
                virtual.background.seconds = 5.0
                begun = anyio.current_time()
                assert text_of(await recovered(virtual, "r")) == b"x"
                assert (anyio.current_time() - begun < 1.0) == cached

    run(main)


# --- what is no request ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "got"),
    [
        (wire.Recover(7, "newest"), "newest"),
        (wire.Recover(7, "latest"), "neither"),
    ],
)
def test_a_request_that_means_nothing_is_told_so(
    tmp_path: Path, request_: wire.Recover, got: str
) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            error = await refused(virtual, request_)
            assert (error.code, error.got) == ("bad_request", got)
            assert error.limit

    run(main)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (encode(wire.Hello(1, "query", b"p" * 16)), "not_hello"),
        (encode(wire.Token(1, 1, b"x")), "malformed"),
        (b"\xff\xff\xff\xff", "frame_too_long"),
        (b"\x00\x00\x00\x09half", "slow_frame"),
    ],
)
def test_what_is_no_request_ends_that_connection_alone(
    tmp_path: Path, raw: bytes, code: str
) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual, "query") as peer, Peer(virtual, "query") as other:
                peer.socket.send(raw)
                error = await peer.hear(wire.Error)
                assert (error.code, error.id) == (code, 0)
                await anyio.sleep(0.1)
                peer.heard()
                assert peer.ended
                other.send(wire.Status(1))
                await other.hear(wire.Answer)
            await anyio.sleep(1)
            assert len(virtual.daemon.connections) == 0

    run(main)


def test_who_asks_without_end_waits_for_himself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight of one uid at a time; another's question does not queue behind the others."""
    uids = iter([4000] * 40 + [UID, 4000])
    asking: list[int] = []
    most = 0

    async def slow(connection: Any, _request: Any) -> list[wire.Recovered]:
        nonlocal most
        asking.append(connection.uid)
        most = max(most, asking.count(4000))
        await anyio.sleep(1.0 if connection.uid == 4000 else 0.0)
        asking.remove(connection.uid)
        return []

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            monkeypatch.setattr(
                credentials,
                "credentials",
                lambda _peer: credentials.PeerCredentials(os.getpid(), next(uids), os.getgid()),
            )
            virtual.daemon.query_server._answers[wire.Recover] = slow
            greedy = [Peer(virtual, "query") for _ in range(40)]
            for peer in greedy:
                peer.send(wire.Recover(1, "all"))
            await anyio.sleep(0.1)
            with Peer(virtual, "query") as other:
                other.send(wire.Recover(2, "all"))
                await other.hear(wire.Answer, 0.1)
            greedy[-1].send(wire.Status(3))  # behind its own question, as any answer is
            with Peer(virtual, "query") as status:
                status.send(wire.Status(4))
                await status.hear(wire.Answer, 0.1)
            for peer in greedy:
                await peer.hear(wire.Answer)
                peer.socket.close()
            assert most == limits.REQUESTS_PER_UID_MAX

    run(main)


def test_what_an_answer_holds_is_counted_until_it_is_read(tmp_path: Path) -> None:
    """100 of 900 KB held the chunk on its way twice and counted it not at all: 205 MB of memory."""
    size, many = 900_000, 20

    async def long(_connection: Any, _request: Any) -> bytes:
        return bytes(size)

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            requests = virtual.daemon.query_server
            requests._answers[wire.Recover] = long
            with ExitStack() as held:
                peers = [held.enter_context(Peer(virtual, "query")) for _ in range(many)]
                await anyio.sleep(1.0)
                tracemalloc.start()
                try:
                    before, _ = tracemalloc.get_traced_memory()
                    for peer in peers:
                        peer.send(wire.Recover(1, "all"))
                    await until(lambda: len(requests._held._of(UID).answers) == many)
                    await anyio.sleep(0.1)
                    grown = tracemalloc.get_traced_memory()[0] - before
                finally:
                    tracemalloc.stop()
                counted = requests._held._of(UID).bytes
            spare = many * size // 2  # of msgspec's buffers, which is never touched
            assert many * size < grown < counted + spare, (grown, counted)

    run(main)


def test_a_stream_id_and_a_session_narrow_both_a_partial_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            (await say(virtual, "r", b"word ", session="right")).socket.close()
            await orphaned(virtual, "r")
            assert await replies(virtual, "latest", session_id="wrong", stream_id="r") == []
            found = await replies(virtual, "latest", session_id="right", stream_id="r")
            assert [reply.stream_id for reply in found] == ["r"]

    run(main)


def test_the_ack_that_says_so_comes_before_drained(tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual) as agent:
                agent.send(wire.Start(1, 0, "r", "s"), wire.Token(1, 1, b"x"))
                agent.send(wire.Drain(1, "written"))
                said: list[Any] = []
                while not any(isinstance(message, wire.Drained) for message in said):
                    await anyio.sleep(0.001)
                    said += agent.heard()
                assert isinstance(said[0], wire.Ack)
                assert said[0].streams == [(1, 1, -1)]

    run(main)
