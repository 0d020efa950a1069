"""Starts a daemon: `walld serve` on a data directory, ready when `start_daemon` returns.

Owns: which command is run, the socket and the log where nobody names them, the wait, and the end of
what it started. Refuses: settings of the daemon (`options` are passed on as they are) and what is
said to it (`connect(daemon.socket)`).

    with start_daemon("state") as daemon:
        client = walld_client.connect(daemon.socket)

The daemon has a session of its own, so a Ctrl-C at the terminal does not reach it. It goes on when
the process that started it dies: its socket is where the next `start_daemon(..., join=True)` of the
same directory looks.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec
from walld_client.errors import Unavailable, WalldError
from walld_client.link.directory_owner import listening_paths, owner_pid
from walld_client.link.socket_path import check_length, runtime_folder
from walld_client.query.query import Query
from walld_client.wire.messages import Status

__all__ = [
    "Daemon",
    "Launch",
    "NotStarted",
    "Probe",
    "Process",
    "start_daemon",
    "status_of",
]

START_SECONDS = 20.0
STOP_SECONDS = 30.0
_POLL_SECONDS = 0.01
_PROBE_SECONDS = 1.0
_RETRY_SECONDS = 0.05
_RETRY_SECONDS_MAX = 1.0
"""Each try starts an interpreter, beside a daemon that may be slow because the machine is busy."""
_SHOWN_LINES = 10
_IN_USE = "another walld owns this data directory"
"""What the daemon logs where another one has its directory."""
_OF_THE_MANAGER = ("LISTEN_", "NOTIFY_SOCKET", "WATCHDOG_")
"""A service manager's variables for the program that starts it: the daemon is another process."""


class Process(Protocol):
    """What is used of `subprocess.Popen`, of whoever runs the daemon."""

    pid: int

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code. Raises subprocess.TimeoutExpired."""

    def kill(self) -> None:
        """SIGKILL."""


Launch = Callable[[list[str], Mapping[str, str], int], Process]
"""Runs a command line with this environment and this descriptor as its stderr.

A command that runs the daemon as its child has a session of its own: by that it is known.
"""


class NotStarted(WalldError):
    """No daemon answers: there is no such command, it has ended, or it took too long.

    exit_code: what it ended with, -N for signal N; None where it did not end by itself. log: its
    last lines.
    """

    def __init__(self, message: str, exit_code: int | None = None, log: str = "") -> None:
        super().__init__(f"{message}: {log}" if log else message)
        self.exit_code = exit_code
        self.log = log


class Probe:
    """Asks the daemon at a path how it is, on one connection. As a context manager it is closed."""

    def __init__(self, socket: str) -> None:
        self._query = Query(lambda: socket, _PROBE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._query.close()

    def status(self, timeout: float = _PROBE_SECONDS) -> dict[str, Any] | None:
        """What `walld status --json` prints. None: nobody listens.

        timeout: seconds; all of them where one listened before, since the next may. Raises
        Unavailable where somebody listens and gives no answer in time, Refused.
        """
        try:
            return msgspec.msgpack.decode(self._query.ask(Status, timeout), type=dict[str, Any])
        except Unavailable as error:
            if isinstance(error.__cause__, FileNotFoundError | ConnectionRefusedError):
                return None
            raise


def status_of(socket: str, timeout: float = _PROBE_SECONDS) -> dict[str, Any] | None:
    """The same of one question; `timeout` in seconds."""
    with Probe(socket) as probe:
        return probe.status(timeout)


class Daemon:
    """A daemon on one data directory. As a context manager it is closed at the end.

    socket: the path to connect to. directory: the data directory. log_path: the file with its log
    lines. pid: of the daemon; None once it was ended here. is_own: False where another process had
    started it (`join=True`): such a one is never ended here.
    """

    def __init__(
        self,
        directory: str,
        socket: str,
        log_path: str,
        command: list[str],
        env: Mapping[str, str],
        own_folder: str | None,
        launch: Launch,
    ) -> None:
        """Use `start_daemon`. own_folder: to be removed at the end."""
        self.directory = directory
        self.socket = socket
        self.log_path = log_path
        self.pid: int | None = None
        self.is_own = True
        self._command = command
        self._env = env
        self._own_folder = own_folder
        self._launch = launch
        self._process: Process | None = None
        self._log_from = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def log(self) -> str:
        """All that its log has, also of those that ran before it."""
        return self._logged()

    def close(self) -> None:
        """Stop it, and remove the folder that was made for its socket and log.

        Does nothing to one that another process started.
        """
        if self.is_own:
            self.stop()
            if self._own_folder is not None:
                shutil.rmtree(self._own_folder, ignore_errors=True)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone: what `restart()` and `recover()` are tried with.

        Does nothing where it has ended. RuntimeError where it is another process's.
        """
        process = self._mine("kill")
        if process is None:
            return
        if self.pid is not None and self.pid != process.pid:  # below a command that wraps it
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        process.kill()
        process.wait()
        self._gone()

    def stop(self, timeout: float = STOP_SECONDS) -> int | None:
        """SIGTERM, and wait for its exit code; 0 is an end at which all was written and synced.

        timeout: seconds, after which it is killed (-9). None where it was ended here before.
        RuntimeError where it is another process's.
        """
        process = self._mine("stop")
        if process is None:
            return None
        with suppress(ProcessLookupError):
            os.kill(self.pid or process.pid, signal.SIGTERM)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL
        self._gone()
        return code

    def restart(self, timeout: float = START_SECONDS) -> Self:
        """The next daemon on the same directory and socket, ready; one that runs is stopped before.

        timeout: seconds for its start. Raises NotStarted; RuntimeError of another process's.
        """
        self._mine("restart")
        self.stop()
        self._start(time.monotonic() + timeout, timeout, is_ready=True)
        return self

    # --- within a start -----------------------------------------------------------------------

    def _mine(self, verb: str) -> Process | None:
        if not self.is_own:
            raise RuntimeError(
                f"cannot {verb} the daemon of {self.directory} (pid {self.pid}): another process "
                "started it"
            )
        return self._process

    def _logged(self, start: int = 0) -> str:
        with suppress(FileNotFoundError), open(self.log_path, "rb") as file:
            file.seek(start)
            return file.read().decode("utf-8", "replace")
        return ""

    def _gone(self) -> None:
        self._process = self.pid = None

    def _run(self) -> Process:
        """Run it. Raises NotStarted."""
        fd = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._log_from = os.fstat(fd).st_size
            self._process = self._launch(self._command, self._env, fd)
        except OSError as error:
            raise NotStarted(f"cannot run {self._command[0]}: {error.strerror}") from error
        finally:
            os.close(fd)
        return self._process

    def _start(self, deadline: float, seconds: float, *, is_ready: bool) -> None:
        """Run it and wait until it answers. Raises NotStarted."""
        process = self._run()
        try:
            self._wait(process, deadline, seconds, is_ready=is_ready)
        except BaseException:
            self.kill()
            raise

    def _wait(self, process: Process, deadline: float, seconds: float, *, is_ready: bool) -> None:
        state = "nobody listens"
        while True:
            code = process.poll()
            with suppress(Unavailable):
                now = status_of(self.socket, min(_PROBE_SECONDS, _left(deadline)))
                if now is not None and process.pid in (now["pid"], _session_of(now["pid"])):
                    state = now["state"]
                    self.pid = now["pid"]
                    if not is_ready or state != "recovering":
                        return
            if code is not None:
                how = f"exit code {code}" if code >= 0 else f"signal {-code}"
                text = f"walld serve on {self.directory} ended at its start with {how}"
                raise NotStarted(text, code, self._last_lines())
            if time.monotonic() > deadline:
                text = f"walld serve on {self.directory} does not answer at {self.socket} within "
                raise NotStarted(f"{text}{seconds:g} s ({state})", None, self._last_lines())
            time.sleep(_POLL_SECONDS)

    def _own_log(self) -> str:
        """Of this start."""
        return self._logged(self._log_from).strip()

    def _last_lines(self) -> str:
        lines = self._own_log().splitlines()
        return "\n".join(lines[-_SHOWN_LINES:]) or "it logged nothing"

    def _joined(self) -> bool:
        """Another process's daemon of this directory answers at the socket.

        Raises NotStarted where it is one of another directory.
        """
        now: dict[str, Any] | None = None
        with suppress(Unavailable):
            now = status_of(self.socket)
        if now is None:
            return False
        if not _same(now["data"], self.directory):
            text = f"the daemon at {self.socket} (pid {now['pid']}) is of {now['data']}, not of "
            raise NotStarted(f"{text}{self.directory}: give another socket")
        self.is_own, self.pid = False, now["pid"]
        return True

    def _check_elsewhere(self, refused: NotStarted) -> None:
        """Raises NotStarted where the owner of the directory listens, and not at this socket."""
        pid = owner_pid(self.directory)
        paths = [] if pid is None else listening_paths(pid)
        if paths and not any(_same(path, self.socket) for path in paths):
            text = (
                f"another walld (pid {pid}) owns {self.directory} and listens at {paths[0]}, not "
            )
            text += f"at {self.socket}: give that socket, stop it, or give another directory"
            raise _in_use(text, refused)

    def _start_or_join(self, deadline: float, seconds: float, *, is_ready: bool) -> None:
        """One that has the directory and does not answer yet is about to, or about to end; but for
        one that listens at another socket.
        """
        rest = _RETRY_SECONDS
        refused: NotStarted | None = None
        while not self._joined():
            try:
                self._start(deadline, seconds, is_ready=is_ready)
                return
            except NotStarted as error:
                if _IN_USE in error.log:
                    refused = error
                elif refused is None or error.exit_code is not None or self._own_log():
                    raise  # else the last try had no time to say what those before it said
            self._check_elsewhere(refused)
            if time.monotonic() > deadline:
                text = f"another walld owns {self.directory}, and within {seconds:g} s nobody "
                text += f"answered at {self.socket}: stop it, give the socket where it listens, "
                raise _in_use(f"{text}or give another directory", refused)
            time.sleep(rest)
            rest = min(2 * rest, _RETRY_SECONDS_MAX)


def start_daemon(
    directory: str | os.PathLike[str],
    *,
    socket: str | os.PathLike[str] | None = None,
    log: str | os.PathLike[str] | None = None,
    options: Sequence[str] = (),
    join: bool = False,
    timeout: float = START_SECONDS,
    wait_ready: bool = True,
    command: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
    wait: bool = True,
    launch: Launch | None = None,
) -> Daemon:
    """Start `walld serve` on a data directory and wait until it answers.

    socket: where it listens, at most 107 bytes; else a path that this directory always gets, in a
    folder of this user's alone below $XDG_RUNTIME_DIR or the temporary directory. log: the file
    its log lines are appended to; else beside that socket. options: more of `walld serve`.
    join: where a daemon of this directory answers at the socket already, that one is taken; where
    one has the directory and does not answer yet, it is waited for, but for one that listens at
    another socket. timeout: seconds until it must
    answer. wait_ready: it has read its log, too, so requests are answered at once; agents need not
    wait for that. command: else WALLD_COMMAND, `python -m walld` of this interpreter, or `walld` of
    PATH. env: its whole environment; else this process's, without what a service manager put there.
    wait: False returns once it runs, whether it answers or not; `join` waits all the same. launch:
    what runs it; else a process with a session of its own.

    Raises NotStarted: no such command, it ended (its exit code and its last log lines; another
    daemon has the directory), or it did not answer in time; then nothing of it is left running.
    ValueError for a socket path that is too long, PermissionError where the folder is somebody
    else's, OSError where it cannot be made.
    """
    program = command or _command()
    where = os.path.abspath(os.fspath(directory))
    own_folder = None
    if socket is None:
        own_folder = runtime_folder(where)
        path, log_path = os.path.join(own_folder, "s"), os.path.join(own_folder, "log")
    else:
        path = os.path.abspath(os.fspath(socket))
        check_length(path)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        log_path = f"{path}.log"
    if log is not None:
        log_path = os.path.abspath(os.fspath(log))
    whole = [*program, "serve", "--data", where, "--socket", path, *options]
    if env is None:
        env = {
            key: value for key, value in os.environ.items() if not key.startswith(_OF_THE_MANAGER)
        }
    daemon = Daemon(where, path, log_path, whole, env, own_folder, launch or _launched)
    deadline = time.monotonic() + timeout
    is_first = not os.path.exists(log_path)  # else the folder is another start's as well
    try:
        if join:
            daemon._start_or_join(deadline, timeout, is_ready=wait_ready)
        elif not wait:
            daemon._run()
        else:
            daemon._start(deadline, timeout, is_ready=wait_ready)
    except NotStarted as error:
        if is_first and own_folder is not None and _IN_USE not in error.log:
            shutil.rmtree(own_folder, ignore_errors=True)
        raise
    return daemon


def _launched(command: list[str], env: Mapping[str, str], stderr: int) -> Process:
    return subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        start_new_session=True,
    )


def _command() -> list[str]:
    """How `walld` is run here. Raises NotStarted."""
    given = os.environ.get("WALLD_COMMAND")
    if given:
        return [given] if os.path.exists(given) else shlex.split(given)
    spec = importlib.util.find_spec("walld")
    if spec is not None and spec.origin is not None:  # a folder of that name is no package of ours
        return [sys.executable, "-m", "walld"]
    found = shutil.which("walld")
    if found is None:
        raise NotStarted(
            f"walld is not installed: not in PATH, nor for {sys.executable}; pip install walld, or "
            "set WALLD_COMMAND"
        )
    return [found]


def _left(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())


def _session_of(pid: int) -> int:
    """0 where there is no such process."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def _in_use(text: str, refused: NotStarted) -> NotStarted:
    """refused: of a daemon that has ended for it."""
    lines = [line for line in refused.log.splitlines() if _IN_USE in line]
    return NotStarted(text, refused.exit_code, lines[-1])


def _same(one: str, other: str) -> bool:
    with suppress(OSError):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)
