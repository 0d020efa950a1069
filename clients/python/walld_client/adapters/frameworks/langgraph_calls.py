"""The calls of LangGraph's checkpointer interface, as steps.

Owns: LangGraph's forms (configs, tuples, metadata) and the bytes of values, which its serde makes.
Refuses: the two colours (`langgraph.py`), entries (`checkpoint_log.py`), requests
(`checkpoint_steps.py`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from walld_client import aio
from walld_client.adapters.frameworks import langgraph_tasks as tasks
from walld_client.adapters.frameworks.checkpoint_log import (
    CHECKPOINT,
    WRITES,
    Stored,
    Write,
    kept_values,
    known_of,
    lasting,
)
from walld_client.adapters.frameworks.checkpoint_steps import Lines, NewCheckpoint, ThreadSteps
from walld_client.adapters.frameworks.extras import needs
from walld_client.client import Client
from walld_client.errors import Refused, Unavailable
from walld_client.ids import checked_id
from walld_client.link import process
from walld_client.session import ledger_steps
from walld_client.session.adopting import orphans, resolved
from walld_client.session.session_steps import SessionSteps
from walld_client.steps import Steps

with needs("langgraph", "langgraph"):
    from langgraph.checkpoint.base import (
        ERROR,
        INTERRUPT,
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        CheckpointTuple,
        get_checkpoint_id,
        get_checkpoint_metadata,
    )

__all__ = ["Config", "SaverSteps", "ThreadOfSaver"]

_log = logging.getLogger("walld")
_THREADS_MAX = 1024
"""Threads of which something is remembered; beyond, the one that was used longest ago goes."""
Config = dict[str, Any]


class ThreadOfSaver(ThreadSteps):
    """A thread and its lock: a checkpoint that is not in the log yet, and writes that come before
    it, are not appended at the same time, so that the checkpoint can say where its writes begin.
    """

    def __init__(self, session: SessionSteps, is_async: bool) -> None:
        super().__init__(session)
        self.has_looked = False
        """At replies of processes that are gone."""
        self._mutex = process.Mutex(asyncio.Lock if is_async else threading.Lock)

    @property
    def lock(self) -> Any:
        """Of asyncio for a client of asyncio."""
        return self._mutex.lock


class SaverSteps(BaseCheckpointSaver[int]):
    """A saver without a colour."""

    def __init__(
        self,
        client: Client | aio.Client,
        *,
        prefix: str = "",
        synced: bool = True,
        serde: Any = None,
    ) -> None:
        super().__init__(serde=serde)
        if not hasattr(client, "_append_queue"):
            raise ValueError(
                "walld is switched off (WALLD_ENABLED), so there is nowhere to keep checkpoints:"
                " compile the graph with another checkpointer"
            )
        self._client = client
        self._is_async = isinstance(client, aio.Client)
        self._prefix = prefix
        self._synced = synced
        self._threads: OrderedDict[str, ThreadOfSaver] = OrderedDict()
        self._mutex = process.Mutex()
        tasks.serve(self)

    def session_id(self, thread_id: str) -> str:
        """The session of a thread, for `client.recover` and the callback."""
        return checked_id(f"{self._prefix}{thread_id}", "thread_id")

    # --- reading ---

    def _get_tuple(self, config: Config) -> Steps[CheckpointTuple | None]:
        thread, ns = self._thread(config), _ns(config)
        checkpoint_id = get_checkpoint_id(config)
        if checkpoint_id:
            stored = yield from thread.named(ns, checkpoint_id)
        else:
            stored = yield from thread.latest(ns)
        if stored is None:
            return None
        if not thread.has_looked:
            yield from self._release_orphans(thread)
        return (yield from self._loaded(_thread_id(config), stored, {}))

    def _loaded(self, thread_id: str, stored: Stored, lines: Lines) -> Steps[CheckpointTuple]:
        loaded = yield from self._named_thread(thread_id).load(stored, lines)
        loads = self.serde.loads_typed
        values = {channel: loads(value) for channel, value in loaded.values.items()}
        parent_id = stored.parent_id
        return CheckpointTuple(
            config=_config(thread_id, stored.ns, stored.id),
            checkpoint={**loads(loaded.checkpoint), "channel_values": values},
            metadata=loads(loaded.metadata),
            parent_config=None if parent_id is None else _config(thread_id, stored.ns, parent_id),
            pending_writes=[
                (task_id, write.channel, loads(write.value)) for task_id, _, write in loaded.writes
            ],
        )

    def _thread_ids(self, config: Config | None) -> Steps[list[str]]:
        """The thread that the config names, or all there are."""
        if config is not None:
            return [_thread_id(config)]
        there = yield from ledger_steps.sessions(self._prefix)
        return [one.session_id.removeprefix(self._prefix) for one in there]

    def _matching(
        self,
        thread_id: str,
        config: Config | None,
        wanted: Mapping[str, Any] | None,
        before: Config | None,
    ) -> Steps[tuple[list[Stored], Lines]]:
        """Of one thread, the newest first, and the events they are in."""
        thread = self._named_thread(thread_id)
        all_of_it, lines = yield from thread.all()
        there = list(all_of_it.values())
        asked = {} if config is None else config["configurable"]
        checkpoint_id = get_checkpoint_id(config) if config else None
        before_id = get_checkpoint_id(before) if before else None
        if before_id is not None:
            # Namespaces are put beside each other: between two of them only ids tell the order.
            seqs = {one.ns: one.seq for one in there if one.id == before_id}
            there = [
                one
                for one in there
                if (one.seq < seqs[one.ns] if one.ns in seqs else one.id < before_id)
            ]
        found = []
        for stored in reversed(there):
            if asked.get("checkpoint_ns") not in (None, stored.ns):
                continue
            if checkpoint_id and stored.id != checkpoint_id:
                continue
            if wanted:
                metadata = self.serde.loads_typed((yield from thread.metadata(stored)))
                if any(metadata.get(key) != value for key, value in wanted.items()):
                    continue
            found.append(stored)
        return found, lines

    # --- writing ---

    def _put(
        self,
        thread: ThreadOfSaver,
        config: Config,
        checkpoint: Any,
        metadata: Any,
        new_versions: Mapping[str, Any],
    ) -> Steps[Config]:
        ns, parent_id = _ns(config), get_checkpoint_id(config)
        about = get_checkpoint_metadata(config, metadata)
        rest = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        there, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
        dumps = self.serde.dumps_typed
        parent = thread.known.get((ns, parent_id)) if parent_id else None
        while True:
            kept = kept_values(parent, versions, new_versions, there)
            run_id = about.get("run_id")
            new = NewCheckpoint(
                ns,
                checkpoint["id"],
                parent_id or None,
                None if run_id is None else str(run_id),
                dumps(rest),
                dumps(about),
                versions,
                {channel: dumps(value) for channel, value in there.items() if channel not in kept},
                kept,
            )
            try:
                yield from thread.put(new, parent, synced=self._synced)
            except Refused as refused:
                if parent is None or refused.code != "unknown_parent":
                    raise
                parent = None  # the thread was deleted meanwhile: name nothing of it
                thread.known.clear()
            else:
                if about.get("source") == "loop":
                    tasks.has_step(thread.session.session_id, ns, about.get("step"))
                return _config(_thread_id(config), ns, checkpoint["id"])

    def _put_writes(
        self,
        thread: ThreadOfSaver,
        config: Config,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
    ) -> Steps[None]:
        given = [
            Write(WRITES_IDX_MAP.get(channel, at), channel, self.serde.dumps_typed(value))
            for at, (channel, value) in enumerate(writes)
        ]
        yield from thread.put_writes(
            _ns(config),
            config["configurable"]["checkpoint_id"],
            given,
            task_id,
            task_path,
            synced=self._synced,
        )
        if _is_done((one.place, one.channel) for one in given):
            tasks.has([task_id])

    def _release_orphans(self, thread: ThreadOfSaver) -> Steps[None]:
        """What a process that is gone had said in tasks that are in the log, once a thread: it was
        killed before it released that.
        """
        session, client = thread.session, self._client
        app = None if client._sees_all else client._app
        try:
            found = yield from orphans(session, None, app)
            had = set()
            for one in (yield from session.find(WRITES)) if found else ():
                told = one["payload"]
                if _is_done((line["index"], line["channel"]) for line in told["writes"]):
                    had.add(told["task_id"])
            for reply in found:
                if tasks.is_had(reply, had):
                    yield from resolved(session, reply)
            thread.has_looked = True
        except (Refused, Unavailable) as error:  # it grew, say: the next look may do it
            text = "session %r: replies of tasks that it has are not released: %s"
            _log.warning(text, session.session_id, error)

    def _delete_thread(self, thread_id: str) -> Steps[None]:
        session_id = self.session_id(str(thread_id))
        with self._mutex.lock:
            self._threads.pop(session_id, None)
        yield from ledger_steps.delete(session_id)

    def _delete_for_runs(self, run_ids: Sequence[str]) -> Steps[None]:
        unwanted = {str(run_id) for run_id in run_ids}
        there_are = (yield from self._thread_ids(None)) if unwanted else []
        for thread_id in there_are:
            thread = self._named_thread(thread_id)
            found = yield from thread.session.find(CHECKPOINT)
            if any(one["payload"].get("run_id") in unwanted for one in found):
                there, _ = yield from thread.all()
                names = [
                    name
                    for name, stored in there.items()
                    if stored.payload.get("run_id") in unwanted
                ]
                yield from thread.drop(names, synced=self._synced)

    def _prune(self, thread_ids: Sequence[str], strategy: str) -> Steps[None]:
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"strategy must be keep_latest or delete, got {strategy!r}")
        for thread_id in thread_ids:
            if strategy == "delete":
                yield from self._delete_thread(thread_id)
                continue
            thread = self._named_thread(thread_id)
            there, _ = yield from thread.all()
            deltas = {}
            for name, stored in there.items():
                metadata = self.serde.loads_typed((yield from thread.metadata(stored)))
                deltas[name] = list(metadata.get("counters_since_delta_snapshot") or ())
            kept = lasting(there, deltas)
            yield from thread.drop(
                [name for name in there if name not in kept], synced=self._synced
            )

    def _copy_thread(self, source_thread_id: str, target: ThreadOfSaver) -> Steps[None]:
        source = self._named_thread(source_thread_id)
        there, lines = yield from source.all()
        for stored in there.values():
            loaded = yield from source.load(stored, lines)
            versions = {
                channel: version
                for channel, (version, _) in known_of(stored).values.items()
                if version is not None
            }
            parent_id = stored.parent_id
            parent = target.known.get((stored.ns, parent_id)) if parent_id else None
            new = {one: 0 for one, held in stored.payload["values"].items() if "at" not in held}
            kept = kept_values(parent, versions, new, versions)
            values = {name: value for name, value in loaded.values.items() if name not in kept}
            copied = NewCheckpoint(
                stored.ns,
                stored.id,
                parent_id,
                stored.payload.get("run_id"),
                loaded.checkpoint,
                loaded.metadata,
                versions,
                values,
                kept,
            )
            yield from target.put(copied, parent, synced=self._synced)
            for task_id, task_path, write in loaded.writes:
                yield from target.put_writes(
                    stored.ns, stored.id, [write], task_id, task_path, synced=self._synced
                )

    # --- threads ---

    def _thread(self, config: Config) -> ThreadOfSaver:
        return self._named_thread(_thread_id(config))

    def _named_thread(self, thread_id: str) -> ThreadOfSaver:
        session_id = self.session_id(str(thread_id))
        with self._mutex.lock:
            thread = self._threads.get(session_id)
            if thread is None:
                # Not `client.session`: state must not go through `redact`.
                client = self._client
                session = SessionSteps(session_id, None, _nothing_seen, client._append_queue)
                thread = self._threads[session_id] = ThreadOfSaver(session, self._is_async)
                self._forget()
            self._threads.move_to_end(session_id)
            return thread

    def _forget(self) -> None:
        """What was used longest ago, unless something is under way there."""
        for session_id in list(islice(self._threads, max(0, len(self._threads) - _THREADS_MAX))):
            thread = self._threads[session_id]
            if not thread.lock.locked():
                del self._threads[session_id]

    @staticmethod
    def _locked_for_writes(thread: ThreadOfSaver, config: Config) -> ThreadOfSaver | None:
        """None where their checkpoint is in the log: tasks of one step share a sync then."""
        name = (_ns(config), config["configurable"]["checkpoint_id"])
        return None if name in thread.known else thread


def _nothing_seen(session_id: str) -> list[Any]:
    """Checkpoints do not wait for what is being streamed."""
    return []


def _is_done(writes: Iterable[tuple[int, str]]) -> bool:
    """Did the task come to its end? Index and channel of what it wrote: one that failed or was
    interrupted says so there.
    """
    told = list(writes)
    is_cut = any(channel in (ERROR, INTERRUPT) for _, channel in told)
    return not is_cut and any(index >= 0 for index, _ in told)


def _thread_id(config: Config) -> str:
    return str(config["configurable"]["thread_id"])


def _ns(config: Config) -> str:
    return config["configurable"].get("checkpoint_ns") or ""


def _config(thread_id: str, ns: str, checkpoint_id: str) -> Config:
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": ns,
            "checkpoint_id": checkpoint_id,
        }
    }
