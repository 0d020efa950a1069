"""Answers of turns that their session has lost, by damage or by hand: none goes without a word."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import walld_client
from daemon_process import DaemonProcess, until


def folder_of(daemon: DaemonProcess, session_id: str = "s") -> Path:
    return daemon.data / "sessions" / str(os.geteuid()) / session_id


def damage_the_turn(folder: Path) -> None:
    path = folder / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for at, line in enumerate(lines):
        if b'"type":"turn_' in line:
            lines[at] = line.replace(b'"payload"', b'"pAyload"')
    path.write_bytes(b"".join(lines))
    (folder / "snapshot").unlink()


def cut_the_end(folder: Path) -> None:
    """No hole is left to see."""
    path = folder / "events.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    (folder / "snapshot").unlink()


@pytest.mark.parametrize("lose", [damage_the_turn, cut_the_end])
def test_an_answer_whose_turn_is_lost_stays_a_reply(
    daemon: DaemonProcess, lose: Callable[[Path], None]
) -> None:
    client = walld_client.connect(daemon.socket_path)
    session = client.session("s")
    session.message("user", "first")
    turn = session.submit("q", message_id="m")
    reply = turn.reply(stream_id="r")
    reply.token("the answer, part 1. ")
    assert reply.drain()
    assert daemon.terminate() == 0
    lose(folder_of(daemon))
    daemon.start()
    reply.token("part 2")
    reply.end()
    assert reply.drain(30), "what it said is written"
    for restarted in (False, True):
        if restarted:
            daemon.restart()
        found = client.recover(stream_id="r")
        assert found is not None
        assert (found.status, found.text) == ("complete", "the answer, part 1. part 2")
        assert found.turn_id == turn.turn_id
    said = f"turn {turn.turn_id} of session s may have been lost: r stays a reply"
    daemon.logged(said)
    client.close()


def test_one_that_began_without_a_daemon_stays_where_lines_are_missing(
    daemon: DaemonProcess,
) -> None:
    client = walld_client.connect(daemon.socket_path)
    session = client.session("s")
    turn = session.submit("q", message_id="m")
    session.message("user", "on")
    assert daemon.terminate() == 0
    with turn.reply(stream_id="r") as reply:
        reply.token("said meanwhile")
        reply.end()
    damage_the_turn(folder_of(daemon))
    daemon.start()
    assert reply.drain(30)
    found = until(lambda: client.recover(stream_id="r"), "the reply")
    assert (found.status, found.text) == ("complete", "said meanwhile")
    client.close()


def test_a_reply_of_a_turn_that_is_the_applications_own_is_done_with(
    daemon: DaemonProcess,
) -> None:
    """No session has heard of its turn, and none has lost anything."""
    client = walld_client.connect(daemon.socket_path)
    for session_id, restarts in (("s", False), ("of no ledger", True)):
        if not restarts:
            client.session(session_id).message("user", "q")
        with client.reply(session_id, stream_id="r", turn_id="mine") as reply:
            reply.token("a")
            if restarts:
                assert reply.drain()
                daemon.restart()
            reply.end()
        assert reply.drain(30)
        assert client.recover(stream_id="r") is None
    client.close()


def test_an_answer_whose_session_was_removed_by_hand_goes_with_a_word(
    daemon: DaemonProcess,
) -> None:
    """Nothing tells it from one of an application's own turn, which is done with."""
    client = walld_client.connect(daemon.socket_path)
    turn = client.session("s").submit("q", message_id="m")
    reply = turn.reply(stream_id="r")
    reply.token("said")
    assert reply.drain()
    assert daemon.terminate() == 0
    shutil.rmtree(folder_of(daemon))
    daemon.start()
    reply.end()
    assert reply.drain(30)
    assert client.recover(stream_id="r") is None
    said = f"turn {turn.turn_id} is of no session: if s was one its files are gone; reply r goes"
    daemon.logged(said)
    client.close()
