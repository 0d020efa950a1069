"""Who knows of another log, as a daemon keeps it: what comes before it has looked, and behind."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import anyio
import pytest

from walld.daemon import event_loop
from walld.daemon.startup.reported_logs import OtherLogs
from walld.daemon.storage.disk_threads import ThreadWorker
from walld.disk.lock_record import LockRecord
from walld.disk.real import RealDisk
from walld.disk.reserve import Reserve
from walld.recovery.other_logs import read_made, rows

OWN, OTHER = bytes(range(16)), bytes(range(16, 32))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
@pytest.mark.parametrize("row_is_there", [False, True])
async def test_what_is_heard_before_the_directory_is_looked_at_counts(
    tmp_path: Path, row_is_there: bool
) -> None:
    """The door is open to newcomers first: the look must not take their word away."""
    with RealDisk(str(tmp_path / "data")) as disk:
        if row_is_there:
            disk.make_dir("quarantine")
            disk.replace("quarantine/other-log.7", b"an earlier start wrote it\n")
        worker, held = ThreadWorker(), threading.Event()
        other_logs = OtherLogs(OWN, disk, Reserve(disk), worker, lambda: None)
        with event_loop.known():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(worker.run, held.wait)
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(partial(other_logs.begin, "data", LockRecord(0, OWN), 1_000))
                await anyio.wait_all_tasks_blocked()
                assert other_logs.heard(7, OTHER)
                assert other_logs.heard(7, OTHER) is False, "said once"
                held.set()
        assert other_logs.doubt(7) is not None
        assert other_logs.doubt(8) is None
        assert other_logs.made_at_ms == 1_000
        assert rows(disk) == {7}
        made = read_made(disk)
        assert (made.at_ms, made.told) == (1_000, [(7, [OTHER.hex()])])
        assert other_logs.heard(7, OTHER) is False, "it is known"
