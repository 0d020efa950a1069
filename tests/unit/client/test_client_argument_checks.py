"""What a program gives of another kind, or beyond what can be: one error, nothing is sent.

What must be true of every argument of every call about sessions, in both colours: the error names
the argument, says what came and what is taken, and nobody was asked anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import walld_client
import walld_client.aio
from colours import Coloured, connect
from fake_daemon import FakeDaemon
from fake_ledger import FakeLedger
from walld_client.session.audit import report_of
from walld_client.session.session import Session
from walld_client.session.turn import Turn

LONG = "x" * 3_000_000
DIGITS = 10**5000
NOT_A = {
    "text": (b"x", 1, True, 1.5, math.nan, ["a"], {"a": 1}, object(), DIGITS),
    "name": (b"x", 1, True, 1.5, ["a"], {"a": 1}, object(), DIGITS, "\ud800", LONG),
    "seq": ("1", True, 1.5, math.nan, [1], -1, 2**53, 2**64, DIGITS, b"1", {}),
    "count": ("1", True, 1.5, math.nan, [1], 0, -1, 2**53, 2**64, DIGITS),
    "code": ("1", True, 1.5, math.nan, [1], 2**32, -(2**31) - 1, DIGITS),
    "bool": (None, 0, 1, "yes", math.nan, [], 2**64),
    "seconds": ("1", True, None, math.nan, math.inf, 10**10, 2**64, DIGITS, [1]),
    "time": ("1", True, math.nan, math.inf, DIGITS, [1]),
    "dict": ("x", 1, True, [1], [("a", 1)], b"x", math.nan),
    "edited": (1, True, b"x", math.nan),
    "dicts": ("x", 1, True, {"a": 1}, ["a"], [1], b"x", math.nan),
    "path": (1, True, ["."], {"a": "b"}, math.nan),
    "paths": ("f", 1, [1], b"f", True),
    "present": (True, 5, 1.5, math.nan, "t1", b"t1", [1], ["a", None], (i for i in "ab"), object()),
}
"""Of each kind of argument what is none of it."""
IDS = ("", *NOT_A["name"])
LINKS = {"id": "id", "parent": "id", "turn": "id", "key": "id", "cause": "id", "correlation": "id"}
ENTRY = LINKS | {"type": "id", "once": "bool", "leaf": "bool"}
OF_A_SESSION: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("append", {"type": "a"}, ENTRY | {"payload": "dict", "expected_seq": "seq", "synced": "bool"}),
    ("append", {"type": "a"}, {"wait": "bool"}),
    ("append_many", {"entries": []}, {"entries": "dicts", "expected_seq": "seq", "synced": "bool"}),
    ("message", {"role": "user", "content": "x"}, LINKS | {"role": "id", "expected_seq": "seq"}),
    ("edit", {"target": "m", "message": {"role": "user"}}, {"message": "edited"}),
    ("undo", {}, {"n": "count"}),
    ("label", {"id": "m", "text": "x"}, {"id": "id", "text": "text"}),
    ("setting", {"key": "k", "value": 1}, {"key": "text"}),
    ("change_model", {"model": "m"}, {"model": "text"}),
    ("branch", {"at": "m"}, {"at": "id", "name": "text", "summary": "text"}),
    ("compact", {"summary": "s", "first_kept": "m"}, {"summary": "text", "first_kept": "id"}),
    ("compact", {"replacement": []}, {"replacement": "dicts"}),
    ("artifact", {"source": b"x"}, {"media_type": "text", "name": "text", "turn": "id"}),
    ("read_artifact", {"sha256": "0" * 64}, {"sha256": "text"}),
    ("messages", {}, {"format": "text", "branch": "id", "compacted": "bool"}),
    ("find", {"type": "a"}, {"type": "id", "key_prefix": "name", "last": "count", "key": "id"}),
    ("events", {}, {"after": "seq", "branch": "id"}),
    ("project", {"name": "state"}, {}),
    ("checkpoint_workspace", {"root": "."}, {"root": "path", "files": "paths"}),
    ("submit", {"content": "x"}, {"message_id": "id", "retry_of": "id", "stream_id": "id"}),
    ("submit", {"content": "x"}, {"attachments": "paths", "model": "text", "timeout": "seconds"}),
    (
        "settle",
        {"call_id": "c", "word": "ran"},
        {"call_id": "id", "word": "text", "note": "text", "by": "text", "turn": "id"}
        | {"stream_id": "id", "scope": "dict", "expires_at": "time", "force": "bool"}
        | {"n": "count"},
    ),
    ("adopt", {}, {"stream_id": "id"}),
    (
        "child",
        {"id": "C", "call_id": "c"},
        {"id": "id", "call_id": "id", "turn": "id", "stream_id": "id", "n": "count"},
    ),
    ("resume", {}, {"checked": "dict", "accept": "text", "timeout": "seconds"}),
    ("turn", {}, {"turn_id": "id", "stream_id": "id"}),
    ("fork", {"at": None, "new_id": "F"}, {"at": "name", "new_id": "id", "whole": "bool"}),
]
OF_A_TURN: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("interrupted", {"reason": "x"}, {"reason": "text"}),
    (
        "intent",
        {
            "tool": "t",
            "arguments": {},
            "side_effect": "none",
            "resume_policy": "never-rerun",
        },
        {"tool": "text", "side_effect": "text", "resume_policy": "text", "call_id": "id"}
        | {"idempotency": "text", "key": "text", "supersedes": "id"},
    ),
    ("decision", {"call_id": "c", "verdict": "v"}, {"call_id": "id", "verdict": "text"}),
    ("decision", {"call_id": "c", "verdict": "v"}, {"reason": "text"}),
    ("approval", {"call_id": "c", "state": "asked"}, {"call_id": "id", "state": "text"}),
    (
        "approval",
        {"call_id": "c", "state": "granted"},
        {"by": "text", "scope": "dict", "expires_at": "time"},
    ),
    ("tool_started", {"call_id": "c"}, {"call_id": "id", "pid": "count"}),
    (
        "tool_finished",
        {"call_id": "c"},
        {"call_id": "id", "failed": "bool", "files": "paths", "outcome": "text"}
        | {"exit_code": "code"},
    ),
    ("observation", {"call_id": "c", "text": "x"}, {"call_id": "id", "text": "text"}),
    ("reply", {}, {"stream_id": "id", "parent": "id", "auto_release": "bool"}),
]
OF_A_CLIENT: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("session", {"session_id": "S"}, {"session_id": "id"}),
    ("sessions", {}, {"prefix": "name"}),
    ("release", {"stream_id": "r"}, {"stream_id": "text"}),
    ("recover", {}, {"session_id": "id", "stream_id": "id"}),
    ("recover_all", {}, {"session_id": "id"}),
    ("orphans", {}, {"session_id": "id"}),
    ("has_partial", {"session_id": "S"}, {"session_id": "id"}),
    ("resolve", {"stream_id": "r"}, {"stream_id": "id", "last_seq": "seq"}),
    ("close", {}, {"timeout": "seconds"}),
    ("delete", {"session_id": "S"}, {"session_id": "id"}),
    ("audit", {}, {"session_id": "id", "present": "present"}),
    ("repair_plan", {"session_id": "S", "present": []}, {"session_id": "id", "present": "present"}),
]


@pytest.fixture(params=["sync", "aio"])
def client(request: pytest.FixtureRequest, path: str, ledger: FakeLedger) -> Iterator[Coloured]:
    client = connect(request.param, path)
    yield client
    client.let_go()


def _refuses(
    call: Callable[..., Any], good: dict[str, Any], named: dict[str, str], ledger: FakeLedger
) -> None:
    for name, kind in named.items():
        for bad in IDS if kind == "id" else NOT_A[kind]:
            with pytest.raises((TypeError, ValueError), match=rf"^{name} ") as said:
                call(**good | {name: bad})
            text = str(said.value)
            assert type(said.value) in (TypeError, ValueError), (name, bad)
            assert "must be" in text or "no id may" in text, text
            assert len(text) < 300, text
    assert ledger.asked == []


@pytest.mark.parametrize(("call", "good", "named"), OF_A_SESSION)
def test_of_a_session(
    client: Coloured, ledger: FakeLedger, call: str, good: dict[str, Any], named: dict[str, str]
) -> None:
    _refuses(getattr(client.session("S"), call), good, named, ledger)


@pytest.mark.parametrize(("call", "good", "named"), OF_A_TURN)
def test_of_a_turn(
    client: Coloured, ledger: FakeLedger, call: str, good: dict[str, Any], named: dict[str, str]
) -> None:
    turn = client.session("S").submit("hi")
    ledger.asked.clear()
    _refuses(getattr(turn, call), good, named, ledger)


@pytest.mark.parametrize(("call", "good", "named"), OF_A_CLIENT)
def test_of_a_client(
    client: Coloured, ledger: FakeLedger, call: str, good: dict[str, Any], named: dict[str, str]
) -> None:
    _refuses(getattr(client, call), good, named, ledger)


@pytest.mark.parametrize("colour", ["sync", "aio"])
def test_of_connect(ledger: FakeLedger, path: str, colour: str) -> None:
    named = {"socket": "path", "data": "path", "timeout": "seconds", "backlog_bytes_max": "count"}
    call = walld_client.connect if colour == "sync" else walld_client.aio.connect
    _refuses(call, {"socket": path}, named, ledger)


def test_of_a_drain(client: Coloured, ledger: FakeLedger) -> None:
    reply = client.reply("S")
    _refuses(reply.drain, {}, {"timeout": "seconds"}, ledger)
    for bad in ("", "sync", None, 1):
        with pytest.raises(
            ValueError, match=r"^level must be one of written, synced, replicated, got "
        ):
            reply.drain(level=bad)


def test_no_call_is_left_out() -> None:
    for owner, table in ((Session, OF_A_SESSION), (Turn, OF_A_TURN)):
        calls = {name for name in vars(owner) if callable(getattr(owner, name)) and name[0] != "_"}
        without = {"state", "resume_check", "explain", "worker_started", "completed"}
        assert {name for name, *_ in table} == calls - without


@pytest.mark.parametrize("name", ["type", "payload", "id", "once", "leaf", "key"])
def test_of_one_entry_of_many_its_place_is_named(
    client: Coloured, ledger: FakeLedger, name: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^entries\[1\]: {name} must be .* got int"):
        client.session("S").append_many([{"type": "a"}, {"type": "a", name: 1}])
    assert ledger.asked == []


def test_a_gate_takes_a_path_or_a_fingerprint(client: Coloured, ledger: FakeLedger) -> None:
    for bad in (5, True, math.nan, ["."]):
        with pytest.raises(TypeError, match=r"^workspace must be a path or a dict or None, got"):
            client.session("S").resume_check(bad)
        with pytest.raises(TypeError, match=r"^workspace must be a path or a dict or None, got"):
            client.session("S").explain(bad)
    assert ledger.asked == []


def test_a_request_that_no_frame_holds_is_not_sent(
    client: Coloured, ledger: FakeLedger, daemon: FakeDaemon
) -> None:
    session = client.session("S")
    session.append("a")
    with pytest.raises(ValueError, match=r"Project request is \d+ bytes, limit 1048576"):
        session.project("state", anything=LONG)
    assert session.append("a").seq == 2
    assert len(ledger.asked) == 2
    assert len(daemon.peers) == 1, "the connection is good"


def test_ids_that_are_given_once_answer_for_every_session() -> None:
    """A set of ids is looked at more than once."""
    turns = [{"turn_id": "t", "message_id": "m", "state": "completed"}]
    for present in (["m"], {"m"}, {"m": 1}, {"m": 1}.keys(), lambda turn: True):
        report = report_of({"A": {"turns": turns}, "B": {"turns": turns}}, present)
        assert report.overall == "ok"


def test_a_turn_without_a_message_is_in_no_list() -> None:
    """None among the ids would be the message of every turn that has none."""
    turn = {"turn_id": "t", "message_id": None, "state": "completed"}
    with pytest.raises(TypeError, match="present must be a list of ids, got None in it"):
        report_of({"A": {"turns": [turn]}}, [None])  # type: ignore[list-item]


def test_switched_off_it_is_said_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WALLD_ENABLED", "0")
    client = walld_client.connect()
    for call in (client.audit, lambda **given: client.repair_plan("S", **given)):
        with pytest.raises(TypeError, match="present must be ids or a callable, got int 5"):
            call(present=5)
    with pytest.raises(TypeError, match="after must be an int, got str '1'"):
        client.session("S").events(after="1")  # type: ignore[arg-type]
