"""What a reply says of the model's call is a record of its session, once, whatever dies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agents.process import Obedient
from daemon_process import DaemonProcess, until

OPEN: dict[bool, str] = {
    True: "turn = client.session('s').submit('go', message_id='m'); r = turn.reply(stream_id='r')",
    False: "client.session('s').append('note', {}); r = client.reply('s', stream_id='r')",
}
FIRST = "r.token('I look. secret-word'); r.model_call(model='m-1', provider='p', request_id='q1')"
USED = "r.model_call(usage={'input_tokens': 7, 'output_tokens': 2}, tools_hash='ab12')"
SECOND = "r.step(); r.token('Four.'); r.model_call(model='m-2', usage={'input_tokens': 9})"
SAID = f"{FIRST}; {USED}; {SECOND}"


def records(session: Any) -> list[dict[str, Any]]:
    """Of the transcript, which the other views agree with; but a sample for an evaluation has no
    reply without a turn until it went.
    """
    parts = session.project("transcript")
    told: list[dict[str, Any]] = [one for part in parts for one in part.get("model_calls", [])]
    spans = [one for one in session.project("trace") if one["kind"] == "model"]
    assert [one["span_id"] for one in spans] == [one["id"] for one in told]
    sampled = [one for one in told if one["turn"] or not one["unreleased"]]
    assert session.project("eval")["model_calls"] == sampled
    return told


def shown(told: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (one["id"], one["model"], one["usage"], one["status"], one["error_class"]) for one in told
    ]


def ended_as(status: str, word: str | None = None) -> list[tuple[Any, ...]]:
    used = {"input_tokens": 7, "output_tokens": 2}
    return [
        ("r:1:call", "m-1", used, "complete", None),
        ("r:5:call", "m-2", {"input_tokens": 9}, status, word),
    ]


def entries(session: Any) -> list[dict[str, Any]]:
    return [one for one in session.events() if one["type"] == "model_call"]


def gone(daemon: DaemonProcess) -> bool:
    return daemon.reader.recover(stream_id="r") is None


@pytest.mark.parametrize("of_a_turn", [True, False])
@pytest.mark.parametrize(
    ("end", "status", "word"),
    [
        ("r.end('stop')", "complete", None),
        ("r.cancel('stopped')", "cancelled", "cancelled"),
        ("r.error('too many', kind='RateLimitError')", "error", "rate_limit"),
    ],
)
def test_a_released_reply_leaves_a_record_of_each_step(
    daemon: DaemonProcess, agent: Obedient, end: str, status: str, word: str | None, of_a_turn: bool
) -> None:
    agent.do(f"{OPEN[of_a_turn]}; {SAID}; r.drain(30, 'synced')")
    session = daemon.reader.session("s")
    while_live = records(session)
    assert shown(while_live) == ended_as("partial")
    assert all(one["unreleased"] for one in while_live)
    agent.do(f"{end}; r.release(); r.drain(30)")
    until(lambda: gone(daemon), "the reply to go")
    told = records(session)
    assert shown(told) == ended_as(status, word)
    assert not any(one["unreleased"] for one in told)
    first, turn = told[0], session.state()["turns"]
    assert (first["provider"], first["request_id"], first["tools_hash"]) == ("p", "q1", "ab12")
    assert first["turn"] == (turn[0]["turn_id"] if of_a_turn else None)
    assert session.project("eval")["metadata"]["usage"] == {"input_tokens": 16, "output_tokens": 2}
    lines = entries(session)
    assert [(one["id"], one["leaf"]) for one in lines] == [
        ("r:1:call", False),
        ("r:5:call", False),
    ]
    assert "secret" not in json.dumps(lines), "no text (P5)"
    daemon.kill()
    daemon.start()
    assert records(session) == told


@pytest.mark.parametrize("of_a_turn", [True, False])
@pytest.mark.parametrize("way", ["adopt", "resolve", "by hand"])
def test_a_killed_agents_is_there_before_and_behind_its_adoption(
    daemon: DaemonProcess, agent: Obedient, way: str, of_a_turn: bool
) -> None:
    agent.do(f"{OPEN[of_a_turn]}; {SAID}; r.drain(30, 'synced')")
    agent.kill()
    orphan = daemon.orphan("r")
    session = daemon.reader.session("s")
    before = records(session)
    assert shown(before) == ended_as("partial")
    daemon.kill()
    daemon.start()
    assert records(session) == before
    if way == "adopt":
        assert len(session.adopt()) == 2
    else:
        for message in orphan.messages() if way == "by hand" else ():
            session.append("message", message, id=f"r:{message['_wal_seq']}", once=True)
        assert daemon.reader.resolve("r")
    assert gone(daemon)
    told = [one | {"unreleased": True, "seq": 0} for one in records(session)]
    assert told == [one | {"seq": 0} for one in before]
    assert not daemon.reader.resolve("r")
    assert len(entries(session)) == 2


def test_a_call_that_failed_before_a_word_and_the_one_that_was_begun_anew(
    daemon: DaemonProcess, agent: Obedient
) -> None:
    agent.do(f"{OPEN[True]}; r.error('slow down', kind='RateLimitError'); r.release(); r.drain(30)")
    agent.do("r = turn.reply(stream_id='r2'); r.token('half'); r.model_call(model='a')")
    agent.do("r.retry('overloaded'); r.token('whole'); r.model_call(model='b'); r.end('stop')")
    agent.do("r.release(); r.drain(30)")
    session = daemon.reader.session("s")
    until(lambda: len(entries(session)) == 3, "the records")
    assert [(one["model"], one["status"], one["error_class"]) for one in records(session)] == [
        (None, "error", "rate_limit"),
        ("a", "partial", None),
        ("b", "complete", None),
    ]
    assert records(session)[0]["error_kind"] == "RateLimitError"


def test_where_nothing_is_known_or_no_ledger_is_nothing_is_written(
    daemon: DaemonProcess, agent: Obedient
) -> None:
    agent.do(f"{OPEN[True]}; r.token('Hi.'); r.event('provider', {{'model': 'x'}}); r.end('stop')")
    agent.do(f"r.drain(30); r = client.reply('alone', stream_id='r2'); {SAID}; r.cancel('no')")
    agent.do("r.release(); r.drain(30)")
    reader, session = daemon.reader, daemon.reader.session("s")
    until(lambda: gone(daemon) and reader.recover(stream_id="r2") is None, "both to go")
    assert (entries(session), records(session)) == ([], [])
    assert reader.session("alone").project("eval") is None
    assert [one.session_id for one in reader.sessions()] == ["s"]


def test_a_long_reply_that_is_not_released_is_told_by_its_kept_fold(
    daemon: DaemonProcess, agent: Obedient
) -> None:
    """The gate asks for it without text, and views with it: both folds go on."""
    agent.do(f"{OPEN[True]}; {SAID}; [r.token('x' * 1000) for _ in range(300)]; r.drain(30)")
    session = daemon.reader.session("s")
    assert session.resume_check()["status"] == "blocked"
    assert shown(records(session)) == ended_as("partial")
    agent.do("r.model_call(status='complete'); r.drain(30)")
    assert shown(records(session)) == ended_as("complete")


@pytest.mark.parametrize("of_a_turn", [True, False])
def test_the_model_a_reply_was_begun_with_and_numbers_beside_its_text_are_kept(
    daemon: DaemonProcess, agent: Obedient, of_a_turn: bool
) -> None:
    agent.do(OPEN[of_a_turn].replace("stream_id='r'", "stream_id='r', model='m-0'"))
    agent.do("r.token('Hi.', usage={'out': 2}); r.event('usage', {'in': 5}); r.end('stop')")
    agent.do("r.drain(30)")
    until(lambda: gone(daemon), "the reply to go")
    (one,) = records(daemon.reader.session("s"))
    assert (one["model"], one["usage"], one["status"]) == ("m-0", {"out": 2, "in": 5}, "complete")
