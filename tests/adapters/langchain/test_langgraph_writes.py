"""Writes that the log has before their checkpoint: of tasks that did not wait, of a put again."""

from __future__ import annotations

from typing import Any

import pytest
import walld_client
from adapters.trial import wants

wants("langgraph", "langgraph-checkpoint-conformance", "langchain-openai")

from langgraph.checkpoint import base, memory  # noqa: E402
from walld_client.adapters.langgraph import WalldSaver  # noqa: E402


def at(thread: str, **more: Any) -> Any:
    return {"configurable": {"thread_id": thread, **more}}


def test_writes_that_come_before_their_checkpoint(walld: walld_client.Client) -> None:
    """As with durability="async", where a step's tasks do not wait for its checkpoint."""
    saver = WalldSaver(walld)
    checkpoint = base.empty_checkpoint()
    config = at("early", checkpoint_ns="", checkpoint_id=checkpoint["id"])
    saver.put_writes(config, [("items", "one")], "task", "path")
    assert saver.get_tuple(at("early")) is None
    saver.put(at("early", checkpoint_ns=""), checkpoint, {}, {})
    for reader in (saver, WalldSaver(walld)):
        for which in (at("early"), config):
            assert reader.get_tuple(which).pending_writes == [("task", "items", "one")]


@pytest.mark.parametrize("way", ["put again", "put again by another", "writes of another"])
def test_writes_that_stand_before_the_newest_put(walld: walld_client.Client, way: str) -> None:
    """A read by name, of the newest and of the list say the same; so does a saver in memory."""
    checkpoint = base.empty_checkpoint()
    seen = []
    for savers in (
        [memory.InMemorySaver()] * 2,
        [WalldSaver(walld), WalldSaver(walld) if "another" in way else None],
    ):
        saver, other = savers[0], savers[1] or savers[0]
        thread = at(way, checkpoint_ns="")
        if way.startswith("put again"):
            saver.put(thread, checkpoint, {}, {})
        config = at(way, checkpoint_ns="", checkpoint_id=checkpoint["id"])
        saver.put_writes(config, [("items", "one")], "task", "path")
        saver.put_writes(config, [("items", "two")], "another task", "path")
        other.put(thread, checkpoint, {}, {})
        for reader in (saver, other):
            found = [reader.get_tuple(thread), reader.get_tuple(config), *reader.list(thread)]
            seen.append([sorted(one.pending_writes) for one in found])
    assert all(one == seen[0] for one in seen)
    assert len(seen[0][0]) == 2
