"""A daemon, a replay server and a nursery of programs for a whole module: SDKs import slowly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import walld_client
from daemon_process import DaemonProcess

from adapters.replay import Replay
from adapters.trial import Nursery


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    with Replay() as running:
        yield running


@pytest.fixture(scope="module")
def kept_by(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon with nothing but defaults, running."""
    daemon = DaemonProcess(tmp_path_factory.mktemp("daemon")).start()
    try:
        yield daemon
    finally:
        daemon.close()
    assert "Traceback" not in daemon.log_text(), daemon.log_text()[-4000:]


@pytest.fixture
def walld(kept_by: DaemonProcess) -> Iterator[walld_client.Client]:
    """A client of this process."""
    client = walld_client.connect(kept_by.socket_path)
    yield client
    client.close()


@pytest.fixture(scope="module")
def make_program(
    tmp_path_factory: pytest.TempPathFactory, kept_by: DaemonProcess, replay: Replay
) -> Iterator[Callable[[str], Nursery]]:
    """Nurseries by the module they run."""
    made: list[Nursery] = []

    def make(module: str) -> Nursery:
        home: Path = tmp_path_factory.mktemp(module)
        made.append(Nursery(home, module, kept_by, replay))
        closing.callback(made[-1].close)
        return made[-1]

    with ExitStack() as closing:
        yield make
    for nursery in made:
        log = nursery.log_path.read_text(errors="replace")
        assert "Traceback" not in log, log[-4000:]


@pytest.fixture(autouse=True)
def _limited(time_limit: None) -> None:
    """No test here runs for ever."""
