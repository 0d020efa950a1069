"""After a daemon's death: how fast does the next one read its log, and when does it answer?

A log of 256 MB is made with the daemon's own encoder: replies of 2, 20 and 120 s at 60 tokens a
second, flushed four times a second; the short ones among them were released since. The owner of the
live ones is this process, so they are live again. Page cache warm; each start gets a fresh copy,
synced as the log of a killed daemon is but for its last second.
Timed from exec: until connect() is taken, and until the client's recover() says what a known reply
holds. A daemon that reads its log keeps a question waiting for 1.5 s and then answers
"recovering", which counts as no answer: it is asked again.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from walld_client import Unavailable, connect

from bench.daemon import PATIENCE_SECONDS, Daemon
from bench.report.numbers import median, spread
from bench.report.table import Figure
from bench.run import Run
from walld import limits
from walld.daemon.transport import credentials
from walld.disk.lock import Owner
from walld.disk.real import RealDisk
from walld.wal import records
from walld.wal.encode import BatchEncoder
from walld.wal.layout import SEGMENT_HEADER_BYTES, WAL_DIR, Flag
from walld.wal.segment_files import SegmentFiles

__all__ = ["make_log", "measure", "start_on"]

_TOKENS_A_FLUSH = 15
_LENGTHS = (8, 80, 480)
"""Flushes of a reply of 2, 20 and 120 s."""
_STREAMS = 4000
_KNOWN = "known"


class _Speaker:
    """One stream of the made-up log."""

    def __init__(self, no: int, flushes: int, owner: records.Owner, stream_id: str) -> None:
        self.no, self.left = no, flushes
        self.next_seq = 0
        self._owner = owner
        self._id = stream_id
        self._begun_at_ms = 0

    def record(self, at_ms: int) -> tuple[int, int, int, bytes]:
        """(first_seq, last_seq, flags, body) of its next flush."""
        first, flags, items = self.next_seq, 0, []
        if first == 0:
            self._begun_at_ms = at_ms
            begin = records.Begin(
                os.geteuid(), bytes(15) + b"\1", self.no, self._id, f"session-{self._id}",
                None, None, None, at_ms, self._owner,
            )  # fmt: skip
            items.append(records.encode_item(begin))
            flags = Flag.BEGIN
            self.next_seq = 1
        run = records.Text(
            self.next_seq,
            at_ms - self._begun_at_ms,
            b"\5" * _TOKENS_A_FLUSH,
            b"abcde" * _TOKENS_A_FLUSH,
        )
        items.append(records.encode_item(run))
        self.next_seq += _TOKENS_A_FLUSH
        self.left -= 1
        body = records.pack_body(self.no, records.join_items(items))
        return first, self.next_seq - 1, flags, body


def _records(owner: records.Owner) -> Iterator[tuple[int, int, int, int, bytes]]:
    """(stream_no, first_seq, last_seq, flags, body) without end, as flushes follow each other."""
    chance = random.Random(7)
    last_no = _STREAMS
    speakers = []
    for no in range(1, _STREAMS + 1):
        flushes = _LENGTHS[no % 3]
        speakers.append(_Speaker(no, chance.randrange(flushes) + 1, owner, f"r{no}"))
    # The one that is asked for: its beginning is the oldest record, and it is never released.
    speakers[0] = _Speaker(1, 1 << 30, owner, _KNOWN)
    at_ms = time.time_ns() // 1_000_000
    while True:
        at_ms += 250
        for at, speaker in enumerate(speakers):
            if speaker.left:
                yield speaker.no, *speaker.record(at_ms)
                continue
            seq = speaker.next_seq
            yield speaker.no, seq, seq, Flag.RELEASED, b""
            last_no += 1
            speakers[at] = _Speaker(last_no, _LENGTHS[last_no % 3], owner, f"r{last_no}")


def make_log(data: Path, size: int) -> tuple[int, int]:
    """A data directory with a log of `size` bytes. (records in it, seq the known reply is at)."""
    data.mkdir(mode=0o700)
    disk = RealDisk(str(data))
    disk.make_dir(WAL_DIR)
    holder = Owner(str(data), uuid.uuid4().bytes)
    files = SegmentFiles(disk, holder.log_uuid)
    pidfd = os.pidfd_open(os.getpid())
    owner = credentials.describe(os.getpid(), pidfd, credentials.boot_id())
    os.close(pidfd)
    builder, count, written, known = BatchEncoder(), 0, 0, 0
    segment, batch_no, offset = 0, 1, limits.SEGMENT_BYTES_MAX
    for no, first, last, flags, body in _records(owner):
        if not builder.fits(no, first, last, len(body)):
            batch = builder.seal(batch_no)
            if offset + len(batch) > limits.SEGMENT_BYTES_MAX:
                segment, offset = segment + 1, SEGMENT_HEADER_BYTES
                files.create(segment, batch_no - 1, holder.epoch)
            files.write(segment, batch, batch_no - 1, offset)
            offset, written, batch_no = offset + len(batch), written + len(batch), batch_no + 1
            builder = BatchEncoder()
            if written >= size:
                break
        builder.add(no, first, last, flags, body)
        count += 1
        known = last if no == 1 else known
    files.sync(list(range(1, segment + 1)))
    files.close()
    holder.close()
    return count, known


def _until_listening(path: str) -> float:
    deadline = time.perf_counter() + PATIENCE_SECONDS
    while (now := time.perf_counter()) < deadline:
        with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
            probe.connect(path)
            return now
        time.sleep(0.002)
    raise RuntimeError("the daemon does not listen")


def _until_answered(path: str, last_seq: int) -> float:
    deadline = time.perf_counter() + PATIENCE_SECONDS
    client = connect(socket=path, timeout=10.0)
    try:
        while time.perf_counter() < deadline:
            with suppress(Unavailable):
                reply = client.recover(stream_id=_KNOWN)
                assert reply is not None, "a reply that is in the log"
                assert reply.last_seq == last_seq, (reply.last_seq, last_seq)
                return time.perf_counter()
    finally:
        client.close()
    raise RuntimeError("the daemon does not answer")


def start_on(run: Run, home: Path, last_seq: int) -> dict[str, float]:
    """One start on a copy of the log that `home` has, killed at once: what it took, in seconds,
    the rate of its scan in MB/s, and the live streams it found."""
    copy = run.home()
    shutil.copytree(home / "data", copy / "data")
    os.sync()  # a killed daemon's log was synced but for its last second; a fresh copy is not
    daemon = Daemon(copy, run.cores.daemon, wait=False)
    try:
        listening = _until_listening(daemon.socket_path)
        before = daemon.used()
        answered = _until_answered(daemon.socket_path, last_seq)
        cost = daemon.used().since(before)
        status = daemon.status()
        told: dict[str, float] = status["start"]  # type: ignore[assignment]
        live = status["streams_live"]
    finally:
        daemon.kill()
        shutil.rmtree(copy)
    return {
        "listen": listening - daemon.started,
        "answer": answered - listening,
        "rate": told["scanned_bytes"] / told["seconds"] / 1e6,
        "cpu_rate": told["scanned_bytes"] / cost.ran / 1e6,
        "waited": cost.waited,
        "live": live,
    }


def measure(run: Run) -> list[Figure]:
    """Reading, listening, answering."""
    size = int(run.pick(256, 32)) * 1_000_000
    rounds = int(run.pick(5, 2))
    home = run.home()
    run.step(0.0, f"a log of {size / 1e6:.0f} MB")
    count, last_seq = make_log(home / "data", size)
    starts = []
    for at in range(rounds):
        run.step(0.4 + 0.6 * at / rounds, f"start {at + 1} of {rounds}")
        starts.append(start_on(run, home, last_seq))
    rates, cpu_rates, listens, answers, waits = (
        [start[name] for start in starts]
        for name in ("rate", "cpu_rate", "listen", "answer", "waited")
    )
    note = (
        f"{count:,} records of {size / count:.0f} bytes, {starts[0]['live']:,.0f} live streams; "
        f"limited by the index, a few appends a record; {median(waits):.2f} s without its core"
    )
    megabytes = f"{size / 1e6:.0f} MB"
    return [
        Figure("restart", f"scan of {megabytes}, until agents are let in", median(rates), "MB/s",
               400.0, most=False, spread=spread(rates), note=note),
        Figure("restart", f"{megabytes} by the daemon's CPU until it answers", median(cpu_rates),
               "MB/s", spread=spread(cpu_rates)),
        Figure("restart", "exec to listening", median(listens), "s", spread=spread(listens),
               note="exec to listening is the start of Python and its imports"),
        Figure("restart", f"listening to first answer, {megabytes}", median(answers), "s", 1.0,
               spread=spread(answers)),
    ]  # fmt: skip
