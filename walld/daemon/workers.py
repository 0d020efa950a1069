"""Who runs a disk verb: a thread each for the writer, the syncer and the background.

Owns: handing a job to its thread and bringing back what it returned. Refuses: what a job does.

The three never wait for another but by watermark: `write(2)` goes on while an fdatasync hangs. In a
simulation the same jobs run on the loop itself, so the daemon takes the runner as an argument.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

if TYPE_CHECKING:
    from collections.abc import Callable

    _CallSoon = Callable[[Callable[[], object]], object]

__all__ = ["InlineWorker", "ThreadWorker", "Worker"]

T = TypeVar("T")


class Worker(Protocol):
    """Runs one job at a time, in the order they were given."""

    async def run(self, job: Callable[[], T]) -> T:
        """The job's result, or its exception."""

    async def timed(self, job: Callable[[], object]) -> float:
        """Run the job; the seconds it took itself, without what it waited for its turn."""


class ThreadWorker:
    """A thread of its own: never more than one job at a time.

    Not anyio's `to_thread`: a job there and back is 27 us here and was 60, and a durable append
    waits for two of them.
    """

    def __init__(self) -> None:
        self._turn = anyio.Lock(fast_acquire=True)
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        weakref.finalize(self, self._jobs.put, None)

    async def run(self, job: Callable[[], T]) -> T:
        """The job's result, or its exception. Not cancelled: a write is never half awaited."""
        async with self._turn:
            await checkpoint_if_cancelled()
            if self._thread is None:
                self._thread = threading.Thread(target=_work, args=[self._jobs], daemon=True)
                self._thread.start()
            done = anyio.Event()
            handed = _Job(job, _call_soon(), done.set)
            self._jobs.put(handed)
            with anyio.CancelScope(shield=True):
                await done.wait()
        if handed.error is not None:
            raise handed.error
        return cast("T", handed.result)

    async def timed(self, job: Callable[[], object]) -> float:
        """The seconds the job took in its thread, or its exception."""

        def clocked() -> float:
            begun = time.perf_counter()
            job()
            return time.perf_counter() - begun

        return await self.run(clocked)


class _Job:
    """A job on its way through the thread."""

    __slots__ = ("call_soon", "done", "error", "result", "todo")

    def __init__(
        self, todo: Callable[[], object], call_soon: _CallSoon, done: Callable[[], object]
    ) -> None:
        self.todo = todo
        self.call_soon = call_soon
        self.done = done
        self.result: object = None
        self.error: BaseException | None = None


def _call_soon() -> _CallSoon:
    """What has the event loop that runs here call something, from any thread."""
    try:
        return asyncio.get_running_loop().call_soon_threadsafe
    except RuntimeError:
        import trio

        return trio.lowlevel.current_trio_token().run_sync_soon


def _work(jobs: SimpleQueue[_Job | None]) -> None:
    """The thread: job after job, until the worker is gone."""
    while (job := jobs.get()) is not None:
        try:
            job.result = job.todo()
        except BaseException as error:
            job.error = error
        with suppress(RuntimeError):  # the loop is closed: nobody awaits it any more
            job.call_soon(job.done)
        del job  # what it holds is not kept until the next one comes


class InlineWorker:
    """On the loop: for simulations, where a thread would break determinism."""

    async def run(self, job: Callable[[], T]) -> T:
        """The job's result, or its exception."""
        await checkpoint()
        return job()

    async def timed(self, job: Callable[[], object]) -> float:
        """The seconds of the loop's own clock that `run` took."""
        begun = anyio.current_time()
        await self.run(job)
        return anyio.current_time() - begun
