"""To resume is one step: the gate's word and the turn that goes on, by its place in the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import walld_client
from agents.process import Obedient
from colours import connect
from daemon_process import PATIENCE_SECONDS, DaemonProcess, until

ROUNDS, RACERS = 5, 6
INTENT = "turn.intent('deploy', {}, side_effect='external-write', resume_policy=%r, call_id='c1')"


def killed(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], name: str, *lines: str
) -> Any:
    """A session whose agent was killed behind these lines."""
    agent = make_agent(daemon)
    agent.do(f"session = client.session({name!r}); turn = session.submit('do it', message_id='m')")
    for line in lines:
        agent.do(line)
    agent.kill()
    session = daemon.reader.session(name)
    until(lambda: session.resume_check()["owner"] is None, "its process is gone")
    return session


@pytest.mark.parametrize("colour", ["sync", "aio"])
def test_it_goes_on_with_what_never_started(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], colour: str
) -> None:
    lines = (INTENT % "never-rerun", "turn.approval('c1', 'granted')")
    first = killed(daemon, make_agent, "s", *lines).state()["turns"][0]
    client = connect(colour, daemon.socket_path, timeout=PATIENCE_SECONDS)
    try:
        turn = client.session("s").resume()
        assert (turn.message_id, turn.state) == ("m", "submitted")
        assert [(one["call_id"], one["may"]) for one in turn.calls] == [("c1", "run")]
        assert turn.calls[0]["arguments"] == {}
        before, after = client.session("s").state()["turns"]
        assert (before["turn_id"], before["state"]) == (first["turn_id"], "interrupted")
        assert (after["turn_id"], after["retry_of"]) == (turn.turn_id, first["turn_id"])
        turn.completed()
        with pytest.raises(walld_client.Refused) as refused:
            client.session("s").resume()
        assert refused.value.code == "nothing_to_resume"
    finally:
        client.let_go()


def test_of_several_at_once_one_wins_and_the_others_are_told_by_whom(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    racers = [make_agent(daemon) for _ in range(RACERS)]
    for number in range(ROUNDS):
        name = f"s{number}"
        killed(daemon, make_agent, name, "turn.worker_started()")
        for racer in racers:
            racer.begin(f"""
            try:
                said = client.session({name!r}).resume(timeout=30).turn_id
            except walld_client.Refused as error:
                said = [error.code, error.got]
            said
            """)
        told = [racer.done() for racer in racers]
        (won,) = [one for one in told if isinstance(one, str)]
        winner = racers[told.index(won)].pid
        for code, got in (one for one in told if one != won):
            assert code == "already_resumed"
            assert got.startswith(f"turn {won}, ")
            assert str(winner) in got or "submitted" in got
        assert len(daemon.reader.session(name).state()["turns"]) == 2


def test_a_retry_beside_a_living_worker_is_refused_and_ones_own_is_not(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """Two that were told ok both submitted a retry, and both ran."""
    agent = make_agent(daemon)
    agent.do("session = client.session('s'); turn = session.submit('do it', message_id='m')")
    first = agent.do("turn.turn_id")
    session = daemon.reader.session("s")
    with pytest.raises(walld_client.Refused) as refused:
        session.submit("do it", retry_of=first)
    assert refused.value.code == "already_resumed"
    assert f"process {agent.pid}" in refused.value.got
    with pytest.raises(walld_client.Blocked) as blocked:
        session.resume()
    assert [one["code"] for one in blocked.value.reasons] == ["at_work"]
    again = agent.do("session.submit('do it', retry_of=turn.turn_id).turn_id")
    agent.kill()
    until(lambda: session.resume_check()["owner"] is None, "its process is gone")
    assert session.submit("do it", retry_of=again).state == "submitted"


def test_a_process_that_lives_in_an_older_turn_is_a_reason_and_no_loop(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    other = make_agent(daemon)
    other.do("turn = client.session('s').submit('first')")
    session = killed_beside(daemon, make_agent)
    with pytest.raises(walld_client.Blocked) as blocked:
        session.resume()
    assert [one["code"] for one in blocked.value.reasons] == ["at_work"]
    other.do("turn.completed()")
    assert session.resume().message_id == "m"


def killed_beside(daemon: DaemonProcess, make_agent: Callable[..., Obedient]) -> Any:
    agent = make_agent(daemon)
    agent.do("client.session('s').submit('second', message_id='m')")
    agent.kill()
    session = daemon.reader.session("s")
    until(lambda: session.state()["turns"][-1]["state"] == "interrupted", "its process is gone")
    return session


def test_check_wants_a_look_and_blocked_a_person(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    started = "turn.tool_started('c1')"
    session = killed(daemon, make_agent, "s", INTENT % "rerun-after-check", started)
    with pytest.raises(walld_client.Blocked) as blocked:
        session.resume()
    assert (blocked.value.status, blocked.value.calls[0]["may"]) == ("check", "check_then_run")
    with pytest.raises(ValueError, match=r"did_not_run"):
        session.resume(checked={"c1": "perhaps"})
    with pytest.raises(walld_client.Refused, match="unknown_call"):
        session.resume(checked={"c9": "ran"}, accept="check")
    turn = session.resume(checked={"c1": "ran"})
    assert (turn.calls, session.resume_check()["status"]) == ([], "ok")
    assert [one["payload"]["word"] for one in session.find("tool_settled")] == ["ran"]

    session = killed(daemon, make_agent, "t", INTENT % "never-rerun", started)
    before = session.events()
    with pytest.raises(walld_client.Blocked) as blocked:
        session.resume(checked={"c1": "ran"}, accept="check")
    assert (blocked.value.status, session.events()) == ("blocked", before), "nothing is half done"
    session.settle("c1", "did_not_run")
    assert session.resume().message_id == "m"
    with pytest.raises(walld_client.Refused, match="nothing_to_resume"):
        daemon.reader.session("never").resume()


def test_who_died_behind_the_claim_is_an_interrupted_turn(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    session = killed(daemon, make_agent, "s")
    claimer = make_agent(daemon)
    claimed = claimer.do("client.session('s').resume().turn_id")
    daemon.kill()
    daemon.start()
    claimer.kill()
    until(lambda: session.resume_check()["owner"] is None, "its process is gone")
    turn = session.resume()
    assert session.state()["turns"][-1]["retry_of"] == claimed
    assert len(session.state()["turns"]) == 3
    assert turn.state == "submitted"


def test_artifacts_that_are_none_are_a_bad_argument(daemon: DaemonProcess) -> None:
    """A peer sent them: the daemon logged a traceback, and called it internal."""
    session = daemon.reader.session("s")
    session.append("custom")
    for missing in ([1], [{}]):
        with pytest.raises(walld_client.Refused) as refused:
            session.project("resume", missing_artifacts=missing)
        assert refused.value.code == "bad_argument"


def test_who_has_it_may_still_say_what_he_looked_at(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    """Claimed without a look, then looked: the word is written, and it is the same turn."""
    lines = (INTENT % "rerun-after-check", "turn.tool_started('c1')")
    session = killed(daemon, make_agent, "s", *lines)
    turn = session.resume(accept="check")
    assert [one["call_id"] for one in turn.calls] == ["c1"]
    for _ in range(2):
        again = session.resume(checked={"c1": "did_not_run"})
        assert (again.turn_id, again.calls) == (turn.turn_id, [])
    assert len(session.find("tool_settled")) == 1
    assert session.resume_check()["status"] == "ok"
