"""Agent and daemon killed at the same time: at most the flush bound is lost (P3).

Every token says when it was sent, on the clock that all processes share. So the loss is measured:
the age, at the kill, of the oldest token that did not come back. It is held against the bound that
the daemon was given, not against what is usual.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from agents.process import Obedient
from daemon_process import BACKENDS, DaemonProcess

STREAM = """
import threading, time
replies = [client.reply('s', stream_id=f'r{number}') for number in range(streams)]
sent = [[] for _ in replies]
def stream():
    while True:
        for at, reply in enumerate(replies):
            now = time.monotonic()
            reply.token(f'{now!r} ')
            sent[at].append(now)
        time.sleep(0.002)
threading.Thread(target=stream, daemon=True).start()
"""


def oldest_lost_age(
    daemon: DaemonProcess, streams: int, killed_at: float, sends: list[list[float]]
) -> float:
    """Seconds before the kill at which the oldest lost token was sent; 0 where none was."""
    worst = 0.0
    for at in range(streams):
        reply = daemon.reader.recover(stream_id=f"r{at}")
        back = [] if reply is None else [float(word) for word in reply.text.split()]
        if reply is not None:
            assert (reply.last_seq, reply.events, reply.gaps) == (len(back), len(back), [])
        known = sends[at]
        assert back[: len(known)] == known[: len(back)], "what came back is what was said"
        if len(back) < len(known):
            worst = max(worst, killed_at - known[len(back)])
    return worst


CASES = [
    *((backend, 1000, 20, first) for backend in BACKENDS for first in ("agent", "daemon")),
    (BACKENDS[0], 1000, 1, "daemon"),
    (BACKENDS[0], 3000, 1, "daemon"),
]


@pytest.mark.parametrize(("backend", "bound_ms", "streams", "first"), CASES)
def test_the_loss_is_within_the_bound(
    make_daemon: Callable[..., DaemonProcess],
    make_agent: Callable[..., Obedient],
    backend: str,
    bound_ms: int,
    streams: int,
    first: str,
) -> None:
    daemon = make_daemon("--flush-bound-ms", str(bound_ms), backend=backend).start()
    agent = make_agent(daemon)
    agent.do(f"streams = {streams}\n{STREAM}")
    time.sleep(bound_ms / 1000 * 1.2)  # long enough that something must be written
    sends = agent.do("[list(times) for times in sent]")
    killed_at = time.monotonic()
    if first == "agent":
        agent.kill()
        daemon.kill()
    else:
        daemon.kill()
        agent.kill()
    daemon.start()
    lost_seconds = oldest_lost_age(daemon, streams, killed_at, sends)
    assert lost_seconds <= bound_ms / 1000
    assert any(reply.text for reply in daemon.reader.recover_all()), "the bound has passed once"


def test_the_loss_is_what_waited(
    make_daemon: Callable[..., DaemonProcess], make_agent: Callable[..., Obedient]
) -> None:
    """With the linger at the bound something is lost: else the tests above could not fail."""
    daemon = make_daemon("--flush-linger-ms", "3000").start()
    agent = make_agent(daemon)
    agent.do(f"streams = 1\n{STREAM}")
    time.sleep(0.5)
    sends = agent.do("[list(times) for times in sent]")
    killed_at = time.monotonic()
    daemon.kill()
    agent.kill()
    daemon.start()
    assert 0 < oldest_lost_age(daemon, 1, killed_at, sends) <= 3.0


def test_nothing_drained_is_lost(
    daemon_on_each: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    daemon = daemon_on_each
    for turn in range(3):
        agent = make_agent(daemon)
        agent.do(f"reply = client.reply('s', stream_id='r{turn}')")
        agent.do("[reply.token(f'{number} ') for number in range(500)][-1]")
        level = "synced" if turn % 2 else "written"
        assert agent.do(f"reply.drain(20, {level!r})") is True
        daemon.kill()
        agent.kill()
        daemon.start()
        reply = daemon.orphan(f"r{turn}")
        assert reply.text == "".join(f"{number} " for number in range(500))
        assert (reply.status, reply.lost_reason) == ("crashed", "agent_lost")
    assert len(daemon.reader.orphans("s")) == 3
