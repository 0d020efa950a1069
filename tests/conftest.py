"""Makes what the tests share (`wal_files.py`, `daemon_process.py`) importable from each of them.

Also the fixtures of tests with real processes: whatever they start is ended with them, what the
client or the daemon logged is looked through for tracebacks, and no test runs for ever.

What holds of any input is tried with the same inputs each time, so that a red test is red because
of what was changed; `make search` looks for others.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from agents.process import Nursery, Obedient
    from daemon_process import DaemonProcess
    from wire_peer import Daemon

TEST_SECONDS_MAX = 90
os.environ["WALLD_APP"] = "tests"  # what a test and the programs it starts say is of one

# Who is started in the background of a script ignores SIGINT, by nohup(1) SIGHUP, and so would all
# that tests start.
with suppress(ValueError):  # not the main thread
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

with suppress(ImportError):  # the venvs of `make test-adapters` have none
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "the same inputs",
        derandomize="WALLD_SEARCH" not in os.environ,
        deadline=None,  # no timing decides a test, as the next one
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("the same inputs")


def pytest_configure(config: pytest.Config) -> None:
    """`-m "not sweep"` is what is tried at each change."""
    config.addinivalue_line("markers", "sweep: a minute of computing; a step of its own")


def pytest_collection_finish() -> None:
    """What was collected stays to the end: no later collection of garbage looks through it."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """The process that forks daemons ends with the one that runs the tests."""
    if "fork_server" in sys.modules:
        sys.modules["fork_server"].close()


@pytest.fixture
def time_limit() -> Iterator[None]:
    """A test that hangs fails, and says where every thread stood."""

    def late(_signal: int, _frame: FrameType | None) -> None:
        faulthandler.dump_traceback(file=sys.__stderr__)
        raise TimeoutError(f"the test did not end within {TEST_SECONDS_MAX} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(TEST_SECONDS_MAX)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(params=["asyncio+uvloop", "asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    """Each event loop the daemon runs on."""
    chosen: str = request.param
    return chosen


@pytest.fixture
def make_daemon(tmp_path: Path, time_limit: None) -> Iterator[Callable[..., DaemonProcess]]:
    """Daemons by their options; `make_daemon(...)` does not start them."""
    from daemon_process import DaemonProcess

    made: list[DaemonProcess] = []

    def make(*options: str, backend: str = "asyncio+uvloop") -> DaemonProcess:
        home = tmp_path / f"daemon{len(made)}"
        home.mkdir()
        made.append(DaemonProcess(home, *options, backend=backend))
        closing.callback(made[-1].close)
        return made[-1]

    with ExitStack() as closing:
        yield make
    for daemon in made:
        _check_log(daemon.log_path)


@pytest.fixture
def daemon(make_daemon: Callable[..., DaemonProcess]) -> DaemonProcess:
    """A daemon with nothing but defaults, running."""
    return make_daemon().start()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon for raw frames, for one test."""
    from wire_peer import Daemon

    with Daemon(tmp_path) as running:
        yield running


@pytest.fixture
def cli(daemon: DaemonProcess) -> Callable[..., tuple[int, str, str]]:
    """Exit code, stdout and stderr of a command; nothing of them acts on a terminal."""

    def run(*words: str) -> tuple[int, str, str]:
        done = daemon.cli(*words, "--socket", daemon.socket_path)
        out, err = done.stdout.decode(), done.stderr.decode()
        if words[:2] not in (("session", "events"), ("session", "export")):
            assert not {"\x1b", "\x07", "\u202e"} & set(out + err), words
        return done.returncode, out, err

    return run


@pytest.fixture
def daemon_on_each(make_daemon: Callable[..., DaemonProcess], backend: str) -> DaemonProcess:
    """A daemon with nothing but defaults, running, on each backend in turn."""
    return make_daemon(backend=backend).start()


@pytest.fixture
def make_agent(tmp_path: Path, time_limit: None) -> Iterator[Callable[..., Obedient]]:
    """Agents that do what a test writes: `make_agent(daemon, **spec).do("...")`."""
    from agents.process import Obedient

    def make(daemon: DaemonProcess, **spec: object) -> Obedient:
        agent = Obedient(tmp_path, daemon.socket_path, **spec)
        closing.callback(agent.close)
        return agent

    with ExitStack() as closing:
        yield make
    _check_log(tmp_path / "agents.log")


@pytest.fixture(params=["sync", "aio"])
def colour(request: pytest.FixtureRequest) -> str:
    """Each client: the blocking one, and that of asyncio called as if it blocked."""
    chosen: str = request.param
    return chosen


@pytest.fixture
def reader(daemon: DaemonProcess, colour: str) -> Iterator[Any]:
    """A client of this process, of each colour in turn."""
    from colours import connect
    from daemon_process import PATIENCE_SECONDS

    client = connect(colour, daemon.socket_path, timeout=PATIENCE_SECONDS)
    yield client
    client.let_go()


@pytest.fixture
def agent(daemon: DaemonProcess, make_agent: Callable[..., Obedient], colour: str) -> Obedient:
    """A process of the same colour, to be killed."""
    return make_agent(daemon, colour=colour)


@pytest.fixture
def make_nursery(tmp_path: Path, time_limit: None) -> Iterator[Callable[..., Nursery]]:
    """Nurseries of streaming agents."""
    from agents.process import Nursery

    made: list[Nursery] = []

    def make(daemon: DaemonProcess, prefix: str = "") -> Nursery:
        home = tmp_path / f"nursery{len(made)}"
        home.mkdir()
        made.append(Nursery(home, daemon, prefix))
        closing.callback(made[-1].close)
        return made[-1]

    with ExitStack() as closing:
        yield make
    for nursery in made:
        _check_log(nursery.log_path)


def _check_log(log: Path) -> None:
    """What went wrong in a thread of its own still fails the test."""
    text = log.read_text(errors="replace") if log.exists() else ""
    assert "Traceback" not in text, text[-4000:]


@pytest.fixture
def no_daemon_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of tests of commands that read a directory: a log's end is as it is, nobody is waited for."""
    from walld.cli.inspect import directory_scan

    monkeypatch.setattr(directory_scan, "TAIL_WAIT_SECONDS", 0)
