"""The daemon killed as it enters its n-th write or sync while replies with open calls go.

One is released by its agent, one is resolved, one is of a turn, with a message: whatever of the
entries and of the removal had come, each call is named once, and each has one record of its model.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import Any

import pytest
import walld_client
from agents.process import MakeAgent
from daemon_process import MakeDaemon, until

CALLS = {"pwrite64": (3, 4, 5, 6), "fdatasync": (2, 3)}
SAID = """
client.session('{0}').append('note', {{}}); r = client.reply('{0}', stream_id='{0}')
r.tool('deploy', {{'to': 'prod'}}, call_id='{0}'); r.model_call(model='m', usage={{'in': 7}})
r.drain(30, 'synced')
"""
OF_A_TURN = """
turn = client.session('turn').submit('go', message_id='m'); q = turn.reply(stream_id='turn')
q.token('Hi.'); q.model_call(model='m', usage={'in': 7}); q.drain(30, 'synced')
"""

pytestmark = pytest.mark.skipif(
    shutil.which("strace") is None, reason="needs strace (Debian: apt-get install strace)"
)


def named(client: walld_client.Client, session_id: str) -> list[tuple[str, str]]:
    gate: Any = client.session(session_id).resume_check()
    return [(one["call_id"], one["outcome"]) for one in gate["calls"]]


def models(client: walld_client.Client, session_id: str) -> list[tuple[str, object]]:
    parts: Any = client.session(session_id).project("transcript")
    found = [one for part in parts for one in part.get("model_calls", ())]
    return [(one["model"], one["usage"]) for one in found]


@pytest.mark.parametrize(
    ("call", "nth"), [(call, nth) for call, times in CALLS.items() for nth in times]
)
def test_each_call_is_named_once(
    make_daemon: MakeDaemon, make_agent: MakeAgent, call: str, nth: int
) -> None:
    daemon = make_daemon().start()
    alive, dying = make_agent(daemon, timeout=60), make_agent(daemon)
    alive.do(SAID.format("alive"))
    alive.do(OF_A_TURN)
    dying.do(SAID.format("dying"))
    dying.kill()
    daemon.orphan("dying")
    daemon.kill()
    daemon.inject(f"{call}:signal=KILL:when={nth}")
    daemon.start(wait=False)
    alive.begin("r.cancel('stopped'); r.release(); q.end('stop'); r.drain(60, 'synced')")
    client = walld_client.connect(daemon.socket_path, timeout=5)
    with suppress(walld_client.Unavailable):
        client.resolve("dying")
    process = daemon.process
    assert process is not None
    until(lambda: process.poll() is not None or resolved(client), "its death, or that all is done")
    client.close()
    if process.poll() is None:
        daemon.kill()
    daemon.process, daemon.wrapper = None, []
    daemon.start()
    assert named(daemon.reader, "dying") == [("dying", "unknown")]
    assert models(daemon.reader, "dying") == [("m", {"in": 7})]
    alive.done()
    daemon.reader.resolve("dying")
    until(lambda: daemon.reader.recover("alive") is None, "the release")
    until(lambda: daemon.reader.recover("turn") is None, "the release of the turn's")
    told: Any = daemon.reader.session("turn").messages()
    assert [one["content"] for one in told] == ["go", "Hi."]
    assert models(daemon.reader, "turn") == [("m", {"in": 7})]
    for session_id in ("alive", "dying"):
        assert named(daemon.reader, session_id) == [(session_id, "unknown")]
        assert models(daemon.reader, session_id) == [("m", {"in": 7})]
        assert daemon.reader.recover(session_id) is None


def resolved(client: walld_client.Client) -> bool:
    with suppress(walld_client.Unavailable):
        client.resolve("dying")
        return client.recover("dying") is None and client.recover("alive") is None
    return False
