"""Who runs a disk verb: a thread each for the writer, the syncer and the background.

Owns: handing a job to its thread and bringing back what it returned. Refuses: what a job does.

The three never wait for another but by watermark: `write(2)` goes on while an fdatasync hangs. In a
simulation the same jobs run on the loop itself, so the daemon takes the runner as an argument.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, TypeVar

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["InlineWorker", "ThreadWorker", "Worker"]

T = TypeVar("T")


class Worker(Protocol):
    """Runs one job at a time, in the order they were given."""

    async def run(self, job: Callable[[], T]) -> T:
        """The job's result, or its exception."""

    async def timed(self, job: Callable[[], object]) -> float:
        """Run the job; the seconds it took itself, without what it waited for its turn."""


class ThreadWorker:
    """A thread of its own: never more than one job at a time."""

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(1)

    async def run(self, job: Callable[[], T]) -> T:
        """The job's result, or its exception. Not cancelled: a write is never half awaited."""
        return await to_thread.run_sync(job, limiter=self._limiter, abandon_on_cancel=False)

    async def timed(self, job: Callable[[], object]) -> float:
        """The seconds the job took in its thread, or its exception."""

        def clocked() -> float:
            begun = time.perf_counter()
            job()
            return time.perf_counter() - begun

        return await self.run(clocked)


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
