"""A real daemon of one's own: started, killed, frozen, terminated, asked.

Owns: one `walld serve` at a time on one data directory, and what a test may look at from outside:
its status, its metrics, its log, the bytes below its data directory. Refuses: agents
(`agents/process.py`).

The socket lies in a folder of its own with a short name, because a socket's path has at most 107
bytes and pytest's folders have long ones.
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import fork_server
import msgspec
import walld_client
from fork_server import Process
from walld_client.recovered.partial import from_recovered
from walld_client.start import NotStarted, start_daemon
from walld_client.wire import messages as wire
from wire_peer import Peer, logged

from walld.cli.inspect.offline import find

__all__ = [
    "BACKENDS",
    "PATIENCE_SECONDS",
    "ROOT",
    "DaemonProcess",
    "MakeDaemon",
    "environment",
    "until",
    "walld",
]

ROOT = Path(__file__).parents[1]
BACKENDS = ("asyncio+uvloop", "asyncio", "trio")
PATIENCE_SECONDS = 30.0
"""Only how long something broken may keep a test waiting; no test passes by it."""

Value = TypeVar("Value")


def until(
    condition: Callable[[], Value], what: str, patience_seconds: float = PATIENCE_SECONDS
) -> Value:
    """Wait until `condition` gives something true; that."""
    deadline = time.monotonic() + patience_seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.01)
    return value


def environment() -> dict[str, str]:
    """This process's, without anything of walld in it but the application, and with this tree's
    packages.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WALLD_")}
    own = {"PYTHONPATH": f"{ROOT}:{ROOT / 'clients/python'}", "WALLD_APP": "tests"}
    return kept | own


def walld(*words: object) -> subprocess.CompletedProcess[str]:
    """A command line, in a process of its own, that may need no daemon."""
    done = fork_server.run([sys.executable, "-m", "walld", *map(str, words)], environment())
    out, err = done.stdout.decode(), done.stderr.decode()
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


class DaemonProcess:
    """`walld serve` on `home`/data."""

    def __init__(self, home: Path, *options: str, backend: str = "asyncio+uvloop") -> None:
        self.home = home
        self.data = home / "data"
        self.log_path = home / "daemon.log"
        self.folder = tempfile.mkdtemp(prefix="walld-")
        self.socket_path = f"{self.folder}/s"
        self.options = [*options, "--backend", backend]
        self.process: Process | None = None
        self.wrapper: list[str] = []
        """A command to run the next daemon under, such as strace."""
        self.is_executed = False
        """The next daemon is a start of an interpreter: /proc/PID/cmdline is its own."""
        self._is_wrapped = False
        self._reader: walld_client.Client | None = None

    # --- its life -----------------------------------------------------------------------------

    def inject(self, fault: str, *paths: Path) -> None:
        """Its next lives are under strace, which does this to a call, of these files or of any."""
        call = fault.partition(":")[0]
        self.wrapper = ["strace", "-f", "-qq", "-o", "/dev/null"]
        self.wrapper += ["-e", f"trace={call}", "-e", f"inject={fault}"]
        for path in paths:
            self.wrapper += ["-P", str(path)]

    def start(self, *, wait: bool = True) -> DaemonProcess:
        """Run it, and wait until it has read its log and answers."""
        assert self.process is None, "one at a time"
        self._is_wrapped = bool(self.wrapper)
        try:
            start_daemon(
                self.data,
                socket=self.socket_path,
                log=self.log_path,
                options=self.options,
                timeout=PATIENCE_SECONDS,
                command=[*self.wrapper, sys.executable, "-m", "walld"],
                env=environment(),
                wait=wait,
                launch=self._launch,
            )
        except NotStarted as error:
            raise AssertionError(f"{error}; all it logged:\n{self.log_text()}") from error
        return self

    def _launch(self, command: list[str], env: Mapping[str, str], stderr: int) -> Process:
        """The process is ended here and not by `start_daemon`: tests put others in its place."""
        if self.is_executed or self.wrapper:
            own_session = bool(self.wrapper)  # by which the wrapper's child is known
            self.process = subprocess.Popen(
                command, env=env, stderr=stderr, start_new_session=own_session
            )
        else:
            self.process = fork_server.start(command, dict(env), stderr=stderr)
        return self.process

    def is_ready(self) -> bool:
        """It answers, and what it has read of its log is all of it."""
        assert self.process is not None
        assert self.process.poll() is None, self.log_text()
        try:
            return self.status()["state"] != "recovering"
        except OSError:
            return False

    def kill(self) -> None:
        """SIGKILL: to the daemon itself; a wrapper ends with it."""
        if self.process is not None:
            if self._is_wrapped:
                children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
                for child in children.read_text().split():
                    os.kill(int(child), signal.SIGKILL)
            else:
                self.process.kill()
            self.process.wait()
            self.process = None

    def terminate(self) -> int:
        """SIGTERM; its exit code once it is gone."""
        assert self.process is not None
        self.process.terminate()
        return self.ended()

    def ended(self) -> int:
        """Wait for its end; its exit code."""
        assert self.process is not None
        code = self.process.wait(PATIENCE_SECONDS)
        self.process = None
        return code

    def restart(self) -> DaemonProcess:
        """SIGKILL, and the next one on the same directory."""
        self.kill()
        return self.start()

    def freeze(self) -> None:
        """SIGSTOP, and wait until the kernel says that it stands."""
        assert self.process is not None
        pid = self.process.pid
        os.kill(pid, signal.SIGSTOP)

        def stands() -> bool:
            tasks = Path(f"/proc/{pid}/task")
            states = [(task / "stat").read_text().rpartition(")")[2][1] for task in tasks.iterdir()]
            return set(states) == {"T"}

        until(stands, "a daemon that stands still")

    def thaw(self) -> None:
        """SIGCONT."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """The end of the test: nothing of it is left running."""
        self.kill()
        if self._reader is not None:
            self._reader.close()
        shutil.rmtree(self.folder)

    # --- what it says ---------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """As `walld status --json` has it."""
        with Peer(self, "query") as peer:  # type: ignore[arg-type]
            return msgspec.msgpack.decode(peer.ask(wire.Status(1)), type=dict[str, Any])

    def metrics(self) -> dict[str, float]:
        """Sample (with its labels) to value."""
        with Peer(self, "query") as peer:  # type: ignore[arg-type]
            text = msgspec.msgpack.decode(peer.ask(wire.Metrics(1)), type=str)
        return {name: float(value) for name, value in re.findall(r"^(walld\S*) (\S+)$", text, re.M)}

    @property
    def reader(self) -> walld_client.Client:
        """A client of this process, which sends nothing and only asks."""
        if self._reader is None:
            self._reader = walld_client.connect(self.socket_path, timeout=PATIENCE_SECONDS)
        return self._reader

    def arrived(self, stream_id: str, last_seq: int) -> walld_client.PartialReply:
        """The reply of a stream once the daemon has it up to `last_seq`, whoever sends it again."""

        def there() -> walld_client.PartialReply | None:
            reply = self.reader.recover(stream_id=stream_id)
            return reply if reply is not None and reply.last_seq >= last_seq else None

        return until(there, f"{stream_id} up to {last_seq}")  # type: ignore[return-value]

    def orphan(self, stream_id: str) -> walld_client.PartialReply:
        """The reply of a stream once its owner is known to be gone: all it sent is read then."""

        def gone() -> walld_client.PartialReply | None:
            reply = self.reader.recover(stream_id=stream_id)
            return None if reply is None or reply.owner_alive else reply

        return until(gone, f"{stream_id} without an owner")  # type: ignore[return-value]

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        """Any other command of walld."""
        command = [sys.executable, "-m", "walld", *arguments]
        return fork_server.run(command, environment())

    def on_a_terminal(self, *arguments: str) -> tuple[int, bytes]:
        """The same on a terminal that it has for both of its outputs: exit code, what it wrote."""
        shown, slave = pty.openpty()
        as_it_is = termios.tcgetattr(slave)
        as_it_is[1] &= ~termios.OPOST  # a line's end as it was written
        termios.tcsetattr(slave, termios.TCSANOW, as_it_is)
        command = [sys.executable, "-m", "walld", *arguments]
        own = {**environment(), "TERM": "dumb", "NO_COLOR": "1"}
        ran = fork_server.start(command, own, stdout=slave, stderr=slave)
        os.close(slave)
        told = b""
        while True:
            try:
                told += os.read(shown, 65536)
            except OSError:  # the last writer has closed it
                break
        os.close(shown)
        return ran.wait(), told

    def recovered_json(self, session_id: str) -> bytes:
        """What `walld recover --json` prints."""
        done = self.cli("recover", session_id, "--json", "--socket", self.socket_path)
        assert done.returncode == 0, done
        return done.stdout

    def offline(self) -> list[walld_client.PartialReply]:
        """What the directory alone tells, as `walld recover --data` reads it; without a doubt."""
        found = find(str(self.data))
        assert found.doubts == []
        return [from_recovered(reply) for reply in found.replies]

    def wal_holds(self, text: bytes) -> bool:
        """Some segment has these bytes; one that goes meanwhile has not."""
        held = []
        for path in (self.data / "wal").iterdir():
            with suppress(FileNotFoundError):
                held.append(text in path.read_bytes())
        return any(held)

    def log_text(self) -> str:
        """What all daemons of this directory have logged."""
        return self.log_path.read_text(errors="replace")

    def logged(self, text: str) -> str:
        """Wait until one of them has logged this; all they have logged."""
        return logged(self.log_path, text)

    # --- what lies on the disk ------------------------------------------------------------------

    def files(self) -> list[Path]:
        """Every file below the data directory, whatever it is called."""
        # Not rglob: a directory may go between its listing and the look into it.
        found = [Path(at) / name for at, _, names in os.walk(self.data) for name in names]
        return [path for path in found if path.is_file()]

    def holding(self, needles: Iterable[bytes]) -> list[str]:
        """Files that hold any of these bytes, in their content or in their name."""
        wanted = list(needles)
        found = []
        for path in self.files():
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                continue  # reclaimed since it was listed
            name = str(path.relative_to(self.data))
            if any(needle in content or needle in os.fsencode(name) for needle in wanted):
                found.append(name)
        return found

    def partials(self) -> list[Path]:
        """Files below partials/ that are whole: a leading dot is one that is being made."""
        found = (self.data / "partials").rglob("*")
        return [path for path in found if path.is_file() and not path.name.startswith(".")]

    def segments(self) -> list[Path]:
        """Segments, oldest first."""
        return sorted((self.data / "wal").glob("*.wal"))

    def events_path(self, session_id: str) -> Path:
        """The file of a session of this user."""
        return self.data / "sessions" / str(os.geteuid()) / session_id / "events.jsonl"


MakeDaemon = Callable[..., DaemonProcess]
"""The fixture `make_daemon`."""
