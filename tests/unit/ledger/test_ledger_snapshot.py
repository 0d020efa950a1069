"""Snapshots: O1 what is read was written, up to some increment, none left out; never an error."""

from __future__ import annotations

import errno
import zlib
from random import Random

import pytest
from ledger_world import SESSION, UID

from walld.disk.medium import PROFILES, Storage
from walld.disk.simulated import SimulatedDisk
from walld.ledger.names import session_dir
from walld.ledger.snapshot import SNAPSHOT_HEADER_BYTES, Snapshot, SnapshotStore

PATH = f"{session_dir(UID, SESSION)}/snapshot"
BASE = bytes(range(200))


def made() -> tuple[Storage, SnapshotStore]:
    storage = Storage(Random(5))
    return storage, SnapshotStore(SimulatedDisk(storage))


def filled(base: bytes = BASE) -> tuple[Storage, SnapshotStore]:
    storage, store = made()
    store.write_base(UID, SESSION, 50, 5000, base)
    assert store.add_increment(UID, SESSION, 60, 6000, b"first", follows=50)
    assert store.add_increment(UID, SESSION, 70, 7000, b"", follows=60)
    assert store.add_increment(UID, SESSION, 80, 8000, b"third", follows=70)
    return storage, store


def test_what_is_written_is_read() -> None:
    storage, store = made()
    assert store.read(UID, SESSION) is None
    assert not store.add_increment(UID, SESSION, 1, 1, b"x", follows=0)
    assert storage.files() == {}
    _, store = filled()
    assert store.read(UID, SESSION) == Snapshot(BASE, [b"first", b"", b"third"], 80, 8000, False)
    store.write_base(UID, SESSION, 90, 9000, b"new")
    assert store.read(UID, SESSION) == Snapshot(b"new", [], 90, 9000, False)
    store.remove(UID, SESSION)
    store.remove(UID, SESSION)
    assert store.read(UID, SESSION) is None


@pytest.mark.parametrize(("base", "delta"), [(480_000, 12_000), (1000, 10_000)])
def test_the_base_is_due_when_the_increments_outgrow_their_share(base: int, delta: int) -> None:
    storage, store = made()
    store.write_base(UID, SESSION, 1, 1, Random(1).randbytes(base))
    asked = [
        store.add_increment(UID, SESSION, seq, seq, bytes(delta), follows=seq - 1)
        for seq in range(2, 7)
    ]
    assert asked == [True, True, True, False, False]
    found = store.read(UID, SESSION)
    assert found is not None
    assert (len(found.deltas), found.is_due) == (5, True)
    assert len(storage.files()[PATH]) < base + 5 * delta + 250


@pytest.mark.parametrize("size", [0, 1, 500, 1 << 20, (1 << 20) + 1])
def test_a_base_of_names_takes_less_room_where_that_costs_a_reader_little(size: int) -> None:
    storage, store = made()
    base = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    store.write_base(UID, SESSION, 1, 1, base)
    taken = len(storage.files()[PATH]) - SNAPSHOT_HEADER_BYTES
    assert taken < size // 10 if 100 < size <= 1 << 20 else taken == size
    found = SnapshotStore(SimulatedDisk(storage)).read(UID, SESSION)
    assert found is None if not size else found is not None and found.base == base


@pytest.mark.parametrize(
    ("flags", "stored"),
    [
        (1, b"no stream at all"),
        (1, zlib.compress(bytes(1000))[:-4]),
        (1, zlib.compress(bytes((1 << 20) + 1))),
        (2, b"of a version to come"),
        (3, zlib.compress(b"of a version to come")),
    ],
    ids=["none", "cut", "a bomb", "unknown", "both"],
)
def test_what_cannot_be_inflated_is_none(flags: int, stored: bytes) -> None:
    storage, store = filled()
    header = bytearray(storage.files()[PATH][:SNAPSHOT_HEADER_BYTES])
    header[10:12] = flags.to_bytes(2, "little")
    header[32:44] = len(stored).to_bytes(8, "little") + zlib.crc32(stored).to_bytes(4, "little")
    header[44:48] = zlib.crc32(header[:44]).to_bytes(4, "little")
    storage.node(PATH).data[:] = header + stored
    assert store.read(UID, SESSION) is None


def test_an_increment_that_does_not_follow_is_not_added() -> None:
    _, store = filled()
    for follows in (0, 50, 70, 81):
        assert not store.add_increment(UID, SESSION, 90, 9000, b"again", follows=follows)
    found = store.read(UID, SESSION)
    assert found is not None
    assert found.deltas == [b"first", b"", b"third"]


def test_power_leaves_the_old_one_the_new_one_or_none() -> None:
    """Nothing waits for it: it is not synced, and what tells a broken one is its checksums."""
    left = set()
    for seed in range(200):
        storage = Storage(Random(seed), PROFILES["adversarial"])
        disk = SimulatedDisk(storage)
        store = SnapshotStore(disk)
        old = SnapshotStore(disk)
        old.write_base(UID, SESSION, 50, 5000, BASE)
        disk.open(PATH).sync()
        disk.sync_dir(session_dir(UID, SESSION))
        store.write_base(UID, SESSION, 90, 9000, BASE * 2)
        assert store.add_increment(UID, SESSION, 95, 9500, b"more", follows=90)
        storage.cut_power()
        found = SnapshotStore(SimulatedDisk(storage)).read(UID, SESSION)
        left.add(0 if found is None else found.covers_seq)
        assert found is None or (found.covers_seq, found.base, found.deltas) in (
            (50, BASE, []),
            (90, BASE * 2, []),
            (95, BASE * 2, [b"more"]),
        )
    assert left >= {0, 50, 95}, "a disk that does all that disks may do"


@pytest.mark.parametrize("base", [BASE, b"a name and its seq " * 30])
def test_every_bit_and_every_length(base: bytes) -> None:
    storage, store = filled(base)
    content = storage.files()[PATH]
    whole = [b"first", b"", b"third"]
    seqs = [50, 60, 70, 80]
    reads = []
    for at in range(len(content) * 8):
        changed = bytearray(content)
        changed[at // 8] ^= 1 << at % 8
        reads.append(bytes(changed))
    reads += [content[:length] for length in range(len(content))]
    reads += [content + b"\0" * 40, content + content[-30:]]
    for text in reads:
        storage.node(PATH).data[:] = text
        found = store.read(UID, SESSION)
        if found is not None:
            count = len(found.deltas)
            assert (found.base, found.deltas) == (base, whole[:count])
            assert (found.covers_seq, found.covers_offset) == (seqs[count], seqs[count] * 100)
        else:
            assert len(text) < SNAPSHOT_HEADER_BYTES + len(base) or text != content


def test_another_process_goes_on_behind_what_is_whole() -> None:
    storage, _ = filled()
    content = storage.files()[PATH]
    for length in range(SNAPSHOT_HEADER_BYTES + len(BASE), len(content)):
        storage.node(PATH).data[:] = content[:length]
        later = SnapshotStore(SimulatedDisk(storage))
        before = later.read(UID, SESSION)
        assert before is not None
        assert later.add_increment(UID, SESSION, 90, 9000, b"more", follows=before.covers_seq)
        after = later.read(UID, SESSION)
        assert after is not None
        assert after.deltas == [*before.deltas, b"more"]
        assert after.covers_seq == 90


def test_a_write_that_failed_is_found_again() -> None:
    storage, store = filled()
    storage.room = 10
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            store.add_increment(UID, SESSION, 90, 9000, bytes(40), follows=80)
    storage.room = 1000
    assert store.add_increment(UID, SESSION, 90, 9000, bytes(40), follows=80)
    found = store.read(UID, SESSION)
    assert found is not None
    assert found.deltas == [b"first", b"", b"third", bytes(40)]


def test_a_disk_that_cannot_be_read_is_no_error() -> None:
    storage, store = filled()
    for verb in ("open", "read", "stat"):
        storage.fail = lambda found, path, verb=verb: errno.EIO if found == verb else 0
        assert store.read(UID, SESSION) is None
