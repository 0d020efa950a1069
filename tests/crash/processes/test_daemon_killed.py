"""The daemon killed in the middle of a stream, the agent alive: nothing is lost or doubled (P2)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from agents.process import Board, Nursery, Obedient
from agents.words import said
from daemon_process import DaemonProcess, until
from walld_client import PartialReply, Unavailable

LONGER_THAN_ANY_TIMER_SECONDS = 3.5
"""The flush bound is 3 s, the longest backoff of a client 2 s."""


def check_live(reply: PartialReply | None, at: int, last_seq: int) -> None:
    """Whole so far, once each, and still going on."""
    assert reply is not None
    assert reply.last_seq == last_seq
    assert reply.text == said(at, last_seq)
    assert (reply.events, reply.gaps) == (last_seq, [])
    assert (reply.status, reply.owner_alive) == ("live", True)


def check_nothing_acked_lost(daemon: DaemonProcess) -> None:
    assert daemon.metrics()["walld_lost_acked_total"] == 0
    assert daemon.status()["start"]["corrupt"] == 0


def test_again_and_again_while_the_agent_streams(
    daemon_on_each: DaemonProcess, make_nursery: Callable[..., Nursery]
) -> None:
    daemon = daemon_on_each
    nursery = make_nursery(daemon)
    (stream_id,), board = nursery.stream(3000, pace_seconds=0.001, then="stay")
    for after in (1, 400, 900, 1400):
        nursery.until_sent(board, after)
        daemon.restart()
    until(board.is_done, "the end of the stream")
    check_live(daemon.arrived(stream_id, 3000), 0, 3000)
    check_nothing_acked_lost(daemon)
    nursery.kill_child()
    assert daemon.orphan(stream_id).text == said(0, 3000)


def test_with_a_hundred_streams_flat_out(
    daemon: DaemonProcess, make_nursery: Callable[..., Nursery]
) -> None:
    nursery = make_nursery(daemon)
    ids, board = nursery.stream(100_000, streams=100, then="stay")
    for after in (50, 400):
        nursery.until_sent(board, after)
        daemon.restart()
    until(board.is_done, "the end of the streams")
    for at, stream_id in enumerate(ids):
        check_live(daemon.arrived(stream_id, 1000), at, 1000)
    check_nothing_acked_lost(daemon)


@pytest.mark.parametrize("silent_for", ["the dead daemon", "the next one"])
def test_with_the_agent_silent_for_longer_than_any_timer(
    daemon_on_each: DaemonProcess, make_agent: Callable[..., Obedient], silent_for: str
) -> None:
    """As in a long tool call: nobody calls anything, and yet the next daemon gets it all."""
    daemon = daemon_on_each
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r')")
    agent.do("[reply.token(token(0, seq)) for seq in range(1, 301)]")
    daemon.kill()
    if silent_for == "the dead daemon":
        time.sleep(LONGER_THAN_ANY_TIMER_SECONDS)
    daemon.start()
    check_live(daemon.arrived("r", 300), 0, 300)
    if silent_for == "the next one":
        time.sleep(LONGER_THAN_ANY_TIMER_SECONDS)
        check_live(daemon.reader.recover(stream_id="r"), 0, 300)
    assert agent.do("[reply.token(token(0, seq)) for seq in range(301, 311)][-1]") == 310
    assert agent.do("reply.drain(20, 'synced') and reply.sent_seq") == 310
    check_live(daemon.reader.recover(stream_id="r"), 0, 310)
    assert agent.do("client.stats().reconnects") == 1
    check_nothing_acked_lost(daemon)


def test_what_was_written_and_not_yet_known_synced_comes_again_and_counts_once(
    daemon_on_each: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """The daemon has it, the agent does not know: it sends it again, (stream, seq) tells."""
    daemon = daemon_on_each
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r')")
    for upto in (200, 400):
        agent.do(f"[reply.token(token(0, seq)) for seq in range({upto - 199}, {upto + 1})]")
        assert agent.do("reply.drain(20, 'written')") is True
        daemon.restart()
    assert agent.do("reply.drain(20, 'written')") is True
    check_live(daemon.reader.recover(stream_id="r"), 0, 400)
    assert daemon.metrics()['walld_events_discarded_total{reason="duplicate"}'] > 0
    check_nothing_acked_lost(daemon)


def test_when_what_was_sent_was_not_yet_read(
    daemon_on_each: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """Taken by the kernel, and gone with the socket: the agent hands it over once more."""
    daemon = daemon_on_each
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r')")
    agent.do("reply.token(token(0, 1)); reply.drain(20, 'synced')")
    daemon.freeze()
    assert agent.do("[reply.token(token(0, seq)) for seq in range(2, 201)][-1]") == 200
    assert agent.do("reply.sent_seq") == 200
    daemon.restart()
    check_live(daemon.arrived("r", 200), 0, 200)
    check_nothing_acked_lost(daemon)


def test_when_the_stream_itself_was_not_yet_read(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """Starts, texts, an end and a release: none of it was read before the daemon died."""
    agent = make_agent(daemon)
    agent.do("kept = client.reply('s', stream_id='kept'); kept.drain()")
    daemon.freeze()
    agent.do(
        """
        done = client.reply('s', stream_id='done')
        done.token('saved'); done.end()
        whole = client.reply('s', stream_id='whole', auto_release=False)
        whole.token('whole'); whole.end()
        kept.token(token(0, 1))
        """
    )
    daemon.restart()
    check_live(daemon.arrived("kept", 1), 0, 1)
    whole = daemon.arrived("whole", 2)
    assert (whole.text, whole.status, whole.owner_alive) == ("whole", "complete", True)
    assert daemon.reader.recover(stream_id="done") is None


@pytest.mark.parametrize("is_synced", [True, False])
def test_an_id_that_is_given_again_is_of_the_last_reply(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], is_synced: bool
) -> None:
    """The release of the one before, and the start of the next, were not written."""
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r'); reply.token('first')")
    assert agent.do(f"reply.drain(20, {'synced' if is_synced else 'written'!r})")
    daemon.freeze()
    agent.do(
        """
        reply.end()
        reply = client.reply('s', stream_id='r'); reply.token('second'); reply.end()
        reply = client.reply('s', stream_id='r'); reply.token(token(0, 1))
        """
    )
    daemon.restart()
    assert agent.do("reply.drain(20, 'synced')")
    agent.do("reply.token(token(0, 2)), reply.drain(20, 'synced')")
    assert agent.do("reply.durable_seq") == 2
    check_live(daemon.arrived("r", 2), 0, 2)
    assert agent.do("client.stats().refused") == 0
    check_nothing_acked_lost(daemon)


def test_a_reply_that_moved_begins_anew_where_it_is(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """The data directory is another: no move comes again, for that was synced. Its client knows."""
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r'); reply.token('first'); reply.move('t')")
    assert agent.do("reply.drain(20, 'synced')")
    daemon.kill()
    daemon.data.rename(daemon.data.with_name("away"))
    daemon.start()
    agent.do("reply.token('behind'); reply.drain(20, 'synced')")
    with pytest.raises(Unavailable, match="know of another log"):
        daemon.reader.recover("s")
    found = daemon.reader.recover("t")
    assert found is not None
    assert (found.session_id, found.text, found.owner_alive) == ("t", "behind", True)
    daemon.restart()
    assert agent.do("reply.drain(20, 'synced')")
    assert daemon.arrived("r", found.last_seq).session_id == "t"


def test_full_kernel_and_backlog_then_killed(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """What waited behind EAGAIN is folded into runs; the next daemon still gets each token once."""
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r'); reply.drain()")
    daemon.freeze()
    agent.do("[reply.token(token(0, seq)) for seq in range(1, 150_001)][-1]")
    assert agent.do("client.stats().backlog") > 0
    assert agent.do("client.stats().dropped") == 0
    daemon.restart()
    check_live(daemon.arrived("r", 150_000), 0, 150_000)
    assert agent.do("reply.drain(20, 'synced'), client.stats().dropped") == [True, 0]
    check_nothing_acked_lost(daemon)


def test_ended_while_there_was_no_daemon(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """The release arrives with the next daemon, and takes the bytes with it."""
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r')")
    agent.do("reply.token('a word that was saved') and reply.drain(20, 'synced')")
    daemon.kill()
    assert daemon.holding([b"a word that was saved"])
    agent.do("reply.end()")
    daemon.start()
    until(lambda: daemon.reader.recover(stream_id="r") is None, "the release")
    until(lambda: not daemon.holding([b"a word that was saved"]), "the bytes to go")
    assert daemon.reader.has_partial("s") is False


def test_durable_seq_is_never_taken_back(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """What an agent was told is synced is there after any number of kills (P2, P4)."""
    agent = make_agent(daemon)
    agent.do("reply = client.reply('s', stream_id='r'); seq = 0")
    told = 0
    for _ in range(6):
        told = agent.do(
            """
            for seq in range(seq + 1, seq + 51):
                assert reply.token(token(0, seq)) == seq
            reply.drain(20, 'synced') and reply.durable_seq
            """
        )
        daemon.kill()
        (kept,) = daemon.offline()
        assert (kept.last_seq, kept.text) == (told, said(0, told))
        assert agent.do("reply.durable_seq") == told
        daemon.start()
    assert told == 300
    check_live(daemon.arrived("r", 300), 0, 300)
    check_nothing_acked_lost(daemon)


def test_reconnect_storm(
    make_daemon: Callable[..., DaemonProcess], make_nursery: Callable[..., Nursery], backend: str
) -> None:
    """Twenty processes of five streams lose their daemon twice, all at the same time."""
    daemon = make_daemon(backend=backend).start()
    agents: list[tuple[Nursery, list[str], Board]] = []
    for number in range(20):
        nursery = make_nursery(daemon, prefix=f"agent{number}.")
        ids, board = nursery.stream(500, streams=5, pace_seconds=0.004, then="stay")
        agents.append((nursery, ids, board))
    for _ in range(2):
        for nursery, _ids, board in agents:
            nursery.until_sent(board, 10)
        daemon.restart()
    for _, ids, board in agents:
        until(board.is_done, "the end of the streams")
        for at, stream_id in enumerate(ids):
            check_live(daemon.arrived(stream_id, 100), at, 100)
    # Whose words the log had whole before its daemon went has nothing to hurry for.
    until(lambda: daemon.status()["connections"] >= 20, "all of them back")
    check_nothing_acked_lost(daemon)
    for nursery, _, _ in agents:
        nursery.kill_child()
    until(lambda: len(daemon.reader.orphans()) == 100, "all of them orphans")
