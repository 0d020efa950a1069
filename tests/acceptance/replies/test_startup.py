"""What a crash left comes into a store of the program's own, in the one order that is right."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import walld_client
from agents.process import Obedient
from daemon_process import DaemonProcess

README = Path(walld_client.__file__).parents[1] / "README.md"
(STORE,) = re.findall(r"```python\n(class Messages:.*?)```", README.read_text(), re.DOTALL)
STORE = f"import json, sqlite3\n{STORE}"
LEFT = """
turn = client.session('s').submit('go', message_id='m')
r = turn.reply(stream_id='r')
r.token('I deploy.'); r.tool('deploy', {'to': 'prod'}, call_id='c1'); r.step(); r.token('It is cu')
alone = client.reply('other', stream_id='alone'); alone.token('hello')
nothing = client.reply('other', stream_id='nothing')
[one.drain(30, 'synced') for one in (r, alone, nothing)]
"""
DIES_BEHIND = (
    STORE
    + """
import os, signal
from walld_client.query.query import Query
exchange, left = Query._exchange, [COUNT]
def counted():
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
def dying(*given, **named):
    answer = exchange(*given, **named)
    counted()
    return answer
Query._exchange = dying
class Dying(Messages):
    def save(self, *given):
        super().save(*given)
        counted()
walld_client.startup(client, Dying(PATH)).saved
"""
)
KEYS = ["m", "r:1", "r:4"]


@pytest.fixture
def left(daemon: DaemonProcess, make_agent: Any) -> DaemonProcess:
    """A daemon with what a process that was killed had said."""
    agent = make_agent(daemon)
    agent.do(LEFT)
    agent.kill()
    for stream_id in ("r", "alone", "nothing"):
        daemon.orphan(stream_id)
    return daemon


def rows(path: Path, session_id: str) -> list[str]:
    with sqlite3.connect(path) as db:
        found = db.execute("select key from messages where session = ? order by n", [session_id])
        return [key for (key,) in found]


def test_everything_comes_once_and_in_order(
    left: DaemonProcess, agent: Obedient, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    turn = left.reader.session("s").turn(stream_id="r").turn_id
    agent.do(STORE)
    agent.do(f"done = walld_client.startup(client, Messages({str(path)!r}))")
    assert agent.do("[done.saved, sorted(done.adopted), sorted(done.marked)]") == [
        4,
        ["alone", "nothing", "r"],
        sorted([turn, "nothing"]),
    ]
    assert rows(path, "s") == [*KEYS, f"{turn}:interrupted"]
    assert rows(path, "other") == ["alone:1", "nothing:interrupted"]
    assert agent.do("[done.gates['s']['status'], list(done.gates)]") == ["blocked", ["s"]]
    assert agent.do("done.report.overall") == "needs_manual_review", "an open call"
    assert left.reader.recover_all() == []
    again = agent.do(f"again = walld_client.startup(client, Messages({str(path)!r}))")
    assert again is None
    assert agent.do("[again.saved, again.adopted, again.marked, again.gates]") == [0, [], [], {}]
    assert rows(path, "s") == [*KEYS, f"{turn}:interrupted"]


def test_killed_behind_each_step_the_next_run_ends_it(
    left: DaemonProcess, make_agent: Any, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    turn = left.reader.session("s").turn(stream_id="r").turn_id
    for count in range(1, 60):
        starting = make_agent(left)
        starting.begin(f"COUNT, PATH = {count}, {str(path)!r}\n{STORE}{DIES_BEHIND}")
        if starting.process.stdout.readline():
            break
        starting.kill()
    assert count > 8
    assert rows(path, "s") == [*KEYS, f"{turn}:interrupted"]
    assert sorted(rows(path, "other")) == ["alone:1", "nothing:interrupted"]
    assert left.reader.recover_all() == []


def test_what_the_program_saved_itself_stays_as_it_is(
    left: DaemonProcess, agent: Obedient, tmp_path: Path
) -> None:
    """It was killed between its own save and the end of its reply."""
    path = tmp_path / "store"
    agent.do(STORE)
    agent.do(f"store = Messages({str(path)!r})")
    agent.do("store.save('s', {'_key': 'r', 'role': 'assistant', 'content': 'whole'})")
    agent.do("done = walld_client.startup(client, store)")
    assert [key for key in rows(path, "s") if key.startswith("r")] == ["r"]
    assert "r" in agent.do("done.adopted")
    assert left.reader.recover(stream_id="r") is None


def test_a_session_that_is_refused_keeps_no_other_from_its_turn(
    left: DaemonProcess, agent: Obedient, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    agent.do(STORE)
    agent.do("""
        asked = client.repair_plan
        def plan(session_id, **named):
            if session_id == "s":
                raise walld_client.Refused("unreadable", "s", "a file that can be read", "damage")
            return asked(session_id, **named)
        client.repair_plan = plan
    """)
    agent.do(f"done = walld_client.startup(client, Messages({str(path)!r}))")
    assert agent.do("sorted(done.adopted)") == ["alone", "nothing", "r"]
    assert rows(path, "s") == KEYS[1:]


def test_a_store_of_some_sessions_leaves_the_others_alone(
    left: DaemonProcess, agent: Obedient, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    agent.do(STORE)
    agent.do(f"done = walld_client.startup(client, Messages({str(path)!r}), prefix='oth')")
    assert rows(path, "s") == []
    assert [one.stream_id for one in left.reader.recover_all()] == ["r"]


AWAITED = """
import asyncio
class Awaited:
    def __init__(self, store):
        self.store = store
    async def has(self, key):
        return self.store.has(key)
    async def save(self, session_id, message):
        self.store.save(session_id, message)
    async def mark(self, session_id, turn, reason):
        self.store.mark(session_id, turn, reason)
async def starts():
    client = walld_client.aio.connect(SOCKET)
    try:
        return await walld_client.aio.startup(client, Awaited(Messages(PATH)))
    finally:
        await client.close()
done = asyncio.run(starts())
[done.saved, sorted(done.adopted)]
"""


def test_awaited(left: DaemonProcess, agent: Obedient, tmp_path: Path) -> None:
    path = tmp_path / "store"
    agent.do(f"SOCKET, PATH = {left.socket_path!r}, {str(path)!r}; import walld_client.aio")
    agent.do(STORE)
    assert agent.do(AWAITED) == [4, ["alone", "nothing", "r"]]
    assert rows(path, "s")[:3] == KEYS


ANSWERED = """
def asked(name, **named):
    turn = client.session(name).submit('q', message_id=f'{name}-m')
    return turn, turn.reply(stream_id=name, **named)
ended = asked('ended', auto_release=False)[1]; ended.token('whole'); ended.end()
finished = asked('finished')[1]; finished.token('whole'); finished.finish('stop')
saved = asked('saved')[1]; saved.token('whole')
stepped = asked('stepped', auto_release=False)[1]
stepped.tool('look', {}, call_id='c', model='m'); stepped.tool_result('4', call_id='c')
stepped.step(); stepped.token('There are 4.'); stepped.end()
first, retried = asked('retried'); retried.token('cut '); retried.cancel(); retried.release()
retry = client.session('retried').submit('q', message_id='retried-m', retry_of=first.turn_id)
again = retry.reply(stream_id='again', auto_release=False); again.token('whole'); again.end()
turn, early = asked('two', auto_release=False); early.token('whole, but'); early.end()
late = turn.reply(stream_id='late'); late.token('this is cut')
calling = asked('calling', auto_release=False)[1]; calling.token('I look.')
calling.tool('look', {}, call_id='c'); calling.tool_result('4', call_id='c'); calling.end()
kept = [ended, finished, saved, stepped, retried, again, early, late, calling]
[one.drain(30, 'synced') for one in kept]
"""
WHOLE = ["ended", "finished", "saved", "stepped", "retried"]
CUT = ["two", "calling"]


@pytest.fixture
def answered(daemon: DaemonProcess, make_agent: Any) -> DaemonProcess:
    """A daemon with answers that were whole as their process was killed, and two that were not."""
    agent = make_agent(daemon)
    agent.do(ANSWERED)
    agent.kill()
    for stream_id in ("ended", "finished", "saved", "stepped", "again", "two", "late", "calling"):
        daemon.orphan(stream_id)
    return daemon


def saves_the_answer(agent: Obedient, path: Path) -> None:
    """As the dead process had, before it could end its reply."""
    agent.do(STORE)
    agent.do(f"store = Messages({str(path)!r})")
    agent.do("store.save('saved', {'_key': 'saved', 'role': 'assistant', 'content': 'whole'})")


def marked_in(path: Path) -> list[str]:
    with sqlite3.connect(path) as db:
        found = db.execute("select session from messages where key like '%:interrupted' order by n")
        return [session for (session,) in found]


def test_a_whole_answer_is_never_marked_however_often_it_runs(
    answered: DaemonProcess, agent: Obedient, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    saves_the_answer(agent, path)
    for _ in range(3):
        agent.do("done = walld_client.startup(client, store)")
        assert sorted(marked_in(path)) == sorted(CUT)
    assert answered.reader.recover_all() == []
    for name in WHOLE:
        gate = answered.reader.session(name).resume_check()
        plan = answered.reader.repair_plan(name, present=[f"{name}-m"])
        if name == "saved":  # of that the store alone knows
            assert [(one.op, one.stream_ids) for one in plan] == [("mark_interrupted", ["saved"])]
            continue
        assert (gate["status"], gate["boundary"], plan) == ("ok", "answered", []), name
        pending = answered.reader.session(name).project("pending")
        assert "answer_turn" not in [one["action"] for one in pending], name
        assert "resume()" not in json.dumps(answered.reader.session(name).explain()["may"]), name
    for name in CUT:
        assert answered.reader.session(name).resume_check()["boundary"] != "answered", name


def test_killed_behind_each_step_it_marks_no_whole_answer(
    answered: DaemonProcess, make_agent: Any, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    saver = make_agent(answered)
    saves_the_answer(saver, path)
    saver.kill()
    for count in range(1, 120):
        starting = make_agent(answered)
        starting.begin(f"COUNT, PATH = {count}, {str(path)!r}\n{STORE}{DIES_BEHIND}")
        if starting.process.stdout.readline():
            break
        starting.kill()
    assert count > 8
    assert sorted(marked_in(path)) == sorted(CUT)
    assert answered.reader.recover_all() == []


CALLING_ALONE = """
alone = client.reply('no-log', stream_id='alone'); alone.token('I deploy.')
alone.tool('deploy', {'to': 'prod'}, call_id='c1')
turn = client.session('logged').submit('q', message_id='m')
there = turn.reply(stream_id='there'); there.tool('deploy', {}, call_id='c2')
[one.drain(30, 'synced') for one in (alone, there)]
"""


def test_a_call_that_nothing_else_would_tell_of_is_told_each_time_until_it_is_settled(
    daemon: DaemonProcess, make_agent: Any, tmp_path: Path
) -> None:
    """Also where a run was killed behind any of its steps, as before it could say it."""
    path = tmp_path / "store"
    left = make_agent(daemon)
    left.do(CALLING_ALONE)
    left.kill()
    for stream_id in ("alone", "there"):
        daemon.orphan(stream_id)
    for count in range(1, 60):
        starting = make_agent(daemon)
        starting.begin(f"COUNT, PATH = {count}, {str(path)!r}\n{STORE}{DIES_BEHIND}")
        if starting.process.stdout.readline():
            break
        starting.kill()
    assert count > 4
    agent = make_agent(daemon)
    agent.do(STORE)
    for _ in range(2):
        agent.do(f"done = walld_client.startup(client, Messages({str(path)!r}))")
        assert agent.do("[done.adopted, done.kept, list(done.gates)]") == [
            [],
            ["alone"],
            ["no-log"],
        ]
        assert agent.do("done.gates['no-log']['status']") == "blocked"
        assert agent.do("done.report.overall") == "needs_manual_review", "of that with a log"
    assert rows(path, "no-log") == ["alone:1"]
    agent.do("client.session('no-log').settle('c1', 'did_not_run')")
    agent.do(f"done = walld_client.startup(client, Messages({str(path)!r}))")
    assert agent.do("[done.adopted, done.kept]") == [["alone"], []]
    assert daemon.reader.recover_all() == []
    (told,) = daemon.reader.session("no-log").explain()["done"]
    assert (told["call_id"], told["outcome"]) == ("c1", "not_run")
