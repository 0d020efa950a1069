"""Agents as processes of their own: started, spoken to, killed.

Owns: running a script of this folder and its JSON lines; the board of a streamer. Refuses: the
daemon (`daemon_process.py`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fork_server
from daemon_process import PATIENCE_SECONDS, DaemonProcess, environment, until

__all__ = ["AgentProcess", "Board", "MakeAgent", "Nursery", "Obedient"]

FOLDER = Path(__file__).parent


class AgentProcess:
    """One script. Its stderr is kept: a traceback of the client's thread must fail the test."""

    def __init__(self, home: Path, script: str, spec: object = None) -> None:
        self.log_path = home / "agents.log"
        command = [sys.executable, str(FOLDER / script), json.dumps(spec)]
        with self.log_path.open("ab") as log:
            self.process = fork_server.start(
                command,
                environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log.fileno(),
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def say(self, line: object) -> None:
        """One JSON line to its stdin."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        """Its next JSON line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it ended: {self.log_path.read_text(errors='replace')[-2000:]}"
        return json.loads(line)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def leave(self) -> int:
        """Let it come to its end (stdin is closed); its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        """The end of the test."""
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue  # it died with a line unread


class Obedient(AgentProcess):
    """Runs what a test writes."""

    def __init__(self, home: Path, socket_path: str, **spec: object) -> None:
        super().__init__(home, "obedient.py", {"socket": socket_path, **spec})

    def do(self, source: str) -> Any:
        """The value of the source's last line."""
        self.begin(source)
        return self.done()

    def begin(self, source: str) -> None:
        """Start it; `done` waits."""
        self.say(textwrap.dedent(source))

    def done(self) -> Any:
        """The value of what was begun."""
        answer = self.hear()
        assert "error" not in answer, answer["error"]
        return answer["value"]


class Board:
    """What a streamer noted, read while it runs or after it was killed."""

    def __init__(self, path: Path, streams: int) -> None:
        self.path = path
        self.streams = streams
        path.write_bytes(bytes(8 * (2 * streams + 1)))

    def _numbers(self) -> memoryview:
        return memoryview(self.path.read_bytes()).cast("Q")

    def tried(self, stream: int = 0) -> int:
        """The seq of the last send that began."""
        return self._numbers()[2 * stream]

    def sent(self, stream: int = 0) -> int:
        """`sent_seq` as it was after the last send that returned."""
        return self._numbers()[2 * stream + 1]

    def is_done(self) -> bool:
        """It has sent all, and `sent` is exact."""
        return self._numbers()[2 * self.streams] == 1


class Nursery(AgentProcess):
    """Forks streamers, one at a time."""

    def __init__(self, home: Path, daemon: DaemonProcess, prefix: str = "") -> None:
        """prefix: of the ids of its streams, where there are several nurseries."""
        super().__init__(home, "nursery.py")
        self._home = home
        self._prefix = prefix
        self._daemon = daemon
        self._count = 0
        self.child = 0

    def stream(
        self, sends: int, *, streams: int = 1, pace_seconds: float = 0.0, then: str = "kill"
    ) -> tuple[list[str], Board]:
        """Start a streamer: the ids of its streams, and its board."""
        self._count += 1
        ids = [f"{self._prefix}r{self._count}.{at}" for at in range(streams)]
        board = Board(self._home / f"board{self._count}", streams)
        spec = {
            "socket": self._daemon.socket_path,
            "session": f"session {self._count}",
            "streams": ids,
            "sends": sends,
            "pace_seconds": pace_seconds,
            "board": str(board.path),
            "then": then,
        }
        self.say(spec)
        self.child = self.hear()["pid"]
        return ids, board

    def until_sent(self, board: Board, sends: int) -> None:
        """Wait until it has begun so many sends on its first stream, or has finished."""
        until(lambda: board.tried() >= sends or board.is_done(), f"{sends} sends")

    def ended(self) -> int:
        """Wait for the streamer's end: minus the signal that ended it, or its exit code."""
        code: int = self.hear()["exit"]
        self.child = 0
        return code

    def kill_child(self) -> None:
        """SIGKILL to the streamer, and wait for it."""
        os.kill(self.child, signal.SIGKILL)
        assert self.ended() == -signal.SIGKILL

    def close(self) -> None:
        """Its child must not outlive it."""
        try:
            if self.child:
                os.kill(self.child, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it had ended by itself, unheard
        finally:
            super().close()


MakeAgent = Callable[..., Obedient]
"""The fixture `make_agent`."""
