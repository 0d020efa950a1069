"""append(wait=False): sent like a token, in order, and never dropped in silence."""

from __future__ import annotations

import select
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import walld_client
from colours import Coloured, connect
from fake_daemon import FakeDaemon, Peer
from fake_ledger import FakeLedger
from walld_client.link import process
from walld_client.session import append_connection
from walld_client.wire import messages as wire


@pytest.fixture(params=["sync", "aio"])
def client(request: pytest.FixtureRequest, daemon: FakeDaemon) -> Iterator[Coloured]:
    client = connect(request.param, daemon.path)
    yield client
    client.let_go()


def numbers(ledger: FakeLedger) -> list[int]:
    return [event["payload"]["n"] for event in ledger.sessions["S"]]


def test_it_arrives_without_another_call(
    client: Coloured, ledger: FakeLedger, daemon: FakeDaemon
) -> None:
    session = client.session("S")
    entries = [session.append("a", {"n": n}, wait=False) for n in range(5)]
    assert {entry.seq for entry in entries} == {0}
    daemon.until(lambda: len(ledger.sessions.get("S", [])) == 5)
    assert [event["id"] for event in ledger.sessions["S"]] == [entry.id for entry in entries]
    assert session.append("a", {"n": 5}).seq == 6
    assert len(session.events()) == 6
    assert len(daemon.peers) == 2


def test_it_goes_before_what_is_asked_next(client: Coloured, ledger: FakeLedger) -> None:
    session = client.session("S")
    for n in range(300):
        session.append("a", {"n": n, "text": "x" * 5000}, wait=False)
    assert session.append("a", {"n": 300}).seq == 301
    assert numbers(ledger) == list(range(301))


def test_an_answer_that_nobody_can_read_is_no_error_of_who_appends(
    client: Coloured, ledger: FakeLedger, daemon: FakeDaemon
) -> None:
    answer = msgspec.msgpack.encode(wire.Answer(1, b"", True))
    deep = bytes([answer[0] + 1]) + answer[1:] + b"\x91" * 5000 + b"\x90"  # one field more
    bad = [len(deep).to_bytes(4, "big") + deep]

    def before(peer: Peer, request: Any) -> bool:
        if bad and isinstance(request, wire.Append):
            peer.socket.sendall(bad[0])
            bad.clear()
            return True
        return False

    ledger.before = before
    session = client.session("S")
    session.append("a", {"n": 0}, wait=False)
    daemon.until(lambda: not bad)
    session.append("a", {"n": 1}, wait=False)
    daemon.until(lambda: len(ledger.sessions.get("S", [])) == 2)
    assert numbers(ledger) == [0, 1]


def test_a_daemon_that_is_away_gets_it_later(
    client: Coloured, ledger: FakeLedger, daemon: FakeDaemon
) -> None:
    session = client.session("S")
    session.append("a", {"n": 0}, wait=False)
    daemon.until(lambda: ledger.sessions.get("S"))
    daemon.stop()
    for n in (1, 2):
        session.append("a", {"n": n}, wait=False)
    daemon.start()
    assert session.append("a", {"n": 3}).seq == 4
    assert numbers(ledger) == [0, 1, 2, 3]


@pytest.mark.parametrize("given", [{}, {"id": "mine"}, {"key": "k"}])
def test_an_answer_that_was_lost_adds_once(
    client: Coloured,
    ledger: FakeLedger,
    given: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    left = [1]

    def before(peer: Peer, request: Any) -> bool:
        if left:
            left.pop()
            ledger._append(request)
            peer.socket.shutdown(2)
        return not left and len(ledger.asked) == 1

    ledger.before = before
    session = client.session("S")
    session.append("a", {"n": 0}, wait=False, **given)
    session.append("a", {"n": 1}, wait=False)
    assert session.append("a", {"n": 2}).seq == 3
    assert numbers(ledger) == [0, 1, 2]
    assert "not appended" not in caplog.text


def test_a_refusal_is_logged(
    client: Coloured, ledger: FakeLedger, caplog: pytest.LogCaptureFixture
) -> None:
    session = client.session("S")
    session.append("a", {"n": 0}, id="mine")
    session.append("a", {"n": 1}, id="mine", wait=False)
    assert session.append("a", {"n": 2}).seq == 2
    assert "is not appended: code duplicate_id, got mine" in caplog.text


def test_a_daemon_that_is_not_ready_gets_it_again(client: Coloured, ledger: FakeLedger) -> None:
    left = [1]

    def before(peer: Peer, request: Any) -> bool:
        if left:
            left.pop()
            peer.say(wire.Error("recovering", "wait", id=request.id))
            return True
        return False

    ledger.before = before
    session = client.session("S")
    session.append("a", {"n": 0}, wait=False)
    assert session.append("a", {"n": 1}).seq == 2
    assert numbers(ledger) == [0, 1]


def refuse(ledger: FakeLedger, session_ids: str | list[str], code: str) -> list[bool]:
    """Appends to those sessions are answered so for as long as the list is not empty."""
    refusing, ended = [True], set[int]()
    hurt = {session_ids} if isinstance(session_ids, str) else set(session_ids)

    def before(peer: Peer, request: Any) -> bool:
        if id(peer) in ended:
            return True  # as walld does: nothing behind it is read
        if refusing and isinstance(request, wire.Append) and request.session_id in hurt:
            peer.say(wire.Error(code, "cannot be read", id=request.id))
            peer.socket.shutdown(2)
            ended.add(id(peer))
            kept.append(peer)
            return True
        return False

    kept: list[Peer] = []  # no other peer gets its id
    ledger.before = before
    return refusing


@pytest.mark.parametrize("code", ["unreadable", "internal"])
def test_a_session_that_fails_holds_up_no_other(
    client: Coloured,
    ledger: FakeLedger,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
) -> None:
    """Left where it is the first entry would be sent for ever, and all posts behind it wait."""
    refusing = refuse(ledger, "hurt", code)
    for n in range(3):
        client.session("hurt").append("a", {"n": n}, wait=False)
        client.session("S").append("a", {"n": n}, wait=False)
    assert client.session("S").append("a", {"n": 3}).seq == 4
    assert numbers(ledger) == [0, 1, 2, 3]
    assert "not appended" not in caplog.text, "the other one did not wait for it to be given up"
    client.session("hurt").state()
    assert f"3 entries posted to session 'hurt' are not appended: {code}" in caplog.text
    caplog.clear()
    client.session("hurt").append("a", {"n": 3}, wait=False)
    client.session("S").append("a", {"n": 4})
    client.session("hurt").state()
    assert "1 entries posted to session 'hurt'" in caplog.text
    for name in ("_RETRY_SECONDS", "_HURRY_SECONDS"):
        monkeypatch.setattr(append_connection, name, 1000.0)  # nothing waits for another attempt
    client.session("hurt").append("a", {"n": 4}, wait=False)
    client.session("S").append("a", {"n": 5}, wait=False)
    client.session("S").append("a", {"n": 6})
    refusing.clear()
    client.session("hurt").append("a", {"n": 5}, wait=False)
    client.session("S").append("a", {"n": 7})
    client.session("hurt").state()
    assert [event["payload"]["n"] for event in ledger.sessions["hurt"]] == [5]
    assert numbers(ledger) == list(range(8))


def test_many_sessions_that_fail_hold_up_no_other(
    client: Coloured, ledger: FakeLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was waited for until it was given up. Those that fail keep their order, too."""
    monkeypatch.setattr(append_connection, "_GIVE_UP_SECONDS", 1000.0)
    hurt = [f"hurt {n}" for n in range(8)]
    refusing = refuse(ledger, hurt, "unreadable")
    for n in range(3):
        for name in (*hurt, "S"):
            client.session(name).append("a", {"n": n}, wait=False)
    assert client.session("S").append("a", {"n": 3}).seq == 4
    assert numbers(ledger) == [0, 1, 2, 3]
    assert not set(ledger.sessions) & set(hurt)
    refusing.clear()
    for name in hurt:
        assert client.session(name).append("a", {"n": 3}).seq == 4
        assert [event["payload"]["n"] for event in ledger.sessions[name]] == [0, 1, 2, 3]


def test_who_waits_does_not_send_it_all_again_without_a_pause(
    client: Coloured, ledger: FakeLedger, daemon: FakeDaemon
) -> None:
    """A daemon that is full or starts has other things to do."""
    refuse(ledger, "S", "disk_full")
    session = client.session("S")
    session.append("a", {"n": 0}, wait=False)
    words = "cannot be read|are not answered within"  # as the last request was answered, or was not
    with pytest.raises(walld_client.Unavailable, match=words):
        session.append("a", {"n": 1})
    asked = [one for one in ledger.asked if isinstance(one, wire.Append)]
    assert len(asked) < 200, "each 2 to 5 ms"


def test_a_session_may_fail_in_the_first_minute_of_a_machine(
    daemon: FakeDaemon, ledger: FakeLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of a process counts from the boot of its machine."""
    begun, clock = time.monotonic(), time.monotonic
    refuse(ledger, "hurt", "unreadable")
    client = walld_client.connect(daemon.path)
    early = SimpleNamespace(monotonic=lambda: clock() - begun)
    monkeypatch.setattr(append_connection, "time", early)
    client.session("hurt").append("a", {"n": 0}, wait=False)
    assert client.session("S").append("a", {"n": 0}).seq == 1
    client.close()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_session_that_answers_has_all_the_time_again(
    daemon: FakeDaemon, ledger: FakeLedger, is_there: bool
) -> None:
    """Also where it answers that the entry is there."""
    refusing = refuse(ledger, "S", "unreadable")
    client, other = walld_client.connect(daemon.path), walld_client.connect(daemon.path)
    session = client.session("S")
    session.append("a", {"n": 0}, id="mine", wait=False)
    connection = client._append_queue._connection
    daemon.until(lambda: connection._failing)
    refusing.clear()
    if is_there:
        other.session("S").append("a", {"n": 1}, id="mine")
    session.append("a", {"n": 2})
    assert connection._failing == {}
    client.close()
    other.close()


@pytest.mark.parametrize("code", ["unreadable", "unwritable", "behind", "ledger_full", "disk_full"])
def test_one_that_fails_for_a_moment_loses_nothing_and_keeps_its_order(
    client: Coloured, ledger: FakeLedger, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    refusing = refuse(ledger, "S", code)
    session = client.session("S")
    for n in range(3):
        session.append("a", {"n": n}, wait=False)
    refusing.clear()
    assert session.append("a", {"n": 3}).seq == 4
    assert numbers(ledger) == [0, 1, 2, 3]
    assert "not appended" not in caplog.text


def test_a_hangup_of_the_connection_before_is_not_one_of_this(
    daemon: FakeDaemon, ledger: FakeLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the I/O thread's poll and its work whoever posts may have connected anew."""
    for name in ("_RETRY_SECONDS", "_HURRY_SECONDS"):
        monkeypatch.setattr(append_connection, name, 1000.0)
    client = walld_client.connect(daemon.path)
    session = client.session("S")
    session.append("a", {"n": 0}, wait=False)
    assert client._append_queue._connection.attend(select.POLLHUP)
    session.append("a", {"n": 1}, wait=False)
    assert session.append("a", {"n": 2}).seq == 3
    client.close()


def test_what_does_not_fit_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(append_connection, "OUTBOX_ENTRIES_MAX", 3)
    client = walld_client.connect(tmp_path / "nobody")
    session = client.session("S")
    for _ in range(3):
        session.append("a", wait=False)
    with pytest.raises(walld_client.Unavailable, match="3 entries of 6 bytes wait for walld"):
        session.append("a", wait=False)
    for _ in range(2):
        with pytest.raises(walld_client.Unavailable, match="no walld at"):
            session.append("a")
    client.close(0.1)
    assert "3 entries that were posted never reached walld" in caplog.text


def test_what_has_an_answer_waits(client: Coloured) -> None:
    with pytest.raises(ValueError, match="not with wait=False"):
        client.session("S").append("a", wait=False, synced=True)


def test_it_goes_before_a_delete(client: Coloured, ledger: FakeLedger) -> None:
    for n in range(50):
        client.session("S").append("a", {"n": n}, wait=False)
    assert client.delete("S")
    assert client.sessions() == []


def test_closing_delivers(daemon: FakeDaemon, ledger: FakeLedger) -> None:
    client = walld_client.connect(daemon.path)
    client.session("S").append("a", {"n": 0}, wait=False)
    client.close()
    assert numbers(ledger) == [0]


def test_the_thread_is_not_woken_while_all_is_well(
    daemon: FakeDaemon, ledger: FakeLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = walld_client.connect(daemon.path)
    session = client.session("S")
    session.append("a", {"n": 0}, wait=False)
    session.state()
    connection = client._append_queue._connection
    assert connection is not None
    # Once it has heard what there is to watch: on a busy machine it may be told of that by a wake.
    daemon.until(lambda: connection._watched == connection._watching())
    woken: list[str] = []

    def wake() -> None:
        caller = sys._getframe(1)
        if caller.f_locals.get("self") is connection:  # not for one that a test before has left
            woken.append(caller.f_code.co_name)

    monkeypatch.setattr(process.io_thread(), "wake", wake)
    for n in range(1, 50):
        session.append("a", {"n": n}, wait=False)
        daemon.until(lambda n=n: len(ledger.sessions["S"]) == n + 1)
    assert woken == []
    monkeypatch.undo()
    client.close()


def test_a_post_of_a_signal_handler_waits_for_the_post_it_interrupted(
    daemon: FakeDaemon, ledger: FakeLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = walld_client.connect(daemon.path)
    session = client.session("S")
    encode, left = append_connection.AppendConnection._encode, [1]

    def interrupted(self: append_connection.AppendConnection) -> None:
        if left:
            left.pop()
            session.append("a", {"n": 1}, wait=False)  # as a handler between two lines would
        encode(self)

    monkeypatch.setattr(append_connection.AppendConnection, "_encode", interrupted)
    session.append("a", {"n": 0}, wait=False)
    assert session.append("a", {"n": 2}).seq == 3
    assert numbers(ledger) == [0, 1, 2]
    client.close()


def test_one_of_a_signal_handler_that_does_not_fit_is_logged(
    daemon: FakeDaemon,
    ledger: FakeLedger,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = walld_client.connect(daemon.path)
    session = client.session("S")
    monkeypatch.setattr(append_connection, "OUTBOX_ENTRIES_MAX", 0)
    with client._append_queue._connection.mutex, client._append_queue._connection:
        session.append("a", {"n": 0}, wait=False)
    assert "posted by a signal handler is lost: 0 entries" in caplog.text
    client.close()


def test_two_threads_post_first(daemon: FakeDaemon, ledger: FakeLedger) -> None:
    """What each of them posts is there before what either asks."""
    for number in range(30):
        client = walld_client.connect(daemon.path)
        session, gate = client.session(f"S{number}"), threading.Barrier(2)

        def post(n: int, session: walld_client.Session = session, gate: Any = gate) -> None:
            gate.wait()
            session.append("a", {"n": n}, wait=False)

        threads = [threading.Thread(target=post, args=(n,)) for n in (0, 1)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert len(session.events()) == 2
        client.close()


def test_an_exception_in_the_middle_of_a_post_loses_nothing(
    daemon: FakeDaemon, ledger: FakeLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = walld_client.connect(daemon.path)
    session = client.session("S")
    encode, left = append_connection.AppendConnection._encode, [1, 1]

    def cut_short(self: append_connection.AppendConnection) -> None:
        encode(self)
        if left:
            left.pop()
            raise KeyboardInterrupt

    monkeypatch.setattr(append_connection.AppendConnection, "_encode", cut_short)
    for n in range(2):
        with pytest.raises(KeyboardInterrupt):
            session.append("a", {"n": n}, wait=False)
    assert session.append("a", {"n": 2}).seq == 3
    assert numbers(ledger) == [0, 1, 2]
    client.close()


def test_another_thread_that_waits_keeps_no_post_waiting(
    daemon: FakeDaemon, ledger: FakeLedger
) -> None:
    client = walld_client.connect(daemon.path, timeout=5)
    session = client.session("S")
    session.append("a", {"n": 0}, wait=False)
    daemon.until(lambda: ledger.sessions.get("S"))
    ledger.before = lambda peer, request: True  # never answered
    session.append("a", {"n": 1}, wait=False)

    def ask() -> None:
        with pytest.raises(walld_client.Unavailable, match="are not answered within"):
            session.state()

    waits = threading.Thread(target=ask)
    waits.start()
    session.append("a", {"n": 2}, wait=False)
    assert waits.is_alive()
    waits.join()
    client.close(0.1)


@pytest.mark.parametrize("colour", ["sync", "aio"])
def test_what_was_posted_is_waited_for_as_long_as_the_client_waits(
    daemon: FakeDaemon, ledger: FakeLedger, colour: str
) -> None:
    """Who gave it more time, because sessions are long or starts are slow, has that here too."""
    client = connect(colour, daemon.path, timeout=0.2)
    session = client.session("S")
    session.append("a", {"n": 0}, wait=False)
    daemon.until(lambda: ledger.sessions.get("S"))
    ledger.before = lambda peer, request: True  # never answered
    session.append("a", {"n": 1}, wait=False)
    for ask in (session.state, lambda: session.append("a", {"n": 2}), client.sessions):
        with pytest.raises(walld_client.Unavailable, match=r"are not answered within 0\.2 s"):
            ask()
    client.close(0.1)
    client.let_go()


def test_every_close_is_told_of_an_entry_that_was_given_up(daemon: FakeDaemon) -> None:
    """Two of an asyncio client, in two loops, come here one behind the other."""
    daemon.stop()
    client = walld_client.connect(daemon.path)
    client.session("S").append("a", {"n": 0}, wait=False)
    assert [client._append_queue.close() for _ in range(2)] == [False, False]
    client.close(0.1)


def test_what_was_released_while_walld_was_away_is_named_by_what_is_posted_behind_it(
    client: Coloured, ledger: FakeLedger, daemon: FakeDaemon
) -> None:
    """The last one alone, however many they are: each entry keeps room for it."""
    seen: list[list[wire.Seen]] = []

    def note(_peer: Peer, request: Any) -> bool:
        if isinstance(request, wire.Append):
            seen.append(request.seen)
        return False

    ledger.before = note
    daemon.stop()
    session = client.session("S")
    for turn_id in ("t", "t", "t", None):
        reply = client.reply("S", turn_id=turn_id)
        reply.token("answer")
        reply.end()
        session.append("a", {"n": 0}, wait=False)
    daemon.start()
    daemon.until(lambda: len(seen) >= 4)
    assert [[one.seq for one in each] for each in seen[:4]] == [[3]] * 4
    numbers = [each[0].stream for each in seen[:4]]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == 3, "a reply of no turn goes to no session"


def test_a_signal_handler_within_a_send_posts_while_another_thread_does(
    daemon: FakeDaemon, ledger: FakeLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the lock of the replies, the other one that of the entries."""
    client = walld_client.connect(daemon.path)
    session = client.session("S")
    session.append("a", {"n": 0}, wait=False)
    daemon.until(lambda: ledger.sessions.get("S"))
    reply = client.reply("S", turn_id="t")
    reply.end()
    encodes, interrupted = threading.Event(), threading.Event()
    request = append_connection.PostedEntry.request

    def slow(self: append_connection.PostedEntry, request_id: int) -> wire.Append:
        if threading.current_thread() is other:
            encodes.set()
            assert interrupted.wait(10)
            time.sleep(0.1)
        return request(self, request_id)

    def handle() -> None:
        with client._link.mutex, client._link:
            interrupted.set()
            session.append("a", {"n": 2}, wait=False)

    monkeypatch.setattr(append_connection.PostedEntry, "request", slow)

    def post() -> None:
        session.append("a", {"n": 1}, wait=False)

    other = threading.Thread(target=post, daemon=True)
    other.start()
    assert encodes.wait(10)
    handles = threading.Thread(target=handle, daemon=True)
    handles.start()
    for one in (other, handles):
        one.join(10)
        assert not one.is_alive(), "each waits for the other"
    client.close()


def test_a_close_beside_another_waits_for_what_that_gives_up(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two loops in two threads: the entries are with the first."""
    daemon.stop()
    client = walld_client.connect(daemon.path)
    client.session("S").append("a", {"n": 0}, wait=False)
    gives_up, close = threading.Event(), append_connection.AppendConnection.close

    def slow(self: append_connection.AppendConnection) -> int:
        gives_up.set()
        time.sleep(0.1)
        return close(self)

    monkeypatch.setattr(append_connection.AppendConnection, "close", slow)
    said: list[bool] = []
    first = threading.Thread(target=lambda: said.append(client._append_queue.close()))
    first.start()
    assert gives_up.wait(10)
    said.append(client._append_queue.close())
    first.join()
    assert said == [False, False]
    client.close(0.1)
