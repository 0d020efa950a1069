"""Sessions on disk: E1 durable, E2 kept before cut, E3 no second sync, E4 no later version."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from ledger_world import AT_MS, SESSION, UID, lines_of, newer, verify

from walld.disk.medium import PROFILES, Crashed, Storage
from walld.disk.real import RealDisk
from walld.disk.simulated import SimulatedDisk
from walld.errors import FormatError, LedgerGap, NewerVersion
from walld.ledger.line import chain_of, header_line, make_line
from walld.ledger.repair_notes import Leap
from walld.ledger.store import LedgerStore

HEADER = header_line(UID, SESSION)
LINES = lines_of(9)
ODD_IDS = [".", "..", "", "a/b", "../../x", "\0", "é", "x" * 97, "h~" + "0" * 40, "-", "\u2028"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[RealDisk]:
    with RealDisk(str(tmp_path / "root")) as found:
        yield found


@pytest.fixture
def store(disk: RealDisk) -> LedgerStore:
    return LedgerStore(disk)


def events(disk: RealDisk) -> Path:
    (found,) = Path(disk.root).glob("sessions/*/*/events.jsonl")
    return found


def files(disk: RealDisk) -> list[str]:
    root = Path(disk.root)
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def kept(disk: RealDisk) -> list[bytes]:
    found = sorted(Path(disk.root).glob("quarantine/*"))
    assert len({path.name.removesuffix(".note") for path in found}) * 2 == len(found)
    return [path.read_bytes() for path in found if path.suffix != ".note"]


def whole(count: int) -> bytes:
    return HEADER + b"".join(LINES[:count])


# --- appending ------------------------------------------------------------------------------------


def test_what_is_appended_is_read(disk: RealDisk, store: LedgerStore) -> None:
    assert store.tail(UID, SESSION) is None
    assert not store.exists(UID, SESSION)
    with pytest.raises(FileNotFoundError):
        store.read(UID, SESSION)
    assert store.append(UID, SESSION, 1, LINES[:2]) == 2
    assert store.append(UID, SESSION, 3, LINES[2:5]) == 5
    assert store.exists(UID, SESSION)
    assert not store.exists(UID + 1, SESSION)
    assert events(disk).read_bytes() == whole(5)
    assert len(verify(whole(5))) == 5
    reading = store.read(UID, SESSION)
    assert reading[:4] == (LINES[:5], [], len(whole(5)), 0)
    assert store.read(UID, SESSION, 3, 1).lines == LINES[3:4]
    assert store.tail(UID, SESSION) == (5, chain_of(LINES[4]), len(whole(5)), 0)
    assert events(disk).stat().st_mode & 0o777 == 0o600


def test_its_length_grows_with_each_line(disk: RealDisk, store: LedgerStore) -> None:
    assert store.length(UID, SESSION) == 0
    store.append(UID, SESSION, 1, LINES[:3])
    first = store.length(UID, SESSION)
    assert first == events(disk).stat().st_size
    store.append(UID, SESSION, 4, LINES[3:4])
    assert store.length(UID, SESSION) == first + len(LINES[3])


def test_a_checkpoint_can_be_repeated(disk: RealDisk, store: LedgerStore) -> None:
    for first, last in [(1, 3), (1, 3), (2, 3), (1, 5), (5, 5), (2, 4), (4, 6), (1, 1)]:
        store.append(UID, SESSION, first, LINES[first - 1 : last])
    assert events(disk).read_bytes() == whole(6)
    assert kept(disk) == []


def test_another_line_of_a_seq_is_damage_and_nothing_is_written(
    disk: RealDisk, store: LedgerStore
) -> None:
    store.append(UID, SESSION, 1, LINES[:4])
    other = make_line(3, "other", AT_MS, "message", b"{}", chain_of(LINES[1]))
    for first, given in [(3, [other]), (2, [LINES[1], other]), (3, [other, LINES[3], LINES[4]])]:
        with pytest.raises(FormatError, match="line 3 at offset"):
            store.append(UID, SESSION, first, given)
    assert events(disk).read_bytes() == whole(4)
    assert kept(disk) == []


def test_a_gap_is_refused_or_reported(disk: RealDisk, store: LedgerStore) -> None:
    with pytest.raises(LedgerGap, match="line 2 after 0"):
        store.append(UID, SESSION, 2, LINES[1:2])
    assert files(disk) == []
    store.append(UID, SESSION, 1, LINES[:2])
    with pytest.raises(LedgerGap, match=r"line 5 after 2 .*expected 3"):
        store.append(UID, SESSION, 5, LINES[4:5])
    assert events(disk).read_bytes() == whole(2)
    store.append(UID, SESSION, 5, LINES[4:6], allow_gap=True)
    store.append(UID, SESSION, 5, LINES[4:8])
    for _ in range(2):
        reading = store.read(UID, SESSION)
        assert reading.lines == [*LINES[:2], *LINES[4:8]]
        assert [item[1:4] for item in reading.breaks] == [(3, 4, "missing")]


def test_a_line_made_for_another_one_before_it_is_refused(store: LedgerStore) -> None:
    store.append(UID, SESSION, 1, LINES[:2])
    stranger = lines_of(3, size=9)[2]
    with pytest.raises(LedgerGap, match="the line in the file was changed"):
        store.append(UID, SESSION, 3, [stranger])
    store.append(UID, SESSION, 3, [stranger], allow_gap=True)
    assert [item[1:4] for item in store.read(UID, SESSION).breaks] == [(3, 2, "chain")]


@pytest.mark.parametrize(
    "torn", [b'{"seq":5,"ix', b"\0" * 700, b"\n", b"{}\n{}\n", b'{"walld":1}\n']
)
def test_a_torn_end_is_kept_and_cut(disk: RealDisk, store: LedgerStore, torn: bytes) -> None:
    store.append(UID, SESSION, 1, LINES[:4])
    path = events(disk)
    path.write_bytes(whole(4) + torn)
    assert store.tail(UID, SESSION) == (4, chain_of(LINES[3]), len(whole(4)), len(torn))
    assert store.read(UID, SESSION).torn_bytes == len(torn)
    store.append(UID, SESSION, 5, LINES[4:6])
    assert path.read_bytes() == whole(6)
    assert kept(disk) == [torn]
    (note,) = Path(disk.root).glob("quarantine/*.note")
    assert f"from: {path.relative_to(disk.root)}\noffset: {len(whole(4))}\n" in note.read_text()


def test_what_is_written_again_needs_no_keeping(disk: RealDisk, store: LedgerStore) -> None:
    store.append(UID, SESSION, 1, LINES[:4])
    path = events(disk)
    for length in range(len(whole(2)), len(whole(5))):
        path.write_bytes(whole(5)[:length])
        store.append(UID, SESSION, 3, LINES[2:6])
        assert path.read_bytes() == whole(6)
    assert kept(disk) == []


def test_holes_that_a_power_cut_left_are_filled(disk: RealDisk, store: LedgerStore) -> None:
    store.append(UID, SESSION, 1, LINES)
    path, end = events(disk), len(whole(3))
    for start in range(end, len(whole(8)), 37):
        for last in (6, 9):
            holed = bytearray(whole(9))
            holed[start : start + 50] = bytes(len(holed[start : start + 50]))
            path.write_bytes(holed)
            store.append(UID, SESSION, 4, LINES[3:last])
            store.append(UID, SESSION, last, LINES[last - 1 :])
            assert path.read_bytes() == whole(9)
    assert kept(disk)


def test_a_damaged_header_is_reported_and_the_rest_goes_on(
    disk: RealDisk, store: LedgerStore
) -> None:
    store.append(UID, SESSION, 1, LINES[:3])
    path = events(disk)
    path.write_bytes(b"#" + whole(3)[1:])
    store.append(UID, SESSION, 2, LINES[1:5])
    assert store.read(UID, SESSION).lines == LINES[:5]
    assert [item.why for item in store.read(UID, SESSION, 4).breaks] == ["header"]
    path.write_bytes(b"nothing of ours")
    store.append(UID, SESSION, 1, LINES[:5])
    assert path.read_bytes() == whole(5)
    assert kept(disk) == [b"nothing of ours"]


def test_a_later_version_is_refused_and_untouched(disk: RealDisk, store: LedgerStore) -> None:
    store.append(UID, SESSION, 1, LINES[:3])
    path = events(disk)
    later = newer(whole(3), 2)
    path.write_bytes(later)
    for call in (
        lambda: store.append(UID, SESSION, 4, LINES[3:4]),
        lambda: store.rewrite(UID, SESSION, 4, LINES[3:4]),
        lambda: store.read(UID, SESSION),
        lambda: store.tail(UID, SESSION),
        lambda: store.repair(UID, SESSION),
    ):
        with pytest.raises(NewerVersion, match="version 2"):
            call()
    assert path.read_bytes() == later
    (row,) = store.tree()
    assert "version 2" in row.trouble


def test_each_version_but_its_own_is_damage_of_a_header(disk: RealDisk, store: LedgerStore) -> None:
    """Its first event was made for the header as it was."""
    store.append(UID, SESSION, 1, LINES[:3])
    for version in (b"0", b"2", b"9", b"17"):
        events(disk).write_bytes(whole(3).replace(b'"walld":1', b'"walld":' + version))
        assert [item.why for item in store.read(UID, SESSION).breaks] == ["header"]
        (row,) = store.tree()
        assert (row.session_id, row.newer, row.last_seq) == (None, False, 3)
        assert "header" in row.trouble or "version" in row.trouble
        store.append(UID, SESSION, 3, LINES[2:4])
        assert store.repair(UID, SESSION)[0].why == "header"
        assert events(disk).read_bytes() == whole(4)
    without = whole(3).replace(b'"walld":1', b'"walld":2').replace(LINES[0], b"")
    for nothing_proven in (without, without[: without.find(b"\n") + 1]):
        events(disk).write_bytes(nothing_proven)
        with pytest.raises(NewerVersion):
            store.read(UID, SESSION)


# --- after a failure ------------------------------------------------------------------------------


def simulated() -> tuple[Storage, LedgerStore]:
    storage = Storage(Random(3), PROFILES["ext4"])
    return storage, LedgerStore(SimulatedDisk(storage))


def content(storage: Storage) -> bytes:
    found = storage.files().items()
    return next(text for path, text in found if path.endswith("/events.jsonl"))


@pytest.mark.parametrize("verb", ["write", "sync"])
def test_after_an_error_the_lines_go_to_a_new_file(verb: str) -> None:
    storage, store = simulated()
    store.append(UID, SESSION, 1, LINES[:2])
    storage.fail = lambda found, path: errno.EIO if found == verb else 0
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            store.append(UID, SESSION, 3, LINES[2:4])
    storage.fail = lambda found, path: 0
    storage.trace = []
    store.append(UID, SESSION, 3, LINES[2:5])
    assert ("sync", next(p for v, p in storage.trace if v == "rename")) in storage.trace
    assert all(not path.endswith("/events.jsonl") for v, path in storage.trace if v == "sync")
    storage.cut_power()
    assert content(storage) == whole(5)


def test_what_a_dead_process_could_not_sync_is_written_once_more() -> None:
    """Its pages are called clean: a sync alone would move nothing."""
    storage, store = simulated()
    store.append(UID, SESSION, 1, LINES[:2])
    storage.fail = lambda verb, path: errno.EIO if verb == "sync" else 0
    with pytest.raises(OSError, match="Input/output"):
        store.append(UID, SESSION, 3, LINES[2:4])
    storage.kill()
    storage.fail = lambda verb, path: 0
    store = LedgerStore(SimulatedDisk(storage))
    assert store.append(UID, SESSION, 3, LINES[2:4]) == 4
    storage.cut_power()
    assert content(storage) == whole(4)


def test_a_name_that_a_dead_process_left_is_made_durable() -> None:
    for seed in range(8):
        for at in range(1, 30):
            storage = Storage(Random(seed), PROFILES["adversarial"])
            storage.crash_at = at
            with suppress(Crashed):
                LedgerStore(SimulatedDisk(storage)).append(UID, SESSION, 1, LINES[:2])
            storage.kill()
            LedgerStore(SimulatedDisk(storage)).append(UID, SESSION, 1, LINES[:2])
            storage.cut_power()
            assert content(storage) == whole(2), (seed, at)


def test_a_full_disk_costs_nothing_but_the_try() -> None:
    storage, store = simulated()
    store.append(UID, SESSION, 1, LINES[:2])
    storage.room = 100
    with pytest.raises(OSError, match="No space"):
        store.append(UID, SESSION, 3, LINES[2:4])
    assert content(storage) == whole(2)
    storage.room = 1 << 20
    storage.trace = []
    store.append(UID, SESSION, 3, LINES[2:4])
    assert "rename" not in [verb for verb, _ in storage.trace]
    assert content(storage) == whole(4)


def test_rewrite_keeps_all_that_was_before(disk: RealDisk, store: LedgerStore) -> None:
    store.rewrite(UID, SESSION, 1, LINES[:2])
    store.append(UID, SESSION, 3, LINES[2:6])
    store.rewrite(UID, SESSION, 4, LINES[3:5])
    assert events(disk).read_bytes() == whole(6)
    store.rewrite(UID, SESSION, 6, LINES[5:])
    assert events(disk).read_bytes() == whole(9)
    assert [name for name in files(disk) if name.endswith(".tmp")] == []


def test_an_append_costs_the_same_whatever_the_length() -> None:
    storage, store = simulated()
    lines = lines_of(3000)
    store.append(UID, SESSION, 1, lines[:10])
    costs = []
    for start in (10, 2000):
        store.append(UID, SESSION, start - 9, lines[start - 10 : start])
        store.append(UID, SESSION, start + 1, lines[start : start + 1])
        storage.trace = []
        store.append(UID, SESSION, start + 2, lines[start + 1 : start + 2])
        costs.append([verb for verb, _ in storage.trace])
        store.append(UID, SESSION, start + 3, lines[start + 2 : start + 500 + 1490])
    assert costs[0] == costs[1]
    assert len(costs[0]) < 12


# --- repair, listing, deleting --------------------------------------------------------------------


def test_a_repair_keeps_the_bytes_and_ends_the_reporting(
    disk: RealDisk, store: LedgerStore
) -> None:
    store.append(UID, SESSION, 1, LINES)
    path = events(disk)
    bad = LINES[3].replace(b"x", b"y", 1)
    path.write_bytes(HEADER + b"".join([*LINES[:3], bad, *LINES[4:7], LINES[8], b"torn"]))
    for _ in range(2):
        breaks = store.read(UID, SESSION).breaks
        assert [item[1:4] for item in breaks] == [(4, 4, "damaged"), (8, 8, "missing")]
    assert store.repair(UID, SESSION) == breaks
    assert sorted(kept(disk)) == sorted([bad, b"torn"])
    good = [*LINES[:3], *LINES[4:7], LINES[8]]
    assert store.read(UID, SESSION)[:4] == (good, [], len(HEADER + b"".join(good)), 0)
    assert store.read(UID, SESSION, 4).breaks == []
    assert store.repair(UID, SESSION) == []
    (more,) = [make_line(10, "e10", AT_MS, "message", b"{}", chain_of(LINES[8]))]
    store.append(UID, SESSION, 10, [more])
    path.write_bytes(path.read_bytes().replace(LINES[5], b""))
    assert [item[1:4] for item in store.read(UID, SESSION).breaks] == [(6, 6, "missing")]


@pytest.mark.parametrize("left", ["?", "", "first too", "nothing"])
def test_a_repair_gives_the_header_back(disk: RealDisk, store: LedgerStore, left: str) -> None:
    """Also where nothing stands in its place."""
    store.append(UID, SESSION, 1, LINES)
    rest = {"?": b"?" + whole(9)[1:], "": b"".join(LINES), "first too": b"".join(LINES[1:])}
    events(disk).write_bytes(rest.get(left, b""))
    assert store.repair(UID, SESSION)[0].why == "header"
    good = {"first too": LINES[1:], "nothing": []}.get(left, LINES)
    assert events(disk).read_bytes() == HEADER + b"".join(good)
    assert store.read(UID, SESSION, until=1).breaks == []
    assert store.repair(UID, SESSION) == []


def test_any_id_is_a_session_of_its_own(disk: RealDisk, store: LedgerStore) -> None:
    for at, session in enumerate(ODD_IDS, 1):
        store.append(at, session, 1, lines_of(at, uid=at, session=session))
    rows = list(store.tree())
    assert {(row.uid, row.session_id, row.last_seq) for row in rows} == {
        (at, session, at) for at, session in enumerate(ODD_IDS, 1)
    }
    assert {row.last_at_ms for row in rows} == {AT_MS + at for at in range(1, len(ODD_IDS) + 1)}
    for at, session in enumerate(ODD_IDS, 1):
        assert len(store.read(at, session).lines) == at
        assert store.delete(at, session)
        assert not store.delete(at, session)
    assert files(disk) == ["sessions"]


def test_a_header_that_is_not_of_its_place_is_reported(disk: RealDisk, store: LedgerStore) -> None:
    store.append(UID, SESSION, 1, LINES[:2])
    events(disk).write_bytes(header_line(UID, "chat/8") + b"".join(LINES[:2]))
    (row,) = store.tree()
    assert row.session_id is None
    assert "its header is of session 'chat/8'" in row.trouble
    assert row.last_seq == 2
    assert store.read(UID, SESSION).breaks[0].why == "header"


def test_delete_leaves_nothing(disk: RealDisk, store: LedgerStore) -> None:
    store.append(UID, SESSION, 1, LINES[:2])
    store.append(UID, "chat", 1, lines_of(1, session="chat"))
    path = next(Path(disk.root).glob("sessions/*/h~*/events.jsonl"))
    path.write_bytes(whole(2) + b"torn")
    store.append(UID, SESSION, 3, LINES[2:3])
    assert len(kept(disk)) == 1
    (path.parent / "artifacts").mkdir()
    for name in ("artifacts/aa", "artifacts/.bb.tmp", "snapshot", ".snapshot.tmp", "repaired"):
        (path.parent / name).write_bytes(b"x")
    assert store.delete(UID, SESSION)
    assert kept(disk) == []
    assert files(disk) == [
        "quarantine",
        "sessions",
        "sessions/1000",
        "sessions/1000/chat",
        "sessions/1000/chat/events.jsonl",
    ]
    assert store.delete(UID, "chat")
    assert files(disk) == ["quarantine", "sessions"]
    assert not store.delete(UID, "never")


def test_what_was_never_finished_is_swept(disk: RealDisk, store: LedgerStore) -> None:
    assert store.sweep_temporary() == 0
    store.append(UID, SESSION, 1, LINES[:2])
    folder = events(disk).parent
    (folder / "artifacts").mkdir()
    (folder / "artifacts" / ".aa.tmp").write_bytes(b"")
    (folder / ".events.jsonl.tmp").write_bytes(b"")
    (folder.parent / "empty").mkdir()
    assert store.sweep_temporary() == 2
    assert files(disk)[2:] == [
        str(folder.relative_to(disk.root)),
        str(events(disk).relative_to(disk.root)),
    ]


def test_lines_that_were_leapt_over_are_put_where_they_belong(
    disk: RealDisk, store: LedgerStore
) -> None:
    """Y1: the leap is known before the first line behind it, and stays a break."""
    leap = Leap(3, 7, ["wal/00000000000000000002.wal"])
    store.append(UID, SESSION, 1, LINES[:2])
    store.note_leap(UID, SESSION, leap)
    store.note_leap(UID, SESSION, leap)
    assert store.leaps(UID, SESSION) == [leap]
    behind = make_line(8, "late", AT_MS, "note", b"{}", chain_of(LINES[1]))
    store.append(UID, SESSION, 8, [behind], allow_gap=True)
    for _ in range(2):
        store.append(UID, SESSION, 3, LINES[2:4], allow_gap=True)
        reading = store.read(UID, SESSION)
        assert reading.lines == [*LINES[:4], behind]
        (found,) = reading.breaks
        assert (found.first_seq, found.last_seq, found.why) == (5, 7, "missing")
    store.repair(UID, SESSION)
    assert store.read(UID, SESSION).breaks == []
    assert store.leaps(UID, SESSION) == [leap]


def test_who_has_sessions(disk: RealDisk, store: LedgerStore) -> None:
    assert store.users() == set()
    store.append(UID, SESSION, 1, LINES[:1])
    disk.make_dir("sessions/none")
    assert store.users() == {UID}
