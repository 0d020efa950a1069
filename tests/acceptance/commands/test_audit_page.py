"""`walld audit` of many sessions is one page, and quiet for who has no other store."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from agents.process import Obedient
from daemon_process import DaemonProcess, until

SESSIONS = 500


@pytest.fixture
def interrupted(
    daemon: DaemonProcess,
    make_agent: Callable[..., Obedient],
    cli: Callable[..., tuple[int, str, str]],
) -> Callable[..., tuple[int, str, str]]:
    """The command line, once a killed program has left a turn in each of many sessions."""
    agent = make_agent(daemon)
    agent.do(
        f"[client.session(f'chat-{{n:03}}').submit('hello') for n in range({SESSIONS})] and None"
    )
    agent.kill()

    def are_told() -> bool:
        report = daemon.reader.audit()
        return sum(one.reason == "agent_lost" for one in report.findings) == SESSIONS

    until(are_told, "500 interruptions")
    return cli


def test_an_interrupted_turn_in_each_of_500_sessions_is_one_page(
    interrupted: Callable[..., tuple[int, str, str]],
) -> None:
    code, out, _ = interrupted("audit")
    lines = out.splitlines()
    assert (code, lines[0]) == (1, "warn: 500 sessions, 500 turns")
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert re.search(r"^unknown +turn_journal_pending_turn +500$", out, re.MULTILINE)
    assert re.search(r"^  e\.g\. session chat-\d+, turn \S+: nobody said", out, re.MULTILINE)
    assert re.search(r"^  do: .*--present FILE.*--own-store", out, re.MULTILINE)
    _, whole, _ = interrupted("audit", "--all")
    assert len(whole.splitlines()) == 1 + SESSIONS
    assert whole.count("  unknown: turn_journal_pending_turn: session chat-") == SESSIONS
    _, one, _ = interrupted("audit", "chat-007")
    assert one.splitlines()[1] in whole.splitlines()


def test_who_has_no_other_store_is_warned_of_calls_alone(
    interrupted: Callable[..., tuple[int, str, str]], daemon: DaemonProcess
) -> None:
    code, out, _ = interrupted("audit", "--own-store")
    assert (code, out.splitlines()[0]) == (0, "ok: 500 sessions, 500 turns")
    assert re.search(r"^ok +turn_journal_interrupted_turn +500$", out, re.MULTILINE)
    found = json.loads(interrupted("audit", "--own-store", "--json")[1])
    assert sorted(found) == ["collisions", "findings", "overall", "sessions", "turns"]
    assert interrupted("audit", "chat-007", "--own-store")[0] == 0
    assert interrupted("audit", "--own-store", "--present", "/dev/null")[0] == 64
    call = {"id": "c", "type": "function", "function": {"name": "rm", "arguments": "{}"}}
    daemon.reader.session("chat-007").message("assistant", "", tool_calls=[call])
    code, out, _ = interrupted("audit", "--own-store")
    assert (code, out.splitlines()[0]) == (2, "needs manual review: 500 sessions, 500 turns")
    rows = [line.split()[:3] for line in out.splitlines() if not line.startswith(" ")]
    assert rows[2:4] == [
        ["unsafe_to_repair", "tool_call_unanswered", "1"],
        ["ok", "turn_journal_interrupted_turn", "500"],
    ]
    assert "walld session settle SESSION CALL" in out
