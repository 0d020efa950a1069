"""One scenario's stage: an export, a mount of it, a daemon on the mount, agents, and the judge.

Owns: setting it up and leaving nothing behind, waiting with a limit, comparing what was said and
acknowledged with what the daemon answers and with what lies at the server's side. Refuses: the
trouble (each scenario's own).
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import walld_client
from kernel.judge import Counts, Judge
from kernel.loop import kept_offline
from kernel.processes import Daemon, RealDaemon
from walld_client.wire import messages as wire

from .agents import END, RELEASE, Pace, PacedAgent
from .exports import Export, OwnExport, Way, mounted

__all__ = ["HARD", "PATIENCE_SECONDS", "Trial", "staged"]

HARD: Final = "vers=4.2,hard"
PATIENCE_SECONDS: Final = 120.0
"""The guest is emulated and shares its cores: how long something broken may keep it waiting."""


class Trial:
    """`data` as the daemon sees it, `stored` the same at the server's side."""

    def __init__(self, name: str, export: Export, mount: Path, folder: Path) -> None:
        self.name = name
        self.export = export
        self.mount = mount
        self.folder = folder
        self.data = mount / "data"
        self.stored = export.path / "data"
        self.judge = Judge(Counts())
        self.agents: list[PacedAgent] = []
        self.daemons: list[Daemon] = []
        self.figures: list[str] = []

    # --- who is there ---------------------------------------------------------------------------

    def start(self, data: Path | None = None, name: str = "", **flags: str) -> RealDaemon:
        """`walld serve` on the mount. name: of another one beside the first."""
        folder = self.folder / (name or "daemon")
        folder.mkdir(exist_ok=True)
        daemon = RealDaemon(folder, data or self.data, (), **flags)
        self.daemons.append(daemon)
        return daemon

    def started(self, data: Path | None = None, name: str = "", **flags: str) -> RealDaemon:
        """The same, and it has read its log."""
        daemon = self.start(data, name, **flags)
        self.ready(daemon)
        return daemon

    def ready(self, daemon: Daemon) -> None:
        def answers() -> bool:
            assert daemon.is_alive(), f"exit {daemon.exit_code()}; see its log"
            return bool(daemon.status()["state"] != "recovering")

        self.until(answers, "a daemon that answers")

    def spawn(self, daemon: Daemon, name: str, pace: Pace) -> PacedAgent:
        agent = PacedAgent(self.folder, daemon.socket_path, name, pace)
        self.agents.append(agent)
        return agent

    def log(self, daemon: Daemon) -> str:
        return daemon.log.read_text(errors="replace")

    def metrics(self, daemon: Daemon) -> dict[str, float]:
        text: str = daemon.ask(wire.Metrics(1))
        return {name: float(value) for name, value in re.findall(r"^(walld\S*) (\S+)$", text, re.M)}

    # --- waiting --------------------------------------------------------------------------------

    def until(
        self, condition: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS
    ) -> float:
        """Seconds until it came true. AssertionError where it did not."""
        begun = time.monotonic()
        while True:
            try:
                if condition():
                    return time.monotonic() - begun
            except OSError:
                pass  # not there, or it cannot answer now
            if time.monotonic() - begun > seconds:
                raise AssertionError(f"never came within {seconds:.0f} s: {what}")
            time.sleep(0.02)

    def all_synced(self, what: str, seconds: float = PATIENCE_SECONDS) -> float:
        return self.until(lambda: all(one.is_all_synced for one in self.agents), what, seconds)

    # --- what must hold -------------------------------------------------------------------------

    def finish(self, *, releases: bool = True) -> None:
        """Every agent ends its replies, and is told that they are synced."""
        for agent in self.agents:
            agent.reins.wish = RELEASE if releases else END
        self.until(lambda: all(one.board.is_finished for one in self.agents), "agents that end")

    def promise(self, level: str) -> None:
        """What agents were told until now, and what they have said."""
        for agent in self.agents:
            self.judge.promised(agent.board, agent.name, level)
        self.said()

    def said(self) -> None:
        for agent in self.agents:
            self.judge.said(agent.board, agent.name)

    def compare(self, replies: list[walld_client.PartialReply]) -> None:
        """Agents may go on meanwhile. promise() came before these replies were asked for."""
        self.said()
        self.judge.check(replies, resting=())

    def check_answers(self, daemon: Daemon) -> None:
        """The daemon is asked for everything."""
        self.promise("written")
        self.compare(daemon.replies())

    def check_stored(self, level: str = "written") -> None:
        """What lies at the server; no daemon is there."""
        self.promise(level)
        self.compare(kept_offline(self.stored))

    def end(self, daemon: Daemon) -> None:
        """The daemon answers right, is killed, and what it leaves at the server is right."""
        self.check_answers(daemon)
        daemon.kill()
        self.check_stored()
        for agent in self.agents:
            agent.kill()
            agent.check()
        counts = self.judge.counts
        self.figures.append(
            f"{counts.replies} replies and {counts.events} events compared, "
            f"{counts.acknowledged} of them acknowledged, {counts.gaps} gaps"
        )

    def close(self) -> None:
        for daemon in self.daemons:
            daemon.kill()
        for agent in self.agents:
            agent.kill()


@contextmanager
def staged(
    name: str,
    megabytes: int = 96,
    options: str = HARD,
    way: Way | None = None,
    export: Export | None = None,
) -> Iterator[Trial]:
    """A stage. A daemon that asserts or has a traceback is wrong whatever else holds.

    export: where it is not to have one of its own.
    """
    folder = Path("/run") / name
    folder.mkdir()
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        export = export or OwnExport(name, megabytes)
        stack.callback(export.close)
        mount = stack.enter_context(mounted(export, options, way))
        trial = Trial(name, export, mount, folder)
        stack.callback(trial.close)
        try:
            yield trial
        except AssertionError:
            for daemon in trial.daemons:
                print(f"log of {daemon.log.parent.name}:", trial.log(daemon)[-3000:], sep="\n")
            raise
        for daemon in trial.daemons:
            assert "Traceback" not in trial.log(daemon), trial.log(daemon)[-3000:]
