"""SIGTERM: everything that was sent before it is durable when the daemon is gone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from agents.process import Nursery, Obedient
from agents.words import said
from daemon_process import DaemonProcess, until


def test_everything_sent_before_is_durable(
    make_daemon: Callable[..., DaemonProcess], make_agent: Callable[..., Obedient], backend: str
) -> None:
    """A linger of 3 s: what is on disk afterwards is there because of the drain."""
    daemon = make_daemon("--flush-linger-ms", "3000", backend=backend).start()
    agent = make_agent(daemon)
    agent.do("replies = [client.reply('s', stream_id=f'r{at}') for at in range(50)]")
    agent.do(
        "[reply.token(token(at, seq)) for seq in range(1, 101) for at, reply in enumerate(replies)]"
    )
    agent.do("done = client.reply('s'); done.token('saved-and-gone'); done.end()")
    assert agent.do("[reply.sent_seq for reply in replies] == [100] * 50") is True
    assert daemon.terminate() == 0
    agent.kill()
    found = {reply.stream_id: reply for reply in daemon.offline()}
    assert len(found) == 50
    for at in range(50):
        reply = found[f"r{at}"]
        assert (reply.text, reply.last_seq, reply.gaps) == (said(at, 100), 100, [])
    assert daemon.holding([b"saved-and-gone"]) == []
    daemon.start()
    assert daemon.status()["start"]["torn"] == 0
    for at in range(50):
        assert daemon.orphan(f"r{at}").text == said(at, 100)


def test_what_the_kernel_held_is_read_first(
    daemon_on_each: DaemonProcess, make_nursery: Callable[..., Nursery]
) -> None:
    """Sent and not read when the signal came, by an agent that is dead by then."""
    daemon = daemon_on_each
    nursery = make_nursery(daemon)
    daemon.freeze()
    ids, board = nursery.stream(20_000, streams=20)
    nursery.ended()
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGTERM)
    daemon.thaw()
    assert daemon.ended() == 0
    found = {reply.stream_id: reply for reply in daemon.offline()}
    for at, stream_id in enumerate(ids):
        sent = board.sent(at)
        assert sent > 0
        assert (found[stream_id].text, found[stream_id].last_seq) == (said(at, sent), sent)


def test_more_signals_change_nothing(
    daemon_on_each: DaemonProcess, make_nursery: Callable[..., Nursery]
) -> None:
    """Supervisors and people send it twice; the drain goes on to its end all the same."""
    daemon = daemon_on_each
    nursery = make_nursery(daemon)
    daemon.freeze()
    ids, board = nursery.stream(80_000, streams=20)
    nursery.ended()
    assert daemon.process is not None
    daemon.thaw()
    while daemon.process.poll() is None:
        daemon.process.send_signal(signal.SIGTERM)
        time.sleep(0.001)
    assert daemon.ended() == 0
    found = {reply.stream_id: reply for reply in daemon.offline()}
    for at, stream_id in enumerate(ids):
        assert found[stream_id].text == said(at, board.sent(at))


def test_an_agent_that_streams_through_it_loses_nothing(
    daemon_on_each: DaemonProcess, make_nursery: Callable[..., Nursery]
) -> None:
    daemon = daemon_on_each
    nursery = make_nursery(daemon)
    (stream_id,), board = nursery.stream(1500, pace_seconds=0.001, then="stay")
    for after in (100, 500, 900):
        nursery.until_sent(board, after)
        assert daemon.terminate() == 0
        daemon.start()
    until(board.is_done, "the end of the stream")
    until(lambda: last_seq(daemon, stream_id) == 1500, "all of it")
    reply = daemon.reader.recover(stream_id=stream_id)
    assert reply is not None
    assert (reply.text, reply.events, reply.gaps) == (said(0, 1500), 1500, [])
    assert (reply.status, daemon.metrics()["walld_lost_acked_total"]) == ("live", 0)


def last_seq(daemon: DaemonProcess, stream_id: str) -> int:
    reply = daemon.reader.recover(stream_id=stream_id)
    return -1 if reply is None else reply.last_seq


def test_after_a_drain_the_socket_is_gone_and_nothing_is_left_to_do(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s'); reply.token('kept to the end'); reply.drain(20)")
    agent.do("reply.end()")
    until(lambda: not daemon.holding([b"kept to the end"]), "the bytes to go")
    assert daemon.terminate() == 0
    assert not os.path.exists(daemon.socket_path)
    assert daemon.offline() == []
    assert daemon.cli("recover", "s", "--data", str(daemon.data)).returncode == 3
