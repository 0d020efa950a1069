"""The daemon is killed while a claim is on its way: who asked has the same turn, and no second one.

The claimer is this process. Between its client and the daemon a thread of it hands the bytes on, so
that the daemon sees this process, and kills the daemon at the append that is the claim.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import walld_client
from agents.process import Obedient
from colours import connect
from daemon_process import PATIENCE_SECONDS, DaemonProcess, until

CLAIM = b'"claim":'
SOON_SECONDS = 0.75
"""For a call that is to run out of time, twice as much each time it comes to no claim."""
INTENT = """
turn.intent(
    "deploy", {}, side_effect="external-write", resume_policy="rerun-after-check", call_id="c1"
)
"""
PLACES = ("before it", "in it", "behind it")


class Between:
    """The socket that the client knows. place: of the kill, seen from the taking of the append."""

    def __init__(self, daemon: DaemonProcess, place: str) -> None:
        self.daemon, self.place = daemon, place
        self.path = f"{daemon.folder}/b"
        self.killed = threading.Event()
        self._silent = threading.Event()
        """What is answered is read, and nobody told, until the daemon is killed."""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in (self._listener, *self._open):
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            daemon = socket.socket(socket.AF_UNIX)
            self._open += [client, daemon]
            try:
                daemon.connect(self.daemon.socket_path)
            except OSError:
                client.shutdown(socket.SHUT_RDWR)
                continue
            for work, ways in (
                (self._to_daemon, (client, daemon)),
                (self._to_client, (daemon, client)),
            ):
                self._threads.append(threading.Thread(target=work, args=ways))
                self._threads[-1].start()

    def _to_daemon(self, client: socket.socket, daemon: socket.socket) -> None:
        while said := _read(client):
            if CLAIM in said and not self.killed.is_set():
                self._silent.set()
                self._kill(daemon, said)
                break
            if not _write(daemon, said):
                break
        for one in (client, daemon):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _to_client(self, daemon: socket.socket, client: socket.socket) -> None:
        while said := _read(daemon):
            if not self._silent.is_set() or self.killed.is_set():
                _write(client, said)
        if not self._silent.is_set() or self.killed.wait(PATIENCE_SECONDS):
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def _kill(self, daemon: socket.socket, said: bytes) -> None:
        if self.place != "before it":
            _write(daemon, said)
        if self.place == "behind it":
            until(self._is_in_log, "the claim in the log")  # a view tells it before it is written
        self.daemon.kill()
        self.killed.set()

    def _is_in_log(self) -> bool:
        return any(CLAIM in segment.read_bytes() for segment in self.daemon.segments())


def _read(source: socket.socket) -> bytes:
    try:
        return source.recv(1 << 20)
    except OSError:
        return b""


def _write(to: socket.socket, said: bytes) -> bool:
    try:
        to.sendall(said)
    except OSError:
        return False
    return True


@contextmanager
def claimer(daemon: DaemonProcess, place: str, colour: str) -> Iterator[tuple[Between, Any]]:
    """Where the daemon is killed, and the session as this process sees it."""
    between = Between(daemon, place)
    client = connect(colour, between.path, timeout=PATIENCE_SECONDS)
    try:
        yield between, client.session("s")
    finally:
        client.let_go()
        between.close()


@contextmanager
def resuming(session: Any, **given: Any) -> Iterator[Future[Any]]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(session.resume, **given)


def out_of_time(session: Any, **given: Any) -> walld_client.NotDurable:
    """What is raised where the claim was sent and its answer never came."""
    seconds = SOON_SECONDS
    while seconds < PATIENCE_SECONDS:
        try:
            session.resume(**given, timeout=seconds)
        except walld_client.NotDurable as unknown:
            return unknown
        except walld_client.Unavailable:
            seconds *= 2  # a loaded machine had not come to the claim
    raise AssertionError("it never came to the claim")


def leave_behind(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], *lines: str
) -> list[str]:
    """A session whose agent was killed; the ids of its turns."""
    agent = make_agent(daemon)
    agent.do("session = client.session('s'); turn = session.submit('do it', message_id='m')")
    for line in lines:
        agent.do(line)
    agent.kill()
    session = daemon.reader.session("s")
    until(lambda: session.resume_check()["owner"] is None, "its process is gone")
    return turns(daemon)


def turns(daemon: DaemonProcess) -> list[str]:
    state = daemon.reader.session("s").state()
    assert state is not None
    return [one["turn_id"] for one in state["turns"]]


@pytest.mark.parametrize("place", PLACES)
def test_while_there_is_time_the_restarted_daemon_gives_the_same_turn(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], colour: str, place: str
) -> None:
    first = leave_behind(daemon, make_agent)
    with (
        claimer(daemon, place, colour) as (between, session),
        resuming(session, timeout=PATIENCE_SECONDS) as call,
    ):
        assert between.killed.wait(PATIENCE_SECONDS)
        daemon.start()
        turn = call.result()
        assert turns(daemon) == [*first, turn.turn_id]
        assert (turn.message_id, turn.state) == ("m", "submitted")
        turn.completed()
    said = [one for one in daemon.reader.session("s").events() if one["type"] == "turn_interrupted"]
    assert [one["turn"] for one in said] == first, "once"


@pytest.mark.parametrize("place", PLACES)
def test_behind_its_time_it_names_the_turn_and_the_next_resume_gives_it(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], colour: str, place: str
) -> None:
    first = leave_behind(daemon, make_agent, INTENT, "turn.tool_started('c1')")
    looked_at = {"c1": "did_not_run"}
    with claimer(daemon, place, colour) as (between, session):
        told = out_of_time(session, checked=looked_at)
        assert between.killed.wait(PATIENCE_SECONDS)
        assert (told.session_id, told.message_id) == ("s", "m")
        assert "call resume() again" in str(told)
        daemon.start()
        was_taken = len(turns(daemon)) == 2
        assert was_taken or place != "behind it"
        if was_taken:
            other = make_agent(daemon)
            got = other.do("""
            try:
                said = client.session('s').resume(accept='check').turn_id
            except walld_client.Refused as error:
                said = [error.code, error.got]
            said
            """)
            assert got[0] == "already_resumed"
            assert got[1].startswith(f"turn {told.turn_id}, ")
            assert f"process {os.getpid()} " in got[1]
        turn = session.resume(checked=looked_at)
        assert (turn.turn_id == told.turn_id) or not was_taken
        assert turns(daemon) == [*first, turn.turn_id]
        words = [one["payload"]["word"] for one in session.find("tool_settled")]
        assert (words, turn.calls) == (["did_not_run"], []), "once"
        again = session.resume()
        assert again.turn_id == turn.turn_id, "it does not claim from its own claim"
        turn.completed()
        with pytest.raises(walld_client.Refused, match="nothing_to_resume"):
            session.resume()


def test_killed_again_while_it_asks_whether_it_was_taken(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], colour: str
) -> None:
    first = leave_behind(daemon, make_agent)
    with (
        claimer(daemon, "behind it", colour) as (between, session),
        resuming(session, timeout=PATIENCE_SECONDS) as call,
    ):
        assert between.killed.wait(PATIENCE_SECONDS)
        for _ in range(3):
            daemon.start(wait=False)
            daemon.kill()
        daemon.start()
        assert turns(daemon) == [*first, call.result().turn_id]


def test_with_no_daemon_nothing_was_claimed(daemon: DaemonProcess, colour: str) -> None:
    """Before its append was sent there is no turn to look for."""
    client = connect(colour, daemon.socket_path, timeout=SOON_SECONDS)
    daemon.kill()
    with pytest.raises(walld_client.Unavailable) as unavailable:
        client.session("s").resume(timeout=SOON_SECONDS)
    assert not isinstance(unavailable.value, walld_client.NotDurable)
    client.let_go()
