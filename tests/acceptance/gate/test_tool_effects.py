"""`tool_effects` of an adapter: what the gate knows of calls that only the model's stream said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from daemon_process import DaemonProcess
from walld_client.adapters.frameworks.recording import Recording
from walld_client.adapters.frameworks.tool_effects import ToolEffects

OUTSIDE = ("external-write", "rerun-after-check")


def called(**fields: Any) -> bytes:
    """A chunk of Chat that says something of the first call."""
    function = {name: fields.pop(name) for name in ("name", "arguments") if name in fields}
    call = {"index": 0, "function": function, **fields}
    choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}
    chunk = {"id": "m1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}
    return f"data: {json.dumps(chunk)}\n\n".encode()


def judged(daemon: DaemonProcess, effects: Any, *chunks: bytes) -> tuple[str, list[Any]]:
    """What the gate says of a reply whose stream was cut behind these."""
    reply = daemon.reader.reply("s", auto_release=False)
    recording = Recording(reply, effects=ToolEffects(effects))
    for chunk in chunks:
        recording.chunk(chunk)
    reply.drain(30, "synced")
    gate = daemon.reader.session("s").resume_check()
    return gate["status"], [(one["tool"], one["may"], one["why"]) for one in gate["calls"]]


WHOLE = called(id="c1", name="deploy", arguments='{"to": "prod"}')


@pytest.mark.parametrize(
    ("effects", "status", "may", "why"),
    [
        ({"deploy": OUTSIDE}, "check", "check_then_run", "look_first"),
        ({"deploy": ("network", "rerun-after-check")}, "check", "check_then_run", "look_first"),
        ({"deploy": ("none", "never-rerun")}, "blocked", "never", "may_have_run"),
        ({"deploy": ["read", "replay-from-event"]}, "ok", "run", "nothing_to_repeat"),
        (
            {
                "deploy": {
                    "side_effect": "external-write",
                    "resume_policy": "rerun-after-check",
                    "idempotency": "safe",
                }
            },
            "ok",
            "run",
            "safe",
        ),
        ({"look": ("none", "replay-from-event")}, "blocked", "ask_user", "undeclared"),
        ({}, "blocked", "ask_user", "undeclared"),
        (None, "blocked", "ask_user", "undeclared"),
    ],
)
def test_a_call_is_judged_by_what_its_tool_was_declared(
    daemon: DaemonProcess, effects: Any, status: str, may: str, why: str
) -> None:
    assert judged(daemon, effects, WHOLE) == (status, [("deploy", may, why)])


def test_a_name_that_comes_in_pieces_is_declared_as_the_whole_one(daemon: DaemonProcess) -> None:
    """`deploy` alone changes nothing here, and what is called is `deploy_all`."""
    pieces = [called(id="c1", name="deploy"), called(name="_all", arguments='{"to": "prod"}')]
    harmless = {"deploy": ("none", "replay-from-event")}
    undeclared = ("blocked", [("deploy_all", "ask_user", "undeclared")])
    assert judged(daemon, harmless, *pieces) == undeclared


def test_a_name_that_comes_in_pieces_is_declared_once_it_is_whole(daemon: DaemonProcess) -> None:
    pieces = [called(id="c1", name="dep"), called(name="loy", arguments='{"to": "prod"}')]
    expected = ("check", [("deploy", "check_then_run", "look_first")])
    assert judged(daemon, {"deploy": OUTSIDE}, *pieces) == expected


def test_what_the_provider_says_later_takes_nothing_of_it_back(daemon: DaemonProcess) -> None:
    """An id that comes late is in the info of an update, which is all the call's info then."""
    pieces = [called(name="deploy"), called(id="late", arguments='{"to": "prod"}')]
    expected = ("check", [("deploy", "check_then_run", "look_first")])
    assert judged(daemon, {"deploy": OUTSIDE}, *pieces) == expected


def test_a_declaration_takes_nothing_of_what_the_provider_said(daemon: DaemonProcess) -> None:
    """Its own id came before the rest of the name did."""
    pieces = [called(name="dep"), called(id="late"), called(name="loy", arguments="{}")]
    expected = ("check", [("deploy", "check_then_run", "look_first")])
    assert judged(daemon, {"deploy": OUTSIDE}, *pieces) == expected
    (reply,) = daemon.reader.recover_all("s")
    (call,) = [one for one in reply.segments if one.kind == "tool"]
    side_effect, resume_policy = OUTSIDE
    told = {"given_id": "late", "side_effect": side_effect, "resume_policy": resume_policy}
    assert call.info == told
