"""A session's files under crashes, errors and rot: E1 to E4, J1, N1 at each verb of a short life.

The log is a list here: what was appended durably to the ledger leaves it, the rest is appended
again after every crash, as a daemon does. So a file must end in all lines ever made, each once.
"""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from ledger_world import SESSION, UID, lines_of, verify

from walld.disk.medium import PROFILES, Crashed, Storage
from walld.disk.simulated import SimulatedDisk
from walld.errors import NewerVersion
from walld.ledger.line import header_line, line_seq
from walld.ledger.names import EVENTS_FILE, session_dir
from walld.ledger.snapshot import SnapshotStore
from walld.ledger.store import LedgerStore

HEADER = header_line(UID, SESSION)
LINES = lines_of(24, size=150)
WHOLE = HEADER + b"".join(LINES)
PATH = f"{session_dir(UID, SESSION)}/{EVENTS_FILE}"
CUTS = [2, 3, 9, 10, 16, 24]
"""Where the checkpoints end: some within a page, some across."""


class Life:
    """A daemon's share of a session: what the log still holds, and a process that can die."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.durable = 0

    def start(self) -> None:
        disk = SimulatedDisk(self.storage)
        self.store, self.snapshots = LedgerStore(disk), SnapshotStore(disk)
        self.store.sweep_temporary()
        tail = self.store.tail(UID, SESSION)
        assert tail is None or tail.last_seq >= self.durable
        snapshot = self.snapshots.read(UID, SESSION)
        if snapshot is not None:
            covered = b"".join([snapshot.base, *snapshot.deltas])
            assert covered == bytes(range(1, snapshot.covers_seq + 1))
            if self.durable >= snapshot.covers_seq:
                behind = self.store.read(
                    UID, SESSION, snapshot.covers_seq, from_offset=snapshot.covers_offset
                )
                # Behind what is durable a crash may have left holes, until it is appended again.
                lines = [line for line in behind.lines if line_seq(line) <= self.durable]
                assert lines == LINES[snapshot.covers_seq : self.durable]

    def checkpoint(self, last: int) -> None:
        if last <= self.durable:
            return
        self.store.append(UID, SESSION, self.durable + 1, LINES[self.durable : last])
        before, self.durable = self.durable, last
        tail = self.store.tail(UID, SESSION)
        assert tail is not None
        assert tail.last_seq >= last
        offset = len(HEADER) + sum(map(len, LINES[:last]))
        covered = self.snapshots.read(UID, SESSION)
        since = covered.covers_seq if covered is not None else 0
        delta = bytes(range(since + 1, last + 1))
        is_added = before != 9 and self.snapshots.add_increment(
            UID, SESSION, last, offset, delta, follows=since
        )
        if not is_added:
            self.snapshots.write_base(UID, SESSION, last, offset, bytes(range(1, last + 1)))

    def run(self) -> None:
        for last in CUTS:
            self.checkpoint(last)

    def check(self) -> None:
        content = self.storage.files()[PATH]
        assert content == WHOLE
        assert len(verify(content)) == len(LINES)
        assert self.store.read(UID, SESSION)[:4] == (LINES, [], len(WHOLE), 0)


def verbs() -> int:
    storage = Storage(Random(0))
    life = Life(storage)
    life.start()
    life.run()
    life.check()
    return storage.ops


@pytest.mark.parametrize("profile", sorted(PROFILES))
@pytest.mark.parametrize("how", ["kill", "cut_power"])
def test_a_crash_at_each_verb_loses_and_doubles_nothing(profile: str, how: str) -> None:
    crashes = 0
    for at in range(1, verbs() + 1):
        storage = Storage(Random(at), PROFILES[profile])
        life = Life(storage)
        for crash_at in (at, at // 2 + 3, at // 3 + 2):  # and again while it is made good
            storage.crash_at = storage.ops + crash_at
            try:
                life.start()
                life.run()
            except Crashed:
                crashes += 1
            getattr(storage, how)()
            files = storage.files()
            if life.durable:
                promised = HEADER + b"".join(LINES[: life.durable])
                assert files[PATH].startswith(promised), (at, crash_at)
            # A checkpoint a crash interrupted is made again, whatever the cuts are by then.
            if life.durable < 16:
                life.start()
                life.checkpoint(min(24, life.durable + 4))
        life.start()
        life.run()
        life.check()
        storage.cut_power()
        life.start()
        life.check()
    assert crashes > 60


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("profile", ["ext4", "adversarial", "nfs"])
def test_an_error_at_each_verb_leaves_nothing_to_trip_over(number: int, profile: str) -> None:
    for at in range(1, verbs() + 1):
        storage = Storage(Random(at), PROFILES[profile])
        fails_at = {at, at + 7, at + 8}
        storage.fail = lambda verb, path, s=storage, f=fails_at: number if s.ops in f else 0
        life = Life(storage)
        for _ in range(6):
            try:
                if not hasattr(life, "store"):
                    life.start()
                life.run()
                break
            except OSError:
                pass
        storage.fail = lambda verb, path: 0
        if not hasattr(life, "store"):
            life.start()
        life.run()
        life.check()
        storage.cut_power()
        life.start()
        life.check()
        names = [path for path in storage.files() if path.endswith(".tmp")]
        assert names == []


def test_the_harness_finds_a_store_that_syncs_nothing() -> None:
    """Canary: on a disk whose sync does nothing, what was promised is missing."""
    alarms = 0
    for seed in range(10):
        storage = Storage(Random(seed), PROFILES["adversarial"])
        storage.profile = PROFILES["adversarial"].__class__(
            512, ("lost", "zero"), ordered=False, ignores_sync=True
        )
        life = Life(storage)
        life.start()
        life.run()
        storage.cut_power()
        try:
            life.start()
            life.check()
        except (AssertionError, FileNotFoundError, KeyError):
            alarms += 1
    assert alarms > 5


# --- rot ------------------------------------------------------------------------------------------

SMALL = lines_of(6)
SMALL_WHOLE = HEADER + b"".join(SMALL)


def rotten(change: Callable[[bytearray], None]) -> tuple[Storage, LedgerStore]:
    storage = Storage(Random(1))
    store = LedgerStore(SimulatedDisk(storage))
    store.append(UID, SESSION, 1, SMALL)
    change(storage.node(PATH).data)
    return storage, store


def reported(store: LedgerStore, after: int = 0) -> tuple[list[bytes], int]:
    """Lines, and how many of those asked for are said to be missing, torn ones not counted."""
    reading = store.read(UID, SESSION, after)
    missing = sum(max(0, item.last_seq - item.first_seq + 1) for item in reading.breaks)
    return reading.lines, missing + (100 if reading.torn_bytes else 0)


def test_every_bit_that_flips_is_reported_or_harmless() -> None:
    storage, store = rotten(lambda data: None)
    data = storage.node(PATH).data
    for at in range(len(SMALL_WHOLE) * 8):
        data[at // 8] ^= 1 << at % 8
        try:
            reading = store.read(UID, SESSION)
        except NewerVersion:
            assert at // 8 < len(HEADER)
        else:
            assert all(line in SMALL for line in reading.lines), at
            assert len(reading.lines) >= 5
            assert reading.breaks or reading.torn_bytes, at
            assert [line_seq(line) for line in reading.lines] == sorted(
                map(line_seq, reading.lines)
            )
            if len(reading.lines) < 6:
                lost = at // 8 - len(HEADER)
                hit = next(seq for seq in range(7) if lost < sum(map(len, SMALL[:seq])))
                for item in reading.breaks:
                    assert item.first_seq <= hit <= item.last_seq
        data[at // 8] ^= 1 << at % 8


def test_every_length_reads_as_a_beginning() -> None:
    for length in range(len(SMALL_WHOLE)):
        storage, store = rotten(lambda data, length=length: data.__delitem__(slice(length, None)))
        reading = store.read(UID, SESSION)
        assert reading.lines == SMALL[: len(reading.lines)]
        ends = [len(HEADER) + sum(map(len, SMALL[:seq])) for seq in range(7)]
        if length not in ends:
            assert reading.torn_bytes or [item.why for item in reading.breaks] == ["header"]
        elif length > len(HEADER):
            assert reading.breaks == []
        store.append(UID, SESSION, 1, SMALL)
        assert storage.files()[PATH] == SMALL_WHOLE


def test_rot_then_reading_behind_any_seq_then_repair() -> None:
    for seed in range(300):
        random = Random(seed)
        storage, store = rotten(lambda data: None)
        for _ in range(random.randint(1, 3)):
            data = storage.node(PATH).data
            at = random.randrange(len(HEADER), len(data))
            data[at : at + random.choice([1, 5, 300])] = random.randbytes(
                random.choice([1, 5, 300])
            )
        whole, _ = reported(store)
        for after in range(7):
            lines, missing = reported(store, after)
            assert lines == [line for line in whole if line_seq(line) > after], (seed, after)
            assert missing >= 100 or len(lines) + missing >= 6 - after, (seed, after)
        store.repair(UID, SESSION)
        assert reported(store) == (whole, 0)
        assert store.read(UID, SESSION).breaks == []
        rest = SMALL[line_seq(whole[-1]) :] if whole else SMALL
        if rest:
            store.append(UID, SESSION, line_seq(rest[0]), rest)
            assert reported(store) == ([*whole, *rest], 0)


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_jq_reads_it(tmp_path: Path) -> None:
    path = tmp_path / EVENTS_FILE
    path.write_bytes(WHOLE)
    asked = ["jq", "-c", 'select(.type == "message") | [.seq, .payload.role]', str(path)]
    out = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.splitlines()
    assert [json.loads(line) for line in out] == [[seq, "user"] for seq in range(1, 25)]
