"""What a process keeps of the replies of LangGraph's tasks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import walld_client
from walld_client.adapters.frameworks import langgraph_tasks as tasks


class Saver:
    """What `serve` knows of one: that it lives."""


@pytest.fixture
def client() -> Iterator[walld_client.Client]:
    made = walld_client.connect("/nowhere/walld.sock", backlog_bytes_max=1 << 20)
    yield made
    made.close(0)


def test_without_a_saver_nothing_is_kept(client: walld_client.Client) -> None:
    tasks.spoken(client.reply("s"), "speak:1")
    tasks.completed("speak:1", 1)
    assert not tasks._spoken
    assert not tasks._completed


def test_with_a_saver_until_it_is_gone(client: walld_client.Client) -> None:
    saver = Saver()
    tasks.serve(saver)
    first = client.reply("s")
    tasks.spoken(first, "speak:1")
    assert list(tasks._spoken) == [first.stream_id]
    del saver
    tasks.spoken(client.reply("s"), "speak:2")
    assert not tasks._spoken
