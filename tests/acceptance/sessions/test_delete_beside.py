"""A session is deleted while others send it artifacts and name them.

What must be true: what is named was sent, or is missing nowhere; who lost the race is told so once,
and clearly; nothing is left of a session that is deleted when nobody writes to it any more.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import fork_server
import pytest
import walld_client
from daemon_process import DaemonProcess, environment, until
from walld_client.session.artifacts import upload
from walld_client.steps import run

ROUNDS = 150
PIECES = 1_300_000
"""Bytes of an artifact of several pieces."""


def left(daemon: DaemonProcess) -> list[str]:
    """But for the note that there was a delete (`ledger/deleted.py`), which names nobody."""
    found = [path for path in daemon.files() if "/sessions/" in str(path)]
    return [str(path) for path in found if path.name != ".deleted"]


def test_what_a_delete_took_is_not_named(daemon: DaemonProcess, reader: Any) -> None:
    whole = os.urandom(1000)
    digest = sha256(whole).hexdigest()
    described = {"sha256": digest, "size": 1000, "media_type": "text/plain"}
    other = walld_client.connect(daemon.socket_path, timeout=10)
    session = reader.session("s")
    kept = session.artifact(whole, "text/plain")
    assert other.delete("s")
    with pytest.raises(walld_client.Refused) as refused:
        session.append("artifact", described)
    assert (refused.value.code, refused.value.got) == ("artifact_missing", digest)
    assert left(daemon) == []
    again = session.artifact(whole, "text/plain")
    assert (again.sha256, again.seq) == (kept.sha256, 1)
    assert session.read_artifact(again.sha256) == whole
    other.close()


def test_a_daemon_killed_behind_the_delete_lets_no_entry_begin_without_its_artifact(
    daemon: DaemonProcess, reader: Any
) -> None:
    """What a delete took is in memory alone; that it is not there can be seen."""
    whole = os.urandom(1000)
    digest = sha256(whole).hexdigest()
    described = {"sha256": digest, "size": 1000, "media_type": "text/plain"}
    session = reader.session("s")
    session.artifact(whole, "text/plain")
    assert daemon.reader.delete("s")
    daemon.restart()
    for entry in (("artifact", described), ("app.note", {"text": {"_artifact": described}})):
        with pytest.raises(walld_client.Refused) as refused:
            session.append(*entry)
        assert (refused.value.code, refused.value.got) == ("artifact_missing", digest)
    assert session.messages() is None
    assert left(daemon) == []
    # Where others have begun it again the entry is taken, and the gate says what is missing.
    session.append("app.note", {})
    session.append("artifact", described)
    (reason,) = session.resume_check()["reasons"]
    assert (reason["code"], reason["sha256"]) == ("artifact_missing", digest)
    assert session.artifact(whole, "text/plain").sha256 == digest
    assert session.resume_check()["status"] == "ok"
    # What an application says of its own is no artifact of ours.
    assert reader.session("t").submit("do", attachments=[described]).state == "submitted"


def test_what_is_sent_to_a_fork_of_that_name_again_is_named(
    daemon: DaemonProcess, reader: Any
) -> None:
    """A fork brings its artifacts: nobody has to send them once more."""
    session = reader.session("s")
    made = session.artifact(b"evidence", "text/plain")
    for _ in range(2):
        fork = session.fork(None, "fork")
        named = {"sha256": made.sha256, "size": 8, "media_type": "text/plain"}
        assert fork.append("artifact", named).seq == 3
        assert fork.read_artifact(made.sha256) == b"evidence"
        assert daemon.reader.delete("fork")


def test_many_deletes_beside_many_uploads(daemon: DaemonProcess) -> None:
    refused: list[str] = []
    over = threading.Event()

    def send(number: int) -> None:
        client = walld_client.connect(daemon.socket_path, timeout=30)
        session, at = client.session("s"), 0
        while not over.is_set():
            at += 1
            size = PIECES if at % 2 else 2000
            try:
                session.artifact(f"{number} {at} ".encode().ljust(size, b"x"), "text/plain")
            except walld_client.Refused as error:
                refused.append(error.code)
        client.close()

    reader = walld_client.connect(daemon.socket_path, timeout=30)
    senders = [threading.Thread(target=send, args=[number]) for number in range(3)]
    for sender in senders:
        sender.start()
    try:
        for _ in range(ROUNDS):
            reader.delete("s")
            # An entry that is there at one moment has its artifact, unless it was deleted since.
            audit = reader.session("s").project("audit") or {}
            assert audit.get("artifacts_missing", []) == []
    finally:
        over.set()
        for sender in senders:
            sender.join()
    assert set(refused) <= {"artifact_missing"}
    audit = reader.session("s").project("audit") or {}
    assert audit.get("artifacts_missing", []) == []
    reader.delete("s")
    assert left(daemon) == []
    assert reader.session("s").messages() is None
    reader.close()


@pytest.mark.parametrize("verb", ["export", "events"])
@pytest.mark.parametrize("is_begun_anew", [False, True])
def test_who_is_still_printing_says_that_what_came_is_not_all(
    daemon: DaemonProcess, reader: Any, verb: str, is_begun_anew: bool
) -> None:
    session = reader.session("s")
    many = [{"type": "message", "payload": {"role": "user", "content": "old " * 100}}] * 500
    for _ in range(4):
        session.append_many(many)
    command = [sys.executable, "-m", "walld", "session", verb, "s", "--socket", daemon.socket_path]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment(), stdout=pipe, stderr=pipe) as printing:
        assert printing.stdout is not None
        assert printing.stderr is not None
        first = printing.stdout.readline()  # a page of lines is more than the pipe takes
        assert reader.delete("s")
        for _ in range(4 * is_begun_anew):
            session.append_many([{"type": "anew"}] * 500)
        rest, said = printing.stdout.read(), printing.stderr.read()
    lines = (first + rest).splitlines()[verb == "export" :]
    assert {json.loads(line)["type"] for line in lines} == {"message"}
    told = "session s was deleted while it was read: this is the beginning of what it was, up to"
    assert (printing.returncode, said.decode()) == (1, f"walld: {told} seq {len(lines)}\n")


def test_who_begins_a_session_beside_a_delete_or_a_fork_is_in_it_or_refused(
    daemon: DaemonProcess,
) -> None:
    """An entry that names artifacts waits for them to be looked for; what was opened before may be
    no session any more behind that.
    """
    reader, other = (walld_client.connect(daemon.socket_path, timeout=10) for _ in "ab")
    reader.session("source").message("user", "of the source")
    told: dict[str, bool] = {}

    def change(at: int) -> None:
        if at % 2:
            other.delete(f"s{at}")
        else:
            with suppress(walld_client.Refused):
                other.session("source").fork(None, f"s{at}")

    for at in range(ROUNDS):
        session = reader.session(f"s{at}")
        described = [
            dict(run(session._query, upload(f"s{at}", b"%d %d" % (at, one), "text/plain", None)))
            for one in range(1 + at % 2)
        ]
        thread = threading.Thread(target=change, args=(at,))
        thread.start()
        with suppress(walld_client.Refused):
            note = {"what": [{"_artifact": one} for one in described]}
            session.append("app.note", note, id="mine", synced=True)
            told[f"s{at}"] = True
        thread.join()
    there = {name: [one["id"] for one in reader.session(name).events()] for name in told}
    forked = [name for name in told if int(name[1:]) % 2 == 0]
    assert all("mine" in there[name] for name in forked), "an append that was told is lost"
    daemon.restart()
    for name in told:
        session = reader.session(name)
        assert [one["id"] for one in session.events()] == there[name], f"{name} behind a start"
        assert session.breaks == [], name
    reader.close()
    other.close()


@pytest.mark.parametrize("steps", [3, 8])
def test_a_reply_that_moves_into_a_session_that_is_deleted_leaves_nothing(
    daemon: DaemonProcess, steps: int
) -> None:
    """Its long messages become artifacts, one after the other."""
    reader, other = (walld_client.connect(daemon.socket_path, timeout=10) for _ in "ab")
    for at in range(8):
        turn = reader.session(f"s{at}").submit("do")
        with turn.reply() as reply:
            for step in range(steps):
                if step:
                    reply.step()
                reply.token("abcdefgh"[step] * 300_000)
            reply.end()
        folder = next(Path(daemon.data).glob(f"sessions/*/s{at}"), None)
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:  # the first of them is there, others are to come
            folder = folder or next(Path(daemon.data).glob(f"sessions/*/s{at}"), None)
            if folder is not None and any(folder.glob("artifacts/*")):
                break
        assert other.delete(f"s{at}")
    until(lambda: left(daemon) == [], "nothing left")
    daemon.restart()
    assert left(daemon) == []
    reader.close()
    other.close()


def test_a_session_is_in_each_list_while_its_lines_go_to_their_file(daemon: DaemonProcess) -> None:
    reader, other = (walld_client.connect(daemon.socket_path, timeout=10) for _ in "ab")
    for at in range(100):  # the list takes its time
        other.session(f"old{at}").append("app.note", {})
    over, known, missing = threading.Event(), [""], list[str]()

    def ask() -> None:
        while not over.is_set():
            name = known[0]
            there = [one.session_id for one in reader.sessions(name)]
            if name and name not in there:
                missing.append(name)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for at in range(6):
            session = other.session(f"new{at}")
            session.append("app.note", {})
            known[0] = f"new{at}"
            session.append("app.note", {"text": "x" * 70_000})  # 64 KiB wait: to the file
            until(lambda at=at: daemon.events_path(f"new{at}").exists(), "its file")
            time.sleep(0.02)
    finally:
        over.set()
        asking.join()
    assert missing == []
    reader.close()
    other.close()


def test_a_delete_beside_the_resolves_of_its_replies(daemon: DaemonProcess) -> None:
    reader, other = (walld_client.connect(daemon.socket_path, timeout=10) for _ in "ab")
    told: list[object] = []

    def delete(name: str) -> None:
        try:
            told.append(other.delete(name))
        except walld_client.Unavailable as error:
            told.append(error)

    for at in range(10):
        names = [f"{at}-{one}" for one in range(6)]
        command = [sys.executable, "-c", _LEAVES, daemon.socket_path, f"s{at}", *names]
        fork_server.run(command, environment()).check_returncode()
        until(lambda: len(daemon.partials()) == 6, "partials")
        deleting = threading.Thread(target=delete, args=(f"s{at}",))
        deleting.start()
        for name in reversed(names):
            reader.resolve(name)
        deleting.join()
        assert daemon.partials() == []
    assert set(map(type, told)) == {bool}, told
    reader.close()
    other.close()


_LEAVES = """
import sys, walld_client
client = walld_client.connect(socket=sys.argv[1])
for name in sys.argv[3:]:
    reply = client.reply(sys.argv[2], stream_id=name)
    reply.token("left")
    assert reply.drain()
"""


def test_who_says_no_more_of_what_was_deleted_is_answered_behind_a_start(
    daemon: DaemonProcess,
) -> None:
    """No daemon waits for what its process has said and another one had, and let go of."""
    agent, other = (walld_client.connect(daemon.socket_path, timeout=10) for _ in "ab")
    reply = agent.reply("s")
    reply.token("said")
    assert reply.drain(level="synced")
    assert other.delete("s")
    daemon.restart()
    assert [one.session_id for one in agent.orphans()] == []
    assert agent.session("s").submit("do").state == "submitted"
    agent.close()
    other.close()


@pytest.mark.parametrize("is_turned", [True, False])
def test_what_another_process_deleted_is_no_loss_to_the_next_daemon(
    daemon: DaemonProcess, is_turned: bool
) -> None:
    """Its owner is silent meanwhile, and says what it was told to each daemon that it finds."""
    agent = walld_client.connect(daemon.socket_path, timeout=10)
    reply = agent.session("s").submit("do").reply() if is_turned else agent.reply("s")
    reply.token("said")
    reply.token(", and more")
    assert reply.drain(level="synced")
    command = [sys.executable, "-c", _DELETES, daemon.socket_path, "s"]
    fork_server.run(command, environment()).check_returncode()
    for at in range(2):
        daemon.restart()
        assert agent.reply("t").drain(level="synced")
        assert daemon.metrics()["walld_lost_acked_total"] == 0, f"start {at + 1}"
    reply.token(" behind it")
    assert reply.drain(level="synced")
    assert [one.text for one in agent.recover_all("s")] == [" behind it"]
    daemon.kill()
    shutil.rmtree(Path(daemon.data) / "wal")
    daemon.start()
    assert agent.reply("t").drain(level="synced")
    said = f"lost_acked: uid {os.getuid()}, stream {reply.stream_id}, seqs 3 to 3\n"
    daemon.logged(said)
    agent.close()


_DELETES = """
import sys, walld_client
assert walld_client.connect(socket=sys.argv[1]).delete(sys.argv[2])
"""


ENDS: dict[str, Any] = {
    "cancel": lambda reply: reply.cancel("stop"),
    "error": lambda reply: reply.error("it failed"),
    "leave": lambda reply: reply.__exit__(None, None, None),
    "none": lambda _reply: None,
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("is_synced", [True, False])
def test_who_deleted_a_session_says_nothing_of_it_to_the_next_daemon(
    daemon: DaemonProcess, end: str, is_synced: bool
) -> None:
    """A reply that ended was known until it is released, and said again; so was its text before."""
    agent = walld_client.connect(daemon.socket_path, timeout=10)
    reply = agent.reply("s", stream_id="live").__enter__()
    reply.token("what was deleted")
    ENDS[end](reply)
    assert not is_synced or reply.drain(level="synced")
    assert agent.delete("s")
    daemon.restart()
    other = agent.reply("t")
    assert other.drain(level="synced")
    assert [(one.text, one.stream_id) for one in agent.recover_all("s")] == (
        [("", "live")] if end == "none" else []
    )
    assert agent.has_partial("s") is (end == "none")
    assert reply.durable_seq == (1 if end == "none" else 2)
    reply.token(" and goes on")
    assert [one.text for one in agent.recover_all("s")] == [" and goes on"] * (end == "none")
    assert daemon.metrics()["walld_lost_acked_total"] == 0, "what was deleted is no loss"
    other.end()
    agent.close()


def test_who_speaks_on_behind_a_delete_reads_what_it_said(daemon: DaemonProcess) -> None:
    agent = walld_client.connect(daemon.socket_path, timeout=10)
    for number in range(100):
        session_id = f"s{number}"
        reply = agent.reply(session_id)
        reply.token("before")
        assert agent.delete(session_id)
        reply.token("behind")
        reply.cancel("stop")
        assert [one.text for one in agent.recover_all(session_id)] == ["behind"]
        reply.release()
        assert agent.recover_all(session_id) == []
    assert agent.delete("s0") is False
    agent.close()


def test_what_another_thread_ends_behind_a_delete_begins_anew(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = walld_client.connect(daemon.socket_path, timeout=10)
    reply = agent.reply("s", stream_id="live")
    reply.token("before")
    leaving = agent._link.leaving

    def beside(session_id: str) -> Any:
        is_gone = leaving(session_id)

        def ended_first() -> None:
            reply.token("behind")
            reply.cancel("stop")
            is_gone()

        return ended_first

    monkeypatch.setattr(type(agent._link), "leaving", lambda _link, name: beside(name))
    assert agent.delete("s")
    (found,) = agent.recover_all("s")
    assert (found.text, found.status) == ("behind", "cancelled")
    daemon.restart()
    (found,) = agent.recover_all("s")
    assert (found.text, found.status) == ("behind", "cancelled")
    reply.release()
    agent.close()
