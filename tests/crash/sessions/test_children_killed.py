"""A program and its sub-agent, killed behind each request: run again, the call has one result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from agents.process import Obedient
from daemon_process import DaemonProcess

LOOP = """
import os, signal
from walld_client.query.query import Query
exchange, left = Query._exchange, [{count}]
def dying(*given, **named):
    answer = exchange(*given, **named)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer
Query._exchange = dying

def go_on(session, content, message_id):
    '''The turn, or None where there is nothing left of it.'''
    state = session.state()
    if state is None or not state['turns']:
        return session.submit(content, message_id=message_id, calls='journal')
    try:
        return session.resume()
    except walld_client.Refused as refused:
        assert refused.code == 'nothing_to_resume', refused
        return None

def answer(turn, text):
    reply = turn.reply()
    reply.token(text)
    reply.end()
    turn.completed()

def work(sub):
    turn = go_on(sub, 'look', 'sm')
    if turn is not None:
        answer(turn, '4 degrees')

def said(session):
    found = session.messages('openai', unknown='drop')
    return [one['content'] for one in found if one['role'] == 'tool']

def run(parent, child):
    session = client.session(parent)
    turn = go_on(session, 'go', 'm')
    if turn is None:
        return
    begun = [one for one in turn.calls if one['child'] and one['may'] == 'run']
    if begun:
        work(session.child(child, call_id='k', turn=begun[0]['turn']))
    elif not said(session):
        turn.intent('spawn', {{}}, call_id='k', side_effect='external-write',
                    resume_policy='never-rerun')
        sub = session.child(child, call_id='k')
        turn.tool_started('k')
        work(sub)
    answer(turn, 'It is ' + said(session)[-1])

run({parent!r}, {child!r})
"""


def told(session: Any) -> tuple[list[Any], list[Any]]:
    """The results of the call, and what the model is shown."""
    events = session.events()
    results = [one["payload"] for one in events if one["type"] == "tool_finished"]
    shown = [one["content"] for one in session.messages("openai") if one["role"] != "assistant"]
    return results, shown


def test_killed_behind_each_request_the_call_has_one_result(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient]
) -> None:
    reader, count = daemon.reader, 0
    while True:
        count += 1
        parent, child = f"p{count}", f"c{count}"
        first = make_agent(daemon)
        first.begin(LOOP.format(count=count, parent=parent, child=child))
        is_done = bool(first.process.stdout.readline())
        if not is_done:
            if count % 3 == 0:
                daemon.restart()
            make_agent(daemon).do(LOOP.format(count=0, parent=parent, child=child))
        results, shown = told(reader.session(parent))
        assert results == [{"call_id": "k", "result": "4 degrees"}], count
        assert shown == ["go", "4 degrees"], count
        (last,) = [
            one["content"]
            for one in reader.session(parent).messages()
            if one["role"] == "assistant" and one["content"]
        ]
        assert last == "It is 4 degrees"
        work = [one for one in reader.session(child).messages() if one["role"] == "assistant"]
        assert [one["content"] for one in work] == ["4 degrees"], f"done once, {count}"
        gate = reader.session(parent).resume_check()
        assert (gate["status"], gate["boundary"]) == ("ok", "idle")
        if is_done:
            break
    assert count > 12, "it was killed behind each"


@pytest.mark.parametrize("dies", ["parent", "child"])
def test_of_two_processes_one_dies(
    daemon: DaemonProcess, make_agent: Callable[..., Obedient], dies: str
) -> None:
    parent, worker = make_agent(daemon), make_agent(daemon)
    parent.do("""
        session = client.session('p')
        turn = session.submit('go', message_id='m', calls='journal')
        turn.intent('spawn', {}, call_id='k', side_effect='none', resume_policy='never-rerun')
        child = session.child('c', call_id='k')
        turn.tool_started('k')
    """)
    worker.do("sub = client.session('c').submit('look', message_id='sm'); r = sub.reply()")
    worker.do("r.token('4 deg'); r.drain(30)")
    (parent if dies == "parent" else worker).kill()
    session = daemon.reader.session("p")
    if dies == "child":
        gate = session.resume_check()
        assert [one["outcome"] for one in gate["calls"]] == ["unknown"]
        parent.do("sub = child.resume(); r = sub.reply(); r.token('4 degrees'); r.end()")
        parent.do("sub.completed()")
    else:
        assert session.resume_check()["status"] == "blocked", "the child is at work"
        worker.do("r.token('rees'); r.end(); sub.completed()")
        assert told(session)[0] == [], "the worker does not know whose child it is"
        assert told(session)[1] == ["go", "4 degrees"]
        heir = make_agent(daemon)
        heir.do("turn = client.session('p').resume()")
    assert told(session)[0] == [{"call_id": "k", "result": "4 degrees"}]
    assert told(session)[1] == ["go", "4 degrees"]
