"""What is only asyncio's: cancelled requests, several loops, awaited drain and close."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
import walld_client
from fake_daemon import FakeDaemon, Peer, soon
from walld_client import aio, link_registry
from walld_client.link.link import Link
from walld_client.wire import messages as wire


def test_a_reply_from_async_code(daemon: FakeDaemon, path: str) -> None:
    async def main() -> None:
        client = aio.connect(path)
        async with client.reply("S") as reply:
            assert reply.token("x") == 1
            reply.end()
        with pytest.raises(asyncio.CancelledError):
            async with client.reply("S"):
                raise asyncio.CancelledError
        with client.reply("S") as plain:
            plain.token("y")
        assert await client.close()

    asyncio.run(main())
    peer = daemon.agent()
    daemon.until(lambda: peer.ended)
    ends = [(m.stream, m.clean, m.reason) for m in peer.messages if isinstance(m, wire.End)]
    assert ends == [
        (1, True, None),
        (2, False, "cancelled: CancelledError"),
        (3, True, None),
    ]


def test_close_does_not_wait_for_the_next_attempt_to_be_due(daemon: FakeDaemon, path: str) -> None:
    daemon.stop()

    async def main() -> None:
        client = aio.connect(path)
        client.reply("S").token("x")
        client._link.reconnect.back_off(60.0)
        daemon.start()
        assert await client.close(10)

    asyncio.run(main())
    peer = daemon.agent()
    daemon.until(lambda: peer.ended)
    assert peer.text() == "x"


def test_close_waits_no_longer_than_it_may_for_the_descriptor(
    daemon: FakeDaemon, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The I/O thread, which alone closes it, may be at something else."""
    shut = Link.shut
    monkeypatch.setattr(Link, "shut", lambda link, _done: shut(link, lambda: None))

    async def main() -> float:
        client = aio.connect(path)
        client.reply("S").token("x")
        begun = time.monotonic()
        await client.close(0.2)
        return time.monotonic() - begun

    assert asyncio.run(main()) < 10


async def close_that_waits(client: aio.Client, timeout: float) -> asyncio.Task[bool]:  # noqa: ASYNC109
    closing = asyncio.create_task(client.close(timeout))
    await asyncio.to_thread(soon, lambda: client._link._flushers)
    return closing


def test_a_close_beside_another_says_what_that_one_says(daemon: FakeDaemon, path: str) -> None:
    async def main() -> None:
        for has_time in (True, False):
            client = aio.connect(path)
            await asyncio.to_thread(daemon.fill, client, client.reply("S"))
            first = await close_that_waits(client, 60 if has_time else 0.2)
            second = asyncio.create_task(client.close(60))
            assert not await client.close(0.01)
            if has_time:
                daemon.reading.set()
            assert await asyncio.gather(first, second) == [has_time] * 2
            assert await client.close(0.0) is has_time
            assert client._link not in link_registry._links.values()

    asyncio.run(main())


def test_a_close_that_was_cancelled_is_done_by_the_next(daemon: FakeDaemon, path: str) -> None:
    async def main() -> int:
        client = aio.connect(path)
        reply = client.reply("S")
        await asyncio.to_thread(daemon.fill, client, reply)
        first = await close_that_waits(client, 60)
        beside = asyncio.create_task(client.close(60))
        await asyncio.sleep(0)
        for cancelled in (first, beside):
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
        last = reply.token("last")
        daemon.reading.set()
        assert await client.close(60)
        assert client._link not in link_registry._links.values()
        return last

    last = asyncio.run(main())
    peer = daemon.agent()
    daemon.until(lambda: peer.ended)
    assert peer.seqs() == list(range(last + 1))


def test_a_close_whose_loop_is_gone_is_done_in_the_next(daemon: FakeDaemon, path: str) -> None:
    client = aio.connect(path)
    daemon.fill(client, client.reply("S"))
    loop = asyncio.new_event_loop()
    first = loop.create_task(client.close(60))
    loop.run_until_complete(asyncio.sleep(0))
    daemon.reading.set()
    assert asyncio.run(client.close(60))
    assert client._link not in link_registry._links.values()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(first)
    loop.close()


def test_a_close_in_each_of_two_loops_lets_go_of_the_link_once(
    daemon: FakeDaemon, path: str
) -> None:
    """Another client of the process has the same link, and goes on with it."""
    client, other = aio.connect(path), walld_client.connect(path)
    reply = other.reply("S")
    daemon.fill(other, reply)
    loop = asyncio.new_event_loop()
    first = loop.create_task(client.close(0.5))
    loop.run_until_complete(asyncio.sleep(0))
    assert not asyncio.run(client.close(0.5))
    assert not loop.run_until_complete(first)
    loop.close()
    assert other._link in link_registry._links.values()
    last = reply.token("last")
    daemon.reading.set()
    assert other.close(60)
    peer = daemon.agent()
    daemon.until(lambda: peer.ended)
    assert peer.seqs() == list(range(last + 1))


def test_close_is_a_coroutine_function() -> None:
    """Callers that take either colour ask."""
    assert inspect.iscoroutinefunction(aio.Client.close)


def test_a_drain_is_awaited(daemon: FakeDaemon, path: str) -> None:
    async def main() -> None:
        client = aio.connect(path)
        reply = client.reply("S")
        assert not await reply.drain(0.02)
        waiting = asyncio.create_task(reply.drain(10, "synced"))
        peer = daemon.agent()
        await asyncio.to_thread(
            daemon.until,
            lambda: isinstance(peer.messages[-1], wire.Drain) and peer.messages[-1].id == 2,
        )
        peer.say(wire.Drained(2, "synced"))
        assert await waiting
        assert client._link.acks.drains == {}
        with pytest.raises(ValueError, match="level"):
            await reply.drain(1, "nothing")
        await client.close()

    asyncio.run(main())


def test_a_cancelled_request_does_not_spoil_the_next(daemon: FakeDaemon, path: str) -> None:
    async def main() -> None:
        client = aio.connect(path, timeout=10)
        asking = asyncio.create_task(client.has_partial("S"))
        await asyncio.to_thread(daemon.until, daemon.requests)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        daemon.answers(True)
        assert await client.has_partial("S") is True
        await client.close()

    asyncio.run(main())


def test_requests_at_once_take_turns(daemon: FakeDaemon, path: str) -> None:
    daemon.answers([])

    async def main() -> None:
        client = aio.connect(path)
        answers = await asyncio.gather(*[client.recover(f"S{n}") for n in range(50)])
        assert answers == [None] * 50
        await client.close()

    asyncio.run(main())
    assert len(daemon.peers) == 1


def test_a_client_outlives_its_loop(daemon: FakeDaemon, path: str) -> None:
    daemon.answers([])
    client = aio.connect(path)
    for _ in range(2):
        assert asyncio.run(client.recover("S")) is None
    asyncio.run(client.close())
    assert len(daemon.peers) == 2


def test_each_of_two_loops_in_two_threads_gets_its_own_answer(
    daemon: FakeDaemon, path: str
) -> None:
    """As a server does that runs each async view in a thread and a loop of its own."""
    asked, other_is_done = threading.Event(), threading.Event()

    def answer(peer: Peer, request: wire.HasPartial) -> None:
        if request.session_id == "first":
            asked.set()
            assert other_is_done.wait(10)
        peer.say(wire.Answer(request.id, msgspec.msgpack.encode(request.session_id == "first")))

    daemon.answer = answer
    client = aio.connect(path, timeout=10)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(lambda: asyncio.run(client.has_partial("first")))
        assert asked.wait(10)
        assert asyncio.run(client.has_partial("other")) is False
        other_is_done.set()
        assert first.result() is True
    asyncio.run(client.close())


def test_no_loop_is_kept_for_its_requests(daemon: FakeDaemon, path: str) -> None:
    """A server that runs each request in a loop of its own has thousands; some ask two at once."""
    daemon.answers(False)
    client = aio.connect(path, timeout=10)
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def main() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await asyncio.gather(client.has_partial("a"), client.has_partial("b"))

    for _ in range(5):
        asyncio.run(main())
    asyncio.run(client.close())
    gc.collect()
    assert [one for one in loops[:-1] if one() is not None] == []


def test_a_drain_whose_loop_is_gone_hurts_nobody(daemon: FakeDaemon, path: str) -> None:
    client = aio.connect(path)
    reply = client.reply("S")

    async def leave_it() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await reply.drain(10)

    asyncio.run(leave_it())
    daemon.until(lambda: any(isinstance(m, wire.Drain) for m in daemon.agent().messages))
    daemon.agent().say(wire.Drained(1, "written"))
    reply.token("x")
    daemon.has_text("x")
    asyncio.run(client.close())


def test_unavailable_where_nobody_listens(path: str) -> None:
    client = aio.connect(path)
    with pytest.raises(walld_client.Unavailable, match="errno 2"):
        asyncio.run(client.recover("S"))
    asyncio.run(client.close())
