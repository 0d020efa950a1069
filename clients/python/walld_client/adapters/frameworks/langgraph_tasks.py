"""Replies of LangGraph's tasks, which a saver releases once it has what the tasks gave.

Owns: which reply is of which tasks, and when a saver has all of them. Refuses: the callbacks of
LangChain (`langchain.py`), checkpoints (`langgraph_calls.py`).

A task is what LangGraph runs of a node, by an id that is the same where another run goes on with
it. Its namespace is the path to it, `node:task` for each graph around it, and a saver that has what
an outer task gave has all that was said within. A reply is of the task whose model spoke, and of
each that gave a result of its calls: words are forgotten only once they are in a state. A task that
failed, or was interrupted, gave nothing.

Callback and saver meet here, in one process. Of a process that is gone the reply itself has its
task (`meta`), and its results theirs.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Container, Iterable, Iterator
from typing import Any
from weakref import WeakSet

from walld_client.link import process
from walld_client.link.link import Link
from walld_client.link.stream import Stream
from walld_client.recovered.partial import PartialReply
from walld_client.reply.reply import ReplyBase
from walld_client.reply.send import release

__all__ = [
    "answered",
    "completed",
    "facts",
    "has",
    "has_step",
    "is_had",
    "serve",
    "settle",
    "spoken",
]

_KEPT_MAX = 4096
_mutex = process.Mutex(threading.RLock)
"""Of the tables; a finalizer may come while its own thread has it."""


class _Spoken:
    """A reply; no reference to the object itself, whose end makes a reply a cancelled one."""

    __slots__ = ("link", "spaces", "stream")

    def __init__(self, reply: ReplyBase, namespace: str) -> None:
        self.link: Link = reply._link
        self.stream: Stream = reply._stream
        self.spaces = {namespace}
        """Of its tasks."""


_spoken: OrderedDict[str, _Spoken] = OrderedDict()
"""By stream id."""
_savers: WeakSet[object] = WeakSet()
"""Without one nothing is ever said to be had."""
_completed: OrderedDict[str, int] = OrderedDict()
"""Namespaces of tasks of which LangGraph has what they gave, and their steps."""
_had: OrderedDict[str, None] = OrderedDict()
"""Tasks."""


def facts(namespace: str, node: object = None) -> dict[str, Any]:
    """What a reply is told of its task, and a result of its tool's."""
    told = {"node": node, "task": _task_of(namespace), "checkpoint_ns": namespace}
    return {name: one for name, one in told.items() if one is not None}


def serve(saver: object) -> None:
    """A saver says what it has, while it lives."""
    _savers.add(saver)


def spoken(reply: ReplyBase, namespace: str) -> None:
    """A model of that task begins to speak."""
    with _mutex.lock:
        if not _savers:
            _spoken.clear()
            return
        _spoken[reply.stream_id] = _Spoken(reply, namespace)
        _bound(_spoken)


def answered(stream_id: str, namespace: str) -> None:
    """A tool of that task begins to run for a call of the reply."""
    with _mutex.lock:
        if (one := _spoken.get(stream_id)) is not None:
            one.spaces.add(namespace)


def completed(namespace: str, step: object) -> None:
    """LangGraph has what the task gave; a checkpoint behind its step has it too."""
    if isinstance(step, int) and _savers:
        with _mutex.lock:
            _completed[namespace] = step
            _bound(_completed)


def has(tasks: Iterable[str]) -> None:
    """A saver has what these tasks gave: their replies are released, as they end."""
    with _mutex.lock:
        for task in tasks:
            _had[task] = None
        _bound(_had)
    settle()


def has_step(session_id: str, graph: str, step: object) -> None:
    """A saver has the checkpoint behind that step of a graph, and so what the completed tasks until
    then gave: with durability "exit" they are in no other entry. session_id: of their replies.
    """
    if not isinstance(step, int):
        return
    with _mutex.lock:
        spaces = {
            outer
            for one in _spoken.values()
            if one.stream.session_id == session_id
            for space in one.spaces
            for outer in _outwards(space)
        }
        found = [
            _task_of(space)
            for space in spaces
            if space.rpartition("|")[0] == graph and _completed.get(space, step + 1) <= step
        ]
    if found:
        has(found)


def settle() -> None:
    """Release what has ended and is had."""
    with _mutex.lock:
        if not _had:
            return
        gone = [name for name, one in _spoken.items() if one.stream.released or one.stream.gone]
        for name in gone:
            del _spoken[name]
        over = [
            (name, one)
            for name, one in _spoken.items()
            if one.stream.terminal and all(_is_in(space, _had) for space in one.spaces)
        ]
        for name, _ in over:
            del _spoken[name]
    for _, one in over:  # outside: it waits for the link's own lock, and may send
        release(one.link, one.stream)


def is_had(reply: PartialReply, tasks: Container[str]) -> bool:
    """Are these all tasks of a reply whose process is gone? Not where a call of it is open: it may
    have run.
    """
    space = reply.meta.get("checkpoint_ns") if isinstance(reply.meta, dict) else None
    if not isinstance(space, str) or not _is_in(space, tasks):
        return False
    for one in reply.segments:
        if one.kind == "gap" or (one.kind == "tool" and one.outcome == "unknown"):
            return False
        if one.kind == "tool" and isinstance(one.result_info, dict):
            told = one.result_info.get("checkpoint_ns")
            if isinstance(told, str) and not _is_in(told, tasks):
                return False
    return True


def _is_in(namespace: str, tasks: Container[str]) -> bool:
    """Is it the namespace of one of these tasks, or within it?"""
    return any(_task_of(one) in tasks for one in _outwards(namespace))


def _outwards(namespace: str) -> Iterator[str]:
    """It, and those around it."""
    while namespace:
        yield namespace
        namespace = namespace.rpartition("|")[0]


def _task_of(namespace: str) -> str:
    return namespace.rpartition(":")[2]


def _bound(table: OrderedDict[str, Any]) -> None:
    """Of graphs with another saver than walld's nothing is ever said to be had: the oldest go."""
    while len(table) > _KEPT_MAX:
        table.popitem(last=False)
