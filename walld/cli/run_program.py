"""`walld run -- PROGRAM ...`: a program with a daemon, which ends with its last program.

Owns: whether a daemon is started, the program's environment, its signals and its exit code, and the
one line about a daemon that stays. Refuses: when the daemon ends (`daemon/idle_exit.py`), starting
it (`walld_client.start`).

The program inherits a descriptor with a shared flock(2) on the file of users beside the socket: it
is a user for as long as it lives, whatever becomes of this process. The lock is taken before the
socket is asked, so a daemon that answers then does not end for want of users.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from walld_client.errors import Unavailable
from walld_client.errors import WalldError as ClientError
from walld_client.link.socket_path import find_socket, is_private, socket_candidates
from walld_client.start import NotStarted, Probe, start_daemon, status_of

from walld.cli.arguments import SETTINGS
from walld.cli.exit_codes import complain
from walld.daemon.settings import Settings, load
from walld.daemon.transport.listener import make_socket_folder

__all__ = ["run"]

NO_DAEMON = 125
CANNOT_RUN = 126
NOT_FOUND = 127
"""As env(1), nice(1) and timeout(1) have them."""
START_SECONDS = 30.0
END_SECONDS = 10.0
_POLL_SECONDS = 0.02
_ASK_SECONDS = 0.5
_LOOKS = {"replies": 1, "agents": 6}
"""So many looks of a daemon without users settle that it stays: of a program that is gone it may
have something to read still."""
_DESCRIPTORS_FROM = 200
"""Scripts use the low numbers for their own files."""
_NOT_FORWARDED = {
    signal.SIGKILL,
    signal.SIGSTOP,
    signal.SIGCHLD,
    signal.SIGTTIN,
    signal.SIGTTOU,
    # What this process does wrong itself is not the program's.
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGSEGV,
    signal.SIGSYS,
    signal.SIGTRAP,
}
_JOB_STOPS = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}


def run(options: argparse.Namespace) -> int:
    """The exit code of the program; 125 where there is no daemon for it."""
    flags: dict[str, str | None] = dict.fromkeys((*SETTINGS, "config"))
    flags |= {"data": options.data, "socket": options.socket}
    settings = load(flags, os.environ, os.geteuid())
    try:
        hold = _DaemonHold(settings)
    except (ClientError, OSError) as error:
        complain(str(error))
        return NO_DAEMON
    code = _program(options.program, hold)
    hold.leave()
    return code


class _DaemonHold:
    """A hold on one daemon, which answers from here on."""

    def __init__(self, settings: Settings) -> None:
        """Raises NotStarted, Unavailable, Refused, OSError."""
        self.socket = _place(settings)
        self.fd: int | None = None
        self.path = f"{self.socket}.users"
        try:
            make_socket_folder(self.socket, settings.socket_group)
            self.fd = _held(self.path)
        except OSError:
            # Not our folder: it is one of root's or of another user's, and must answer as it is.
            if not _answers(self.socket):
                raise
            return
        with _alone(f"{self.socket}.starting"):
            if _answers(self.socket):
                return
            start_daemon(
                settings.data,
                socket=self.socket,
                log=f"{self.socket}.log",
                options=["--until-unused", self.path],
                join=True,  # one that was killed here may have left a daemon that is starting
                timeout=START_SECONDS,
                wait_ready=False,
                command=[sys.executable, "-m", "walld"],
            )

    def leave(self) -> None:
        """No user any more. Waits until the daemon has seen that, and says so where it stays."""
        if self.fd is None:
            return
        os.close(self.fd)
        first: int | None = None
        give_up = time.monotonic() + END_SECONDS
        trouble = f"it has not ended within {END_SECONDS:g} s"
        with Probe(self.socket) as probe:  # one connection: a newcomer is a reason not to end yet
            while time.monotonic() < give_up:
                try:
                    now = probe.status(_ASK_SECONDS)
                except ClientError as error:
                    now, trouble = {}, str(error)
                if now is None:
                    # Its process has the file until it is gone; who is new may be before us.
                    if _is_free(self.path):
                        return
                elif now:
                    users = now.get("users")
                    if users is None or users["path"] != self.path:
                        return  # not started by `walld run`
                    first = users["looks"] if first is None else first
                    if users["looks"] > first and users["held"]:
                        return  # the last one says it
                    looks = users["looks"] - first
                    if looks >= _LOOKS.get(users["kept_by"], looks + 1):
                        complain(self._stays(now, users["kept_by"]))
                        return
                time.sleep(_POLL_SECONDS)
        complain(f"the daemon at {self.socket} stays: {trouble}; its log: {self.socket}.log")

    def _stays(self, now: dict[str, Any], kept_by: str) -> str:
        pid, count = now["pid"], now["streams_live"] + now["partials"]
        why = f"{count} replies are not released" if count != 1 else "1 reply is not released"
        if kept_by == "agents":
            why = "an agent is connected"
        return (
            f"the daemon stays (pid {pid}): {why}; look: walld ls --socket {self.socket}, "
            f"walld recover SESSION --socket {self.socket}; stop it: kill {pid}"
        )


def _place(settings: Settings) -> str:
    """The socket that is named; else the one where clients find a daemon, or the default of one.

    PermissionError where that lies in a folder that somebody else controls.
    """
    own = settings.socket
    if not settings.origins["socket"].startswith("default"):
        return own
    other = find_socket(None)
    if other != own and _answers(other):
        return other
    uid, folder = os.geteuid(), os.path.dirname(own)
    is_shared = own == socket_candidates(os.environ, uid)[-1]
    if is_shared and os.path.lexists(folder) and not is_private(folder, uid):
        text = "not a directory that only this user can use: remove it or give --socket"
        raise PermissionError(errno.EPERM, text, folder)
    return own


def _held(path: str) -> int:
    """A descriptor with a shared lock, at a number that programs do not use for their own.

    A daemon that has decided to end lets go of its lock when it is gone: worth waiting for.
    """
    low = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        give_up = time.monotonic() + START_SECONDS
        while True:
            try:
                fcntl.flock(low, fcntl.LOCK_SH | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up:
                    text = f"the daemon that is about to end has not within {START_SECONDS:g} s"
                    raise NotStarted(f"{path}: {text}: look at its log") from None
                time.sleep(_POLL_SECONDS)
        try:
            return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _DESCRIPTORS_FROM)
        except OSError:  # a limit below that
            return os.dup(low)
    finally:
        os.close(low)


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """One `walld run` at a time, so that one of them starts the daemon."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _is_free(path: str) -> bool:
    """No daemon has the file for its end."""
    with suppress(OSError):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(fd)
    return True


def _answers(socket: str) -> bool:
    """A daemon is there. Raises Refused, and Unavailable where it listens and does not answer."""
    try:
        return status_of(socket) is not None
    except Unavailable as error:
        if isinstance(error.__cause__, PermissionError):
            return False
        text = f"{error}: a process listens at {socket} and may be stopped or busy; look at walld "
        text += f"status --socket {socket}, and which process it is: ss -xlp src {socket}"
        raise Unavailable(text) from error


# --- the program ----------------------------------------------------------------------------------


def _program(words: list[str], hold: _DaemonHold) -> int:
    """Runs it in the foreground of this process's job; its exit code, 128 + N of signal N."""
    forwarded = signal.valid_signals() - _NOT_FORWARDED
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who ignores it cannot wait for a child
    before = signal.pthread_sigmask(signal.SIG_BLOCK, forwarded | {signal.SIGCHLD})
    try:
        if hold.fd is not None:
            os.set_inheritable(hold.fd, True)
        pid = _spawned(words, {**os.environ, "WALLD_SOCKET": hold.socket}, before)
    except OSError as error:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        complain(f"{words[0]}: {error.strerror}")
        return NOT_FOUND if error.errno == errno.ENOENT else CANNOT_RUN
    code = _waited(pid, forwarded)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return code


def _spawned(words: list[str], env: dict[str, str], mask: set[int | signal.Signals]) -> int:
    # Python ignores these two; what else is ignored here was so before and stays so.
    default = (signal.SIGPIPE, signal.SIGXFSZ)
    try:
        return os.posix_spawnp(words[0], words, env, setsigmask=mask, setsigdef=default)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        script = shutil.which(words[0]) or words[0]  # without a first line: as execvp(3) has it
        shell = ["/bin/sh", script, *words[1:]]
        return os.posix_spawn(shell[0], shell, env, setsigmask=mask, setsigdef=default)


def _waited(pid: int, forwarded: set[signal.Signals]) -> int:
    """Passes on what is sent to this process until the program is gone.

    What the terminal sends goes to the whole job, so the program has it already; a hangup goes to
    the leader of the session alone.
    """
    is_leader = os.getsid(0) == os.getpid()
    while True:
        came = signal.sigwaitinfo({*forwarded, signal.SIGCHLD})
        if came.si_signo == signal.SIGCHLD:
            code = _looked_after(pid)
            if code is not None:
                return code
            continue
        is_sent = came.si_code <= 0  # by kill(2), not by the kernel
        if came.si_pid == pid and is_sent:
            continue  # it has sent it to its whole group
        if is_sent or (came.si_signo == signal.SIGHUP and is_leader):
            os.kill(pid, came.si_signo)


def _looked_after(pid: int) -> int | None:
    """The exit code, where it has ended; a program that job control stops stops this one too."""
    while True:
        found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if not found:
            return None
        if os.WIFEXITED(status):
            return os.WEXITSTATUS(status)
        if os.WIFSIGNALED(status):
            return 128 + os.WTERMSIG(status)
        # One that somebody stopped by SIGSTOP may be continued alone: that is not followed.
        if os.WIFSTOPPED(status) and os.WSTOPSIG(status) in _JOB_STOPS:
            os.kill(os.getpid(), signal.SIGSTOP)
