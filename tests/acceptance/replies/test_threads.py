"""Many threads on one client: each reply whole and in order, whoever sends to it."""

from __future__ import annotations

from collections.abc import Callable

from agents.process import Obedient
from agents.words import said
from daemon_process import DaemonProcess


def test_many_threads_each_with_a_reply_and_all_with_one(
    daemon_on_each: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon_on_each)
    agent.do(
        """
        import threading
        shared = client.reply('s', stream_id='shared')
        replies = [client.reply('s', stream_id=f'r{at}') for at in range(16)]
        def stream(at):
            for seq in range(1, 1001):
                assert replies[at].token(token(at, seq)) == seq
                if seq % 10 == 0:
                    shared.token(f'{at}:{seq} ')
                if seq % 250 == 0:
                    assert client.recover(stream_id=f'r{at}').last_seq >= seq
        threads = [threading.Thread(target=stream, args=(at,)) for at in range(16)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        """
    )
    assert agent.do("shared.sent_seq") == 1600
    agent.kill()
    for at in range(16):
        reply = daemon_on_each.orphan(f"r{at}")
        assert (reply.text, reply.last_seq, reply.gaps) == (said(at, 1000), 1000, [])
    reply = daemon_on_each.orphan("shared")
    assert (reply.last_seq, reply.gaps) == (1600, [])
    words = [word.split(":") for word in reply.text.split()]
    for at in range(16):
        order = [int(seq) for thread, seq in words if int(thread) == at]
        assert order == list(range(10, 1001, 10)), "in the order in which the thread sent"


def test_a_thread_ends_a_reply_that_others_stream_to(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """First terminal wins, in one place: what comes after it in any thread is late."""
    agent = make_agent(daemon)
    last, late = agent.do(
        """
        import threading
        reply = client.reply('s', stream_id='r')
        seqs = []
        def stream():
            for _ in range(4000):
                seqs.append(reply.token('x'))
        threads = [threading.Thread(target=stream) for _ in range(4)]
        [thread.start() for thread in threads]
        while reply.sent_seq < 500:
            pass
        end = reply.cancel('enough')
        [thread.join() for thread in threads]
        taken = sorted(seq for seq in seqs if seq)
        assert taken == list(range(1, end))
        [end, client.stats().late]
        """
    )
    assert late == 16_000 - (last - 1)
    agent.do("reply.drain(20)")
    reply = daemon.reader.recover("s")
    assert reply is not None
    assert (reply.status, reply.lost_reason) == ("cancelled", "enough")
    assert (reply.text, reply.last_seq) == ("x" * (last - 1), last)
