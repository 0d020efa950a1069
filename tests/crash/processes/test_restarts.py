"""Killed again and again: the same bytes every time; torn tails; what a restart must not do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from agents.process import Obedient
from agents.words import said
from daemon_process import DaemonProcess, until
from walld_client.recovered.partial import from_recovered

from walld.cli.inspect.offline import find
from walld.wal.layout import BATCH_HEADER_BYTES, SEGMENT_HEADER_BYTES


def test_ten_kills_give_the_same_bytes(
    daemon_on_each: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    daemon = daemon_on_each
    agent = make_agent(daemon)
    agent.do(
        """
        reply = client.reply('s', stream_id='r', turn_id='t', model='m')
        reply.reasoning('why '); reply.token('Hello '); reply.retry('again')
        for number in range(100):
            reply.token(f'{number} ')
        reply.tool('look', {'at': 'it'}, call_id='c1'); reply.tool_result({'seen': 1}, call_id='c1')
        reply.step(); reply.event('app', {'k': [1, 2]}); reply.token('so', source='web')
        reply.tool_arguments('{"half', call_id='c2')
        """
    )
    assert agent.do("reply.drain(20)")
    daemon.kill()
    agent.kill()
    daemon.start()
    first, printed = read(daemon), daemon.recovered_json("s")
    sizes = set()
    for _ in range(10):
        daemon.restart()
        assert [read(daemon), read(daemon)] == [first, first]
        sizes.add(sum(path.stat().st_size for path in daemon.partials()))
    until(daemon.partials, "the partial")
    assert (read(daemon), daemon.recovered_json("s")) == (first, printed)
    assert len(daemon.partials()) == 1
    assert len(sizes) <= 2, "no partial, or the one"
    until(lambda: len(daemon.segments()) == 1, "the segments of dead daemons gone")
    assert json.loads(first)["text"].startswith("0 1 2 ")
    assert json.loads(first) == json.loads(printed)


def read(daemon: DaemonProcess) -> str:
    """The reply of session "s", every field of it, as JSON."""
    reply = daemon.reader.recover("s")
    assert reply is not None
    return json.dumps(reply.to_dict())


def test_ten_kills_of_a_stream_that_goes_on(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r'); seq = 0")
    for turn in range(10):
        agent.do(
            """
            for seq in range(seq + 1, seq + 21):
                reply.token(token(0, seq))
            """
        )
        if turn % 3 == 0:
            assert agent.do("reply.drain(20)")
        daemon.restart()
    agent.do("reply.drain(20)")
    reply = daemon.reader.recover("s")
    assert reply is not None
    assert (reply.text, reply.last_seq, reply.gaps) == (said(0, 200), 200, [])
    assert daemon.metrics()["walld_lost_acked_total"] == 0


def test_killed_while_it_writes(daemon: DaemonProcess, make_agent: Callable[..., Obedient]) -> None:
    """Large writes torn by a plain SIGKILL: the start goes on, what is there is a whole prefix."""
    agent = make_agent(daemon)
    agent.do(
        """
        import threading
        reply = client.reply('s', stream_id='r')
        def stream():
            number = 0
            while True:
                if number - reply.durable_seq < 100:  # 5.6 MB: the ring holds all that is not safe
                    reply.token(f'{number:06} ' * 8000)
                    number += 1
        threading.Thread(target=stream, daemon=True).start()
        """
    )
    torn = 0
    for _ in range(5):
        until(lambda: daemon.metrics()["walld_wal_write_bytes_total"] > 4_000_000, "4 MB written")
        daemon.restart()
        start = daemon.status()["start"]
        torn += start["torn"]
        assert (start["corrupt"], start["unreadable"]) == (0, 0)
    agent.kill()
    reply = daemon.orphan("r")
    assert reply.gaps == []
    assert reply.last_seq > 100
    assert reply.text == "".join(f"{number:06} " * 8000 for number in range(reply.last_seq))
    assert daemon.metrics()["walld_lost_acked_total"] == 0


# --- a small log, cut at every length -------------------------------------------------------------


@pytest.fixture
def small_log(
    make_daemon: Callable[..., DaemonProcess], make_agent: Callable[..., Obedient]
) -> tuple[DaemonProcess, Path]:
    """A dead daemon and its newest segment: two streams, six flushes, both agents dead."""
    daemon = make_daemon().start()
    agent = make_agent(daemon)
    agent.do("a = client.reply('s', stream_id='a'); b = client.reply('s', stream_id='b')")
    for seq in range(1, 7):
        agent.do(f"a.token(token(0, {seq})); b.token(token(1, {seq})); a.drain(20)")
    daemon.kill()
    agent.kill()
    segment = daemon.segments()[-1]
    assert segment.stat().st_size > SEGMENT_HEADER_BYTES
    return daemon, segment


def prefixes(daemon: DaemonProcess) -> dict[str, int]:
    """Each stream that the directory alone tells of, and its last seq; every text is a prefix.

    Whether a torn tail is a doubt does not matter here.
    """
    found = {}
    for reply in map(from_recovered, find(str(daemon.data)).replies):
        at = "ab".index(reply.stream_id)
        assert reply.text == said(at, reply.last_seq)
        assert reply.gaps == []
        found[reply.stream_id] = reply.last_seq
    return found


def test_truncated_at_every_length(small_log: tuple[DaemonProcess, Path]) -> None:
    daemon, segment = small_log
    content = segment.read_bytes()
    assert prefixes(daemon) == {"a": 6, "b": 6}
    before: dict[str, int] = {"a": 6, "b": 6}
    steps = set()
    for length in range(len(content), -1, -1):
        segment.write_bytes(content[:length])
        found = prefixes(daemon)
        assert all(found.get(name, -1) <= last for name, last in before.items())
        steps.add(tuple(sorted(found.items())))
        before = {name: found.get(name, -1) for name in before}
    drained = {(("a", seq), ("b", seq)) for seq in range(1, 7)}
    assert {(), *drained} <= steps, "each flush adds its own, whole or not at all"


def test_a_daemon_starts_on_a_torn_tail_and_its_agents_go_on(
    small_log: tuple[DaemonProcess, Path], make_agent: Callable[..., Obedient]
) -> None:
    """At lengths all over the segment: it starts, gives a prefix, and fuses nothing with it."""
    daemon, segment = small_log
    backup = daemon.home / "backup"
    shutil.copytree(daemon.data, backup)
    size = segment.stat().st_size
    # Header, first batch, the middle of everything, one byte short.
    lengths = [0, 63, 64, 65, 64 + BATCH_HEADER_BYTES, *range(150, size, size // 4), size - 1]
    for length in lengths:
        shutil.rmtree(daemon.data)
        shutil.copytree(backup, daemon.data)
        with segment.open("r+b") as file:
            file.truncate(length)
        daemon.start()
        start = daemon.status()["start"]
        assert (start["corrupt"], start["unreadable"]) == (0, 0), length
        for at, name in enumerate("ab"):
            reply = daemon.reader.recover(stream_id=name)
            if reply is not None:
                assert reply.text == said(at, reply.last_seq)
                assert (reply.gaps, reply.status) == ([], "crashed")
        agent = make_agent(daemon)
        agent.do("new = client.reply('new', stream_id='new'); new.token('not glued'); new.drain()")
        agent.kill()
        daemon.restart()
        assert daemon.orphan("new").text == "not glued"
        daemon.kill()


def test_the_next_daemon_waits_for_the_lock(
    daemon: DaemonProcess, make_daemon: Callable[..., DaemonProcess]
) -> None:
    """One daemon a directory: the second says so and leaves, the first does not notice."""
    second = make_daemon()
    second.data = daemon.data
    second.start(wait=False)
    assert second.process is not None
    assert second.process.wait(30) == 1
    second.process = None
    second.logged("another walld owns this data directory")
    assert daemon.status()["state"] == "ok"
