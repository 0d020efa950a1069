"""Another process appends while `resume(checked=)` is on its way: nothing that was said is lost.

The claimer is this process, whose agent before it was killed inside a call. Either it claims now,
or it has claimed and goes on with what it found out. What it judged is no more when its append
comes: it judges anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import walld_client
from agents.process import Obedient
from daemon_process import PATIENCE_SECONDS, DaemonProcess, until
from walld_client.wire import messages as wire

STARTED = """
session = client.session('s'); turn = session.submit('deploy it', message_id='m')
turn.intent('deploy', {'to': 'prod'}, side_effect='external-write',
            resume_policy='rerun-after-check', call_id='c1')
turn.tool_started('c1')
"""
SAYS = "session.message('user', 'and mail it', leaf=False)"
SETTLES = "session.settle('c1', 'did_not_run')"
ASKS = """
call = {'id': 'c2', 'name': 'mail', 'arguments': {}}
session.message('assistant', '', tool_calls=[call])
"""
TIMES = 3
"""How often the other one is first."""


class Beside:
    """Asks as the client does; before each of the first appends `then` is done."""

    def __init__(self, query: Any, then: Callable[[], object], times: int) -> None:
        self._query, self._then, self._left = query, then, times

    def ask(self, make: Any, timeout: float | None = None, *, again: bool = True) -> bytes:
        if self._left and isinstance(make(1), wire.Append):
            self._left -= 1
            self._then()
        answer: bytes = self._query.ask(make, timeout, again=again)
        return answer


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[Any]:
    client = walld_client.connect(daemon.socket_path, timeout=PATIENCE_SECONDS)
    yield client
    client.close()


@pytest.fixture
def other(daemon: DaemonProcess, make_agent: Callable[..., Obedient]) -> Obedient:
    """Who appends; the session is behind an agent that was killed."""
    agent = make_agent(daemon)
    agent.do(STARTED)
    agent.kill()
    session = daemon.reader.session("s")
    until(lambda: session.resume_check()["owner"] is None, "its process is gone")
    assert session.resume_check()["status"] == "check"
    other = make_agent(daemon)
    other.do("session = client.session('s')")
    return other


def beside(session: Any, other: Obedient, does: str, times: int) -> None:
    session._query = Beside(session._query, lambda: other.do(does), times)


def words(session: Any) -> list[str]:
    return [one["payload"]["word"] for one in session.find("tool_settled")]


@pytest.mark.parametrize(
    ("has_claimed", "does", "times", "said"),
    [
        (False, SAYS, TIMES, ["ran"]),
        (True, SAYS, TIMES, ["ran"]),
        (False, SETTLES, 1, ["did_not_run", "ran"]),
        (True, SETTLES, 1, ["did_not_run"]),
    ],
)
def test_what_was_looked_at_is_written_once(
    client: Any, other: Obedient, has_claimed: bool, does: str, times: int, said: list[str]
) -> None:
    """Two that looked at one call: the newest word counts; behind a claim the first one stands."""
    session = client.session("s")
    claimed = session.resume(accept="check").turn_id if has_claimed else None
    beside(session, other, does, times)
    turn = session.resume(checked={"c1": "ran"}, timeout=PATIENCE_SECONDS)
    assert words(session) == said
    assert turn.calls == []
    _, newest = session.state()["turns"]
    assert newest["turn_id"] == turn.turn_id
    assert claimed in (None, turn.turn_id), "it is the claim that it has"
    messages = [one for one in session.find("message") if one["payload"]["role"] == "user"]
    assert len(messages) == (times if does == SAYS else 0), "what the other said is there"


@pytest.mark.parametrize("has_claimed", [False, True])
def test_a_call_that_another_brings_meanwhile_is_not_passed_over(
    client: Any, other: Obedient, has_claimed: bool
) -> None:
    session = client.session("s")
    if has_claimed:
        session.resume(accept="check")
    beside(session, other, ASKS, 1)
    with pytest.raises(walld_client.Blocked) as blocked:
        session.resume(checked={"c1": "ran"}, timeout=PATIENCE_SECONDS)
    assert [one["call_id"] for one in blocked.value.reasons if one["verdict"] == "blocked"] == [
        "c2"
    ]
    assert words(session) == []
    assert len(session.state()["turns"]) == 1 + has_claimed


@pytest.mark.parametrize("has_claimed", [False, True])
def test_beside_one_that_appends_all_the_time(
    client: Any, other: Obedient, has_claimed: bool
) -> None:
    """Whichever comes first: a hundred entries, then none, so that it comes to its claim."""
    session = client.session("s")
    if has_claimed:
        session.resume(accept="check")
    other.do("""
    import threading
    appends = lambda: [session.append('note', {'n': n}, leaf=False) for n in range(100)]
    thread = threading.Thread(target=appends); thread.start()
    """)
    turn = session.resume(checked={"c1": "ran"}, timeout=PATIENCE_SECONDS)
    other.do("thread.join()")
    assert (words(session), turn.calls) == (["ran"], [])
    assert [one["payload"]["n"] for one in session.find("note")] == list(range(100))
    assert session.state()["turns"][-1]["turn_id"] == turn.turn_id
