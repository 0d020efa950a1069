"""Branches of a session: undone, compacted, forked; against a real daemon.

With the blocking client and with that of asyncio: one script, told which.
"""

from __future__ import annotations

import os
from hashlib import sha256
from typing import Any

import pytest
import walld_client
from acceptance.sessions.test_api_sessions import BYTES, answered, contents
from daemon_process import DaemonProcess, until


def test_undo_and_bounded_replay(daemon: DaemonProcess, reader: Any) -> None:
    session = reader.session("s")
    assert session.messages() is None
    for number in range(4):
        session.message("user", f"m{number}")
    session.undo(3)
    assert contents(session) == ["m0"]
    session.undo(1)
    assert contents(session) == []
    many = reader.session("many")
    for number in range(55):
        many.message("user", f"m{number}")
    until(lambda: daemon.status()["wal_live_bytes"] < 10_000, "a checkpoint")
    daemon.restart()
    assert contents(many) == [f"m{number}" for number in range(55)]
    assert contents(session) == []
    from walld.disk.real import RealDisk
    from walld.ledger.snapshot import SnapshotStore

    with RealDisk(str(daemon.data), read_only=True) as disk:
        snapshot = SnapshotStore(disk).read(os.geteuid(), "many")
    assert snapshot is not None
    assert 55 - snapshot.covers_seq <= 50


def test_compactions_and_branches(daemon: DaemonProcess, reader: Any) -> None:
    session = reader.session("s")
    ids = [session.message("user", f"m{number}").id for number in range(6)]
    session.compact("sum 1", ids[2])
    assert contents(session) == ["sum 1", "m2", "m3", "m4", "m5"]
    session.compact("sum 2", ids[4])
    tip = session.message("user", "m6").id
    assert contents(session) == ["sum 2", "m4", "m5", "m6"]
    session.branch(ids[5])
    session.compact("aside", ids[5])
    assert contents(session) == ["aside", "m5"]
    assert contents(session, branch=tip) == ["sum 2", "m4", "m5", "m6"]
    assert contents(session, branch=tip, compacted=False) == [f"m{number}" for number in range(7)]
    session.branch(None)
    assert contents(session) == []
    session.message("user", "another beginning")
    assert contents(session) == ["another beginning"]
    with pytest.raises(walld_client.Refused) as refused:
        session.branch("nowhere")
    assert (refused.value.code, refused.value.got) == ("unknown_target", "nowhere")
    with pytest.raises(walld_client.Refused, match="unknown_entry"):
        session.messages(branch="nowhere")
    daemon.restart()
    assert contents(session) == ["another beginning"]


def test_a_fork_is_the_path_and_the_source_is_untouched(daemon: DaemonProcess, reader: Any) -> None:
    session = reader.session("s")
    first = session.message("user", "a").id
    aside = session.message("assistant", "wrong").id
    session.branch(first)
    right = session.message("assistant", "right").id
    session.label(first, "start")
    session.label(aside, "not copied")
    before = session.events()
    copy = session.fork(None, "copy")
    assert contents(copy) == ["a", "right"]
    ids = [one["id"] for one in copy.events()]
    assert len(ids) == len(set(ids))
    assert [(one["label"]) for one in _labels(copy)] == ["start"]
    assert contents(session.fork(aside, "wrong")) == ["a", "wrong"]
    assert contents(session.fork("", "empty")) == []
    whole = session.fork(aside, "whole", whole=True)
    assert contents(whole) == ["a", "wrong"]
    assert contents(whole, branch=right) == ["a", "right"]
    (forked,) = [one for one in whole.events() if one["type"] == "forked"]
    assert (forked["seq"], whole.state()["leaf"]) == (1, aside)
    assert contents(session.fork("", "whole before", whole=True)) == []
    assert session.events() == before
    with pytest.raises(walld_client.Refused) as refused:
        session.fork("nowhere", "never")
    assert (refused.value.code, refused.value.got) == ("unknown_entry", "nowhere")
    assert reader.session("never").messages() is None
    with pytest.raises(walld_client.Refused, match="session_exists"):
        session.fork(None, "copy")
    whole_again = whole.fork(None, "whole again", whole=True)
    daemon.restart()
    assert contents(copy) == ["a", "right"]
    assert contents(whole) == contents(whole_again) == ["a", "wrong"]


def test_open_turns_of_a_fork_are_interrupted(reader: Any) -> None:
    session = reader.session("s")
    answered(session.submit("ended"), "yes")
    turn = session.submit("open")
    turn.worker_started()
    for whole in (False, True):
        copy = session.fork(None, f"copy {whole}", whole=whole)
        states = [(one["state"], one["reason"]) for one in (copy.state() or {})["turns"]]
        assert states == [("completed", None), ("interrupted", "forked")]
        assert copy.events()[-1]["payload"] == {"reason": "forked", "by": "daemon"}
    assert [one["state"] for one in (session.state() or {})["turns"]][-1] == "worker_started"
    turn.completed()
    assert session.turn(turn.turn_id).state == "completed"


def test_artifacts_of_a_fork_are_the_same_files(daemon: DaemonProcess, reader: Any) -> None:
    session = reader.session("s")
    made = session.artifact(BYTES, "application/x-any")
    session.submit("see", attachments=[b"attached"])
    session.artifact(b"behind the fork", "text/plain")
    copy = session.fork(session.events()[1]["id"], "copy")
    names = [sha256(one).hexdigest() for one in (BYTES, b"attached", b"behind the fork")]
    places = [[path for path in daemon.files() if path.name == name] for name in names]
    assert [len(found) for found in places] == [2, 2, 1]
    assert all(found[0].samefile(found[-1]) for found in places)
    reader.session("there").message("user", "not touched")
    before = sorted(daemon.files())
    with pytest.raises(walld_client.Refused, match="session_exists"):
        session.fork(None, "there")
    assert [path for path in sorted(daemon.files()) if path.name in names] == [
        path for path in before if path.name in names
    ]
    assert reader.delete("s")
    daemon.restart()
    assert copy.read_artifact(made.sha256) == BYTES
    assert copy.project("audit")["artifacts_missing"] == []
    assert reader.delete("copy")
    until(lambda: not daemon.holding([b"attached", BYTES[:64]]), "a directory without a byte of it")


def test_a_fork_and_a_delete_are_behind_what_their_process_said(reader: Any) -> None:
    for attempt in range(20):
        session = reader.session(f"s{attempt}")
        turn = session.submit("q")
        with turn.reply() as reply:
            reply.token("a")
            reply.end()
        assert contents(session.fork(None, f"copy{attempt}")) == ["q", "a"]
        reply = reader.reply(f"loose{attempt}")
        reply.token("said and not asked for")
        assert reader.delete(f"loose{attempt}") is True
        assert reader.recover(f"loose{attempt}") is None
        reply.end()
    assert reader.recover_all() == []


def _labels(session: Any) -> list[dict[str, Any]]:
    return [{"label": one["payload"]["text"]} for one in session.events() if one["type"] == "label"]


def test_a_reply_of_a_turn_without_an_entry_of_its_name_stands_beside_the_leaf(
    daemon: DaemonProcess, reader: Any
) -> None:
    """Appended by the program under an id of its own; and the session went on elsewhere."""
    session = reader.session("s")
    base = session.message("user", "base").id
    session.append("turn_submitted", {"message_id": "m", "content": "Q"}, id="E1", turn="T1")
    turn = session.turn("T1")
    turn.worker_started()
    reply = turn.reply()
    reply.token("the answer")
    session.branch(base)
    session.message("user", "other")
    reply.end()
    until(lambda: session.events()[-1]["payload"].get("content") == "the answer", "a message")
    assert contents(session) == ["base", "other"]
    assert session.events()[-1]["turn"] == "T1"
    assert reader.recover("s") is None
    assert "cannot be moved" not in daemon.log_text()
