"""A worker of the daemon without a thread: its jobs run on the loop, where a clock can jump.

Owns: that a job runs at once. Refuses: jobs that take their time; whoever inherits says how long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.lowlevel

__all__ = ["InlineWorker"]

T = TypeVar("T")


class InlineWorker:
    """As `walld.daemon.storage.disk_threads.Worker`."""

    async def run(self, job: Callable[[], T]) -> T:
        await anyio.lowlevel.checkpoint()
        return job()

    async def timed(self, job: Callable[[], object]) -> float:
        begun = anyio.current_time()
        await self.run(job)
        return anyio.current_time() - begun

    def errand(self, job: Callable[[], object]) -> _Errand:
        return _Errand(self, job)


class _Errand:
    """There is no other thread to begin the job: it runs when it is awaited."""

    def __init__(self, worker: InlineWorker, job: Callable[[], object]) -> None:
        self._worker = worker
        self._job = job

    def start(self) -> None:
        pass

    async def timed(self) -> float:
        return await self._worker.timed(self._job)
