"""Kills writers in the middle of a write and checks what is left of their logs.

Owns: a child process that appends batches as fast as it can, its SIGKILL at a random moment, and
the look at its log: everything it said was written must be there, and nothing may be called
corrupt. Refuses: power cuts; only a machine that loses power can show those.

The child is walld's own: its encoder, its files, its `write(2)`. It syncs now and then and says so
in its headers as the daemon does, so that the rule which tells torn from corrupt is tried as well.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

from walld.cli.selftest.termination import held, opened
from walld.disk.real import RealDisk
from walld.wal.encode import Batch, BatchEncoder
from walld.wal.layout import SEGMENT_HEADER_BYTES, WAL_DIR
from walld.wal.log_scan import LogScan
from walld.wal.segment_files import SegmentFiles

__all__ = ["Kills", "append", "kill_writers"]

LOG = b"selftest" * 2
BATCHES_MAX = 200
SYNC_EVERY = 16
_SIZES = (300, 3_000, 12_000, 100_000, 200_000)
_NUMBER_BYTES = 8
KILL_AFTER_SECONDS_MAX = 0.02
START_SECONDS_MAX = 10.0


@dataclass(slots=True)
class Kills:
    """What was seen. lost: what was written and is not there; corrupt: false alarms."""

    kills: int = 0
    torn: int = 0
    batches: int = 0
    lost: int = 0
    corrupt: int = 0
    trouble: str | None = None


def _body(number: int) -> bytes:
    """What batch `number` holds: another size and another content each."""
    size = _SIZES[number % len(_SIZES)]
    return (b"%016d" % number) * (size // 16)


def _batch(number: int) -> Batch:
    builder = BatchEncoder()
    builder.add(1, number, number, 0, _body(number))
    return builder.seal(number)


def append(root: str) -> None:
    """The child: writes, and says each number on stdout once its write has returned."""
    disk = RealDisk(root)
    disk.make_dir(WAL_DIR)
    files = SegmentFiles(disk, LOG)
    files.create(1, 0, 1)
    offset, synced_no = SEGMENT_HEADER_BYTES, 0
    for number in range(1, BATCHES_MAX + 1):
        batch = _batch(number)
        files.write(1, batch, synced_no, offset)
        offset += len(batch)
        os.write(1, number.to_bytes(_NUMBER_BYTES, "little"))
        if number % SYNC_EVERY == 0:
            files.sync([1])
            synced_no = number
    time.sleep(START_SECONDS_MAX)  # until it is killed


def kill_writers(folder: str, until: float) -> Kills:
    """Kill one writer after the other, each in a folder of its own, until that monotonic time."""
    seen = Kills()
    rng = random.Random()
    while seen.trouble is None and (seen.kills == 0 or time.monotonic() < until):
        root = os.path.join(folder, f"torn-{seen.kills}")
        try:
            _one(root, rng, seen)
        except OSError as error:
            seen.trouble = str(error)
        finally:
            shutil.rmtree(root, ignore_errors=True)
    return seen


def _one(root: str, rng: random.Random, seen: Kills) -> None:
    code = "import sys; from walld.cli.selftest.torn_write import append; append(sys.argv[1])"
    path = os.pathsep.join(part for part in sys.path if part)
    # A writer that was begun is killed, whatever ends this: it would go on in a folder that goes.
    with (
        held() as before,
        subprocess.Popen(
            [sys.executable, "-c", code, root],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        ) as child,
    ):
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            with opened(before):
                first = child.stdout.read(_NUMBER_BYTES)
                time.sleep(rng.uniform(0, KILL_AFTER_SECONDS_MAX))
        finally:
            child.send_signal(signal.SIGKILL)
        said = first + child.stdout.read()
        complaint = child.stderr.read().decode("utf-8", "backslashreplace").strip()
        child.wait()
    if complaint:
        seen.trouble = complaint.splitlines()[-1]
        return
    seen.kills += 1
    _look(root, len(said) // _NUMBER_BYTES, seen)


def _look(root: str, written: int, seen: Kills) -> None:
    """Scan what is left: batches 1 to `written` must be there, whole."""
    with RealDisk(root, read_only=True) as disk:
        log = LogScan(disk, LOG)
        found = set()
        for _, batch in log:
            record = next(batch.records)
            if batch.body(record.offset, record.body_bytes) == _body(batch.batch_no):
                found.add(batch.batch_no)
        verdict = log.verdict()
    seen.batches += written
    seen.lost += len(set(range(1, written + 1)) - found)
    seen.torn += bool(verdict.torn)
    seen.corrupt += len(verdict.corrupt)
