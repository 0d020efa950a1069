"""The last batch of a log goes without a trace, and who was told that it is synced lives (M1, M2).

No header behind it says that it was there, so the log alone calls it torn, and nobody knew of it. A
session's client does: it shows its receipt to the next daemon.
"""

from __future__ import annotations

import os
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agents.process import MakeAgent
from colours import Coloured, connect
from daemon_process import PATIENCE_SECONDS, DaemonProcess, MakeDaemon, until, walld
from walld_client.wire import messages as wire
from wire_peer import Peer

Connected = Callable[[DaemonProcess], Coloured]


@pytest.fixture(params=["sync", "aio"])
def connected(request: pytest.FixtureRequest) -> Iterator[Connected]:
    clients: list[Coloured] = []

    def make(daemon: DaemonProcess) -> Coloured:
        clients.append(connect(request.param, daemon.socket_path, timeout=PATIENCE_SECONDS))
        return clients[-1]

    yield make
    for client in clients:
        client.let_go()


def size_of(daemon: DaemonProcess) -> int:
    """Of the newest segment."""
    return daemon.segments()[-1].stat().st_size


def lose_all_behind(daemon: DaemonProcess, size: int) -> None:
    """The daemon is killed, and its log ends there: where a batch ends, as if none had followed."""
    daemon.kill()
    assert size < size_of(daemon)
    os.truncate(daemon.segments()[-1], size)
    assert walld("fsck", daemon.data).returncode in (0, 1), "the log itself knows nothing of it"


def told(session: Coloured) -> list[str]:
    return [one["content"] for one in session.messages()]


def missing(session: Coloured) -> list[tuple[int, int, str]]:
    return [(one["first_seq"], one["last_seq"], one["why"]) for one in session.inner.breaks]


def lost_of(daemon: DaemonProcess) -> tuple[int, int]:
    """(events that were acknowledged and are lost, batches) as the daemon counts them."""
    status = daemon.status()
    return status["lost_acked"], status["start"]["attested_missing"]


def test_what_is_lost_of_a_session_is_said_from_then_on(
    make_daemon: MakeDaemon, connected: Connected
) -> None:
    daemon = make_daemon().start()
    session = connected(daemon).session("q")
    for number in range(3):
        session.submit(f"hi {number}", message_id=f"m{number}")
    size = size_of(daemon)
    session.submit("the last", message_id="m3")
    lose_all_behind(daemon, size)

    daemon.start()
    assert told(session) == ["hi 0", "hi 1", "hi 2"]
    assert missing(session) == [(4, 4, "missing")]
    assert lost_of(daemon)[0] == 1
    daemon.logged("session q, seqs 4 to 4")
    gate = session.resume_check()
    assert (gate["status"], gate["reasons"][0]["code"]) == ("blocked", "session_damaged")
    assert "events 4 to 4" in gate["reasons"][0]["message"]
    said = session.events()[-1]
    assert (said["type"], said["payload"]) == (
        "lost",
        {"first_seq": 4, "last_seq": 4, "told_seq": 4},
    )
    session.submit("the last", message_id="m3")
    assert told(session) == ["hi 0", "hi 1", "hi 2", "the last"]
    assert [one["seq"] for one in session.events()] == [1, 2, 3, 5, 6]

    for _ in range(2):  # whoever asks, and also where nobody is there who knew
        assert [one["content"] for one in daemon.reader.session("q").messages() or []][-1] == (
            "the last"
        )
        assert missing(session) == [(4, 4, "missing")]
        daemon.restart()
    assert lost_of(daemon) == (0, 0), "counted where it was found"
    daemon.terminate()
    assert walld("fsck", daemon.data).returncode == 2

    # A stop right behind a start leaves nothing of it in the log, also where its file has it all.
    done = walld("session", "repair", "q", "--data", daemon.data)
    assert (done.returncode, done.stderr) == (0, "")
    assert walld("fsck", daemon.data).returncode == 0


def test_a_session_that_is_lost_whole_is_said(
    make_daemon: MakeDaemon, connected: Connected
) -> None:
    daemon = make_daemon().start()
    client = connected(daemon)
    client.session("before").submit("hi", message_id="m0")
    size = size_of(daemon)
    session = client.session("q")
    session.append_many([{"type": "note", "payload": {"n": n}} for n in range(5)], synced=True)
    lose_all_behind(daemon, size)

    daemon.start()
    assert session.messages() == []
    assert missing(session) == [(1, 5, "missing")]
    assert session.append("note", {"n": 5}).seq == 7
    daemon.restart()
    assert [one["seq"] for one in session.events()] == [6, 7]
    assert missing(session) == [(1, 5, "missing")]
    assert told(client.session("before")) == ["hi"]
    assert client.session("before").inner.breaks == []


def test_a_session_that_goes_on_is_not_taken_for_lost(
    make_daemon: MakeDaemon, connected: Connected
) -> None:
    daemon = make_daemon().start()
    client, other = connected(daemon), connected(daemon)
    kept, deleted = client.session("kept"), client.session("deleted")
    for session in (kept, deleted):
        session.submit("hi", message_id="m0")
    deleted.submit("ho", message_id="m1")
    daemon.kill()
    daemon.start()
    assert (told(kept), kept.inner.breaks) == (["hi"], [])
    kept.submit("hi", message_id="m0")
    assert [one["seq"] for one in kept.events()] == [1]
    # What others have deleted is not lost; nor what was appended to another that is called so.
    other.delete("deleted")
    assert deleted.messages() is None
    daemon.restart()
    other.session("deleted").append("note", {})
    assert (deleted.messages(), deleted.inner.breaks) == ([], [])
    assert lost_of(daemon) == (0, 0)


def test_a_deleted_session_has_lost_nothing(make_daemon: MakeDaemon, connected: Connected) -> None:
    """Whoever deleted it, before the loss or behind it, this daemon knowing of that or another."""
    daemon = make_daemon().start()
    client, other = connected(daemon), connected(daemon)
    for name in ("before", "begun anew", "own", "behind"):
        client.session(name).submit("hi", message_id="m0")
        client.session(name).submit("ho", message_id="m1")
    other.delete("before")
    other.delete("begun anew")
    other.session("begun anew").append("note", {})
    client.delete("own")
    daemon.restart()  # its file has what is told of `begun anew`
    client.session("another").submit("hey", message_id="m9")
    size = size_of(daemon)
    client.session("another").submit("hi", message_id="m0")
    lose_all_behind(daemon, size)
    daemon.start()
    other.delete("behind")
    daemon.restart()
    for name, messages in (("before", None), ("begun anew", []), ("own", None), ("behind", None)):
        session = client.session(name)
        assert (session.messages(), session.inner.breaks) == (messages, []), name
    assert lost_of(daemon) == (0, 0)
    assert told(another := client.session("another")) == ["hey"]
    assert missing(another) == [(2, 2, "missing")]
    assert lost_of(daemon) == (1, 0)


def test_what_was_deleted_is_not_missed_in_what_was_salvaged(
    make_daemon: MakeDaemon, connected: Connected, tmp_path: Path
) -> None:
    daemon = make_daemon().start()
    client, other = connected(daemon), connected(daemon)
    for name in ("deleted", "kept"):
        client.session(name).submit("hi", message_id="m0")
    other.delete("deleted")
    daemon.terminate()
    new = tmp_path / "new"
    assert walld("salvage", daemon.data, "--to", new).returncode == 0
    shutil.rmtree(daemon.data)
    new.rename(daemon.data)
    daemon.start()
    for name, messages in (("deleted", None), ("kept", ["hi"])):
        session = client.session(name)
        found = session.messages()
        assert (found and [one["content"] for one in found], session.inner.breaks) == (messages, [])
    assert lost_of(daemon)[0] == 0


@pytest.mark.parametrize("meanwhile", ["nothing", "append", "killed within"])
def test_a_later_daemon_finds_what_the_next_one_was_not_shown(
    make_daemon: MakeDaemon, connected: Connected, meanwhile: str
) -> None:
    """The numbers of batches, and the seqs, are given again by then: the line is another one."""
    daemon = make_daemon().start()
    client, other = connected(daemon), connected(daemon)
    session = client.session("q")
    session.submit("hi", message_id="m0")
    size = size_of(daemon)
    session.submit("ho", message_id="m1")
    lose_all_behind(daemon, size)
    daemon.start()
    others = [] if meanwhile == "nothing" else ["of another"]
    if others:
        other.session("q").submit("of another", message_id="m2")
    if meanwhile == "killed within":  # what was said of it is lost as well
        size = size_of(daemon)
        assert told(session) == ["hi", "of another"]
        assert missing(session) == [(3, 3, "missing")]
        until(lambda: size_of(daemon) > size, "what was said")
        lose_all_behind(daemon, size)
        daemon.start()
    daemon.restart()
    at = 2 + len(others)
    for lost_acked in (1, 0):
        assert told(session) == ["hi", *others]
        assert missing(session) == [(at, at, "missing")]
        assert lost_of(daemon)[0] == lost_acked
        daemon.kill()
        daemon.start()
        session.submit("ho", message_id="m1")
        others.append("ho")


def test_several_who_lost_something_are_all_told(
    make_daemon: MakeDaemon, connected: Connected
) -> None:
    """What one of them lost has the seq of what another was told; each is said once."""
    daemon = make_daemon().start()
    clients = [connected(daemon) for _ in range(3)]
    clients[0].session("q").submit("hi", message_id="m0")
    size = size_of(daemon)
    for number, client in enumerate(clients, 1):
        client.session("q").submit(f"ho {number}", message_id=f"m{number}")
    lose_all_behind(daemon, size)
    daemon.start()
    for _ in range(2):
        for client in clients:
            assert told(client.session("q")) == ["hi"]
        daemon.kill()
        daemon.start()
    said = [one["payload"] for one in clients[0].session("q").events()[1:]]
    assert said == [
        {"first_seq": 2, "last_seq": 2, "told_seq": 2},
        {"first_seq": 4, "last_seq": 4, "told_seq": 3},
    ]


def test_a_full_disk_says_it_later(make_daemon: MakeDaemon, connected: Connected) -> None:
    """And keeps nobody from reading meanwhile."""
    daemon = make_daemon().start()
    session = connected(daemon).session("q")
    session.submit("hi", message_id="m0")
    size = size_of(daemon)
    session.submit("ho", message_id="m1")
    lose_all_behind(daemon, size)
    daemon.inject("write:error=ENOSPC", daemon.data / "wal")
    daemon.inject("pwrite64:error=ENOSPC:when=6+")
    daemon.start()
    until(lambda: daemon.status()["state"] == "disk_full" or _said(daemon), "a full disk")
    before = time.monotonic()
    assert told(session) == ["hi"]
    assert session.inner.breaks == []
    assert time.monotonic() - before < PATIENCE_SECONDS / 2
    daemon.kill()
    daemon.wrapper = []
    daemon.start()
    assert told(session) == ["hi"]
    assert missing(session) == [(2, 2, "missing")]


def _said(daemon: DaemonProcess) -> bool:
    """Something is written, which the disk does not take."""
    daemon.reader.session("other").append("note", {}, wait=False)
    return False


def test_who_returns_to_the_same_daemon_attests_nothing(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """It was told so by this one: no batch of it is missing (`attested_missing`)."""
    daemon = make_daemon().start()
    agent = make_agent(daemon)
    agent.do("r = client.reply('s', stream_id='z')")
    agent.do("r.token('a'); r.drain(20, level='synced')")
    agent.do("client._link._socket.shutdown(2)")
    agent.do("r.token('b'); r.drain(20, level='synced')")
    assert daemon.arrived("z", 2).text == "ab"
    assert lost_of(daemon) == (0, 0)


def _asked(peer: Peer, request: wire.Attest) -> object:
    peer.send(request)
    return peer.hear()


def test_a_receipt_that_no_daemon_gave(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon().start()
    daemon.reader.session("q").submit("hi", message_id="m0")
    with Peer(daemon, "query") as peer:
        for receipt, field, got in (
            (b"", "receipt is none", "0 bytes"),
            (bytes(39), "receipt is none", "39 bytes"),
            (bytes(16) + b"\xff" * 24, "receipt has a seq", f"{2**64 - 1}"),
        ):
            answer = _asked(peer, wire.Attest(7, "q", receipt))
            assert isinstance(answer, wire.Error)
            assert (answer.code, answer.got) == ("bad_argument", got)
            assert field in answer.message
        answer = _asked(peer, wire.Attest(8, "", bytes(40)))
        assert isinstance(answer, wire.Error)
        assert answer.code == "id_length"
        assert lost_of(daemon)[0] == 0
        # Who makes one up has a session of his own with a hole in it, of a bounded length.
        made_up = struct.pack(">QQQ16s", 1, 0, 2**53, b"")
        assert _asked(peer, wire.Attest(9, "q", made_up)) == wire.Answer(9, b"\xc3")
        assert _asked(peer, wire.Attest(10, "q", made_up)) == wire.Answer(10, b"\xc2")
    assert lost_of(daemon) == (1000, 0)
    session = daemon.reader.session("q")
    assert [one["content"] for one in session.messages() or []] == ["hi"]
    assert session.append("note", {}).seq == 1003


def test_a_stop_right_behind_a_start_leaves_no_lines_in_the_log_that_their_file_has(
    make_daemon: MakeDaemon, connected: Connected, tmp_path: Path
) -> None:
    """A daemon that was killed between the two left them, with a leap: nothing is pending."""
    daemon = make_daemon().start()
    session = connected(daemon).session("q")
    session.submit("hi", message_id="m0")
    size = size_of(daemon)
    session.submit("the last", message_id="m1")
    lose_all_behind(daemon, size)
    daemon.start()
    session.submit("the last", message_id="m1")
    shutil.copytree(daemon.data / "wal", tmp_path / "wal")
    shutil.copy(daemon.data / "LOCK", tmp_path)
    daemon.terminate()
    shutil.rmtree(daemon.data / "wal")
    shutil.copytree(tmp_path / "wal", daemon.data / "wal")
    shutil.copy(tmp_path / "LOCK", daemon.data)
    daemon.start()
    daemon.terminate()
    done = walld("session", "repair", "q", "--data", daemon.data)
    assert (done.returncode, done.stderr) == (0, "")
