"""How long one user's requests go on before the loop has its turn."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest
from anyio.lowlevel import checkpoint
from virtual_daemon import Home, Peer, living, run
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode

from walld import limits
from walld.daemon.api import rate_limit
from walld.daemon.api.rate_limit import RateLimit

USER, OTHER = 4000, 4001
CALL_SECONDS = limits.ASKING_SLICE_SECONDS / 8


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of a clock on which each look takes an eighth of a slice, as a request would."""
    told = [0.0]

    def perf_counter() -> float:
        told[0] += CALL_SECONDS
        return told[0]

    monkeypatch.setattr(rate_limit, "time", SimpleNamespace(perf_counter=perf_counter))
    return told


def nobody() -> bool:
    return False


def beside_nobody(_uid: int) -> bool:
    return False


def test_who_asks_without_a_pause_leaves_the_loop_its_turns() -> None:
    """Also where there is a crowd of them: a turn lasts a slice, whoever asks in it."""
    asked = turns = 0

    async def asking(limit: RateLimit) -> None:
        nonlocal asked
        for _ in range(200):
            await limit.wait(USER)
            asked += 1

    async def main() -> None:
        nonlocal turns
        limit = RateLimit(nobody, beside_nobody)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(asking, limit)
            while asked < 1000:
                before = asked
                await checkpoint()
                turns += 1
                # One more each, which had its answer while it waited for the turn.
                assert asked - before <= 8 + 5

    run(main)
    assert turns >= 1000 // 13


def test_another_user_waits_for_no_slice_but_his_own() -> None:
    async def main() -> None:
        limit = RateLimit(nobody, beside_nobody)
        other_waited = 0

        async def asking() -> None:
            for _ in range(1000):
                await limit.wait(USER)

        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(asking)
            for _ in range(20):
                await limit.wait(OTHER)
                before = anyio.current_time()
                await limit.wait(OTHER)
                other_waited += anyio.current_time() > before
            tasks.cancel_scope.cancel()
        assert other_waited == 0

    run(main)


async def turns_of_a_crowd(limit: RateLimit) -> int:
    """How often the loop comes round while fifty connections ask one by one."""
    turns = begun = 0
    left = 50

    async def asking() -> None:
        nonlocal begun, left
        begun += 1
        for _ in range(20):
            await limit.wait(USER, is_waited_for=True)
        left -= 1

    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(asking)
        while begun < 50:  # in any order, this one among them
            await checkpoint()
        while left:
            await checkpoint()
            turns += 1
    return turns


def test_a_crowd_that_asks_one_by_one_leaves_the_loop_its_turns_where_another_user_asks() -> None:
    """All 200 were answered in one turn of the loop, again and again: an ack took 75 ms, not 8."""

    async def main() -> None:
        limit = RateLimit(nobody, beside_nobody)
        await limit.wait(OTHER, is_waited_for=True)
        assert await turns_of_a_crowd(limit) >= 1000 // 13

    run(main)


@pytest.mark.parametrize("is_waited_for", [True, False])
def test_where_an_agent_waits_there_is_a_rest_behind_each_slice(is_waited_for: bool) -> None:
    async def main() -> None:
        limit, begun = RateLimit(lambda: True, beside_nobody), anyio.current_time()

        async def asking() -> None:
            for _ in range(20):
                await limit.wait(USER, is_waited_for=is_waited_for)

        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(asking)
        rests = (anyio.current_time() - begun) / limits.ASKING_REST_SECONDS
        assert rests >= 1000 // 13

    run(main)


def test_who_asks_after_a_pause_waits_for_no_rest(told: list[float]) -> None:
    """An append of a program whose agent waits for its acks took 1.9 ms, not 0.7."""

    async def main() -> None:
        limit = RateLimit(lambda: True, beside_nobody)
        for is_waited_for in (True, False):
            await limit.wait(USER)
            told[0] += limits.ASKING_SLICE_SECONDS + limits.ASKING_REST_SECONDS
            begun = anyio.current_time()
            await limit.wait(USER, is_waited_for=is_waited_for)
            assert (anyio.current_time() > begun) != is_waited_for

    run(main)


def test_long_requests_rest_by_their_bytes_while_another_user_waits() -> None:
    """I6. Whatever else is free: what follows from 250 KB is not over with its slice."""
    count, many = 250_000, 10

    async def main() -> None:
        waiting = {OTHER}
        limit = RateLimit(nobody, lambda uid: bool(waiting - {uid}))

        async def took(uid: int, count: int) -> float:
            begun = anyio.current_time()
            async with anyio.create_task_group() as tasks:
                for _ in range(many):
                    tasks.start_soon(limit.wait, uid, count)
            return anyio.current_time() - begun

        least = many * count / limits.ASKING_BYTES_PER_SECOND
        assert least <= await took(USER, count) <= 2 * least
        assert await took(USER, 1000) < least / many, "short ones have their slices"
        assert await took(OTHER, count) < least / many, "nobody else waits"
        waiting.clear()
        assert await took(USER, count) < least / many

    run(main)


def test_a_long_request_behind_a_pause_waits_for_no_rest(told: list[float]) -> None:
    count = 250_000

    async def main() -> None:
        limit = RateLimit(lambda: True, lambda _uid: True)
        for pause in (0.1, 0.0):
            await limit.wait(USER)
            told[0] += pause
            begun = anyio.current_time()
            await limit.wait(USER, count, is_waited_for=True)
            assert (anyio.current_time() > begun) == (not pause)

    run(main)


def test_long_answers_rest_by_their_bytes_while_another_user_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """I6. Beside 100 who ask for 900 KB and read nothing an ack took 4.5 times as long."""
    count, many = 200_000, 10
    monkeypatch.setattr(rate_limit, "time", SimpleNamespace(perf_counter=anyio.current_time))

    async def main() -> None:
        waiting = {OTHER}
        limit = RateLimit(nobody, lambda uid: bool(waiting - {uid}))

        async def asks(uid: int, count: int) -> None:
            await limit.wait_to_answer(uid)
            await checkpoint()
            limit.answered(uid, count)

        async def took(uid: int, count: int) -> float:
            begun = anyio.current_time()
            async with anyio.create_task_group() as tasks:
                for _ in range(many):
                    tasks.start_soon(asks, uid, count)
            return anyio.current_time() - begun

        one = count / limits.ASKING_BYTES_PER_SECOND
        await took(USER, count)  # by the first it is known how long they are
        assert (many - 1) * one <= await took(USER, count) <= 2 * many * one
        assert await took(OTHER, count) < one, "nobody else waits"
        waiting.clear()
        assert await took(USER, count) < one

    run(main)


@pytest.mark.parametrize("count", [1000, 100_000_000])
def test_who_asks_behind_any_answer_waits_less_than_a_client_does(
    count: int, told: list[float]
) -> None:
    async def main() -> None:
        limit = RateLimit(nobody, lambda _uid: True)
        limit.answered(USER, count)
        await limit.wait_to_answer(USER)
        begun = anyio.current_time()
        await limit.wait_to_answer(USER)
        rest = anyio.current_time() - begun
        assert (rest > 0) == (count > 1000)
        assert rest <= limits.ANSWER_REST_SECONDS_MAX
        told[0] += 2 * limits.ANSWER_REST_SECONDS_MAX
        begun = anyio.current_time()
        await limit.wait_to_answer(USER)
        assert anyio.current_time() == begun, "it has rested"


def test_an_answer_that_hangs_holds_up_no_other_of_its_user() -> None:
    async def main() -> None:
        limit = RateLimit(nobody, lambda _uid: True)
        limit.answered(USER, 1_000_000)
        begun = anyio.current_time()
        async with anyio.create_task_group() as tasks:

            async def hangs() -> None:
                await limit.wait_to_answer(USER)
                await anyio.sleep_forever()

            tasks.start_soon(hangs)
            await checkpoint()
            await limit.wait_to_answer(USER)
            assert anyio.current_time() - begun <= limits.ANSWER_REST_SECONDS_MAX
            tasks.cancel_scope.cancel()

    run(main)


def test_a_crowd_that_is_alone_shares_its_flushes() -> None:
    async def main() -> None:
        assert await turns_of_a_crowd(RateLimit(nobody, beside_nobody)) == 0

    run(main)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Who was held to a slice, as often as he was: by uid."""
    held: list[int] = []

    async def wait(
        _limit: RateLimit, uid: int, _count: int = 0, *, is_waited_for: bool = False
    ) -> None:
        if not is_waited_for:
            held.append(uid)

    monkeypatch.setattr(RateLimit, "wait", wait)
    return held


def test_the_daemon_knows_what_was_waited_for_and_whether_agents_wait(
    tmp_path: Path, steps: list[int]
) -> None:
    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual, "query") as peer:
                for number in range(1, 6):
                    peer.send(wire.Status(number))
                    await peer.hear(wire.Answer)
                assert len(steps) <= 1, "the first came with the Hello"
                del steps[:]
                peer.send(*(wire.Status(number) for number in range(6, 11)))
                for _ in range(5):
                    await peer.hear(wire.Answer)
                assert len(steps) >= 4
                agents_wait = virtual.daemon.fair_queue.process_shares.agents_wait
                assert not agents_wait(), "who asks is no agent"
                with Peer(virtual) as agent:
                    agent.send(wire.Start(1, 0, "r", "s"))
                    await agent.drain()
                    agent.send(wire.Token(1, 1, b"x"))
                    await agent.drain()
                assert agents_wait()
                await anyio.sleep(2 * limits.ASKED_SECONDS)
                assert not agents_wait()

    run(main)


def test_each_piece_of_a_frame_is_read_within_the_slice(tmp_path: Path, steps: list[int]) -> None:
    """One who sent as fast as it was read had the loop to himself until the frame was whole."""

    async def main() -> None:
        async with living(Home(tmp_path)) as virtual:
            with Peer(virtual, "query") as peer:
                frame = encode(wire.HasPartial(1, "s" * 40))
                del steps[:]
                for at in range(len(frame)):
                    peer.socket.send(frame[at : at + 1])
                    await anyio.sleep(0.01)
                await peer.hear(wire.Answer)
                assert len(steps) >= len(frame) - 2

    run(main)
