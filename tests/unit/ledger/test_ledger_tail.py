"""The end of a session's file: an unfinished write, or damage to what was durable (Z1)."""

from __future__ import annotations

from random import Random

import pytest
from ledger_world import SESSION, UID, lines_of

from walld.disk.medium import Storage
from walld.disk.simulated import SimulatedDisk
from walld.ledger.line import chain_of, header_line, make_line
from walld.ledger.names import EVENTS_FILE, session_dir
from walld.ledger.pending import FoundLines, Pending, join
from walld.ledger.snapshot import SnapshotStore
from walld.ledger.store import LedgerStore

HEADER = header_line(UID, SESSION)
LINES = lines_of(6)
WHOLE = HEADER + b"".join(LINES)
PATH = f"{session_dir(UID, SESSION)}/{EVENTS_FILE}"


def spoiled(content: bytes) -> tuple[Storage, LedgerStore]:
    storage = Storage(Random(1))
    store = LedgerStore(SimulatedDisk(storage))
    store.append(UID, SESSION, 1, LINES)
    storage.node(PATH).data[:] = content
    return storage, store


def missing(store: LedgerStore, covers: int = 0) -> list[tuple[int, int, str]]:
    until = store.proven(UID, SESSION, covers)
    return [item[1:4] for item in store.read(UID, SESSION, until=until).breaks]


def test_every_bit_of_the_last_line_costs_its_seq_and_no_other() -> None:
    start = len(WHOLE) - len(LINES[-1])
    for bit in range(start * 8, (len(WHOLE) - 1) * 8):
        content = bytearray(WHOLE)
        content[bit // 8] ^= 1 << bit % 8
        _, store = spoiled(bytes(content))
        assert store.proven(UID, SESSION) in (6, 7), bit  # 7: one that became two
        assert missing(store, 6)[0][0] == 6


@pytest.mark.parametrize(
    ("rest", "seq"),
    [
        (b"", 6),
        (b'{"seq":7,"id":"un', 6),
        (b"\0" * 900, 6),
        (b"\n", 7),
        (b"\0" * 900 + b"\n", 7),
        (b'{"seq":7,"id":"x"}\n{"seq":8,"id":"', 7),
        (LINES[5][:-30] + b"?" * 29 + b"\n", 7),
        ((b'{"seq":7,"id":"x","payload":"' + b"y" * 100 + b'"}\n') * 3, 9),
        (b'{"seq":8,"id":"x","payload":"' + b"y" * 300 + b'"}\n', 8),
        (b'{"seq":99999,"id":"x","payload":"' + b"y" * 300 + b'"}\n', 7),
    ],
)
def test_what_ends_in_a_newline_was_a_line(rest: bytes, seq: int) -> None:
    _, store = spoiled(WHOLE + rest)
    assert store.proven(UID, SESSION) == seq
    assert missing(store) == ([(7, seq, "damaged")] if seq > 6 else [])
    assert missing(store, 12) == [(7, 12, "damaged" if rest else "missing")]


def test_every_length_is_missed_where_a_snapshot_knows_of_more() -> None:
    for length in range(len(HEADER), len(WHOLE)):
        storage, store = spoiled(WHOLE[:length])
        snapshots = SnapshotStore(SimulatedDisk(storage))
        snapshots.write_base(UID, SESSION, 6, len(WHOLE), b"base")
        found = missing(store, snapshots.covers(UID, SESSION))
        assert [(last, first <= 6) for first, last, _ in found] == [(6, True)], length
        line = make_line(7, "e7", 1, "note", b"{}", store.tail(UID, SESSION).chain)  # type: ignore[union-attr]
        store.append(UID, SESSION, 7, [line], allow_gap=True)
        assert [(last, why) for _, last, why in missing(store)] == [(6, "missing")]


def test_a_snapshot_with_a_damaged_base_still_says_how_far_the_file_went() -> None:
    storage, _ = spoiled(WHOLE)
    snapshots = SnapshotStore(SimulatedDisk(storage))
    assert snapshots.covers(UID, SESSION) == 0
    snapshots.write_base(UID, SESSION, 4, 9, b"base")
    assert snapshots.add_increment(UID, SESSION, 6, 10, b"more", follows=4)
    storage.node(f"{session_dir(UID, SESSION)}/snapshot").data[50] ^= 1
    assert snapshots.read(UID, SESSION) is None
    assert snapshots.covers(UID, SESSION) == 6


def test_a_repaired_end_stays_repaired_and_gives_no_seq_again() -> None:
    storage, store = spoiled(WHOLE[:-20] + b"?" * 19 + b"\n")
    assert [item[1:4] for item in store.repair(UID, SESSION)] == [(6, 6, "damaged")]
    assert storage.files()[PATH] == HEADER + b"".join(LINES[:5])
    for _ in range(2):
        assert missing(store) == []
        assert store.proven(UID, SESSION) == 6
        assert store.repair(UID, SESSION) == []
    line = make_line(7, "e7", 1, "note", b"{}", chain_of(LINES[4]))
    store.append(UID, SESSION, 7, [line], allow_gap=True)
    assert missing(store) == []
    assert store.read(UID, SESSION).lines == [*LINES[:5], line]


def test_a_file_that_is_gone_is_repaired_into_an_empty_one() -> None:
    storage, store = spoiled(WHOLE)
    SimulatedDisk(storage).unlink(PATH)
    assert [item[1:4] for item in store.repair(UID, SESSION, 6)] == [(1, 6, "missing")]
    assert storage.files()[PATH] == HEADER
    assert missing(store) == []
    assert store.proven(UID, SESSION) == 6
    with pytest.raises(FileNotFoundError):
        store.repair(UID, "never written")


def test_what_is_damaged_is_copied_once_and_stays() -> None:
    bad = LINES[2].replace(b"x", b"y", 1)
    content = HEADER + b"".join([*LINES[:2], bad, *LINES[3:], b"torn"])
    storage, store = spoiled(content)
    for _ in range(2):
        assert store.keep_damaged(UID, SESSION, also_end=False) == 1
        files = {name: text for name, text in storage.files().items() if "quarantine/" in name}
        assert sorted(files.values())[-1] == bad
        assert len(files) == 2
    assert store.keep_damaged(UID, SESSION, also_end=True) == 2
    assert storage.files()[PATH] == content


def test_lines_of_the_log_behind_a_damaged_end_are_kept() -> None:
    """Nothing says that their batch was synced; that the file went up to them is enough (H1)."""
    stream = FoundLines(6, 9, [Pending(7, b"seven"), Pending(8, b"eight")])
    cut = join([stream], 4, 5, met_damage=False)
    assert cut.kept == []
    for proven in (6, 7, 30):
        assert join([stream], 4, 5, met_damage=False, proven=proven).kept == stream.lines
    assert join([stream], 4, 5, met_damage=False, proven=5).kept == []


@pytest.mark.parametrize("content", [b"", HEADER[:20], HEADER], ids=["empty", "cut", "header"])
def test_a_file_without_a_line_has_lost_one(content: bytes) -> None:
    """It is made with its first lines, so nobody may begin anew in it as if nothing had been."""
    _, store = spoiled(content)
    assert store.proven(UID, SESSION) == 1
    assert missing(store)[-1] == (1, 1, "damaged" if content == HEADER[:20] else "missing")
    assert store.proven(UID, "another") == 0
