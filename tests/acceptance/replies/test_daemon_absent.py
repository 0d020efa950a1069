"""No daemon: at the start, for long, for too long; what waits, what is dropped, what is said."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from agents.process import Obedient
from agents.words import said
from daemon_process import DaemonProcess, until

from walld.wal.layout import SEGMENT_HEADER_BYTES

LONGER_THAN_ANY_BACKOFF_SECONDS = 4.5


def test_absent_at_the_start(
    make_daemon: Callable[..., DaemonProcess], make_agent: Callable[..., Obedient], backend: str
) -> None:
    daemon = make_daemon(backend=backend)
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r')")
    assert agent.do("[reply.token(token(0, seq)) for seq in range(1, 501)][-1]") == 500
    assert agent.do("reply.sent_seq, client.stats().backlog") == [-1, 501]
    assert agent.do("reply.drain(0.05)") is False
    daemon.start()
    reply = daemon.arrived("r", 500)
    assert (reply.text, reply.gaps, reply.status) == (said(0, 500), [], "live")
    assert agent.do("[reply.token(token(0, seq)) for seq in range(501, 511)][-1]") == 510
    assert agent.do("reply.drain(20), reply.sent_seq, client.stats().backlog") == [True, 510, 0]
    assert daemon.arrived("r", 510).text == said(0, 510)


def test_absent_for_long_and_one_line_in_the_log(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r')")
    agent.do("[reply.token(token(0, seq)) for seq in range(1, 101)]; reply.drain(20)")
    daemon.kill()
    asked_at = time.monotonic()
    seq = 100
    while time.monotonic() - asked_at < LONGER_THAN_ANY_BACKOFF_SECONDS:
        agent.do(f"[reply.token(token(0, seq)) for seq in range({seq + 1}, {seq + 101})]")
        seq += 100
        time.sleep(0.1)
    until(agent.log_path.read_text, "a warning")
    lines = agent.log_path.read_text().splitlines()
    assert len(lines) == 1, "said once"
    assert daemon.socket_path in lines[0]
    assert "uid" in lines[0]
    assert "errno" in lines[0]
    daemon.start()
    reply = daemon.arrived("r", seq)
    assert (reply.text, reply.gaps, reply.events) == (said(0, seq), [], seq)
    assert agent.do("client.stats().dropped") == 0


def test_absent_for_too_long_leaves_a_visible_gap(
    daemon_on_each: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """Memory is bounded: the oldest go, how many is counted, and the reply shows where (P10)."""
    daemon = daemon_on_each
    agent = make_agent(daemon, backlog_bytes_max=65_536)
    agent.do("reply = client.reply('s', stream_id='r')")
    agent.do("[reply.token(token(0, seq)) for seq in range(1, 101)]")
    assert agent.do("reply.drain(20, 'synced') and reply.durable_seq") == 100
    daemon.kill()
    agent.do("[reply.token(token(0, seq)) for seq in range(101, 60_001)]; None")
    dropped, held = agent.do("client.stats().dropped, client.stats().unsynced_bytes")
    assert dropped > 0
    assert held <= 65_536 + 16_384
    daemon.start()
    reply = daemon.arrived("r", 60_000)
    (gap,) = reply.gaps
    assert (gap.first_seq, gap.last_seq, gap.verdict) == (101, 100 + dropped, "dropped")
    assert reply.text == said(0, 100) + said(0, 60_000, gap.last_seq + 1)
    assert (reply.partial, reply.partial_reason) == (True, "gap")
    assert [segment.kind for segment in reply.segments] == ["text", "gap", "text"]
    assert reply.events == 60_000 - dropped
    (message,) = reply.messages()
    assert (message["_partial"], message["_partial_reason"]) == (True, "gap")
    assert daemon.metrics()["walld_lost_acked_total"] == 0
    assert agent.do("reply.token('and on'); reply.drain(20, 'synced')") in (True, None)
    assert agent.do("reply.drain(20, 'synced'), reply.durable_seq") == [True, 100]
    agent.kill()
    assert daemon.orphan("r").gaps == reply.gaps


def test_too_much_before_there_ever_was_a_daemon(
    make_daemon: Callable[..., DaemonProcess], make_agent: Callable[..., Obedient]
) -> None:
    """The start is kept whatever is dropped: else nobody could ask for what is left."""
    daemon = make_daemon()
    agent = make_agent(daemon, backlog_bytes_max=65_536)
    agent.do("replies = [client.reply('s', stream_id=f'r{at}') for at in range(3)]")
    agent.do(
        """
        for seq in range(1, 20_001):
            for at, reply in enumerate(replies):
                reply.token(token(at, seq))
        replies[1].end(); replies[2].error('broke'); None
        """
    )
    dropped = agent.do("client.stats().dropped")
    assert dropped > 0
    daemon.start()
    missing = 0
    for at, last_seq, status in ((0, 20_000, "live"), (2, 20_001, "errored")):
        reply = daemon.arrived(f"r{at}", last_seq)
        (gap,) = reply.gaps
        assert gap.first_seq == 1
        assert reply.text == said(at, 20_000, gap.last_seq + 1)
        assert (reply.session_id, reply.status) == ("s", status)
        missing += gap.last_seq
    assert daemon.reader.recover(stream_id="r1") is None, "its end and release were kept as well"
    assert 0 < dropped - missing <= 20_000


HOLDS_ITS_THREAD = """
    import threading
    from walld_client.link.link import Link
    attend, go_on = Link.attend, threading.Event()
    Link.attend = lambda link, events: go_on.wait() and attend(link, events)
"""


@pytest.mark.parametrize("is_held", [False, True])
def test_the_kernel_full_for_too_long_leaves_a_visible_gap(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], is_held: bool
) -> None:
    """A daemon that stands still: what the kernel took arrives, then a gap, then the latest.

    What the client's thread has begun to send is never dropped. Where it comes to that late, as on
    a busy machine, the ring was full before: a gap on each side of it.
    """
    agent = make_agent(daemon, backlog_bytes_max=262_144)
    agent.do("reply = client.reply('s', stream_id='r'); reply.drain(20)")
    daemon.freeze()
    if is_held:
        agent.do(HOLDS_ITS_THREAD)
        agent.do("[reply.token(token(0, seq)) for seq in range(1, 40_001)]; None")
        assert agent.do("client.stats().dropped") > 0
        agent.do("go_on.set()")
        until(lambda: agent.do("len(client._link.backlog.outgoing)"), "what it begins to send")
        agent.do("[reply.token(token(0, seq)) for seq in range(40_001, 80_001)]; None")
    else:
        agent.do("[reply.token(token(0, seq)) for seq in range(1, 80_001)]; None")
    sent, dropped = agent.do("reply.sent_seq, client.stats().dropped")
    assert 0 < sent < 80_000 - dropped
    assert dropped > 0
    daemon.thaw()
    reply = daemon.arrived("r", 80_000)
    assert len(reply.gaps) == 2 if is_held else len(reply.gaps) in {1, 2}
    assert reply.gaps[0].first_seq > sent
    assert {gap.verdict for gap in reply.gaps} == {"dropped"}
    assert sum(gap.last_seq - gap.first_seq + 1 for gap in reply.gaps) == dropped
    first_seqs = [1, *(gap.last_seq + 1 for gap in reply.gaps)]
    last_seqs = [*(gap.first_seq - 1 for gap in reply.gaps), 80_000]
    arrived = zip(first_seqs, last_seqs, strict=True)
    assert reply.text == "".join(said(0, last_seq, first_seq) for first_seq, last_seq in arrived)
    assert agent.do("reply.drain(20), client.stats().backlog") == [True, 0]


def test_questions_without_a_daemon_have_three_answers(
    make_daemon: Callable[..., DaemonProcess], make_agent: Callable[..., Obedient]
) -> None:
    daemon = make_daemon()
    asking = """
        def ask(call):
            try:
                return call()
            except walld_client.Unavailable:
                return 'unavailable'
        [ask(lambda: client.recover('s')), ask(lambda: client.has_partial('s')),
         ask(lambda: client.orphans()), ask(lambda: client.resolve('r'))]
    """
    unknown = ["unavailable", None, "unavailable", "unavailable"]
    assert make_agent(daemon).do(asking) == unknown, "neither socket nor directory"
    reader = make_agent(daemon, data=str(daemon.data))
    assert reader.do(asking) == unknown, "a directory that is not there proves nothing"

    daemon.start()
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r'); reply.token('x'); reply.drain(20)")
    daemon.kill()
    assert reader.do(asking) == unknown, "a segment holds something"
    daemon.start()
    agent.kill()
    until(daemon.partials, "the partial")
    until(lambda: log_is_empty(daemon), "an empty log")
    daemon.kill()
    assert reader.do(asking) == ["unavailable", True, "unavailable", "unavailable"], "it is there"
    daemon.start()
    assert daemon.reader.resolve("r") is True
    until(lambda: log_is_empty(daemon), "an empty log")
    daemon.kill()
    assert reader.do(asking) == [None, False, [], "unavailable"], "proven by the directory"


def log_is_empty(daemon: DaemonProcess) -> bool:
    try:
        return all(path.stat().st_size == SEGMENT_HEADER_BYTES for path in daemon.segments())
    except FileNotFoundError:
        return False  # unlinked since it was listed


def test_a_query_finds_the_next_daemon(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """A reader that keeps its connection over a restart is not told of it."""
    agent = make_agent(daemon)
    reader = make_agent(daemon, timeout=20)
    agent.do("reply = client.reply('s', stream_id='r'); reply.token('x'); reply.drain(20)")
    for _ in range(3):
        assert reader.do("client.recover('s').text") == "x"
        daemon.restart()
    daemon.kill()
    reader.begin("client.recover('s').text")
    daemon.start()
    assert reader.done() == "x"
