"""What a user has in flight: long requests that wait, and answers that nobody reads."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress

import anyio
import pytest
from virtual_daemon import run

from walld import limits
from walld.daemon.api.response_buffers import ResponseBuffer, ResponseBuffers

USER, OTHER = 4000, 4001
LONG = limits.IN_FLIGHT_BYTES_MAX
A_BIT_SECONDS = 0.001


class Reader(socket.socket):
    """Takes something of its answer every so many seconds."""

    seconds = float("inf")


@pytest.fixture(autouse=True)
def reading(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait_writable(reader: Reader) -> None:
        await anyio.sleep(reader.seconds)

    monkeypatch.setattr(anyio, "wait_writable", wait_writable)


async def given_up(one: ResponseBuffer, seconds: float = float("inf")) -> float:
    """Seconds until an answer is, that is read so."""
    at = anyio.current_time()
    with Reader() as reader, one, suppress(TimeoutError):
        reader.seconds = seconds
        while True:
            await one.moves(reader)
    return anyio.current_time() - at


def test_one_that_nobody_reads_is_kept_while_nobody_wants_its_room() -> None:
    async def main() -> None:
        took = await given_up(ResponseBuffers().hold(USER, LONG))
        assert took == pytest.approx(limits.ANSWER_SECONDS_MAX)

    run(main)


def test_room_is_made_of_what_nobody_reads() -> None:
    """Of this user's alone, and no more than is too much."""

    async def main() -> None:
        held = ResponseBuffers()
        gone: list[str] = []

        async def unread(name: str, count: int, uid: int = USER) -> None:
            await given_up(held.hold(uid, count))
            gone.append(name)

        async with anyio.create_task_group() as tasks:
            for name, count in (("first", LONG), ("second", LONG), ("third", 1)):
                tasks.start_soon(unread, name, count)
                await anyio.sleep(A_BIT_SECONDS)
            await held.wait_for_room(OTHER)
            assert anyio.current_time() == pytest.approx(3 * A_BIT_SECONDS), "others do not wait"
            await held.wait_for_room(USER)
            assert limits.UNREAD_SECONDS_MAX < anyio.current_time() < 2
            assert gone == ["first", "second"]
            tasks.cancel_scope.cancel()

    run(main)


def test_one_that_is_read_has_more_time() -> None:
    async def main() -> None:
        held = ResponseBuffers()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(given_up, held.hold(USER, LONG), 0.5)
            await anyio.sleep(A_BIT_SECONDS)
            await held.wait_for_room(USER)
            assert anyio.current_time() == pytest.approx(limits.READ_SECONDS_MAX, abs=0.2)

    run(main)


def test_short_ones_take_the_room_of_who_does_not_read() -> None:
    """They wait for nothing, and many connections that ask and do not read are held to it."""

    async def main() -> None:
        held = ResponseBuffers()
        gone = 0

        async def unread() -> None:
            nonlocal gone
            await given_up(held.hold(USER, 1))
            gone += 1

        async with anyio.create_task_group() as tasks:
            for _ in range(LONG // (32 * limits.KIB) + 1):
                tasks.start_soon(unread)
            await anyio.sleep(limits.UNREAD_SECONDS_MAX + 0.1)
            assert gone == 0
            with ExitStack() as short:
                for _ in range(10):
                    short.enter_context(held.hold(USER, 1))
                await anyio.sleep(A_BIT_SECONDS)
                assert gone == 10
            tasks.cancel_scope.cancel()

    run(main)


MIB = limits.MIB
MANY = limits.REQUESTS_BYTES_MAX // MIB


def test_long_requests_wait_for_room_in_their_order() -> None:
    """Of this user's alone; what is held already is not asked for twice."""

    async def main() -> None:
        held = ResponseBuffers()
        had: list[str] = []

        async def asks(name: str) -> None:
            one = held.requests_of(USER)
            assert await one.reserve(MIB), "it waited"
            had.append(name)

        full = [held.requests_of(USER) for _ in range(MANY)]
        for one in full:
            assert not await one.reserve(MIB)
            assert not await one.reserve(MIB // 2), "it has that"
        async with anyio.create_task_group() as tasks:
            for name in ("first", "second"):
                tasks.start_soon(asks, name)
                await anyio.sleep(A_BIT_SECONDS)
            assert not await held.requests_of(OTHER).reserve(MIB), "others do not wait"
            await anyio.sleep(60)
            assert had == []
            full[0].free()
            await anyio.sleep(1)
            assert had == ["first"]
            full[1].free()
            await anyio.sleep(1)
            assert had == ["first", "second"]

    run(main)


def test_requests_alone_keep_no_answer_waiting_and_no_answer_them() -> None:
    async def main() -> None:
        held = ResponseBuffers()
        for _ in range(MANY):
            assert not await held.requests_of(USER).reserve(MIB)
        with anyio.fail_after(A_BIT_SECONDS):
            await held.wait_for_room(USER)
        last = ResponseBuffers()
        with last.hold(USER, 2 * LONG):
            assert not await last.requests_of(USER).reserve(MIB)

    run(main)


def test_a_long_answer_waits_for_the_room_of_both() -> None:
    async def main() -> None:
        held = ResponseBuffers()
        request = held.requests_of(USER)
        await request.reserve(limits.REQUESTS_BYTES_MAX)
        with held.hold(USER, LONG - limits.REQUESTS_BYTES_MAX):
            with anyio.move_on_after(0.5) as waited:
                await held.wait_for_room(USER)
            assert waited.cancelled_caught
            request.free()
            await held.wait_for_room(USER)

    run(main)
