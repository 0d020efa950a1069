"""One data directory with a daemon and agents, from a first start to an orderly end.

Owns: waiting whoever dies, what agents were promised, the end: SIGKILL, the directory alone,
another daemon on it, SIGTERM. Refuses: the trouble in between.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import walld_client
from walld_client.wire import messages as wire

from .judge import Judge, WrongError
from .load import Habits
from .loop import Loop, kept_offline
from .processes import PATIENCE_SECONDS, Agent, Daemon, ForkedDaemon

__all__ = ["Life"]

_ASKED_MAX = 10
"""More often than a read fails in a row."""


class Life:
    """One directory. is_lie: the kernel was made to lie, so nothing acknowledged is held to."""

    is_lie = False

    def __init__(
        self,
        loop: Loop,
        seed: int,
        folder: Path,
        data: Path | None = None,
        *,
        small: Mapping[str, float] | None = None,
        spoil: Callable[[], None] | None = None,
    ) -> None:
        self.loop = loop
        self.seed = seed
        self.folder = folder
        self.data = data or folder / "data"
        self.judge = Judge(loop.tally.counts)
        self.agents: list[Agent] = []
        self.deaths = 0
        self.flags = {"reclaim_seconds": "0", "flush_bound_ms": "100"}
        self.small = small
        self.spoil = spoil
        self.daemon: Daemon = self.first_daemon()

    def first_daemon(self) -> Daemon:
        """The one that trouble comes to."""
        return self.another()

    def another(self) -> Daemon:
        """One that is as it should be."""
        return ForkedDaemon(
            self.folder, self.data, small=self.small, spoil=self.spoil, **self.flags
        )

    @contextmanager
    def lived(self) -> Iterator[None]:
        """Whatever happens inside, nobody is left running; clients and logs are looked at."""
        try:
            yield
        except BaseException:
            if self.folder not in self.data.parents:  # it goes with its mount
                with suppress(OSError):
                    shutil.copytree(self.data, self.folder / "data")
            raise
        finally:
            self.daemon.kill()
            for agent in self.agents:
                agent.kill()
        for agent in self.agents:
            agent.check()
        for path in {self.daemon.log, *(agent.log for agent in self.agents)}:
            text = self.logged(path)
            assert "Traceback" not in text, f"a traceback in {path}: {text[-1500:]}"

    def logged(self, path: Path) -> str:
        return path.read_text(errors="replace") if path.exists() else ""

    # --- who is there ---------------------------------------------------------------------------

    def spawn(self, habits: Habits | None = None) -> Agent:
        name = f"a{len(self.agents)}"
        agent = Agent(self.folder, self.daemon.socket_path, name, self.seed, habits)
        self.agents.append(agent)
        return agent

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for it, whoever dies meanwhile."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            if not self.daemon.is_alive():
                self.died()
            try:
                if value := condition():
                    return value
            except OSError:
                pass  # not there, or it cannot answer now
            assert time.monotonic() < deadline, f"never came: {what}; see {self.daemon.log}"
            time.sleep(0.001)

    def until_listens(self) -> None:
        self.until(self.daemon.status, "an answer")

    def died(self) -> None:
        """The daemon is gone: what it acknowledged is there, and another one comes."""
        self.daemon.kill()
        self.deaths += 1
        self.promise("written")
        if (self.data / "wal").is_dir() or self.judge.expects_any():
            self.check(kept_offline(self.data))
        self.daemon = self.another()

    def lost_its_disk(self, cut: Callable[[], None]) -> None:
        """The daemon ends with what its disk had not synced, and another one comes; agents stay."""
        self.promise("synced")
        self.daemon.kill()
        self.deaths += 1
        cut()
        self.check(kept_offline(self.data))
        self.daemon = self.another()

    # --- what must hold -------------------------------------------------------------------------

    def promise(self, level: str) -> None:
        """What all agents were told until now."""
        for agent in self.agents:
            if not self.is_lie:
                self.judge.promised(agent.board, agent.name, level)
            self.judge.said(agent.board, agent.name)

    def check(
        self, replies: Iterable[walld_client.PartialReply], resting: tuple[str, ...] | None = ()
    ) -> None:
        """Compare with what was said until now."""
        for agent in self.agents:
            if agent.is_alive():
                self.judge.said(agent.board, agent.name)
        self.judge.check(replies, resting=resting)

    def check_answers(self) -> list[walld_client.PartialReply]:
        """The daemon is asked for everything."""
        self.promise("written")
        replies: list[walld_client.PartialReply]
        replies = self.until(lambda: [self._undoubted()], "an answer")[0]
        self.check(replies)
        return replies

    def _undoubted(self) -> list[walld_client.PartialReply]:
        """All there is. Where a doubt says that some could not be read it is asked for again.

        Not for ever: a daemon that could not read what was resolved doubts until its next start.
        """
        for _ in range(_ASKED_MAX - 1):
            replies = self.daemon.replies()
            if not any(reply.doubt for reply in replies):
                return replies
        return self.daemon.replies()

    def resolve(self, reply: walld_client.PartialReply) -> None:
        """Remove a reply of a dead agent, as its application would."""
        story = self.judge.stories[reply.stream_id]
        story.may_be_gone = True  # from here on; a daemon that dies may not have said so
        deaths = self.deaths
        ask = partial(self.daemon.ask, wire.Resolve(1, reply.stream_id, reply.last_seq))
        answer = self.until(lambda: [ask()], "an answer")[0]
        story.is_gone = answer is True and self.deaths == deaths

    def until_finished(self) -> None:
        """Agents that live have said everything and know it synced; then the daemon is well."""
        for agent in self.agents:
            board = agent.board
            if agent.is_alive():
                self.until(lambda board=board: board.is_finished, "all said and synced")  # type: ignore[misc]
        self.until(lambda: self.daemon.status()["state"] == "ok", "a daemon that is well")

    def end(self, cut: Callable[[], None] | None = None) -> None:
        """The end of everybody, and of the power where `cut` says so; then what is there."""
        self.promise("synced")
        self.daemon.kill()
        for agent in self.agents:
            agent.kill()
        if cut is not None:
            cut()
        self.check(kept_offline(self.data), resting=None)
        self.daemon = self.another()
        self.daemon.until_ready()
        self.check(self.daemon.replies(), resting=None)
        status = self.daemon.status()
        if not self.is_lie and (status["lost_acked"] or status["start"]["corrupt"]):
            raise WrongError(f"the daemon says so itself: {status}")
        self.daemon.signal(signal.SIGTERM)
        self.until_gone()

    def until_gone(self) -> None:
        """It ends by itself, in order."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.daemon.is_alive():
            assert time.monotonic() < deadline, f"it does not end; see {self.daemon.log}"
            time.sleep(0.001)
        assert self.daemon.exit_code() == 0, f"it ended badly; see {self.daemon.log}"
