"""An event of a key that is lost to damage, while its session still knows where it stood."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from colours import connect
from daemon_process import DaemonProcess, environment
from walld_client import Refused


def path_of(daemon: DaemonProcess) -> Path:
    return daemon.data / "sessions" / str(os.geteuid()) / "s" / "events.jsonl"


def damage(daemon: DaemonProcess, seq: int, *, repair: bool) -> Any:
    """A daemon that is begun anew on a session whose line of that seq does not verify."""
    assert daemon.terminate() == 0
    path = path_of(daemon)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[seq] = lines[seq].replace(b'"n":', b'"N":')
    path.write_bytes(b"".join(lines))
    if repair:
        command = [sys.executable, "-m", "walld", "session", "repair", "s", "--data"]
        subprocess.run([*command, str(daemon.data)], env=environment(), check=True, timeout=60)
    daemon.start()
    return daemon.reader.session("s")


either = pytest.mark.parametrize("repair", [False, True], ids=["damaged", "repaired"])


@either
def test_the_newest_of_a_key_is_lost_and_an_earlier_one_is_found(
    daemon: DaemonProcess, repair: bool
) -> None:
    session = daemon.reader.session("s")
    for n in range(70):
        session.append("state", {"n": n}, key="k" if n in (1, 4) else f"o{n}")
    session = damage(daemon, 5, repair=repair)

    def seqs(**asked: Any) -> list[int]:
        return [one["seq"] for one in session.find("state", **asked)]

    assert seqs(key="k", last=1) == [2]
    assert bool(session.breaks) is not repair
    assert seqs(key="k", last=2) == seqs(key="k") == [2]
    assert seqs(key="o3", last=1) == [4]
    assert seqs(key="none", last=1) == []


@either
def test_the_only_one_of_a_key_is_lost(daemon: DaemonProcess, repair: bool) -> None:
    session = daemon.reader.session("s")
    for n in range(70):
        session.append("state", {"n": n}, key=f"o{n}")
    session = damage(daemon, 5, repair=repair)
    assert session.find("state", key="o4", last=1) == session.find("state", key="o4") == []


@either
def test_what_is_appended_beside_a_key_whose_entry_is_lost_is_appended_once(
    daemon: DaemonProcess, repair: bool, caplog: pytest.LogCaptureFixture
) -> None:
    session = daemon.reader.session("s")
    session.append("state", {"n": 1}, key="k", once=True)
    session.message("user", "behind it")
    session = damage(daemon, 1, repair=repair)
    again: dict[str, Any] = {"type": "state", "payload": {"n": 1}, "key": "k", "once": True}
    entries = [
        {"type": "a", "id": "A", "once": True},
        again,
        {"type": "b", "id": "B", "once": True},
    ]
    placed = session.append_many(entries)
    assert [(one.id, one.seq, one.is_new) for one in placed] == [
        ("A", 3, True),
        ("", 1, False),
        ("B", 4, True),
    ]
    assert [one.seq for one in session.append_many(entries)] == [3, 1, 4]
    session.append(**again, wait=False)
    for n in range(5):
        session.append("n", {"n": n}, wait=False)
    assert [one["seq"] for one in session.find("n")] == [5, 6, 7, 8, 9]
    assert not [one for one in caplog.messages if "not appended" in one]


@either
@pytest.mark.parametrize("colour", ["sync", "aio"])
def test_a_message_that_is_lost_is_not_taken_for_another(
    daemon: DaemonProcess, repair: bool, colour: str
) -> None:
    """Neither for the one behind it, nor for one with other content."""
    client = connect(colour, daemon.socket_path)
    turn = client.session("s").submit("hello", message_id="m", n=1)
    client.session("s").message("user", "behind it")
    damage(daemon, 1, repair=repair)
    session = client.session("s")
    for lost in ({"message_id": "m"}, {"retry_of": turn.turn_id}):
        with pytest.raises(Refused) as refused:
            session.submit("hello", **lost)
        ((name, ident),) = lost.items()
        assert (refused.value.code, refused.value.got) == ("lost_entry", f"{name} {ident}")
        assert "submit it anew" in refused.value.limit
    assert session.turn(turn.turn_id).message_id == "m"
    assert session.submit("hello", message_id="m2").state == "submitted"
    client.let_go()
