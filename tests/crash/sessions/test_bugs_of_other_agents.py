"""Where agents of others lost sessions: the same done to walld's files (FAULTS.md has the list).

A write that a kill cut short, with the next record glued to it; zeros where power cut a write
short; both in the log and in the file of a session.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import walld_client
from agents.process import MakeAgent
from daemon_process import PATIENCE_SECONDS, DaemonProcess, MakeDaemon, walld

from walld.disk.real import RealDisk
from walld.wal.log_scan import LogScan

FRAGMENT = 0.6
"""So much of a record had got into the file."""


def says(daemon: DaemonProcess, make_agent: MakeAgent, *replies: str) -> None:
    """A reply each, in a batch of its own, synced; then everybody is killed."""
    agent = make_agent(daemon)
    for name in replies:
        agent.do(f"r = client.reply('s-{name}', stream_id='{name}'); r.token('all of {name}')")
        agent.do("r.drain(20, level='synced')")
    daemon.kill()
    agent.kill()


def text_of(daemon: DaemonProcess, name: str) -> str | None:
    reply = daemon.reader.recover(f"s-{name}")
    return None if reply is None else reply.text


def lines_of(daemon: DaemonProcess) -> list[dict[str, object]]:
    """Of the file of the session q, all of them: JSON raises where one is none."""
    return [json.loads(line) for line in daemon.events_path("q").read_bytes().splitlines()]


def submits(daemon: DaemonProcess, *texts: str) -> None:
    client = walld_client.connect(daemon.socket_path, timeout=PATIENCE_SECONDS)
    for text in texts:
        client.session("q").submit(text, message_id=text).completed()
    client.close()


def contents(daemon: DaemonProcess) -> list[str]:
    return [one["content"] for one in daemon.reader.session("q").messages() or []]


def test_a_record_that_a_kill_cut_short_is_glued_to_no_other(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """claude-code 52387, copilot-cli 4098, codex 24425, prime-agent 1785, opensre 6356: the next
    append went behind the fragment, and both records were lost, with all behind them.
    """
    daemon = make_daemon().start()
    says(daemon, make_agent, "one", "two")
    newest = daemon.segments()[-1]
    batch = newest.read_bytes()[64:]
    with newest.open("ab") as file:
        file.write(batch[: int(len(batch) * FRAGMENT)])
    assert walld("fsck", daemon.data).returncode == 1, "torn, and no more"
    daemon.start()
    says(daemon, make_agent, "three")
    daemon.start()
    for name in ("one", "two", "three"):
        assert text_of(daemon, name) == f"all of {name}"
        assert daemon.reader.recover(f"s-{name}").gaps == []
    daemon.terminate()
    assert walld("fsck", daemon.data).returncode == 0, "said once"


def test_a_line_that_a_kill_cut_short_is_glued_to_no_other(make_daemon: MakeDaemon) -> None:
    """The same, of the file that holds a session's lines."""
    daemon = make_daemon().start()
    submits(daemon, "one", "two")
    daemon.terminate()
    path = daemon.events_path("q")
    line = path.read_bytes().splitlines(keepends=True)[-1]
    with path.open("ab") as file:
        file.write(line[: int(len(line) * FRAGMENT)])
    daemon.start()
    assert contents(daemon) == ["one", "two"]
    submits(daemon, "three")
    daemon.terminate()
    assert [one["seq"] for one in lines_of(daemon)[1:]] == [1, 2, 3, 4, 5, 6]
    daemon.start()
    assert contents(daemon) == ["one", "two", "three"]


def zeroed(path: Path, offset: int, length: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(bytes(length))
    assert path.read_bytes()[offset : offset + length] == bytes(length)


def test_zeros_within_the_log_cost_what_stood_there_alone(
    make_daemon: MakeDaemon, make_agent: MakeAgent
) -> None:
    """claude-code 49876, 76059, opencode 10904: what stood behind the zeros was left out, and said
    to nobody; or the whole session was.
    """
    daemon = make_daemon().start()
    says(daemon, make_agent, "one", "two", "three")
    with RealDisk(str(daemon.data), read_only=True) as disk:
        offsets = [batch.offset for _, batch in LogScan(disk)]
    newest = daemon.segments()[-1]
    whole = newest.read_bytes()
    at = max(offset for offset in offsets if offset < whole.index(b"all of two"))
    end = min(offset for offset in offsets if offset > at)
    zeroed(newest, at, end - at)
    os.truncate(newest, len(whole) + 9000)  # and a tail that was never written
    done = walld("fsck", daemon.data)
    assert done.returncode == 2, "what was synced is gone: that is said"
    daemon.start()
    assert text_of(daemon, "one") == "all of one"
    assert text_of(daemon, "three") == "all of three"
    with pytest.raises(walld_client.Unavailable, match="damage"):
        daemon.reader.recover("s-two")
    says(daemon, make_agent, "four")
    daemon.start()
    assert text_of(daemon, "four") == "all of four"
    assert text_of(daemon, "three") == "all of three"


def test_zeros_within_a_session_cost_what_stood_there_alone(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon().start()
    submits(daemon, "one", "two", "three")
    daemon.terminate()
    path = daemon.events_path("q")
    raw = path.read_bytes()
    lines = raw.splitlines(keepends=True)
    (two,) = (line for line in lines if b'"two"' in line)
    zeroed(path, raw.index(two), len(two))
    os.truncate(path, len(raw) + 9000)
    daemon.start()
    assert contents(daemon) == ["one", "three"]
    session = daemon.reader.session("q")
    session.messages()
    assert [(one["first_seq"], one["last_seq"]) for one in session.breaks] == [(3, 3)]
    assert "q" in [one.session_id for one in daemon.reader.sessions() or []], "it is in the list"
    submits(daemon, "four")
    daemon.terminate()
    assert walld("fsck", daemon.data).returncode == 2
    assert walld("session", "repair", "q", "--data", daemon.data).returncode == 0
    daemon.start()
    assert contents(daemon) == ["one", "three", "four"]
