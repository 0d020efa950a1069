"""A call whose process outlives its agent is not run beside it: the start names that process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import walld_client
from agents.process import Obedient
from daemon_process import DaemonProcess, until

CALL = """
import subprocess
turn = client.session("s").submit("do it", message_id="m")
turn.intent(
    "make", {}, side_effect="external-write", resume_policy="rerun-after-check", call_id="c1"
)
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
turn.tool_started("c1", pid=child.pid)
child.pid
"""


@contextmanager
def started(daemon: DaemonProcess, agent: Obedient) -> Iterator[tuple[int, Any]]:
    """The process of a call whose agent was killed, and the session."""
    pid = agent.do(CALL)
    try:
        agent.kill()
        session = daemon.reader.session("s")
        until(lambda: session.resume_check()["owner"] is None, "its process is gone")
        yield pid, session
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def judged(session: Any) -> tuple[str, str, str]:
    gate = session.resume_check()
    (call,) = gate["calls"]
    return gate["status"], call["may"], call["why"]


def test_while_its_process_is_there_a_call_is_not_to_run(
    daemon: DaemonProcess, agent: Obedient
) -> None:
    with started(daemon, agent) as (pid, session):
        assert judged(session) == ("blocked", "never", "still_runs")
        (reason,) = session.resume_check()["reasons"]
        assert (reason["code"], reason["call_id"]) == ("still_runs", "c1")
        (row,) = (one for one in session.project("pending") if one.get("call_id") == "c1")
        assert (row["action"], row["owner"]["pid"], row["owner"]["turn"]) == (
            None,
            pid,
            row["turn"],
        ), "nobody can settle it while it runs"
        with pytest.raises(walld_client.Blocked):
            session.resume(checked={"c1": "ran"}, accept="check")
        with pytest.raises(walld_client.Refused, match="call_at_work"):
            session.settle("c1", "did_not_run")
        daemon.restart()
        assert judged(session) == ("blocked", "never", "still_runs")
        (said,) = session.find("tool_started")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.stat("/proc/self/ns/pid").st_ino
        assert {**said["payload"], "start": 0} == {
            "call_id": "c1",
            "pid": pid,
            "start": 0,
            "boot": boot,
            "namespace": namespace,
        }
        assert said["payload"]["start"] > 0
        os.kill(pid, signal.SIGKILL)
        until(lambda: judged(session)[2] != "still_runs", "the end of the process")
        assert judged(session) == ("check", "check_then_run", "look_first")
        assert "settle_tool" in [one["action"] for one in session.project("pending")]
        assert session.resume(checked={"c1": "ran"}).message_id == "m"


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({}, "still_runs"),
        ({"boot": "another"}, "cannot_see"),
        ({"namespace": 1}, "cannot_see"),
        ({"boot": None}, "cannot_see"),
        ({"start": None}, "cannot_see"),
        ({"pid": "a text"}, "cannot_see"),
        ({"pid": 2**40}, "cannot_see"),
        ({"pid": 2**22 + 1}, "look_first"),
        ({"start": 1}, "look_first"),
        ({"pid": None}, "look_first"),
    ],
)
def test_what_cannot_be_looked_at_is_not_taken_for_gone(
    daemon: DaemonProcess, other: dict[str, Any], why: str
) -> None:
    """A person is asked. Where the pid has another start it is another process."""
    session = daemon.reader.session("s")
    turn = session.submit("do it", message_id="m")
    for call_id in ("c1", "c2"):
        turn.intent(
            "make",
            {"n": call_id},
            side_effect="external-write",
            resume_policy="rerun-after-check",
            call_id=call_id,
        )
    turn.tool_started("c1", pid=os.getpid())
    (said,) = session.find("tool_started")
    payload = said["payload"] | {"call_id": "c2"} | other
    session.append("tool_started", payload, turn=turn.turn_id)
    turn.tool_finished("c1", "done")
    found = {one["call_id"]: one["why"] for one in session.resume_check()["calls"]}
    assert found == {"c1": "settled", "c2": why}
