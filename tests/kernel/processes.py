"""Daemons and agents as processes: forked from here in milliseconds, or a daemon run as users do.

Owns: starting them, killing them by their pid, and that none outlives its parent. Refuses: what
they do (`load.py`, `converse.py`, `walld/`).

A forked daemon is `walld serve` from its settings on: all of it, with its threads and its socket,
only without the 60 ms in which Python starts. Forking needs a parent without threads, so nothing
here uses a client: who asks a daemon does so by `wire_peer`.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import walld_client
from daemon_process import environment
from walld_client.recovered.partial import from_recovered
from walld_client.start import start_daemon
from walld_client.wire import messages as wire
from wire_peer import Peer

from walld import limits
from walld.daemon.ops import logs
from walld.daemon.service import serve
from walld.daemon.settings import load

from .board import Board
from .converse import converse
from .load import Habits, stream

__all__ = ["PATIENCE_SECONDS", "Agent", "Application", "Daemon", "ForkedDaemon", "RealDaemon"]

PATIENCE_SECONDS: Final = 30.0
"""How long something broken may keep a loop waiting; nothing passes by it."""
_PR_SET_PDEATHSIG: Final = 1
_libc = ctypes.CDLL(None, use_errno=True)


class _Forked:
    """A child that runs one function. Its stderr is appended to a log."""

    def __init__(self, run: Callable[[], object], log: Path) -> None:
        parent = os.getpid()
        _prepare()
        self.pid = os.fork()
        if self.pid == 0:
            _inside(run, log, parent)
        self.code: int | None = None

    def is_alive(self) -> bool:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is None

    def signal(self, number: int) -> None:
        if self.is_alive():
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and it is gone."""
        self.signal(signal.SIGKILL)
        if self.code is None:
            _, status = os.waitpid(self.pid, 0)
            self.code = os.waitstatus_to_exitcode(status)


@cache
def _prepare() -> None:
    """Once, before the first fork: what every child would do again."""
    for name in ("uvloop", "anyio._backends._asyncio", "encodings.idna"):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # else each daemon's start collects all of this process once more


def _inside(run: Callable[[], object], log: Path, parent: int) -> None:
    """The child, to its end."""
    code = 70
    try:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(code)  # it died before it was asked for
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.dup2(fd, 2)
        sys.stderr = os.fdopen(2, "w", buffering=1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        result = run()
        code = result if isinstance(result, int) else 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


class Agent(_Forked):
    """An agent under load."""

    def __init__(
        self, folder: Path, socket_path: str, name: str, seed: int, habits: Habits | None = None
    ) -> None:
        self.name = name
        self.board = board = Board()
        self.log = folder / "agents.log"
        super().__init__(
            lambda: stream(socket_path, name, seed, board, habits or Habits()), self.log
        )

    def check(self) -> None:
        """The client did what it must, and nothing but SIGKILL has ended it."""
        assert not self.board.failed, f"a call gave what it must not; see {self.log}"
        assert self.code in (None, -signal.SIGKILL), f"exit {self.code}; see {self.log}"


class Application(_Forked):
    """An application that holds sessions."""

    def __init__(self, folder: Path, socket_path: str, name: str, seed: int) -> None:
        self.name = name
        self.board = board = Board()
        self.log = folder / "applications.log"
        super().__init__(lambda: converse(socket_path, name, seed, board), self.log)

    def check(self) -> None:
        """Nothing but SIGKILL has ended it: it read what it had said."""
        alive = self.is_alive()
        assert alive or self.code == -signal.SIGKILL, f"exit {self.code}; see {self.log}"


class Daemon:
    """One daemon on `folder`/data, or on `data`."""

    def __init__(self, folder: Path, data: Path, **flags: str) -> None:
        self.data = data
        self.log = folder / "daemon.log"
        self.socket_path = str(folder / "s")
        self._flags = flags

    def own_pid(self) -> int:
        """Of the daemon itself, whatever it runs under."""
        raise NotImplementedError

    def exit_code(self) -> int | None:
        """Minus the signal that ended it, or what it exited with."""
        raise NotImplementedError

    def is_alive(self) -> bool:
        raise NotImplementedError

    def signal(self, number: int) -> None:
        raise NotImplementedError

    def kill(self) -> None:
        raise NotImplementedError

    def ask(self, request: Any) -> Any:
        """The answer to a request; OSError while nobody answers."""
        with Peer(self, "query") as peer:  # type: ignore[arg-type]
            try:
                return msgspec.msgpack.decode(peer.ask(request))
            except AssertionError as error:  # an Error, or the end of the connection
                raise ConnectionError(str(error)) from None

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(wire.Status(1))
        return found

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """What it gives, once that is true; AssertionError where it never is."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                if value := condition():
                    return value
            except OSError:
                pass  # not there yet
            text = f"never came: {what}; see {self.log}"
            assert self.is_alive(), f"the daemon ended; {text}"
            assert time.monotonic() < deadline, text
            time.sleep(0.001)

    def until_listens(self) -> None:
        """A client that finds nobody waits before it tries again; here it need not."""

        def connects() -> bool:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
                peer.connect(self.socket_path)
            return True

        self.until(connects, "a daemon that listens")

    def until_ready(self) -> None:
        self.until(lambda: self.status()["state"] != "recovering", "a daemon that answers")

    def replies(self) -> list[walld_client.PartialReply]:
        """All it has, as an application reads it."""
        answer = self.ask(wire.Recover(1, "all"))
        return [from_recovered(reply) for reply in msgspec.convert(answer, list[wire.Recovered])]


class ForkedDaemon(_Forked, Daemon):
    """See the top: no command runs, so `start_daemon` has none to start.

    small: limits so low that a short run meets them.
    """

    def __init__(
        self,
        folder: Path,
        data: Path,
        *,
        small: Mapping[str, float] | None = None,
        spoil: Callable[[], None] | None = None,
        **flags: str,
    ) -> None:
        """spoil: run inside before anything else; makes a daemon wrong on purpose."""
        Daemon.__init__(self, folder, data, **flags)
        given: dict[str, str | None] = {"data": str(data), "socket": self.socket_path}
        settings = load(given | flags, {"HOME": str(folder)}, os.geteuid())

        def run() -> int:
            for name, value in (small or {}).items():
                setattr(limits, name, value)
            if spoil is not None:
                spoil()
            logs.configure("text", {}, sys.stderr)
            return serve(settings)

        _Forked.__init__(self, run, self.log)

    def own_pid(self) -> int:
        return self.pid

    def exit_code(self) -> int | None:
        return self.code


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


class RealDaemon(Daemon):
    """`walld serve` as anybody starts it. wrapper: a command to run it under, such as strace."""

    def __init__(
        self, folder: Path, data: Path, wrapper: tuple[str, ...] = (), **flags: str
    ) -> None:
        super().__init__(folder, data, **flags)
        start_daemon(
            data,
            socket=self.socket_path,
            log=self.log,
            options=[word for name, value in flags.items() for word in (_option(name), value)],
            command=[*wrapper, sys.executable, "-m", "walld"],
            env=environment(),
            wait=False,
            launch=self._launch,
        )
        self.is_wrapped = bool(wrapper) and wrapper[0] != "env"  # which becomes what it runs

    def _launch(
        self, command: list[str], env: Mapping[str, str], stderr: int
    ) -> subprocess.Popen[bytes]:
        """The process is ended here and not by `start_daemon`: a wrapper is not what is killed."""
        self.process = subprocess.Popen(command, env=env, stderr=stderr)
        return self.process

    def own_pid(self) -> int:
        """A wrapper's only child."""
        if not self.is_wrapped:
            return self.process.pid
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return int(children.split()[0])

    def exit_code(self) -> int | None:
        return self.process.poll()

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: int) -> None:
        if self.is_alive():
            try:
                os.kill(self.own_pid(), number)
            except (IndexError, OSError):
                self.process.send_signal(number)  # it is gone, its wrapper not yet

    def kill(self) -> None:
        """SIGKILL, and it is gone."""
        self.signal(signal.SIGKILL)
        self.process.wait()
