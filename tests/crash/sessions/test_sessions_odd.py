"""What a session may hold and MessagePack may not: no daemon ends over it, none begins in vain."""

from __future__ import annotations

import json
from typing import Any

import pytest
import walld_client
from daemon_process import DaemonProcess, until

from walld.sessions.state.events import KNOWN

NAME = b"r\xe9sum\xe9.txt".decode("utf-8", "surrogateescape")
"""A file name as `os.listdir` gives it."""
TOOL = {"call_id": "c", "tool": "t", "side_effect": "none", "resume_policy": "never-rerun"}
INTENT = ("tool_intent", TOOL)
LARGE = 2**64

ODD = {
    "reason": [("turn_interrupted", {"reason": f"cannot open {NAME}"})],
    "tool": [("tool_intent", TOOL | {"tool": f"open {NAME}"})],
    "verdict": [INTENT, ("tool_decision", {"call_id": "c", "verdict": f"no: {NAME}"})],
    "decided": [
        INTENT,
        ("tool_decision", {"call_id": "c", "verdict": "allow", "reason": LARGE, "state": [LARGE]}),
    ],
    "stream": [("turn_assistant_started", {"stream_id": NAME})],
    "fields of its own": [
        ("turn_worker_started", {"reason": {"a": "\ud800"}, "tool": {"x": LARGE}}),
        ("turn_completed", {"reason": "half \ud83d", "message_id": [NAME, LARGE]}),
    ],
    "at rest": [
        ("tool_intent", TOOL | {"call_id": NAME}),
        ("tool_finished", {"call_id": NAME, "state": LARGE}),
        ("turn_completed", {}),
    ],
}


@pytest.mark.parametrize("what", ODD)
def test_a_checkpoint_holds_whatever_an_entry_said(daemon: DaemonProcess, what: str) -> None:
    client = daemon.reader
    client.session("neighbour").message("user", "hello")
    session = client.session("s")
    turn = session.submit(f"read {NAME}", message_id="m")
    for kind, payload in ODD[what]:
        session.append(kind, payload, turn=turn.turn_id)
    for _ in range(2):  # a base, and what leads on from it
        session.append_many([{"type": "app.x"}] * 60)
        until(lambda: daemon.status()["wal_live_bytes"] < 2000, "a checkpoint")
    told = session.state()
    looked_up = session.turn(turn.turn_id)
    assert looked_up is not None
    assert daemon.terminate() == 0, daemon.log_text()[-2000:]
    daemon.start()
    again = daemon.reader.session("s")
    assert again.state() == told
    found = again.turn(turn.turn_id)
    assert found is not None
    assert found.stream_ids == looked_up.stream_ids
    assert again.submit(f"read {NAME}", message_id="m").turn_id == turn.turn_id
    assert daemon.reader.session("neighbour").message("user", "on").seq == 2
    assert "a snapshot is not used" not in daemon.log_text()
    assert daemon.terminate() == 0


BESIDE: list[tuple[str, dict[str, Any]]] = [
    ("observation", {"text": "two", "calls": ["a", "b"]}),
    ("imported", {"of_turn": {}, "of_call": [1]}),
    ("forked", {"session": "x", "of_call": {"a": 1}}),
    ("message_edit", {"messages": [{"role": "user", "content": "q"}], "target": "first"}),
]
"""Fields that these types do not know, by names that others do."""


@pytest.mark.parametrize("at", range(len(BESIDE)))
def test_a_field_of_the_applications_own_shuts_no_view(daemon: DaemonProcess, at: int) -> None:
    kind, payload = BESIDE[at]
    client = daemon.reader
    session = client.session("s")
    session.message("user", "q", id="first")
    session.append(kind, payload)
    assert (session.resume_check() or {})["status"] == "ok"
    assert client.audit("s").overall == "ok"
    assert session.project("pending") == []
    assert [one["content"] for one in session.messages() or []] == ["q"]
    assert session.fork(None, "f").messages() is not None
    (kept,) = (one for one in session.events() if one["type"] == kind)
    assert kept["payload"] == payload, "it is kept"


def test_a_value_of_another_kind_is_refused_or_kept(daemon: DaemonProcess) -> None:
    """Each field of each type, with values of each kind: an answer, and never that of a bug."""
    session = daemon.reader.session("s")
    session.message("user", "x", id="e1")
    turn = session.submit("q", message_id="m").turn_id
    session.append(*INTENT, turn=turn)
    kept, both = 0, []
    for kind, fields in KNOWN.items():
        for field in fields:
            for value in (7, {}, [7], "e1", None):
                try:
                    session.append(kind, {"call_id": "c", field.name: value}, turn=turn)
                    kept += 1
                except walld_client.Refused as refused:
                    both.append(refused.got != "" and refused.limit != "")
    assert kept > len(KNOWN) // 2
    assert all(both), "each names both values"
    session.resume_check()
    assert daemon.reader.audit("s").turns >= 1


def test_an_import_of_half_an_emoji_ends_no_daemon(daemon: DaemonProcess) -> None:
    session = daemon.reader.session("s")
    turn = session.submit("q", message_id="m")
    turn.interrupted("plain reason")
    session.append_many([{"type": "app.x"}] * 60)
    exported = daemon.cli("session", "export", "s", "--socket", daemon.socket_path).stdout
    path = daemon.data.parent / "exported.jsonl"
    path.write_bytes(exported.replace(b"plain reason", rb"cut emoji \ud83d"))
    assert (
        daemon.cli(
            "session", "import", str(path), "--session", "y", "--socket", daemon.socket_path
        ).returncode
        == 0
    )
    daemon.reader.session("y").append_many([{"type": "app.x"}] * 60)
    until(lambda: daemon.status()["wal_live_bytes"] == 0, "a checkpoint")
    told = daemon.reader.session("y").turn(json.loads(exported.splitlines()[1])["turn"])
    assert told is not None
    assert daemon.terminate() == 0
