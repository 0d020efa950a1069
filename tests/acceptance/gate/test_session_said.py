"""What an application says of its session beside the conversation, through clients and kills."""

from __future__ import annotations

from typing import Any

import pytest
import walld_client
from agents.process import Obedient
from daemon_process import DaemonProcess

SAYS = """
session = client.session('s')
session.append('session_info', {'cwd': '/work', 'version': '3.1'}, leaf=False)
turn = session.submit('look', message_id='m1', calls='journal')
session.append('queued', {'content': 'then deploy', 'kind': 'input', 'message_id': 'm2'},
               id='q', leaf=False)
turn.intent('look', {'at': 'x'}, call_id='c', side_effect='read', resume_policy='never-rerun')
turn.tool_started('c')
session.append('tool_progress', {'call_id': 'c', 'done': 1}, turn=turn.turn_id, leaf=False)
session.append('app.note', {'_message': {'role': 'user', 'content': 'it rains'}})
session.append('lifecycle', {'state': 'paused', 'reason': 'waits for Anna'}, leaf=False)
"""


def test_it_stands_behind_a_kill_of_both(
    daemon: DaemonProcess, agent: Obedient, reader: Any
) -> None:
    agent.do(SAYS)
    agent.kill()
    daemon.restart()
    session = reader.session("s")
    state = session.state()
    assert state["session"] == {"cwd": "/work", "version": "3.1"}
    assert [(one["id"], one["content"]) for one in state["queue"]] == [("q", "then deploy")]
    assert (state["lifecycle"]["state"], state["lifecycle"]["reason"]) == ("paused", "agent_lost")
    (tool,) = [tool for part in session.project("transcript") for tool in part["tools"]]
    assert tool["progress"]["done"] == 1
    assert "it rains" in [one["content"] for one in session.messages()]
    assert session.messages("openai", last=1)[-1]["content"] == "it rains"
    failure = session.project("eval")["failure"]
    assert (failure["layer"], failure["why"]) == ("execution", "look (call c): unknown")
    taken = session.submit("then deploy", message_id="m2")
    assert session.state()["queue"] == []
    assert session.state()["lifecycle"]["state"] == "running"
    taken.completed()
    session.append("verification", {"name": "tests", "passed": False}, leaf=False)
    assert session.project("eval")["failure"]["layer"] == "verification"


@pytest.mark.parametrize(
    ("kind", "payload", "field"),
    [
        ("queued", {"content": "x", "kind": "elsewhere"}, "kind"),
        ("dequeued", {}, "target"),
        ("tool_progress", {"done": 1}, "call_id"),
        ("session_info", {"cwd": 7}, "cwd"),
    ],
)
def test_what_does_not_fit_is_refused(
    reader: Any, kind: str, payload: dict[str, Any], field: str
) -> None:
    with pytest.raises(walld_client.Refused, match=f"{field} of {kind} cannot be used"):
        reader.session("s").append(kind, payload, leaf=False)
    assert reader.session("s").state() is None
