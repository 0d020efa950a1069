"""Bells and sockets on each event loop that a daemon runs on."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import anyio
import pytest
from anyio.lowlevel import checkpoint

from walld.daemon import event_loop

_FOREVER = 60.0
BACKENDS = [("asyncio", {"use_uvloop": True}), ("asyncio", {}), ("trio", {})]


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.fixture(params=BACKENDS, ids=["uvloop", "asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.mark.anyio
async def test_a_ring_is_heard_by_who_waits_and_by_who_comes_later_once() -> None:
    bell = event_loop.Bell()
    bell.ring()
    bell.ring()
    assert await bell.wait(_FOREVER)
    assert not await bell.wait(0.001), "one ring was heard twice"
    bell.ring()
    bell.clear()
    assert not await bell.wait(0.001), "what was cleared was heard"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(checkpoint)
        bell_is_heard = anyio.Event()

        async def hear() -> None:
            assert await bell.wait()
            bell_is_heard.set()

        tasks.start_soon(hear)
        await anyio.wait_all_tasks_blocked()
        assert not bell_is_heard.is_set()
        bell.ring()
        await bell_is_heard.wait()


@pytest.mark.anyio
async def test_a_wait_that_is_cancelled_takes_no_ring_with_it() -> None:
    bell = event_loop.Bell()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await bell.wait()
    assert scope.cancelled_caught
    bell.ring()
    assert await bell.wait(_FOREVER)


@pytest.mark.anyio
async def test_a_thread_rings_through_the_loop() -> None:
    bell = event_loop.Bell()
    call_soon = event_loop.call_soon()
    thread = threading.Thread(target=lambda: call_soon(bell.ring))
    thread.start()
    assert await bell.wait(_FOREVER)
    thread.join()


@pytest.mark.anyio
async def test_the_clock_is_the_loops() -> None:
    before = anyio.current_time()
    assert before <= event_loop.now() <= anyio.current_time()


@pytest.mark.anyio
async def test_a_socket_is_told_of_each_time_something_comes(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    readable = event_loop.Readable(ours)
    try:
        for _ in range(3):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(readable.wait)
                await anyio.wait_all_tasks_blocked()
                theirs.send(b"x")
            assert ours.recv(10) == b"x"
        theirs.close()
        await readable.wait()  # its end
        assert ours.recv(10) == b""
    finally:
        readable.close()


class _Counted(event_loop.Readable):
    __slots__ = ("times",)

    def __init__(self, peer: socket.socket) -> None:
        super().__init__(peer)
        self.times = 0

    def _came(self) -> None:
        self.times += 1
        super()._came()


@pytest.mark.anyio
async def test_what_comes_while_nobody_waits_does_not_turn_the_loop(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """It is level-triggered: what is not read would be told at each turn."""
    ours, theirs = pair
    readable = _Counted(ours)
    try:
        theirs.send(b"1")
        await readable.wait()
        assert ours.recv(10) == b"1"
        before = readable.times
        theirs.send(b"2")
        for _ in range(200):
            await anyio.sleep(0.0005)
        assert readable.times <= before + 1
        assert readable.has_come == (readable.times > before), "who reads next finds something"
        await readable.wait()
        assert not readable.has_come
        assert ours.recv(10) == b"2"
    finally:
        readable.close()
