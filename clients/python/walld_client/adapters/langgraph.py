"""A checkpointer for LangGraph whose storage is the session ledger.

    graph = builder.compile(checkpointer=WalldSaver(walld_client.connect()))

A thread is the session `prefix + thread_id`: what was streamed under the same session since the
last checkpoint is recovered with `client.recover(session_id)`.

Owns: LangGraph's methods in two colours. Refuses: what they do (`langgraph_calls.py`), entries and
their invariants (`checkpoint_log.py`).

- A call that returned has its checkpoint on disk: with `synced`, the default, it survives the loss
  of power, else the death of every process. Where that cannot be had it raises: Unavailable where
  walld cannot be asked, Refused where it says no. A saver that returned all the same would lie.
  LangGraph's default durability, "async", goes on beside the call and keeps what is not put yet in
  a queue of its own, without a bound: a program that is killed loses all of it. "sync" waits.
- What `prune` and `delete_for_runs` drop is never read again, and stays on disk: the log is not
  rewritten. `delete_thread` deletes the session, its bytes and its replies.
- `copy_thread` is as many appends as there are checkpoints, the oldest first: killed in between,
  the target has a shorter history, whole as far as it goes.
- State does not go through the client's `redact`, which would break it: what must not be kept is
  the serde's to encrypt.
- With a client of `walld_client.connect` both colours of a graph work; the async one has a thread
  wait. With one of `walld_client.aio.connect` the async one does, and the other is a TypeError.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

from walld_client.adapters.frameworks.extras import needs
from walld_client.adapters.frameworks.langgraph_calls import Config, SaverSteps, ThreadOfSaver
from walld_client.steps import Steps

with needs("langgraph", "langgraph"):
    from langgraph.checkpoint.base import CheckpointTuple

__all__ = ["WalldSaver"]

_T = TypeVar("_T")


class WalldSaver(SaverSteps):
    """Keeps the checkpoints of each thread in a session of walld.

    prefix: goes before each thread_id, for programs of one user whose thread ids would meet.
    synced: a checkpoint survives the loss of power once `put` returned; False: a crash of walld and
    of the program. serde: LangGraph's.
    """

    # --- LangGraph's calls ---

    def get_tuple(self, config: Config) -> CheckpointTuple | None:
        """The checkpoint that the config names, else the newest of its thread and namespace."""
        return self._wait(self._get_tuple(config))

    async def aget_tuple(self, config: Config) -> CheckpointTuple | None:
        """The same, awaited."""
        return await self._awaited(self._get_tuple(config))

    def list(
        self,
        config: Config | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: Config | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, the newest first; reads each thread's log whole. None: of all threads."""
        for thread_id in self._wait(self._thread_ids(config)):
            found, lines = self._wait(self._matching(thread_id, config, filter, before))
            for stored in found[:limit]:
                yield self._wait(self._loaded(thread_id, stored, lines))
            if limit is not None and (limit := limit - len(found[:limit])) <= 0:
                return

    async def alist(
        self,
        config: Config | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: Config | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """The same, awaited."""
        for thread_id in await self._awaited(self._thread_ids(config)):
            steps = self._matching(thread_id, config, filter, before)
            found, lines = await self._awaited(steps)
            for stored in found[:limit]:
                yield await self._awaited(self._loaded(thread_id, stored, lines))
            if limit is not None and (limit := limit - len(found[:limit])) <= 0:
                return

    def put(
        self, config: Config, checkpoint: Any, metadata: Any, new_versions: Mapping[str, Any]
    ) -> Config:
        """Append a checkpoint; a value whose version did not change is named, not stored again."""
        thread = self._thread(config)
        return self._wait(self._put(thread, config, checkpoint, metadata, new_versions), thread)

    async def aput(
        self, config: Config, checkpoint: Any, metadata: Any, new_versions: Mapping[str, Any]
    ) -> Config:
        """The same, awaited."""
        thread = self._thread(config)
        steps = self._put(thread, config, checkpoint, metadata, new_versions)
        return await self._awaited(steps, thread)

    def put_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Append what a task wrote. Twice is once."""
        thread = self._thread(config)
        steps = self._put_writes(thread, config, writes, task_id, task_path)
        self._wait(steps, self._locked_for_writes(thread, config))

    async def aput_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """The same, awaited."""
        thread = self._thread(config)
        steps = self._put_writes(thread, config, writes, task_id, task_path)
        await self._awaited(steps, self._locked_for_writes(thread, config))

    def delete_thread(self, thread_id: str) -> None:
        """Delete its session: checkpoints, writes, replies, every byte."""
        self._wait(self._delete_thread(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """The same, awaited."""
        await self._awaited(self._delete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Drop the checkpoints of these runs. Looks through every thread."""
        self._wait(self._delete_for_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """The same, awaited."""
        await self._awaited(self._delete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Append all checkpoints and writes of a thread to another."""
        target = self._named_thread(target_thread_id)
        self._wait(self._copy_thread(source_thread_id, target), target)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """The same, awaited."""
        target = self._named_thread(target_thread_id)
        await self._awaited(self._copy_thread(source_thread_id, target), target)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Drop all but the newest checkpoint of each namespace; or, "delete", the threads."""
        self._wait(self._prune(thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """The same, awaited."""
        await self._awaited(self._prune(thread_ids, strategy))

    # --- the two colours ---

    def _wait(self, steps: Steps[_T], locked: ThreadOfSaver | None = None) -> _T:
        if self._is_async:
            steps.close()
            raise TypeError(
                "this WalldSaver has an asyncio client: use ainvoke, astream and their like, or"
                " make it with walld_client.connect(), which serves both"
            )
        with nullcontext() if locked is None else locked.lock:
            found: _T = self._client._asked(steps)  # type: ignore[assignment]
            return found

    async def _awaited(self, steps: Steps[_T], locked: ThreadOfSaver | None = None) -> _T:
        if not self._is_async:
            return await asyncio.to_thread(self._wait, steps, locked)
        async with nullcontext() if locked is None else locked.lock:
            found: _T = await self._client._asked(steps)  # type: ignore[arg-type]
            return found
