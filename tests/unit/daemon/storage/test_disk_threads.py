"""A worker's thread: one job at a time, in order, each to its end."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import anyio
import anyio.lowlevel
import pytest
from daemon_process import until

from walld.daemon.storage.disk_threads import ThreadWorker, in_slices

BACKENDS = [("asyncio", {"use_uvloop": True}), ("asyncio", {}), ("trio", {})]


@pytest.fixture(params=BACKENDS, ids=["uvloop", "asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.mark.anyio
async def test_jobs_run_in_order_one_at_a_time_beside_the_loop() -> None:
    worker, seen = ThreadWorker(), list[object]()
    loop = threading.get_ident()

    def job(number: int) -> int:
        seen.append(number)
        time.sleep(0.002)
        seen.append(number)
        assert threading.get_ident() != loop
        return number * 2

    results = dict[int, int]()

    async def ask(number: int) -> None:
        results[number] = await worker.run(partial(job, number))

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(ask, number)
    assert seen[::2] == seen[1::2]
    assert results == {number: number * 2 for number in range(20)}


@pytest.mark.anyio
@pytest.mark.parametrize("error", [OSError(28, "full"), KeyboardInterrupt()])
async def test_what_a_job_raises_comes_back_and_the_next_one_runs(error: BaseException) -> None:
    worker = ThreadWorker()

    def job() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        await worker.run(job)
    assert raised.value is error
    assert await worker.run(lambda: 3) == 3
    assert await worker.timed(lambda: time.sleep(0.01)) >= 0.01


@pytest.mark.anyio
async def test_a_job_that_runs_is_awaited_and_one_that_waits_is_not_begun_once_cancelled() -> None:
    worker, ran = ThreadWorker(), list[str]()
    begun, go_on = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        go_on.wait(10)
        ran.append("first")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run, first)
        await ThreadWorker().run(partial(begun.wait, 10))
        tasks.start_soon(worker.run, partial(ran.append, "second"))
        await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
        threading.Timer(0.05, go_on.set).start()
    assert ran == ["first"]
    assert await worker.run(lambda: len(ran)) == 1


def test_the_thread_ends_with_its_worker() -> None:
    async def main() -> threading.Thread:
        worker = ThreadWorker()
        return await worker.run(threading.current_thread)

    thread = anyio.run(main)
    gc.collect()
    until(lambda: not thread.is_alive(), "the end of the thread")


@pytest.mark.anyio
async def test_who_has_a_job_waits_for_a_slice_of_a_long_list() -> None:
    """A list of 3,000 sessions kept every new one of all users: 1.1 s beside 20 that list."""
    worker, order = ThreadWorker(), list[str]()

    def listed() -> Iterator[int]:
        for number in range(500):
            order.append("listed")
            yield number

    async def lists() -> None:
        assert await in_slices(worker, listed()) == list(range(500))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lists)
        await anyio.lowlevel.checkpoint()
        await worker.run(lambda: order.append("other"))
    assert len(order) == 501
    assert order.index("other") <= 100


@pytest.mark.anyio
async def test_what_a_job_raised_holds_nothing_that_it_was_given() -> None:
    """Job and exception held each other, and a megabyte of an upload, until a collection."""
    worker = ThreadWorker()

    def job(_given: object) -> None:
        raise ValueError

    class Given:
        """What a job was given."""

    gc.collect()
    gc.disable()
    try:
        given = Given()
        gone = weakref.ref(given)
        with suppress(ValueError):
            await worker.run(partial(job, given))
        del given
        await worker.run(int)  # the thread is done with the one before
        assert gone() is None
    finally:
        gc.enable()
