"""The daemon killed by the kernel as it enters its n-th write, sync, rename, unlink or mkdir.

One small history, which makes it do all of these: a reply of an agent that dies and is resolved, a
reply that is written and released, one that goes on. Whenever the daemon dies the next one is
started, and the agents, which notice nothing, go on with the history.
"""

from __future__ import annotations

import select
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from agents.process import Obedient
from agents.words import said
from daemon_process import DaemonProcess, until

CALLS = {
    "pwrite64": (2, 7, 8, 9, 10, 12),
    "fdatasync": (2, 3, 5),
    "fsync": (3, 7, 9),
    "renameat": (1,),
    "unlinkat": (1, 3),
    "mkdirat": (5,),
}

UNKNOWN = "unknown"
ASK = f"""
def ask(call):
    try:
        return call()
    except walld_client.Unavailable:
        return {UNKNOWN!r}
"""

pytestmark = pytest.mark.skipif(
    shutil.which("strace") is None, reason="needs strace (Debian: apt-get install strace)"
)


class History:
    """A daemon that will be killed, and what is done with it."""

    def __init__(self, daemon: DaemonProcess, inject: str) -> None:
        self.daemon = daemon
        daemon.inject(inject)
        daemon.start(wait=False)

    def go_on(self) -> None:
        """Where the daemon has died there is another now."""
        process = self.daemon.process
        if process is None or process.poll() is None:
            return
        assert self.daemon.wrapper, f"the second one must live: {self.daemon.log_text()[-2000:]}"
        self.daemon.wrapper = []
        self.daemon.process = None
        self.daemon.start()

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for it, whoever dies meanwhile."""

        def comes_true() -> object:
            self.go_on()
            return condition()

        until(comes_true, what)

    def do(self, agent: Obedient, source: str) -> Any:
        """As `agent.do`, whoever dies meanwhile."""
        agent.begin(source)
        assert agent.process.stdout is not None
        while not select.select([agent.process.stdout], [], [], 0.02)[0]:
            self.go_on()
        return agent.done()


@pytest.mark.parametrize(
    ("call", "nth"), [(call, nth) for call, times in CALLS.items() for nth in times]
)
def test_whatever_it_was_about_to_do(
    make_daemon: Callable[..., DaemonProcess],
    make_agent: Callable[..., Obedient],
    call: str,
    nth: int,
) -> None:
    daemon = make_daemon("--reclaim-seconds", "0")
    history = History(daemon, f"{call}:signal=KILL:when={nth}")
    dying, agent, reader = (make_agent(daemon, timeout=20) for _ in range(3))

    history.do(dying, "reply = client.reply('s', stream_id='dead'); reply.token('its last words')")
    assert history.do(dying, "reply.drain(20, 'synced')") is True
    dying.kill()
    history.do(agent, "live = client.reply('s', stream_id='live')")
    history.do(agent, "[live.token(token(0, seq)) for seq in range(1, 51)]")
    assert history.do(agent, "live.drain(20)") is True
    history.do(agent, "gone = client.reply('s', stream_id='gone', auto_release=False)")
    history.do(agent, "gone.token('erased-text'); gone.drain(20, 'synced'); gone.end()")
    assert history.do(agent, "gone.release(), live.token(token(0, 51)), live.drain(20)")[2] is True

    history.do(reader, ASK)
    orphans = "ask(lambda: [reply.text for reply in client.orphans()])"
    history.until(lambda: history.do(reader, orphans) == ["its last words"], "the orphan")
    history.until(daemon.partials, "its partial")
    # False where the daemon that died had done it and not said so.
    history.until(lambda: history.do(reader, "ask(lambda: client.resolve('dead'))") != UNKNOWN, "")
    count = 51

    def are_gone() -> bool:
        """Carrying waits for agents that write (K2): 50 tokens may pay for one of the two alone."""
        nonlocal count
        count += 1
        history.do(agent, f"live.token(token(0, {count}))")
        return not daemon.holding([b"erased", b"last words"])

    history.until(are_gone, "no byte of them")
    assert history.do(agent, "live.drain(20)") is True

    daemon.kill()
    daemon.wrapper = []
    daemon.start()
    (live,) = daemon.reader.recover_all()
    assert (live.stream_id, live.text) == ("live", said(0, count))
    assert (live.events, live.gaps, live.status) == (count, [], "live")
    assert daemon.holding([b"erased", b"last words"]) == []
    assert daemon.metrics()["walld_lost_acked_total"] == 0
    assert daemon.status()["start"]["corrupt"] == 0
    assert agent.do(f"live.token('!') == {count + 1} and live.drain(20)") is True
