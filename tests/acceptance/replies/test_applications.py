"""Several applications of one user: each sweeps what is its own, and takes nothing of another's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import walld_client
from agents.process import Obedient
from colours import connect
from daemon_process import PATIENCE_SECONDS, DaemonProcess, until, walld
from walld_client.wire import framing
from walld_client.wire import messages as wire
from wire_peer import Peer

ROUNDS = 10
BATCHES = [0, *[pytest.param(number, marks=pytest.mark.sweep) for number in range(1, 10)]]
"""10 rounds at each change, 100 in a sweep."""


@contextmanager
def client_of(daemon: DaemonProcess, app: str | None, colour: str = "sync") -> Iterator[Any]:
    client = connect(colour, daemon.socket_path, timeout=PATIENCE_SECONDS, app=app)
    try:
        yield client
    finally:
        client.let_go()


def say(agent: Obedient, stream_id: str, text: str) -> None:
    agent.do(f"r = client.reply('s', stream_id={stream_id!r}); r.token({text!r}); r.drain(20)")


@pytest.mark.parametrize("batch", BATCHES)
def test_each_gets_its_own_back_in_whichever_order_they_die(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], batch: int
) -> None:
    """Each starts again, and sweeps, at once; or both were killed before the first one does."""
    for number in range(ROUNDS * batch, ROUNDS * (batch + 1)):
        agents = {app: make_agent(daemon, app=app) for app in ("a", "b")}
        streams = {app: f"{app}{number}" for app in agents}
        for app, agent in agents.items():
            say(agent, streams[app], f"words of {app}")
        first, second = ("a", "b") if number % 2 else ("b", "a")
        both_are_gone = number // 2 % 2 == 1
        colour = ("sync", "aio")[number // 4 % 2]
        agents[first].kill()
        if both_are_gone:
            agents[second].kill()
        sweep(daemon, first, streams[first], colour)
        with client_of(daemon, second, colour) as client:
            (other,) = client.recover_all()
            assert (other.stream_id, other.text) == (streams[second], f"words of {second}")
        agents[second].kill()
        sweep(daemon, second, streams[second], colour)
        with client_of(daemon, "*") as everybody:
            assert everybody.recover_all() == []
        for agent in agents.values():
            agent.close()


def sweep(daemon: DaemonProcess, app: str, stream_id: str, colour: str) -> None:
    """As a program of that application does at its start: that reply is all that it finds."""
    with client_of(daemon, app, colour) as client:
        until(client.orphans, "the end of its process")
        (found,) = client.orphans()
        assert (found.stream_id, found.app) == (stream_id, app)
        assert (found.text, client.unsaved()) == (f"words of {app}", [])
        assert [one.stream_id for one in client.recover_all()] == [stream_id]
        assert client.resolve(found.stream_id, found.last_seq)
        assert (client.orphans(), client.recover_all()) == ([], [])


def test_who_asks_by_an_id_or_for_all_sees_all(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    agent = make_agent(daemon, app="a")
    say(agent, "r", "words")
    agent.kill()
    with client_of(daemon, "b") as other, client_of(daemon, "*") as everybody:
        until(everybody.orphans, "the end of its process")
        assert (other.orphans(), other.orphans("s"), other.recover_all()) == ([], [], [])
        assert [one.app for one in other.recover_all("s")] == ["a"]
        assert other.recover("s").text == "words"
        assert other.has_partial("s")


def test_what_names_no_application_is_everybodys(daemon: DaemonProcess) -> None:
    """Of an older client, whose Start has no such field."""
    with Peer(daemon, "agent") as peer:  # type: ignore[arg-type]
        start = framing.encode(wire.Start(1, 0, "r", "s"))
        shorter = bytes((start[4] - 1,)) + start[5:-1]
        peer.socket.sendall(len(shorter).to_bytes(4, "big") + shorter)
        peer.send(wire.Token(1, 1, b"words"))
        peer.drain()
    for app in ("a", "b"):
        with client_of(daemon, app) as client:
            assert [(one.text, one.app) for one in client.recover_all()] == [("words", None)]


@pytest.mark.parametrize("colour", ["sync", "aio"])
def test_a_closed_tab_leaves_what_its_own_process_can_save(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], colour: str
) -> None:
    """The framework cancels the generator; its process lives: no orphan, and nobody else's."""
    agent = make_agent(daemon, colour=colour, timeout=PATIENCE_SECONDS)
    agent.do("r = client.reply('s', stream_id='r'); r.token('cut off'); r.cancel('tab closed')")
    agent.do("other = client.reply('s', stream_id='live'); other.token('goes on')")
    assert agent.do("[(x.stream_id, x.status, x.text) for x in client.unsaved()]") == [
        ["r", "cancelled", "cut off"]
    ]
    assert agent.do("[x.stream_id for x in client.unsaved('s')], client.unsaved('t')") == [
        ["r"],
        [],
    ]
    assert agent.do("client.orphans()") == []
    with client_of(daemon, "tests") as another:
        assert another.unsaved("s") == []
    assert agent.do("client.release('r')") is True
    assert agent.do("client.unsaved(), [x.stream_id for x in client.recover_all('s')]") == [
        [],
        ["live"],
    ]


def test_every_list_shows_whose_it_is(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    say(make_agent(daemon, app="shop"), "r", "words")
    table = walld("ls", "--socket", daemon.socket_path).stdout.splitlines()
    assert table[0].split()[6:] == ["APP", "SESSION", "STREAM"]
    assert table[1].split()[-3:] == ["shop", "s", "r"]
    assert "shop" in walld("recover", "s", "--socket", daemon.socket_path).stdout


@pytest.mark.parametrize("app", ["", 7, "x" * 1025])
def test_a_name_that_is_none_is_an_error(app: object) -> None:
    with pytest.raises((TypeError, ValueError), match="app"):
        walld_client.connect("/nowhere/s", app=app)  # type: ignore[arg-type]
