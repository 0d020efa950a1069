"""Any history of a saver's calls, beside LangGraph's own saver in memory: each call says the same.

By a seed: checkpoints of several namespaces that share values, writes before and behind their
checkpoint, the same ones again, lists, deletions; by savers that remember nothing of the one
before, and daemons that were killed in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import pytest
import walld_client
from adapters.trial import wants
from daemon_process import DaemonProcess
from walld_client import aio

wants("langgraph", "langchain-openai")

from langgraph.checkpoint import base, memory  # noqa: E402
from walld_client.adapters.langgraph import WalldSaver  # noqa: E402

HISTORIES = 8
CALLS = 80
NAMESPACES = ("", "child", "child|x:1")
CHANNELS = ("a", "b", "values", "_artifact", "__start__", "x" * 300)
SPECIAL = ("__error__", "__interrupt__", "__resume__")


class Call(NamedTuple):
    """A method of a saver, and what it is given."""

    method: str
    given: tuple[Any, ...]
    about: dict[str, Any]


def value_of(random: Random) -> Any:
    return random.choice(
        (b"\0" * 9, "x" * 70_000, None, {"values": {"_artifact": {"sha256": "00"}}}, "\u2028", 1.5)
    )


class History:
    """Calls, each possible behind those before it."""

    def __init__(self, thread: str, random: Random) -> None:
        self._thread = thread
        self._random = random
        self._count = 0
        self._forget()

    def _forget(self) -> None:
        self._there: dict[str, dict[str, tuple[dict[str, Any], dict[str, int]]]] = {
            ns: {} for ns in NAMESPACES
        }
        """Values and versions of the checkpoints of a namespace."""
        self._early: dict[str, str] = {}
        """By namespace, a checkpoint of which there are only writes: the next one that is put."""

    def calls(self) -> Iterator[Call]:
        for _ in range(CALLS):
            ns, chance = self._random.choice(NAMESPACES), self._random.random()
            if chance < 0.4:
                yield self._put(ns)
            elif chance < 0.7:
                yield self._put_writes(ns)
            elif chance < 0.98:
                yield self._look(ns)
            else:
                self._forget()
                yield Call("delete_thread", (self._thread,), {})
        yield from (Call("list", (self._at(ns),), {}) for ns in NAMESPACES)

    def _at(self, ns: str, checkpoint_id: str | None = None) -> Any:
        named = {} if checkpoint_id is None else {"checkpoint_id": checkpoint_id}
        return {"configurable": {"thread_id": self._thread, "checkpoint_ns": ns, **named}}

    def _new_id(self) -> str:
        self._count += 1
        return f"{self._count:06}"

    def _newest(self, ns: str) -> list[str]:
        return list(self._there[ns])[-3:]

    def _put(self, ns: str) -> Call:
        random, checkpoint_id = self._random, self._early.pop(ns, None) or self._new_id()
        newest = self._newest(ns)
        parent = random.choice(newest) if newest and random.random() < 0.9 else None
        before = self._there[ns][parent] if parent is not None else ({}, {})
        values, versions, new = dict(before[0]), dict(before[1]), dict[str, int]()
        for _ in range(random.randint(0, 4)):
            channel = random.choice(CHANNELS)
            self._count += 1
            versions[channel] = new[channel] = self._count
            values.pop(channel, None)
            if random.random() < 0.85:
                values[channel] = value_of(random)
        self._there[ns][checkpoint_id] = (values, versions)
        checkpoint = base.empty_checkpoint() | {"id": checkpoint_id, "ts": ""}
        checkpoint |= {"channel_values": dict(values), "channel_versions": versions}
        metadata = {"source": random.choice(("loop", "input")), "step": self._count, "parents": {}}
        return Call("put", (self._at(ns, parent), checkpoint, metadata, new), {})

    def _put_writes(self, ns: str) -> Call:
        random, places = self._random, self._newest(ns)
        if not places or random.random() < 0.15:
            self._early[ns] = self._early.get(ns) or self._new_id()
        places += [self._early[ns]] if ns in self._early else []
        writes = [
            (random.choice(CHANNELS + SPECIAL), value_of(random))
            for _ in range(random.randint(0, 4))
        ]
        task, path = f"task {random.randint(0, 3)}", random.choice(("", "~1"))
        return Call("put_writes", (self._at(ns, random.choice(places)), writes, task, path), {})

    def _look(self, ns: str) -> Call:
        random, there = self._random, list(self._there[ns])
        one = random.choice(there) if there and random.random() < 0.5 else None
        if random.random() < 0.6:
            return Call("get_tuple", (self._at(ns, one),), {})
        about: dict[str, Any] = {"limit": random.choice((None, 1, 3))}
        about["filter"] = random.choice((None, {"source": "loop"}))
        about["before"] = None if one is None else self._at(ns, one)
        return Call("list", (self._at(ns),), about)


async def said(saver: Any, call: Call, is_async: bool) -> Any:
    """What a saver says to a call."""
    method = getattr(saver, ("a" if is_async else "") + call.method)
    found = method(*call.given, **call.about)
    if call.method == "list":
        return [one async for one in found] if is_async else list(found)
    found = await found if is_async else found
    return found if call.method == "get_tuple" else None  # of a checkpoint that was put: its name


@pytest.mark.parametrize("client", ["sync", "aio"])
def test_any_history(kept_by: DaemonProcess, client: str) -> None:
    for number in range(HISTORIES):
        asyncio.run(_beside_the_vendors(kept_by, f"any {client} {number}", client == "aio"))


async def _beside_the_vendors(daemon: DaemonProcess, thread: str, is_async: bool) -> None:
    random, theirs = Random(thread), memory.InMemorySaver()
    walld: Any = None
    for at, call in enumerate(History(thread, random).calls()):
        if walld is None or random.random() < 0.1:
            await _close(walld)
            walld = (aio if is_async else walld_client).connect(daemon.socket_path, timeout=30)
            ours = WalldSaver(walld)
        if random.random() < 0.01:
            daemon.kill()
            daemon.start()
        expected = await said(theirs, call, is_async=False)
        assert await said(ours, call, is_async) == expected, (thread, at, call.method)
    await _close(walld)


async def _close(walld: Any) -> None:
    if isinstance(walld, aio.Client):
        await walld.close()
    elif walld is not None:
        walld.close()
