"""Tables of hashes: what is found in the block, beside it and after it was written anew."""

from __future__ import annotations

import msgspec
import pytest

from walld.errors import FormatError
from walld.sessions.state.hash_index import Records, RecordsBlock, Seqs, records_since


def recorded(records: Records, changed: dict[str, bytes]) -> RecordsBlock:
    for name, record in changed.items():
        records[name] = record
    return records.block()


def test_seqs_are_found_in_the_block_and_beside_it() -> None:
    seqs = Seqs()
    for seq in range(1, 1000):
        seqs[f"id {seq}"] = seq
    seqs = Seqs(seqs.block())
    seqs["é\ud83d"] = 1000
    assert all(seqs.get(f"id {seq}") == seq for seq in range(1, 1000))
    assert seqs["é\ud83d"] == Seqs(seqs.block())["é\ud83d"] == 1000
    assert "id 1000" not in seqs
    with pytest.raises(KeyError):
        seqs["id 0"]
    assert len(seqs) == 1000


def test_the_same_content_is_the_same_bytes() -> None:
    one, two = Seqs(), Seqs()
    for seq, name in enumerate("abc", 1):
        one[name] = seq
        one.block()
    for name, seq in (("c", 3), ("a", 1), ("b", 2)):
        two[name] = seq
    assert one.block() == two.block()


def test_blocks_made_step_by_step_are_those_made_at_once() -> None:
    names = [f"name {at}" for at in range(25_000)]  # more than are sorted at once
    whole, steps, seen = Seqs(), Seqs(), Records()
    for seq, name in enumerate(names, 1):
        whole[name] = steps[name] = seq
        if seq % 1009 == 0:
            steps.block()
    assert whole.block() == steps.block()
    records: dict[str, bytes] = {}
    for step in range(20):
        changed = {f"r {(at * 7 + step) % 90}": b"x" * (at + step) for at in range(step * 3)}
        records |= changed
        assert recorded(seen, changed) == recorded(Records(), records)
        assert all(seen.get(name) == record for name, record in records.items())


def test_what_is_new_can_be_taken_away() -> None:
    seqs = Seqs()
    seqs["a"] = 1
    del seqs["a"]
    assert "a" not in seqs


def test_records_are_replaced_and_kept() -> None:
    records = Records()
    recorded(records, {"a": b"1", "b": b"", "c": b"333"})
    records = Records(recorded(records, {"b": b"22", "d": b"4"}))
    found = [records.get(name) for name in "abcde"]
    assert found == [b"1", b"22", b"333", b"4", None]


def test_what_came_since_is_added_as_a_block() -> None:
    whole, added = Seqs(), Seqs()
    for given in ({"c": 9, "a": 2, "d": 1}, {"b": 3, "c": 7, "d": 4}, {}, {"c": 1}):
        for name, seq in given.items():
            whole[name] = seq
        if "d" in given:
            del whole["d"]  # taken back before it is told
        added.add(whole.since())
    assert [added.get(name) for name in "abcd"] == [2, 3, 1, None]
    whole["e"] = 5
    assert added.block() != whole.block()
    assert whole.since() == Seqs().since(), "all of it was taken"
    added["e"] = 5
    assert added.block() == whole.block()
    records = Records(recorded(Records(), {"a": b"1", "b": b"2"}))
    records.add(records_since({"c": b"", "b": b"22"}))
    records.add(records_since({}))
    assert [records.get(name) for name in "abcd"] == [b"1", b"22", b"", None]
    assert records.block() == recorded(Records(), {"a": b"1", "b": b"22", "c": b""})


def test_a_block_of_another_machine_or_of_no_sense_is_refused() -> None:
    seqs = Seqs()
    seqs["a"] = 1
    block = seqs.block()
    for changed in (
        {"order": b"\0" * 12},
        {"hashes": block.hashes[:-1]},
        {"seqs": memoryview(b"")},
    ):
        with pytest.raises(FormatError):
            Seqs(msgspec.structs.replace(block, **changed))
        with pytest.raises(FormatError):
            Seqs().add(msgspec.structs.replace(block, **changed))
    records = recorded(Records(), {"a": b"12"})
    with pytest.raises(FormatError):
        Records(msgspec.structs.replace(records, records=memoryview(b"1")))
