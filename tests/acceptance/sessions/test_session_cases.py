"""What a session refuses, and what it holds against whoever else uses the same daemon.

Its cases are in `test_api_sessions.py`.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import walld_client
import walld_client.aio
from agents.process import MakeAgent
from colours import connect
from daemon_process import DaemonProcess, until
from ledger_world import newer
from walld_client.wire import messages as wire
from wire_peer import Peer

TRICKY = (".", "..", "a/b", "../" * 5 + "etc", "ü" * 512, "con\n\0", " ")
TEXT = "half \ud83d, \u2028, \0, 'quotes\" and \\ "
BYTES = bytes(range(256)) * 5000


def contents(session: walld_client.Session, **options: Any) -> list[Any] | None:
    told = session.messages(**options)
    return None if told is None else [one["content"] for one in told]


def answered(turn: walld_client.Turn, text: str) -> str:
    with turn.reply() as reply:
        reply.token(text)
        reply.end()
    turn.completed()
    return reply.stream_id


def test_an_empty_id_is_refused_by_name(daemon: DaemonProcess) -> None:
    with pytest.raises(ValueError, match="session_id"):
        daemon.reader.session("")
    with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
        peer.send(wire.Append(1, "", [wire.NewEntry("x.y", b"{}", "a")]))
        error = peer.hear()
        assert isinstance(error, wire.Error)
        assert (error.code, error.got, error.limit) == ("id_length", "0 bytes", "1..1024")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_two_users_have_two_sessions_of_one_name(
    daemon: DaemonProcess, make_agent: MakeAgent
) -> None:
    for folder in (daemon.folder, daemon.socket_path):
        os.chmod(folder, 0o777)
    mine = daemon.reader.session("s")
    mine.message("user", "mine")
    agent = make_agent(daemon, uid=12345)
    theirs = agent.do('client.session("s").messages()')
    assert theirs is None
    agent.do('client.session("s").message("user", "theirs")')
    assert agent.do('[one["content"] for one in client.session("s").messages()]') == ["theirs"]
    assert contents(mine) == ["mine"]
    assert agent.do('client.delete("s")') is True
    assert agent.do('client.session("s").messages()') is None
    assert contents(mine) == ["mine"]


# --- forks ----------------------------------------------------------------------------------------


def test_a_fork_holds_what_is_long_in_any_script(daemon: DaemonProcess) -> None:
    """Its payload is as long as it was: a letter is no escape of six bytes."""
    session = daemon.reader.session("s")
    session.append("app.note", {"text": "ü" * 120_000})
    copy = session.fork(None, "copy")
    assert copy.events()[-1]["payload"] == {"text": "ü" * 120_000}


def test_a_fork_of_any_length_holds_up_no_agent(daemon: DaemonProcess) -> None:
    """12 MB: more than the daemon holds of all sessions in memory."""
    session = daemon.reader.session("s")
    for number in range(50):
        session.append("app.note", {"text": "x" * 240_000, "number": number})
    session.submit("open")
    with pytest.raises(walld_client.Refused, match="bad_payload"):
        daemon.reader.session("refused").append("undo", {"n": 0})
    copy = session.fork(None, "refused")
    assert daemon.status()["queue_bytes"] == 0
    entry = copy.message("user", "goes on")
    assert [one["seq"] for one in copy.events()] == list(range(1, entry.seq + 1))
    daemon.restart()
    assert contents(copy) == ["open", "goes on"]
    assert not copy.project("audit")["chain_breaks"]


# --- what is refused ------------------------------------------------------------------------------


def test_a_stale_writer_is_told_where_the_session_is(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    session.message("user", "a")
    session.append("app.x", {}, expected_seq=1)
    with pytest.raises(walld_client.Refused) as refused:
        session.append("app.x", {}, expected_seq=1)
    assert (refused.value.code, refused.value.got, refused.value.limit) == ("stale", "1", "2")
    assert len(session.events()) == 2
    with pytest.raises(walld_client.Refused, match="stale"):
        session.append_many([], expected_seq=1)
    assert session.append_many([], expected_seq=2) == []


@pytest.mark.parametrize(
    ("entry", "code", "told"),
    [
        ({"type": "app.x", "parent": "nowhere"}, "unknown_parent", "nowhere"),
        ({"type": "app.x", "id": "a", "parent": "a"}, "cycle", "a"),
        ({"type": "app.x", "id": "there"}, "duplicate_id", "there"),
        ({"type": "label", "payload": {"target": "nowhere"}}, "unknown_target", "nowhere"),
        ({"type": "turn_completed", "turn": "nobody"}, "unknown_turn", "nobody"),
        ({"type": "undo", "payload": {"n": 0}}, "bad_payload", "0"),
        ({"type": "Not a type"}, "bad_type", "'Not a type'"),
        (
            {"type": "turn_submitted", "turn": "t", "payload": {"message_id": 7, "content": "x"}},
            "bad_payload",
            "7",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_clear_error_and_nothing_half_written(
    daemon: DaemonProcess, entry: dict[str, Any], code: str, told: str
) -> None:
    session = daemon.reader.session("s")
    session.append("app.x", {}, id="there")
    before = session.events()
    with pytest.raises(walld_client.Refused) as refused:
        session.append_many([{"type": "app.good"}, entry])
    assert (refused.value.code, refused.value.got) == (code, told)
    assert refused.value.limit
    assert session.events() == before
    assert session.append("app.x", {}).seq == 2
    daemon.restart()
    assert len(session.events()) == 2


def test_an_illegal_step_of_a_turn_is_refused(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    turn = session.submit("q", message_id="m")
    turn.completed()
    with pytest.raises(walld_client.Refused, match="illegal_turn"):
        turn.worker_started()
    with pytest.raises(walld_client.Refused) as refused:
        session.submit("another text", message_id="m")
    assert (refused.value.code, refused.value.got) == ("message_id_taken", "m")
    assert "submitted with other content or attachments (hash " in str(refused.value)
    assert f"turn {turn.turn_id} has it" in refused.value.limit
    with pytest.raises(walld_client.Refused, match="unknown_turn"):
        session.turn("nobody")


@pytest.mark.parametrize(
    "payload",
    [
        b'{"role":"user","content":"' + b"x" * (256 * 1024) + b'"}',
        b'{"role":"user","content":[1e400]}',
        b'{"role":"user","content":[NaN]}',
        b'{"role":"user","content":[' + b"[" * 300 + b"]" * 300 + b"]}",
        b'{"role":"user","content":"\xed\xa0\x80"}',
        '{"role":"user"}'.encode("utf-16-le"),
        b'\xef\xbb\xbf{"role":"user"}',
        b'{"role":"user"}{}',
        b'[{"role":"user"}]',
        b"null",
        b'"a text"',
    ],
    ids=["long", "beyond", "nan", "deep", "half", "utf-16", "bom", "two", "list", "null", "text"],
)
def test_a_payload_that_no_view_could_tell_is_refused(
    daemon: DaemonProcess, payload: bytes
) -> None:
    with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
        entries = [wire.NewEntry("app.x", b"{}", "good"), wire.NewEntry("message", payload, "bad")]
        peer.send(wire.Append(1, "s", entries))
        error = peer.hear()
        assert isinstance(error, wire.Error)
        assert error.code in ("bad_payload", "payload_length")
        assert error.got
        assert error.limit
    assert daemon.reader.session("s").messages() is None


def test_a_request_has_entries_and_ids_within_bounds(daemon: DaemonProcess) -> None:
    """Each is taken in one step of the daemon, which reads no agent meanwhile."""
    entries = [wire.NewEntry("app.x", b"{}", str(at)) for at in range(1001)]
    long = "x" * 1025
    asked = [
        (entries, "entries_count"),
        ([wire.NewEntry("app.x", b"{}", "a", key=long)], "id_length"),
        ([wire.NewEntry("app.x", b"{}", "a", turn=long)], "id_length"),
        ([wire.NewEntry("app.x", b"{}", "a", cause=long)], "id_length"),
        ([wire.NewEntry("app.x", b"{}", "a", correlation=long)], "id_length"),
    ]
    with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
        for given, code in asked:
            peer.send(wire.Append(1, "s", given))
            error = peer.hear()
            assert isinstance(error, wire.Error)
            assert error.code == code
        peer.send(wire.GetArtifact(2, "s", b"short"))
        error = peer.hear()
        assert isinstance(error, wire.Error)
        assert (error.code, error.got, error.limit) == ("bad_artifact", "5", "32")


def test_an_artifact_of_another_hash_is_not_there(daemon: DaemonProcess) -> None:
    said = sha256(b"said").digest()
    with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
        peer.send(wire.PutArtifact(1, "s", said, 5, 0, b"other"))
        error = peer.hear()
        assert isinstance(error, wire.Error)
        assert error.code == "artifact_hash"
        assert (error.got, error.limit) == (sha256(b"other").hexdigest(), said.hex())
    with pytest.raises(walld_client.Refused, match="artifact_missing"):
        daemon.reader.session("s").read_artifact(said.hex())
    assert not daemon.holding([b"other"])


def test_an_upload_whose_client_was_killed_hinders_nobody(
    daemon: DaemonProcess, make_agent: MakeAgent
) -> None:
    for number in range(20):
        with Peer(daemon, "query") as peer:  # type: ignore[arg-type]
            peer.send(wire.PutArtifact(1, "s", bytes([number]) * 32, 1000, 0, b"begun"))
            assert isinstance(peer.hear(), wire.Answer)
    session = daemon.reader.session("s")
    made = session.artifact(BYTES, "application/x-any")
    assert session.read_artifact(made.sha256) == BYTES
    daemon.restart()
    until(lambda: not daemon.holding([b"begun"]), "nothing of what was begun")
    assert session.read_artifact(made.sha256) == BYTES


@pytest.mark.parametrize("colour", ["sync", "aio"])
def test_an_edit_changes_what_it_names_or_is_refused(daemon: DaemonProcess, colour: str) -> None:
    client = connect(colour, daemon.socket_path)
    session = client.session("s")

    def edited(name: str, content: str = "NEW") -> list[Any]:
        session.edit(name, role="user", content=content)
        return [one["content"] for one in session.messages()]

    def refused(name: str, why: str) -> None:
        before = len(session.events())
        with pytest.raises(walld_client.Refused, match=f"unknown_target, got {name}, .*{why}"):
            session.edit(name, role="user", content="NEW")
        assert len(session.events()) == before

    first = session.message("user", "a")
    assert edited(first.id) == ["NEW"]
    named = session.message("user", "b", _message_id="own")
    assert edited("own") == ["NEW", "NEW"]
    session.undo(1)
    refused(named.id, "was not undone")
    refused("own", "was not undone")
    refused(session.setting("k", 1).id, "no setting")
    turn = session.submit("q", message_id="m")
    assert edited("m", "Q") == ["NEW", "Q"]
    session.compact("S", turn.turn_id)
    summary = session.events()[-1]["id"]
    assert edited(summary, "better") == ["better", "Q"]
    assert edited(first.id) == ["better", "Q"], "what is compacted away is a message still"
    assert session.messages(compacted=False)[0]["content"] == "NEW"
    listed = session.edit([{"role": "user", "content": "x", "_message_id": "in the list"}])
    assert edited("in the list") == ["NEW"]
    assert edited("in the list", "again") == ["again"]
    refused(first.id, "no whole list took the place of")
    refused("m", "no whole list took the place of")
    refused(listed.id, "no message_edit")
    refused("nothing", "the id of an entry")
    client.let_go()
    assert daemon.reader.session("s").fork(None, "s2").messages() == session_of(daemon, "s")
    daemon.restart()
    assert session_of(daemon, "s2") == [{"role": "user", "content": "again"}]


def session_of(daemon: DaemonProcess, session_id: str) -> list[dict[str, Any]] | None:
    return daemon.reader.session(session_id).messages()


def test_everybody_who_uploads_the_same_bytes_has_them_there(daemon: DaemonProcess) -> None:
    content = os.urandom(8 << 20)
    clients = [walld_client.connect(daemon.socket_path) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda client: client.session("s").artifact(content), clients))
    for client in clients:
        client.close()
    assert {one.sha256 for one in made} == {sha256(content).hexdigest()}
    assert daemon.reader.session("s").read_artifact(made[0].sha256) == content


def test_a_file_of_a_later_version_is_refused_and_left_alone(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    session.message("user", "a")
    daemon.reader.session("other").message("user", "b")
    assert daemon.terminate() == 0
    (path,) = (daemon.data / "sessions").rglob("s/events.jsonl")
    text = path.read_bytes()
    path.write_bytes(newer(text, 9))
    before = path.read_bytes()
    daemon.start()
    for ask in (
        session.messages,
        session.events,
        lambda: session.message("user", "x"),
        lambda: session.submit("x"),
        lambda: session.fork(None, "copy"),
    ):
        with pytest.raises(walld_client.Unavailable, match="9"):
            ask()
    assert contents(daemon.reader.session("other")) == ["b"]
    assert daemon.terminate() == 0
    assert path.read_bytes() == before
    daemon.start()


# --- one daemon for all ---------------------------------------------------------------------------


def test_an_id_that_an_application_took_stops_no_interruption(
    daemon: DaemonProcess, make_agent: MakeAgent
) -> None:
    """The daemon's own entry finds another id; nobody else's turns wait for it."""
    hostile, other = make_agent(daemon), make_agent(daemon)
    other.do('client.session("other").submit("x", message_id="m").turn_id')
    hostile.do("""
    session = client.session("s")
    turn = session.submit("x", message_id="m")
    taken = [f"{turn.turn_id}:agent_lost:{seq}" for seq in range(300, 1000)]
    session.append_many([{"type": "app.x", "id": one} for one in taken])
    """)
    hostile.kill()
    other.kill()

    def reasons() -> list[str | None]:
        sessions = [daemon.reader.session(session_id) for session_id in ("s", "other")]
        return [(session.state() or {})["turns"][0]["reason"] for session in sessions]

    until(lambda: reasons() == ["agent_lost", "agent_lost"], "two interruptions")


def test_a_session_deleted_while_it_is_appended_to(
    daemon: DaemonProcess, make_agent: MakeAgent
) -> None:
    agent = make_agent(daemon)
    agent.begin("""
    import threading
    failed = []
    def write(at):
        for number in range(150):
            try:
                client.session("s").message("user", f"{at} {number}")
            except Exception as error:
                failed.append(repr(error))
    threads = [threading.Thread(target=write, args=(at,)) for at in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    failed
    """)
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        daemon.reader.delete("s")
    assert agent.done() == []
    daemon.reader.session("s").message("user", "last")
    before = daemon.reader.session("s").events()
    assert [one["seq"] for one in before] == list(range(1, len(before) + 1))
    daemon.restart()
    assert daemon.reader.session("s").events() == before
    assert not daemon.reader.session("s").project("state")["chain_breaks"]


def test_a_session_deleted_at_its_checkpoint_stays_deleted(daemon: DaemonProcess) -> None:
    """The checkpoint was begun, and waited for the log's sync."""
    for number in range(40):
        session = daemon.reader.session(f"s{number}")
        session.append_many([{"type": "message", "payload": {"role": "user"}}] * 60)
        time.sleep(number / 1000)
        assert daemon.reader.delete(session.session_id)
    time.sleep(1)  # what a checkpoint would bring back is there by then
    assert daemon.reader.sessions() == []

    def left() -> list[str]:
        return [path.name for path in (daemon.data / "sessions").rglob("*") if path.is_file()]

    until(lambda: left() == [".deleted"], "that there was one, which names nobody, and no more")


def test_who_appends_faster_than_files_are_written_waits(daemon: DaemonProcess) -> None:
    """Room for lines comes with the next checkpoint: nobody is refused for a moment's haste."""
    big = "x" * 250_000

    def write(at: int) -> None:
        for _ in range(12):
            client.session(f"s{at}").append("app.note", {"text": big})

    client = daemon.reader
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    assert [len(client.session(f"s{at}").events()) for at in range(6)] == [12] * 6


def test_the_last_of_a_long_session_are_found_from_its_end(daemon: DaemonProcess) -> None:
    """In windows that grow; what they answer is what a search of all of it answers."""
    session = daemon.reader.session("long")
    placed = {1: "a/1", 2: "a/2", 300: "b", 310: "a/2", 700: "a/1", 1190: "a/3", 1200: "b/2"}
    for begin in range(1, 1201, 200):
        entries = [{"type": "n", "key": placed.get(n)} for n in range(begin, begin + 200)]
        session.append_many(entries)
    keyed = [(seq, key) for seq, key in sorted(placed.items())]
    for restarted in (False, True):
        if restarted:
            daemon.restart()
        for prefix in (None, "a/", "b", "none"):
            whole = session.find("n", prefix)
            if prefix is not None:
                found = [(one["seq"], one["key"]) for one in whole]
                assert found == [(seq, key) for seq, key in keyed if key.startswith(prefix)]
            for last in (1, 2, 3, 31, 33, 290, 5000):
                assert session.find("n", prefix, last=last) == whole[-last:]
        for key in ("a/1", "a/2", "a/3", "a/", "b", "none"):
            whole = [one for one in session.find("n", key) if one["key"] == key]
            assert [one["seq"] for one in whole] == [seq for seq, at in keyed if at == key]
            assert session.find("n", key=key) == whole
            for last in (1, 2, 3):
                assert session.find("n", key=key, last=last) == whole[-last:]
            assert session.find("other", key=key) == []
        assert session.find("other", last=1) == []
        assert daemon.reader.session("never").find("n", key="a/1") == []
        assert daemon.reader.session("never").find("n", last=1) == []
    with pytest.raises(walld_client.Refused, match="bad_argument"):
        session.project("find", type="n", last=-1)
    never = daemon.reader.session("never")
    for view, more in (("messages", {"nope": 1}), ("find", {"nope": 1}), ("turn", {"nope": 1})):
        with pytest.raises(walld_client.Refused, match="nope cannot be used"):
            never.project(view, **more)
    with pytest.raises(walld_client.Refused, match="unknown_projection"):
        never.project("nope")
    assert never.project("messages", branch="q") is None
    for key in ("a/1", "none"):
        with pytest.raises(walld_client.Refused, match="bad_argument"):
            session.project("find", key=key, key_prefix="a")
    with pytest.raises(ValueError, match="a key or a prefix"):
        session.find("n", "a", key="a/1")


def bytes_read(pid: int) -> int:
    """What a process has read of files so far, from the page cache too (proc_pid_io(5))."""
    told = Path(f"/proc/{pid}/io").read_text()
    return int(told.partition("rchar: ")[2].split("\n")[0])


def test_an_event_of_a_key_costs_no_look_at_those_behind_it(daemon: DaemonProcess) -> None:
    """The fold knows where it is: bytes read of the file do not grow with the session."""
    session = daemon.reader.session("long")
    session.append("n", {"text": "found"}, key="wanted")
    for _ in range(20):
        session.append_many([{"type": "n", "payload": {"text": "x" * 900}}] * 200)
    session.append("n", {}, key="another", synced=True)
    for key, many in (("wanted", 1), ("none", 0)):
        read = []
        for _ in range(5):  # a checkpoint beside one of them reads too
            before = bytes_read(daemon.process.pid)
            assert len(session.find("n", key=key)) == many
            read.append(bytes_read(daemon.process.pid) - before)
        assert min(read) < 100_000
    before = bytes_read(daemon.process.pid)
    assert len(session.find("n", "wanted")) == 1
    assert bytes_read(daemon.process.pid) - before > 1_000_000
