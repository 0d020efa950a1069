"""What does a checkpoint cost, and does reading the newest one depend on how many there are?

A thread of LangGraph as its saver keeps it (`walld_client.adapters.frameworks.checkpoint_steps`,
without LangGraph and its serde): a step of each checkpoint has a counter that changes, a list of 2
KB that changes every third time and 2 KB that never do, and two writes of a task. Each read is made
by a `ThreadSteps` that remembers nothing, as a new process would.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from walld_client import connect
from walld_client.adapters.frameworks.checkpoint_log import Write, kept_values
from walld_client.adapters.frameworks.checkpoint_steps import Loaded, NewCheckpoint, ThreadSteps
from walld_client.client import Client
from walld_client.steps import Steps

from bench.report.numbers import median, quantile, spread
from bench.report.table import Figure
from bench.run import Run

__all__ = ["measure"]

_COUNTS = (10, 100, 1000)
_SESSION = "thread"
_VALUE = ("msgpack", b"v" * 2000)
_SHORT = ("msgpack", b"s" * 60)


def _thread(client: Client) -> ThreadSteps:
    return ThreadSteps(client.session(_SESSION)._steps)


def _step(thread: ThreadSteps, number: int) -> Steps[None]:
    """One checkpoint, and what a task of it wrote."""
    versions = {"step": number, "messages": 1 + number // 3, "summary": 1}
    parent = thread.known.get(("", f"c{number - 1}"))
    kept = kept_values(parent, versions, {}, versions)
    everything = {"step": _SHORT, "messages": _VALUE, "summary": _VALUE}
    values = {name: value for name, value in everything.items() if name not in kept}
    parent_id = f"c{number - 1}" if number > 1 else None
    new = NewCheckpoint(
        "", f"c{number}", parent_id, None, ("msgpack", b"c" * 300), _SHORT, versions, values, kept
    )
    yield from thread.put(new, parent, synced=True)
    writes = [Write(0, "step", _SHORT), Write(1, "messages", ("msgpack", b"m" * 200))]
    yield from thread.put_writes("", new.id, writes, "task", "", synced=True)


def _newest(thread: ThreadSteps) -> Steps[Loaded]:
    stored = yield from thread.latest("")
    assert stored is not None
    return (yield from thread.load(stored, {}))


def _oldest(thread: ThreadSteps) -> Steps[Loaded]:
    stored = yield from thread.named("", "c1")
    assert stored is not None
    return (yield from thread.load(stored, {}))


def _history(thread: ThreadSteps) -> Steps[None]:
    there, lines = yield from thread.all()
    for stored in there.values():
        yield from thread.load(stored, lines)


def _times(client: Client, what: Callable[[ThreadSteps], Steps[Any]], rounds: int) -> list[float]:
    """Milliseconds."""
    took = []
    for _ in range(rounds):
        thread = _thread(client)
        begun = time.perf_counter()
        client._asked(what(thread))
        took.append(1e3 * (time.perf_counter() - begun))
    return took


def measure(run: Run) -> list[Figure]:
    """Reads at each count; the rest where the thread is longest."""
    figures = []
    counts = _COUNTS if run.pick(1, 0) else _COUNTS[:2]
    with run.daemon() as daemon:
        client = connect(daemon.socket_path)
        thread, steps, reads = _thread(client), list[float](), dict[int, list[float]]()
        number = 0
        for at, count in enumerate(counts):
            run.step(at / len(counts), f"{count} checkpoints")
            while number < count:
                number += 1
                begun = time.perf_counter()
                client._asked(_step(thread, number))
                steps.append(1e3 * (time.perf_counter() - begun))
            reads[count] = _times(client, _newest, 50)
            figures.append(_figure(f"the newest of {count}, read, p50", reads[count], 5.0))
        (session,) = client.sessions(_SESSION)
        last = counts[-1]
        figures.append(_figure("a checkpoint and its writes, synced, p50", steps[-90:], 10.0))
        grows = median(reads[last]) / median(reads[counts[0]])
        figures.append(Figure("checkpoints", f"newest of {last} to newest of 10", grows, "", 2.0))
        figures.append(
            _figure(f"the oldest of {last} by its id, p50", _times(client, _oldest, 5), None)
        )
        figures.append(_figure(f"all {last}, p50", _times(client, _history, 3), None))
        each = session.bytes / last
        figures.append(Figure("checkpoints", "bytes a checkpoint", each, "bytes", None))
        client.close()
    return figures


def _figure(name: str, took: list[float], goal: float | None) -> Figure:
    note = f"{name.removesuffix(', p50')}: p99 {quantile(took, 0.99):.1f} ms of {len(took)}"
    return Figure(
        "checkpoints", name, median(took), "ms", goal, spread=spread(took), note=note
    )  # fmt: skip
