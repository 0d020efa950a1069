"""The connection: drained, shared by threads, closed. Against a scripted daemon."""

from __future__ import annotations

import threading

import pytest
import walld_client
from fake_daemon import FakeDaemon, soon
from walld_client import link_registry
from walld_client.link.link import Link
from walld_client.wire import messages as wire

# --- drain ---


def test_drain_waits_for_the_daemon_and_no_longer(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    reply.token("x")
    assert not reply.drain(0.05)
    answered: list[bool] = []
    waiting = threading.Thread(target=lambda: answered.append(reply.drain(10, "synced")))
    waiting.start()
    peer = daemon.agent()
    daemon.until(lambda: isinstance(peer.messages[-1], wire.Drain) and peer.messages[-1].id == 2)
    assert peer.text() == "x"
    peer.say(wire.Drained(2, "synced"))
    waiting.join(10)
    assert answered == [True]


@pytest.mark.parametrize(
    "answer", [wire.Drained(1, "written"), wire.Refused(0, 1, "bad_level", "", "")]
)
def test_a_level_that_was_not_reached_is_false(
    daemon: FakeDaemon, client: walld_client.Client, answer: wire.Drained | wire.Refused
) -> None:
    reply = client.reply("S")
    answered: list[bool] = []
    waiting = threading.Thread(target=lambda: answered.append(reply.drain(10, "replicated")))
    waiting.start()
    peer = daemon.agent()
    daemon.until(lambda: isinstance(peer.messages[-1], wire.Drain))
    peer.say(answer)
    waiting.join(10)
    assert answered == [False]


def test_a_drain_is_asked_again_of_the_next_daemon_after_what_is_resent(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    reply.token("x")
    answered: list[bool] = []
    waiting = threading.Thread(target=lambda: answered.append(reply.drain(10)))
    waiting.start()
    peer = daemon.agent()
    daemon.until(lambda: isinstance(peer.messages[-1], wire.Drain))
    daemon.stop()
    daemon.start()
    again = daemon.agent(1)
    daemon.until(lambda: isinstance(again.messages[-1], wire.Drain))
    assert again.text() == "x"
    again.say(wire.Drained(1, "written"))
    waiting.join(10)
    assert answered == [True]


def test_an_unknown_level_is_a_mistake(daemon: FakeDaemon, client: walld_client.Client) -> None:
    with pytest.raises(ValueError, match="written, synced, replicated"):
        client.reply("S").drain(1, "burnt")


# --- many threads, close ---


def test_many_threads_on_one_client(daemon: FakeDaemon, client: walld_client.Client) -> None:
    def stream(name: str) -> None:
        with client.reply(name) as reply:
            for index in range(1500):
                assert reply.token(f"{name}{index} ") == index + 1
            reply.end()

    threads = [threading.Thread(target=stream, args=(f"s{n}-",)) for n in range(8)]
    shared = client.reply("shared")
    seqs: list[int] = []
    hammers = [
        threading.Thread(target=lambda: seqs.extend([shared.token("x") for _ in range(500)]))
        for _ in range(4)
    ]
    for thread in threads + hammers:
        thread.start()
    for thread in threads + hammers:
        thread.join()
    assert sorted(seqs) == list(range(1, 2001))
    assert client.close(10)
    peer = daemon.agent()
    daemon.until(lambda: peer.ended)
    for start in [m for m in peer.messages if isinstance(m, wire.Start)]:
        last = 2000 if start.session_id == "shared" else 1502
        assert peer.seqs(start.stream) == list(range(last + 1))


def test_close_hands_over_the_rest_and_ends_the_connection(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    daemon.fill(client, reply)
    last = reply.token("last")
    daemon.reading.set()
    assert client.close(10)
    peer = daemon.agent()
    daemon.until(lambda: peer.ended)
    assert peer.seqs() == list(range(last + 1))
    assert reply.token("late") == 0
    assert client.reply("S").token("late") == 0


@pytest.mark.parametrize("has_met", [True, False], ids=["a daemon that is back", "a late one"])
def test_close_does_not_wait_for_the_next_attempt_to_be_due(
    daemon: FakeDaemon, client: walld_client.Client, has_met: bool
) -> None:
    """Its own time may be over before that: what waits would be lost beside a daemon."""
    if not has_met:
        daemon.stop()
    reply = client.reply("S")
    if has_met:
        daemon.agent()
        daemon.stop()
    reply.token("x")
    soon(lambda: not client._link.has_socket)
    client._link.reconnect.back_off(60.0)
    daemon.start()
    assert client.close(10)
    peer = daemon.agent(int(has_met))
    daemon.until(lambda: peer.ended)
    assert peer.text() == "x"


def test_a_drain_does_not_wait_for_the_next_attempt_to_be_due(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    daemon.stop()
    reply = client.reply("S")
    reply.token("x")
    client._link.reconnect.back_off(60.0)
    daemon.start()
    assert not reply.drain(0.05)
    peer = daemon.agent()
    daemon.until(lambda: bool(peer.messages) and isinstance(peer.messages[-1], wire.Drain))
    assert peer.text() == "x"


def test_close_waits_no_longer_than_it_was_told(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    daemon.fill(client, reply)
    assert not client.close(0.05)


def closing(client: walld_client.Client, answers: list[bool], timeout: float) -> threading.Thread:
    thread = threading.Thread(target=lambda: answers.append(client.close(timeout)))
    thread.start()
    return thread


def test_a_close_beside_another_says_what_that_one_says(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    reply = client.reply("S")
    daemon.fill(client, reply)
    answers: list[bool] = []
    first = closing(client, answers, 60)
    soon(lambda: client._link._flushers)
    assert not client.close(0.01)
    second = closing(client, answers, 60)
    assert client.stats().connected
    daemon.reading.set()
    first.join(10)
    second.join(10)
    assert answers == [True, True]
    assert client.close(0.0)
    assert client._link not in link_registry._links.values()


def test_a_close_behind_one_that_gave_up_says_so_too(
    daemon: FakeDaemon, client: walld_client.Client
) -> None:
    daemon.fill(client, client.reply("S"))
    assert [client.close(0.01), client.close(0.01), client.close(60)] == [False] * 3


def test_a_close_that_was_interrupted_is_done_by_the_next(
    daemon: FakeDaemon, client: walld_client.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = client.reply("S")
    daemon.fill(client, reply)

    def interrupted(_link: object, _timeout: float) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(link_registry, "flushed", interrupted)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                client.close(60)
    last = reply.token("last")
    daemon.reading.set()
    assert client.close(60)
    assert client._link not in link_registry._links.values()
    peer = daemon.agent()
    daemon.until(lambda: peer.ended)
    assert peer.seqs() == list(range(last + 1))


def test_a_close_of_a_signal_handler_within_a_close_does_not_wait_for_that(
    daemon: FakeDaemon, client: walld_client.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has interrupted it, in its thread: both wait for the kernel alone, and say the same."""
    daemon.fill(client, client.reply("S"))
    flushed, said = link_registry.flushed, list[bool]()

    def interrupted(link: Link, timeout: float) -> bool:
        monkeypatch.undo()
        daemon.reading.set()
        said.append(client.close(60))
        return flushed(link, timeout)

    monkeypatch.setattr(link_registry, "flushed", interrupted)
    assert client.close(60)
    assert said == [True]
    assert client._link not in link_registry._links.values()


def test_stats_and_check_say_where_things_are(
    daemon: FakeDaemon, client: walld_client.Client, path: str
) -> None:
    assert client.check().startswith("recoverable: walld listens at")
    reply = client.reply("S")
    reply.token("x")
    stats = client.stats()
    assert (stats.connected, stats.socket, stats.sent, stats.backlog) == (True, path, 2, 0)
    assert client.check().startswith("recoverable: walld at")
    daemon.stop()
    soon(lambda: client._link._socket is None)
    assert client.check().startswith("not recoverable")
    assert client.stats().backlog == 2
    assert walld_client.check(path).startswith("not recoverable")


def test_after_a_daemons_death_only_what_is_synced_counts_as_sent(
    daemon: FakeDaemon, path: str
) -> None:
    """A full ring has dropped what the dead daemon had taken: nobody holds it any more."""
    client = walld_client.connect(path, backlog_bytes_max=64 * 1024)
    reply = client.reply("S")
    for _ in range(3000):
        reply.token("x" * 1000)
    assert client.stats().unheld + client.stats().dropped > 0
    soon(lambda: daemon.peers and daemon.peers[0].messages)
    daemon.stop()
    soon(lambda: not client.stats().connected)
    reply.token("y")
    assert reply.sent_seq == reply.durable_seq == -1
    client.close(0.0)
