"""Python programs that start without the 0.3 s of an interpreter and its imports.

Owns: one server for each test process. It imports walld and the client once and forks for each
program, which then runs as `python -m MODULE`, `python -c CODE` or `python FILE` would: with the
arguments, environment, directory, umask, limits and descriptors 0 to 2 of who starts it, default
signals and no other descriptor. Refuses: what only a start of an interpreter can show. A program
under strace or with other PYTHON*, LD_*, MALLOC_* or locale variables is executed as ever. So is
one of which a test reads /proc/PID/cmdline or environ: those of a fork are the server's.

The server is the parent of what it forks: it tells the test how each program ended, by a socket of
the program's own. It has no thread. It ends when the test process closes its end or is gone, and
kills what is left.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from importlib.abc import SourceLoader
from importlib.util import find_spec
from pathlib import Path
from pkgutil import walk_packages
from types import CodeType, ModuleType
from typing import IO, Any

import walld_client

import walld

__all__ = ["ForkedProcess", "Process", "close", "run", "start"]

_BY_THE_INTERPRETER = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LC_", "LANG", "COVERAGE_")
"""Variables that are read before any program runs begin so."""
_LIMITS = {getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}


_ROOT = Path(__file__).parents[1]
_ENV = {**os.environ, "PYTHONPATH": f"{_ROOT}:{_ROOT / 'clients/python'}"}
"""The server's: this process's as it was, with this tree's packages."""


# --- the side of the test -------------------------------------------------------------------------


class ForkedProcess:
    """What is used of `subprocess.Popen`, for a program that the server has forked."""

    def __init__(self, args: list[str], channel: socket.socket) -> None:
        self.args = args
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self._channel = channel
        pid, fds, _, _ = socket.recv_fds(channel, 4, 1, socket.MSG_CMSG_CLOEXEC)
        if not fds:
            raise RuntimeError(f"the fork server has not started {args}: see its stderr")
        self._pidfd = fds[0]
        self.pid = int.from_bytes(pid, sys.byteorder)

    def poll(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; what `poll` gives."""
        if self.returncode is None:
            waiting = select.poll()
            waiting.register(self._channel, select.POLLIN)
            if not waiting.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            code = self._channel.recv(4)
            assert code, f"the fork server ended before process {self.pid} did"
            self.returncode = int.from_bytes(code, sys.byteorder, signed=True)
            self._channel.close()
            os.close(self._pidfd)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


Process = subprocess.Popen[bytes] | ForkedProcess


class _Server:
    """The process that forks, and the socket that asks it to."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            fd = theirs.fileno()
            command = [sys.executable, __file__, str(fd)]
            self._process = subprocess.Popen(
                command, env=_ENV, pass_fds=(fd,), stdin=subprocess.DEVNULL
            )

    def start(self, told: dict[str, object], fds: list[int]) -> socket.socket:
        """Ask for a process with these descriptors 0 to 2; where its pid and its end are told."""
        channel, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._control, [b"+"], [theirs.fileno(), *fds])
            channel.sendall(json.dumps(told).encode())
            channel.shutdown(socket.SHUT_WR)
        except BaseException:
            channel.close()
            raise
        return channel

    def close(self) -> None:
        """End it, and what it has forked."""
        self._control.close()
        self._process.wait()


_servers: dict[int, _Server] = {}
"""By the process that uses it: the child of a fork has one of its own."""
_starting = threading.Lock()


def _of_the_interpreter(env: dict[str, str]) -> dict[str, str]:
    return {name: env[name] for name in env if name.startswith(_BY_THE_INTERPRETER)}


def _server(env: dict[str, str]) -> _Server | None:
    """That of this process; None where a program with this environment must be executed."""
    if _of_the_interpreter(env) != _of_the_interpreter(_ENV):
        return None
    with _starting:
        if os.getpid() not in _servers:
            _servers[os.getpid()] = _Server()
    return _servers[os.getpid()]


@atexit.register
def close() -> None:
    """End the server of this process, if there is one."""
    server = _servers.pop(os.getpid(), None)
    if server is not None:
        server.close()


def start(
    command: list[str],
    env: dict[str, str],
    *,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    uid: int | None = None,
    files_max: int | None = None,
) -> Process:
    """`subprocess.Popen(command, env=env, ...)`; forked where that shows no difference.

    stdin and stdout: a descriptor, or `subprocess.PIPE`. uid: whom the program becomes before its
    first line. files_max: its limit of descriptors.
    """
    server = _server(env) if command[0] == sys.executable else None
    if server is None:
        assert uid is files_max is None, f"only of a forked program: {command}"
        return subprocess.Popen(command, env=env, stdin=stdin, stdout=stdout, stderr=stderr)
    umask = next(
        int(line.split()[1], 8)
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("Umask:")
    )
    told: dict[str, object] = {"args": command[1:], "env": env, "cwd": os.getcwd(), "uid": uid}
    limits = {which: resource.getrlimit(which) for which in _LIMITS}
    if files_max is not None:
        limits[resource.RLIMIT_NOFILE] = files_max, files_max
    told |= {"umask": umask, "limits": [*limits.items()]}
    theirs: list[int] = []
    ours: list[IO[bytes] | None] = [None, None]
    fds = [at if given is None else given for at, given in enumerate((stdin, stdout, stderr))]
    if stdin == subprocess.PIPE:
        fds[0], written = os.pipe()
        theirs.append(fds[0])
        ours[0] = open(written, "wb")  # noqa: SIM115 as Popen's: the caller closes it
    if stdout == subprocess.PIPE:
        read, fds[1] = os.pipe()
        theirs.append(fds[1])
        ours[1] = open(read, "rb")  # noqa: SIM115
    try:
        process = ForkedProcess(command, server.start(told, fds))
    finally:
        for fd in theirs:
            os.close(fd)
    process.stdin, process.stdout = ours
    return process


def run(
    command: list[str], env: dict[str, str], timeout: float = 60.0
) -> subprocess.CompletedProcess[bytes]:
    """What it prints, and its exit code. Its outputs are files: nobody reads them meanwhile."""
    with open(os.memfd_create("stdout"), "rb") as out, open(os.memfd_create("stderr"), "rb") as err:
        process = start(command, env, stdout=out.fileno(), stderr=err.fileno())
        try:
            code = process.wait(timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(command, code, out.read(), err.read())


# --- the side of the server -----------------------------------------------------------------------


def _serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork for each message. In a child: what it is to run. None: the test process has gone."""
    parent = os.pidfd_open(os.getppid())
    children: dict[int, tuple[int, socket.socket]] = {}  # by pidfd
    waiting = select.poll()
    for fd in (parent, control.fileno()):
        waiting.register(fd, select.POLLIN)
    while True:
        for ready, _ in waiting.poll():
            if ready in children:
                waiting.unregister(ready)
                pid, channel = children.pop(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                os.close(ready)
                with channel, suppress(OSError):  # nobody waits for it any more
                    channel.sendall(code.to_bytes(4, sys.byteorder, signed=True))
                continue
            message, fds, _, _ = socket.recv_fds(control, 1, 4, socket.MSG_CMSG_CLOEXEC)
            if ready == parent or not message:
                for pidfd, (pid, _) in children.items():
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                    os.waitpid(pid, 0)
                return None
            channel = socket.socket(fileno=fds[0])
            with channel.makefile("rb") as lines:
                told: dict[str, Any] = json.loads(lines.read())
            pid = os.fork()
            if pid == 0:
                for held in (control, channel, *(held for _, held in children.values())):
                    held.detach()  # closed below: an object that did it later would close another's
                for at, fd in enumerate(fds[1:]):
                    os.dup2(fd, at)
                os.closerange(3, os.sysconf("SC_OPEN_MAX"))
                return told
            for fd in fds[1:]:
                os.close(fd)
            pidfd = os.pidfd_open(pid)
            children[pidfd] = pid, channel
            waiting.register(pidfd, select.POLLIN)
            with suppress(OSError):
                socket.send_fds(channel, [pid.to_bytes(4, sys.byteorder)], [pidfd])


def _become(told: dict[str, Any]) -> None:
    """What a process has from whoever executes it, and what Python makes of it at its start."""
    os.environ.clear()
    os.environ.update(told["env"])
    time.tzset()
    os.chdir(told["cwd"])
    os.umask(told["umask"])
    for which, limits in told["limits"]:
        if resource.getrlimit(which) != tuple(limits):
            resource.setrlimit(which, tuple(limits))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        was = getattr(sys, name)
        file = open(  # noqa: SIM115
            fd,
            "w" if fd else "r",
            1 if fd == 2 or os.isatty(fd) else -1,
            encoding=was.encoding,
            errors=was.errors,
            closefd=False,
        )
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)


def _find(args: list[str]) -> CodeType:
    """What `python` with this command line (-m MODULE, -c CODE or FILE) runs in `__main__`."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    option, *rest = args
    if option == "-m":
        spec = find_spec(rest[0])
        if spec is not None and spec.submodule_search_locations is not None:
            spec = find_spec(f"{rest[0]}.__main__")
        assert spec is not None, f"there is no module {rest[0]}"
        assert isinstance(spec.loader, SourceLoader), spec
        code = spec.loader.get_code(spec.name)
        vars(main).update(__spec__=spec, __package__=spec.parent, __file__=spec.origin)
        sys.argv, sys.path[0] = [str(spec.origin), *rest[1:]], os.getcwd()
    elif option == "-c":
        code = compile(rest[0], "<string>", "exec")
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
    else:
        assert not option.startswith("-"), f"the fork server knows no option {option}"
        code = compile(Path(option).read_bytes(), option, "exec")
        vars(main).update(__file__=option)
        sys.argv, sys.path[0] = args, str(Path(option).parent)
    assert code is not None, args
    return code


def _become_user(uid: int) -> None:
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    # As of a program that this user has begun: setuid(2) alone hides a process from its user.
    assert ctypes.CDLL(None).prctl(4, 1, 0, 0, 0) == 0  # PR_SET_DUMPABLE


def _import_all() -> None:
    """What programs of tests import, so that each finds it there. Adapters want their SDKs."""
    found = [*walk_packages(walld_client.__path__, "walld_client.")]
    found += walk_packages(walld.__path__, "walld.")
    names = [one.name for one in found if "__main__" not in one.name and "adapters" not in one.name]
    # A program that has become another user may not be able to read what is imported late.
    late = ("encodings.ascii", "encodings.idna", "anyio._backends._asyncio", "uvloop")
    for name in (*late, *names):
        import_module(name)


def main() -> None:
    """The server: its argument is the descriptor of its control socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the test process ends this one
    control = socket.socket(fileno=int(sys.argv[1]))
    _import_all()
    gc.collect()
    gc.freeze()  # a collection in a child would copy all of it
    told = _serve(control)
    if told is None:
        return
    _become(told)
    code = _find(told["args"])
    if told["uid"] is not None:
        _become_user(told["uid"])
    exec(code, vars(sys.modules["__main__"]))


if __name__ == "__main__":
    main()
