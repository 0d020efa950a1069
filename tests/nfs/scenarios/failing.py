"""The server's device fails for a while: the client's COMMIT is answered with EIO.

Owns: the device that has no room behind its blocks, what must be said meanwhile, and what must be
there afterwards, read from the device again. Refuses: local devices that fail (`kernel.disks`).

The server has taken the writes by then, and its page cache serves them; a second COMMIT of them
would be answered well, and they would be nowhere ("fsyncgate", across the wire). So pages are
dropped at the server before the last look.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from kernel import mounts
from kernel.disks import fill

from nfs.agents import END, Pace, named
from nfs.exports import Export
from nfs.trial import Trial, staged

__all__ = ["run"]

_MEGABYTES: Final = 24
_TRIES: Final = 5
_FAILING_SECONDS: Final = 8.0
_DROP_CACHES: Final = Path("/proc/sys/vm/drop_caches")


def run() -> list[str]:
    """Its figures."""
    with ExitStack() as stack:
        store = stack.enter_context(mounts.tmpfs((_MEGABYTES + 2) * 1024))
        device = mounts.LoopMount("ext4", store, _MEGABYTES)
        stack.callback(device.close)
        device.mount()
        device.page_by_page()
        trial = stack.enter_context(staged("failing", export=Export(device.path)))
        _run(trial, device, store / "ballast")
        return trial.figures


def _run(trial: Trial, device: mounts.LoopMount, ballast: Path) -> None:
    daemon = trial.started()
    device.trim()  # with nobody writing: what comes later finds its room in the image gone
    talker = trial.spawn(daemon, named("t", 1500, 4000), Pace(2, 30, 30, drain_seconds=0.1))
    trial.until(talker.board.is_told, "a first ack")
    for _ in range(_TRIES):  # what was trimmed is given back bit by bit
        fill(ballast, leave=0)
        time.sleep(0.1)
    try:
        seen = trial.until(lambda: daemon.status()["state"] != "ok", "trouble that is said")
        status = daemon.status()
        trial.figures.append(f"{status['state']} after {seen:.1f} s: {status['trouble']}")
        time.sleep(_FAILING_SECONDS)
    finally:
        ballast.unlink()
    log = trial.log(daemon)
    failed = len(re.findall("sync up to batch .*Input/output error", log))
    assert failed, f"no sync has failed: {log[-1000:]}"
    trial.figures.append(f"{failed} syncs were answered with EIO")
    back = trial.until(lambda: daemon.status()["state"] == "ok", "a state that is ok")
    trial.figures.append(f"ok {back:.1f} s after the device works again")
    talker.reins.wish = END
    trial.until(lambda: talker.board.is_finished, "an agent that ends")
    trial.end(daemon)
    os.sync()  # syncfs(2) would tell of what has failed before
    _DROP_CACHES.write_text("3\n")
    trial.check_stored("synced")
    trial.figures.append("the same again from the device, the server's pages dropped")
