"""Which sessions were deleted: noted, read again, bounded, and not believed where damaged."""

from __future__ import annotations

from random import Random
from zlib import crc32

import msgspec
import pytest

from walld.disk.medium import Storage
from walld.disk.simulated import SimulatedDisk
from walld.ledger.deleted import Deleted

PATH = "sessions/.deleted"
UID = 1000


def loaded(storage: Storage) -> Deleted:
    deleted = Deleted(SimulatedDisk(storage))
    deleted.load()
    return deleted


def test_it_is_known_of_those_who_were_told_before() -> None:
    storage = Storage(Random(7))
    deleted = loaded(storage)
    assert deleted.count == 0
    before = deleted.count
    deleted.ended(deleted.begin(), UID, "a/b \ud83d")
    for one in (deleted, loaded(storage)):
        assert one.since(before, UID, "a/b \ud83d")
        assert not one.since(one.count, UID, "a/b \ud83d"), "what was begun behind it"
        assert not one.since(before, UID, "another")
        assert not one.since(before, UID + 1, "a/b \ud83d")
    storage.cut_power()
    assert loaded(storage).since(before, UID, "a/b \ud83d"), "durable"


def test_of_more_than_a_thousand_the_oldest_are_not_known_and_nothing_is_said_of_them() -> None:
    storage = Storage(Random(7))
    deleted = loaded(storage)
    for number in range(1030):
        deleted.ended(deleted.begin(), UID, f"{number}")
    again = loaded(storage)
    assert again.count == 1030
    assert again.since(0, UID, "never deleted"), "it may have been among the oldest"
    assert not again.since(1025, UID, "never deleted")
    assert again.since(1025, UID, "1029")


def test_it_is_known_how_far_the_last_thousand_replies_were_that_went_with_one() -> None:
    storage = Storage(Random(7))
    deleted = loaded(storage)
    for number in range(1030):
        deleted.ended(deleted.begin(), UID, "s", {(UID, bytes(range(16)), number): 5})
    deleted.ended(deleted.begin(), UID, "s", {(UID, bytes(range(16)), 900): 7})
    deleted.ended(deleted.begin(), UID, "another")
    storage.cut_power()
    replies = loaded(storage).replies
    assert replies == deleted.replies
    assert len(replies) == 1024
    assert min(number for _, _, number in replies) == 6
    assert replies[UID, bytes(range(16)), 900] == 7


def test_one_of_an_earlier_walld_knows_of_no_reply() -> None:
    storage = Storage(Random(7))
    disk = SimulatedDisk(storage)
    disk.make_dir("sessions")
    text = msgspec.json.encode({"count": 3, "unknown": 0, "newest": []})
    disk.replace(PATH, text + f" {crc32(text):08x}\n".encode())
    assert (loaded(storage).count, loaded(storage).replies) == (3, {})


@pytest.mark.parametrize(
    "content",
    [b"", b"x", b'{"count":1,"unknown":0,"newest":[]} 00000000\n', b"\0" * 300_000],
)
def test_a_damaged_one_knows_nothing_of_the_deletes_before(content: bytes) -> None:
    storage = Storage(Random(7))
    disk = SimulatedDisk(storage)
    disk.make_dir("sessions")
    disk.replace(PATH, content)
    deleted = loaded(storage)
    assert deleted.since(5, UID, "s")
    told = deleted.count
    assert not deleted.since(told, UID, "s"), "what is told from now on"
    deleted.ended(deleted.begin(), UID, "s")
    assert loaded(storage).since(told, UID, "s")


def test_numbers_that_nobody_wrote_are_damage() -> None:
    storage = Storage(Random(7))
    disk = SimulatedDisk(storage)
    disk.make_dir("sessions")
    text = msgspec.json.encode({"count": 1 << 63, "unknown": 0, "newest": []})
    disk.replace(PATH, text + f" {crc32(text):08x}\n".encode())
    assert loaded(storage).count < 1 << 60
