"""Histories of a log with kills, power cuts, failed syncs and restarts, against a model.

The model keeps what was synced. After every crash: no synced batch is missing, nothing is called
corrupt, nothing is invented. And once damage is put into a synced batch, it is always called so.
"""

from __future__ import annotations

from random import Random

import pytest
from wal_files import BytesDisk, LogWriter, batch_of

from walld.wal.encode import Batch, settled_batches
from walld.wal.layout import BATCH_HEADER_BYTES, BatchKind
from walld.wal.log_scan import LogScan
from walld.wal.scan import ScannedBatch
from walld.wal.verdict import Verdict

SECTOR = 512


class Machine(LogWriter):
    """A log writer on a disk that forgets. Follows FORMAT.md, "Rules for a writer"."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.random = random
        self.durable: dict[int, bytes] = {}
        """What each file holds after a power cut, at least."""
        self.written: dict[int, bytes] = {}
        self.promised: dict[int, bytes] = {}
        self.unsynced: list[Batch] = []
        self.poisoned: set[int] = set()
        self.synced_no = 0
        self.settles = True

    def start(self) -> Verdict:
        scan = LogScan(BytesDisk(self.files), bytes(range(16)))
        found = {batch.batch_no: bytes(batch.payload) for _, batch in scan}
        verdict = scan.verdict()
        for number, payload in self.promised.items():
            if number > self._base():
                assert found.get(number) == payload, f"batch {number} was promised"
        for number, payload in found.items():
            assert self.written.get(number, payload) == payload, f"batch {number} is invented"
        self.written = found
        self.synced_no = verdict.synced_no
        self.unsynced = []
        # The old segments are synced before the first sync of the new one is believed.
        self.durable = {item: bytes(content) for item, content in self.files.items()}
        self.poisoned.clear()
        self.open(verdict.last_batch_no + 1)
        if self.settles:
            for batch in settled_batches(self.next_no, verdict.rows()):
                self.write(batch)
        return verdict

    def _base(self) -> int:
        """Batches up to here went with their segments."""
        return int.from_bytes(bytes(self.files[min(self.files)])[40:48], "little")

    def open(self, next_no: int) -> None:
        segment_id = self.segment(max(self.files, default=0) + 1, next_no)
        # Created, header and name synced, before anything in it is promised.
        self.durable[segment_id] = bytes(self.files[segment_id])

    def write(self, batch: Batch) -> None:
        self.put(batch, self.synced_no)
        self.written[batch.batch_no] = batch.payload
        self.unsynced.append(batch)

    def append(self) -> None:
        size = self.random.choice([0, 20, 700, 3000])
        self.write(batch_of(self.next_no, [self.random.randbytes(size)]))

    def sync(self) -> None:
        for segment_id, content in self.files.items():
            if segment_id not in self.poisoned:
                self.durable[segment_id] = bytes(content)
        if self.unsynced:
            self.synced_no = self.unsynced[-1].batch_no
        for batch in self.unsynced:
            if batch.kind == BatchKind.RECORDS:  # a scan keeps the log's own batches to itself
                self.promised[batch.batch_no] = batch.payload
        self.unsynced = []

    def fail_sync(self) -> None:
        """Everything unsynced is written again, under its own numbers, in a new segment."""
        self.poisoned.add(max(self.files))
        again, self.unsynced = self.unsynced, []
        self.open(again[0].batch_no if again else self.next_no)
        for batch in again:
            self.write(batch)

    def unlink(self) -> None:
        oldest = min(self.files)
        if len(self.files) > 2 and not self.unsynced:
            del self.files[oldest], self.durable[oldest]

    def kill(self) -> None:
        """The last write may be torn at any byte; the rest is in the page cache."""
        last = max(self.files)
        file = self.files[last]
        if self.unsynced and self.places[-1].segment_id == last:
            torn = self.random.randrange(self.places[-1].length + 1)
            self.files[last] = file[: len(file) - torn]

    def cut_power(self) -> None:
        """Of what was not synced, each sector is there, zero or garbage, and the end anywhere."""
        for segment_id, content in self.files.items():
            kept = bytearray(content)
            safe = len(self.durable[segment_id])
            for start in range(safe - safe % SECTOR, len(kept), SECTOR):
                start, end = max(start, safe), min(start - start % SECTOR + SECTOR, len(kept))
                fate = self.random.choice(["kept", "zero", "garbage"])
                if fate != "kept":
                    gone = bytes(end - start)
                    kept[start:end] = gone if fate == "zero" else self.random.randbytes(len(gone))
            self.files[segment_id] = kept[: self.random.randint(safe, len(kept))]

    def live(self, steps: int) -> None:
        for _ in range(steps):
            draw = self.random.random()
            if draw < 0.7:
                self.append()
            elif draw < 0.85:
                self.sync()
            elif draw < 0.92:
                if self.random.random() < 0.5:
                    self.sync()
                self.open(self.next_no)
            elif draw < 0.96:
                self.fail_sync()
            else:
                self.unlink()


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_crashes_lose_nothing_promised_and_look_corrupt_never(first: int) -> None:
    for seed in range(first, first + 50):
        machine = Machine(Random(seed))
        for crash in range(6):
            verdict = machine.start()
            assert verdict.corrupt == [], (seed, crash)
            assert verdict.unreadable == [], (seed, crash)
            machine.live(machine.random.randrange(25))
            machine.random.choice([machine.kill, machine.cut_power])()


def test_the_harness_finds_a_start_that_does_not_settle() -> None:
    """Canary: without SETTLED batches a torn number looks corrupt once later ones are synced."""
    alarms = 0
    for seed in range(60):
        machine = Machine(Random(seed))
        machine.settles = False
        for _ in range(6):
            alarms += bool(machine.start().corrupt)
            machine.live(machine.random.randrange(25))
            machine.random.choice([machine.kill, machine.cut_power])()
    assert alarms > 0


def test_damage_to_a_synced_batch_is_always_called_corrupt() -> None:
    for seed in range(40):
        machine = Machine(Random(seed))
        for _ in range(3):
            machine.start()
            machine.live(20)
            machine.random.choice([machine.kill, machine.cut_power])()
        machine.start()
        machine.append()
        machine.sync()
        for _ in range(20):
            check_one_flip(machine)


def check_one_flip(machine: Machine) -> None:
    scan = LogScan(BytesDisk(machine.files), bytes(range(16)))
    found: list[tuple[int, ScannedBatch]] = list(scan)
    before = scan.verdict(machine.synced_no)
    once = [item for item in found if scanned_once(scan, item[1].batch_no)]
    segment_id, batch = machine.random.choice(once)
    file = bytearray(machine.files[segment_id])
    at = machine.random.randrange(
        batch.offset, batch.offset + BATCH_HEADER_BYTES + len(batch.payload)
    )
    file[at] ^= 1 << machine.random.randrange(8)
    damaged = BytesDisk({**machine.files, segment_id: file})
    again = LogScan(damaged, bytes(range(16)))
    left = {item.batch_no for _, item in again}
    assert batch.batch_no not in left
    verdict = again.verdict(machine.synced_no)
    assert before.corrupt == []
    reported = [(item.first_no, item.last_no) for item in verdict.corrupt]
    assert any(first <= batch.batch_no <= last for first, last in reported), (segment_id, verdict)


def scanned_once(scan: LogScan, batch_no: int) -> bool:
    """True where no second copy of the batch stands anywhere."""
    found = [
        facts
        for facts in scan.segments
        for first, last in facts.numbers
        if first <= batch_no <= last
    ]
    return len(found) == 1
