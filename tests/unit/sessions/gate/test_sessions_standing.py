"""Where a session stands, in one word, by what the gate says of it."""

from __future__ import annotations

from typing import Any

import pytest
from session_log import Log

from walld.sessions.gate.resume import resume
from walld.sessions.gate.standing import STANDINGS, standing
from walld.sessions.gate.workers import Worker
from walld.sessions.state.account import Unreleased

RISK = {"side_effect": "external-write", "resume_policy": "never-rerun"}
SAFE = {"side_effect": "read", "resume_policy": "replay-from-event"}
SEEN = {"fingerprint": {"head": "h1", "dirty": False, "files": {"x.py": "a" * 64}}}


def reply(status: str = "crashed", owner_alive: bool = False) -> Unreleased:
    return Unreleased("r", None, [], status=status, owner_alive=owner_alive)


def worker(is_asker: bool = False, is_seen: bool = True) -> Worker:
    return Worker("t", None, 7, 0, is_asker, is_seen)


def stands(log: Log, **more: Any) -> str:
    return standing(resume(log.events, **more))


def working(*types: str, **intent: Any) -> Log:
    log = Log()
    log.submit("t")
    if intent:
        log.tool("t", "c", *types, **intent)
    return log


def test_nothing_that_was_begun_is_done() -> None:
    log = Log()
    log.say("user", "hello")
    assert stands(log) == "done"
    log.submit("t")
    assert stands(log) == "cut"
    log.add("turn_completed", {}, turn="t")
    assert stands(log) == "done"


def test_an_answered_turn_is_done_though_nobody_completed_it() -> None:
    log = working()
    log.add("message", {"role": "assistant", "content": "yes"}, turn="t")
    log.add("turn_interrupted", {"reason": "owner_died"}, turn="t")
    assert stands(log) == "done"


@pytest.mark.parametrize("is_asker", [True, False])
def test_who_works_on_it_makes_it_live_whatever_else_is_in_the_way(is_asker: bool) -> None:
    log = working("approval:asked", **RISK)
    assert stands(log, workers=[worker(is_asker)]) == "live"
    log.add("budget", {"remaining": 0})
    assert stands(log, workers=[worker(is_asker)]) == "live"


def test_who_may_come_back_does_not() -> None:
    assert stands(working(), workers=[worker(is_seen=False)]) == "cut"


def test_a_yes_or_no_alone_is_waited_for() -> None:
    asked = working("approval:asked", **RISK)
    assert stands(asked) == "waits"
    wants_one = {"side_effect": "external-write", "resume_policy": "require-user-confirmation"}
    assert stands(working(**wants_one)) == "waits", "though nobody was asked yet"
    granted = working("approval:asked", **RISK)
    granted.add("tool_approval", {"call_id": "c", "state": "granted", "expires_at": 1}, turn="t")
    assert stands(granted, now_ms=2000) == "waits", "the yes is too old"
    asked.add("budget", {"remaining": 0})
    assert stands(asked) == "blocked", "a yes would not do"


def test_what_may_have_run_is_blocked_or_cut() -> None:
    assert stands(working("started", **RISK)) == "blocked"
    wants_one = {"side_effect": "external-write", "resume_policy": "require-user-confirmation"}
    assert stands(working("started", **wants_one)) == "blocked", "it is no mere yes: look first"
    checked = {"side_effect": "external-write", "resume_policy": "rerun-after-check"}
    assert stands(working("started", **checked)) == "cut"
    assert stands(working("started", **SAFE)) == "cut"


def test_a_reply_that_is_not_released() -> None:
    log = Log()
    log.say("user", "hello")
    assert stands(log, replies=[reply()]) == "cut"
    assert stands(log, replies=[reply("live", owner_alive=True)]) == "live"
    assert stands(log, replies=[reply("complete", owner_alive=True)]) == "live"
    assert stands(log, replies=[reply("complete", owner_alive=True), reply()]) == "cut"
    assert stands(Log(), replies=[reply()]) == "cut"


@pytest.mark.parametrize("status", ["cancelled", "errored"])
def test_who_cut_a_reply_off_works_on_it_no_more_though_it_lives(status: str) -> None:
    ended = [reply(status, owner_alive=True)]
    assert stands(Log(), replies=ended) == "cut"
    log = working()
    assert stands(log, replies=ended, workers=[worker(is_asker=True)]) == "live", "its turn goes on"
    log.add("turn_interrupted", {"reason": "tab closed"}, turn="t")
    assert stands(log, replies=ended) == "cut"


def test_a_living_owner_hides_no_reason_of_a_reply_that_ended() -> None:
    calls = [{"id": "c", "name": "deploy", "arguments": {}, "seq": 2}]
    message = {"role": "assistant", "content": "", "tool_calls": calls}
    message |= {"_wal_stream": "r", "_wal_seq": 1}
    ended = Unreleased("r", None, [message], status="complete", owner_alive=True)
    assert stands(Log(), replies=[ended]) == "blocked"


def test_a_workspace_that_nobody_looked_at_leaves_finished_work_finished() -> None:
    log = Log()
    log.add("lifecycle", SEEN)
    log.submit("t")
    assert stands(log) == "cut"
    log.add("turn_completed", {}, turn="t")
    assert stands(log) == "done"
    changed = {"head": "h2", "dirty": False, "files": {}}
    assert stands(log, workspace=changed) == "blocked"


def test_there_are_five_words() -> None:
    assert STANDINGS == ("live", "waits", "blocked", "cut", "done")
