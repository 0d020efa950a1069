"""Threads that run disk verbs: one for each role that must not wait for another.

Owns: handing a job to its thread and bringing back what it returned. Refuses: what a job does.

The roles are the writer, the syncer, the background (`service.py` has them), the files of sessions
and their views (`session_store/handles.py`), the look at socket files (`service.py`) and at the
file of users (`idle_exit.py`). None waits for another but by watermark: `write(2)` goes on while an
fdatasync hangs. In a simulation the same jobs run on the loop itself, so the daemon takes the
runner as an argument.
"""

from __future__ import annotations

import threading
import time
import weakref
from contextlib import suppress
from itertools import islice
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

import anyio

from walld.daemon import event_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Errand", "ThreadWorker", "Worker", "in_slices"]

T = TypeVar("T")
_SLICE = 20
"""Of what is read of a file each: some milliseconds."""


class Worker(Protocol):
    """Runs one job at a time, in the order they were given."""

    async def run(self, job: Callable[[], T]) -> T:
        """The job's result, or its exception."""

    async def timed(self, job: Callable[[], object]) -> float:
        """Run the job; the seconds it took itself, without what it waited for its turn."""

    def errand(self, job: Callable[[], object]) -> Errand:
        """A job that is begun by another thread, at a time when this one has nothing to do."""


class Errand(Protocol):
    """A job that waits for its start."""

    def start(self) -> None:
        """Begin it, once, from any thread."""

    async def timed(self) -> float:
        """Once it was started: the seconds it took, or its exception. Not cancelled."""


async def in_slices(worker: Worker, source: Iterator[T]) -> list[T]:
    """All of it, a few a job: who has one for that worker does not wait for the whole."""
    found: list[T] = []
    while some := await worker.run(lambda: list(islice(source, _SLICE))):
        found += some
    return found


class ThreadWorker:
    """A thread of its own: never more than one job at a time.

    Not anyio's `to_thread`: a job there and back is 27 us here and was 60, and a durable append
    waits for two of them.
    """

    def __init__(self) -> None:
        self._turn = anyio.Lock(fast_acquire=True)
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        weakref.finalize(self, self._jobs.put, None)

    async def run(self, job: Callable[[], T]) -> T:
        """The job's result, or its exception. Not cancelled: a write is never half awaited."""
        return (await self._handed(job))[0]

    async def timed(self, job: Callable[[], object]) -> float:
        """The seconds the job took in its thread, or its exception."""
        return (await self._handed(job))[1]

    async def _handed(self, job: Callable[[], T]) -> tuple[T, float]:
        async with self._turn:
            handed = self._job(job)
            handed.start()
            return await handed.outcome()

    def errand(self, job: Callable[[], object]) -> Errand:
        """A job that is begun by another thread, at a time when this one has nothing to do."""
        return self._job(job)

    def _job(self, todo: Callable[[], T]) -> _Job[T]:
        if self._thread is None:
            self._thread = threading.Thread(target=_work, args=[self._jobs], daemon=True)
            self._thread.start()
        return _Job(todo, self._jobs)


class _Job(Generic[T]):
    """A job on its way through the thread."""

    def __init__(self, todo: Callable[[], T], jobs: SimpleQueue[_Job[Any] | None]) -> None:
        self._todo: Callable[[], T] | None = todo
        self._jobs = jobs
        self._call_soon = event_loop.call_soon()
        self._done = event_loop.Bell()
        self._result: T | None = None
        self._error: BaseException | None = None
        self._seconds = 0.0

    def start(self) -> None:
        """Begin it, once, from any thread."""
        self._jobs.put(self)

    def work(self) -> None:
        """For the thread."""
        todo, self._todo = self._todo, None
        assert todo is not None, "begun once"
        begun = time.perf_counter()
        try:
            self._result = todo()
        except BaseException as error:
            self._error = error
        self._seconds = time.perf_counter() - begun
        with suppress(RuntimeError):  # the loop is closed: nobody awaits it any more
            self._call_soon(self._done.ring)

    async def outcome(self) -> tuple[T, float]:
        """Result and seconds, or its exception. Not cancelled."""
        try:
            await self._done.wait()
        except anyio.get_cancelled_exc_class():
            # It is in its thread. Who cancels is heard at the next wait that may be cut short.
            with anyio.CancelScope(shield=True):
                await self._done.wait()
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # it knows this frame: they would hold each other, and what the job was given
        return cast("T", self._result), self._seconds

    async def timed(self) -> float:
        """The seconds it took, or its exception."""
        return (await self.outcome())[1]


def _work(jobs: SimpleQueue[_Job[Any] | None]) -> None:
    """The thread: job after job, until the worker is gone."""
    while (job := jobs.get()) is not None:
        job.work()
        del job  # what it holds is not kept until the next one comes
