"""Whole lines that stand where they do not belong, in a session's file: what it ends with (J4),
what is written behind them, and that none of them is taken for the session's own.
"""

from __future__ import annotations

from random import Random

import pytest
from ledger_world import SESSION, UID, lines_of

from walld.disk.medium import Storage
from walld.disk.simulated import SimulatedDisk
from walld.errors import FormatError
from walld.ledger.line import chain_of, header_line, line_seq, make_line, read_line
from walld.ledger.listing import session_rows
from walld.ledger.names import session_dir
from walld.ledger.pending import Pending
from walld.ledger.scan import end_of, read_lines
from walld.ledger.store import LedgerStore

HEADER = header_line(UID, SESSION)
PATH = f"{session_dir(UID, SESSION)}/events.jsonl"


def of(content: bytes) -> tuple[Storage, LedgerStore]:
    storage = Storage(Random(1))
    disk = SimulatedDisk(storage)
    disk.make_dir(PATH.rpartition("/")[0])
    disk.replace(PATH, content)
    return storage, LedgerStore(disk)


def content(storage: Storage) -> bytes:
    file = SimulatedDisk(storage).open(PATH)
    return file.read_at(file.size(), 0)


def told(store: LedgerStore, **options: int) -> list[tuple[int, int, str]]:
    return [item[1:4] for item in store.read(UID, SESSION, **options).breaks]


@pytest.mark.parametrize(
    ("size", "stray"),
    [
        *((size, slice(at, at + 1)) for size in (20, 9000, 120_000) for at in (13, 28, 29)),
        *((20, stray) for stray in (slice(2, 9), slice(20, 30), slice(0, 30))),
        (2000, slice(3, 9)),
    ],
)
def test_a_file_ends_with_the_line_that_a_reading_gives_out_last(size: int, stray: slice) -> None:
    lines = lines_of(30, size=size)
    text = HEADER + b"".join([*lines, *lines[stray]])
    for torn in (b"", lines[3][:60]):
        storage, store = of(text + torn)
        tail = store.tail(UID, SESSION)
        assert tail is not None
        assert tail[:2] == (30, chain_of(lines[29]))
        assert tail.size == len(HEADER) + sum(map(len, lines)), "where the line of that seq ends"
        assert tail.torn_bytes == len(torn)
        assert store.proven(UID, SESSION) == 30
        assert store.read(UID, SESSION, until=30).lines == lines
        assert {why for *_, why in told(store, until=30)} == {"order"}
        for after in (9, 29, 30):
            assert store.read(UID, SESSION, after).lines == lines[after:]
        assert [row.last_seq for row in session_rows(SimulatedDisk(storage))] == [30]


@pytest.mark.parametrize("size", [20, 9000])
@pytest.mark.parametrize("block", [slice(100, 200), slice(0, 299), slice(140, 299)])
def test_a_block_that_is_taken_for_the_end_gives_way_to_what_is_known(
    size: int, block: slice
) -> None:
    lines = lines_of(300, size=size)
    storage, store = of(HEADER + b"".join([*lines, *lines[block]]))
    tail = store.tail(UID, SESSION, 300)
    assert tail is not None
    assert tail[:2] == (300, chain_of(lines[299]))
    assert tail.size == len(HEADER) + sum(map(len, lines))
    for after in (0, 99, 100, 150, 199, 200, 250, 299, 300):
        for limit in (0, 50):
            page = store.read(UID, SESSION, after, limit, until=300)
            assert page.lines == lines[after : after + (limit or 300)], after
    ops = storage.ops
    store.tail(UID, SESSION, block.stop)
    assert storage.ops - ops < 9, "it seems to end there, and nobody knows of more"


@pytest.mark.parametrize(
    ("count", "block", "behind"), [(5, slice(0, 2), 3), (700, slice(573, 589), 600)]
)
def test_a_page_from_within_a_copied_block_is_whole(count: int, block: slice, behind: int) -> None:
    """Of a copy of several lines each but the first follows the one before it (J2)."""
    lines = lines_of(count)
    _, store = of(HEADER + b"".join([*lines[:behind], *lines[block], *lines[behind:]]))
    for after in range(max(0, block.start - 3), behind + 3):
        for limit in (0, 1, 7):
            read = store.read(UID, SESSION, after, limit, until=count)
            assert read.lines == lines[after : after + limit if limit else count], (after, limit)
            assert not [one for one in read.breaks if one.why != "order"]


@pytest.mark.parametrize(("at", "gone"), [(0, 0), (3, 4), (9, 0), (9, 4), (36, 4), (40, 0)])
def test_a_page_beside_a_block_of_another_session_is_of_the_lines_of_a_whole_reading(
    at: int, gone: int
) -> None:
    """From within the block it had those of the block, where it ended before any other."""
    lines, other = lines_of(40), lines_of(48, session="another")
    for first in {max(0, at - 3), at}:
        block = other[first : first + 4]
        _, store = of(HEADER + b"".join([*lines[:at], *block, *lines[at + gone :]]))
        whole = store.read(UID, SESSION).lines
        assert set(whole).issuperset([*lines[:at], *lines[at + gone :]])
        for after in range(max(0, at - 5), at + 9):
            left = [line for line in whole if line_seq(line) > after]
            for limit in (0, 1, 3):
                page = store.read(UID, SESSION, after, limit).lines
                assert page == left[: limit or 40], (first, after, limit)


def test_where_a_long_file_ends_takes_a_bounded_read() -> None:
    lines = lines_of(20_000)
    for at, most in ((None, 1), (14, 8), (19_998, 8)):
        text = HEADER + b"".join([*lines, *([] if at is None else [lines[at]])])
        file = SimulatedDisk(Storage(Random(1))).create("f")
        file.write_at(text, 0)
        before = file._storage.ops
        end = end_of(file, len(text), HEADER)
        assert end is not None
        assert (end.line.seq, end.clean) == (20_000, len(text))
        assert file._storage.ops - before <= most


def test_what_is_missing_before_the_end_is_no_other_end() -> None:
    """A leap, or what a repair has left: the same as from the front (J3)."""
    lines, random = lines_of(300, size=300), Random(7)
    for _ in range(200):
        given = list(lines)
        for _ in range(random.randrange(4)):
            at = random.randrange(len(given))
            del given[at : at + random.choice([1, 1, 30])]
            at = random.randrange(len(given) + 1)
            given[at:at] = random.choice([lines[at : at + 2], given[:1], [b"none\n"], []])
        text = HEADER + b"".join(given)
        file = SimulatedDisk(Storage(Random(1))).create("f")
        file.write_at(text, 0)
        end = end_of(file, len(text), HEADER)
        assert end is not None
        assert end.line.line == read_lines(file, len(text), HEADER).lines[-1]


@pytest.mark.parametrize("stray", [13, 24, 25])
def test_a_checkpoint_is_repeated_beside_a_copy_of_an_earlier_line(stray: int) -> None:
    """Neither is the copy taken for the line before, nor is it cut (E2)."""
    lines = lines_of(34)
    text = HEADER + b"".join([*lines[:26], lines[stray]])
    storage, store = of(text)
    for first, last in ((27, 30), (27, 30), (29, 33), (27, 34)):
        store.append(UID, SESSION, first, lines[first - 1 : last], allow_gap=True)
        assert content(storage) == text + b"".join(lines[26:last])
    assert told(store) == [(stray + 1, stray, "order")]
    storage, store = of(HEADER + b"".join([*lines[:30], lines[stray]]))
    store.append(UID, SESSION, 27, lines[26:30], allow_gap=True)
    assert content(storage) == HEADER + b"".join([*lines[:30], lines[stray]])


def test_a_checkpoint_is_repeated_beside_a_copy_of_the_line_before_it() -> None:
    """Where bisection meets the copy, all between that and the end seemed to give way."""
    lines = lines_of(40)
    for at in range(1, 34):
        text = HEADER + b"".join([*lines[:at], lines[34], *lines[at:]])
        storage, store = of(text)
        store.append(UID, SESSION, 36, lines[35:], allow_gap=True)
        assert content(storage) == text, at


def test_damage_beside_a_line_that_is_out_of_order_costs_its_seq() -> None:
    lines = lines_of(20)
    text = HEADER + b"".join([*lines[:19], b"?" + lines[19][1:-4] + b"\n", lines[4]])
    _, store = of(text)
    assert store.proven(UID, SESSION) == 20
    assert told(store, until=20) == [(5, 4, "order"), (20, 20, "damaged")]


@pytest.mark.parametrize("early", [1, 2, 5])
def test_the_seq_of_a_last_line_that_stands_too_early_is_not_given_again(early: int) -> None:
    lines, other = lines_of(20), lines_of(30, size=21)
    at = 20 - early
    storage, store = of(HEADER + b"".join([*lines[: at - 1], *lines[at:], lines[at - 1]]))
    seqs = [line_seq(line) for line in store.read(UID, SESSION).lines]
    assert store.proven(UID, SESSION) == 20
    gone = set(range(1, 21)) - set(seqs)
    assert {seq for a, b, _ in told(store, until=20) for seq in range(a, b + 1)} == gone
    storage, store = of(HEADER + b"".join([*lines[:19], other[29], lines[19]]))
    assert store.proven(UID, SESSION) == 20, "a line of another session claims nothing"
    assert content(storage).count(b"\n") == 22


def test_what_stands_out_of_order_is_told_beside_pending_lines() -> None:
    lines = lines_of(40)
    for stray in (4, 29):
        text = HEADER + b"".join([*lines[:30], lines[stray]])
        for half in (b"", lines[30] + lines[31][:50], b"\0" * 300 + lines[31], lines[33]):
            _, store = of(text + half)
            for limit in (0, 30, 500):
                reading = store.read(
                    UID, SESSION, limit=limit, until=30, pending=Pending(31, lines[30])
                )
                assert reading.lines == lines[:30]
                assert [item[1:4] for item in reading.breaks] == [(stray + 1, stray, "order")]
            page = store.read(UID, SESSION, limit=7, until=30, pending=Pending(31, lines[30]))
            assert [line_seq(line) for line in page.lines] == list(range(1, 8))
            assert page.breaks == []


def test_lines_of_another_session_that_have_seqs_of_pending_ones_hide_none_before() -> None:
    """Until the next checkpoint lines were missing that stood in the file."""
    lines, other = lines_of(11), lines_of(20, session="another")
    for gone in (0, 4, 6, 8):  # the block stands in the place of one line
        text = HEADER + b"".join([*lines[:gone], *other[9:], *lines[gone + 1 : 10]])
        _, store = of(text)
        reading = store.read(UID, SESSION, until=10, pending=Pending(11, lines[10]))
        assert reading.lines == [*lines[:gone], *lines[gone + 1 : 10]]
        missing = [item for item in reading.breaks if item.first_seq <= item.last_seq]
        assert [item[1:3] for item in missing] == [(gone + 1, gone + 1)]


@pytest.mark.parametrize("strange", [slice(3, 4), slice(3, 6), slice(7, 8)])
@pytest.mark.parametrize("behind", [0, 1, 2])
def test_a_line_of_another_session_takes_no_seq_of_this_one(strange: slice, behind: int) -> None:
    """Before the line of that seq it was given instead of it, and a repair made that final."""
    lines, other = lines_of(8), lines_of(8, size=21)
    text = HEADER + b"".join(
        [*lines[: strange.start], *other[strange], *other[3:4] * behind, *lines[strange.start :]]
    )
    _, store = of(text)
    reading = store.read(UID, SESSION)
    assert reading.lines == lines
    assert {item.why for item in reading.breaks} == {"order"}
    assert store.tail(UID, SESSION)[:2] == (8, chain_of(lines[7]))  # type: ignore[index]
    store.repair(UID, SESSION)
    assert store.read(UID, SESSION)[:2] == (lines, [])


@pytest.mark.parametrize(
    "strange",
    [slice(3, 4), slice(4, 5), slice(6, 7), slice(5, 7), slice(3, 5), slice(2, 5), slice(3, 6)],
)
def test_of_lines_that_do_not_follow_those_are_believed_that_others_follow(strange: slice) -> None:
    """In the place of one line: it and the next one are of one seq, or it leaps over that."""
    lines, other = lines_of(8), lines_of(8, size=21)
    _, store = of(HEADER + b"".join([*lines[:2], *other[strange], *lines[3:]]))
    assert store.read(UID, SESSION).lines == [*lines[:2], *lines[3:]]


@pytest.mark.parametrize("shift", [1, 2, 3])
def test_a_block_of_another_session_hides_no_line_that_is_there(shift: int) -> None:
    """Its lines follow one another too, and fill what it took, and go on behind that."""
    lines = lines_of(400, size=100)
    other = HEADER + b"".join(lines_of(400, size=97))
    text, at = HEADER + b"".join(lines), 8 * 4096
    source = at + shift * 1024
    _, store = of(text[:at] + other[source : source + 4096] + text[at + 4096 :])
    left = [one for one in lines if one in text[:at] or one in text[at + 4096 :]]
    assert 380 < len(left) < 400
    assert store.read(UID, SESSION).lines == left


@pytest.mark.parametrize("strange", [slice(6, 7), slice(7, 8), slice(8, 9), slice(6, 10)])
@pytest.mark.parametrize("lost", [[], [4]])
def test_a_line_of_another_session_gives_way_to_that_of_the_log(
    strange: slice, lost: list[int]
) -> None:
    """Its session could not be written any more, whatever was repaired."""
    lines, other = lines_of(10), lines_of(10, size=21)
    before = [line for at, line in enumerate(lines[:6]) if at not in lost]
    storage, store = of(HEADER + b"".join([*before, *other[strange]]))
    for _ in range(2):  # a checkpoint may be repeated
        store.append(UID, SESSION, 7, lines[6:9], allow_gap=True)
        store.append(UID, SESSION, 10, lines[9:], allow_gap=True)
        assert content(storage) == HEADER + b"".join([*before, *lines[6:]])
    disk = SimulatedDisk(storage)
    kept = [entry.name for entry in disk.list_dir("quarantine") if ".note" not in entry.name]
    files = [disk.open(f"quarantine/{name}") for name in kept]
    found = b"".join(file.read_at(file.size(), 0) for file in files)
    assert all(line in found for line in other[strange])


@pytest.mark.parametrize("first", [4, 5, 6])
def test_what_follows_from_the_header_on_gives_way_to_no_other_history(first: int) -> None:
    """A file and a log that are not of one copy: nothing is written."""
    lines, others = lines_of(8), lines_of(8, size=21)
    made = [*lines[:3], *_chained(others[3:], lines[2])]
    storage, store = of(HEADER + b"".join(lines))
    with pytest.raises(FormatError, match="nothing was written"):
        store.append(UID, SESSION, first, made[first - 1 : 7], allow_gap=True)
    assert content(storage) == HEADER + b"".join(lines)


def _chained(lines: list[bytes], before: bytes) -> list[bytes]:
    """The same entries behind another line."""
    made: list[bytes] = []
    for line in lines:
        one = read_line(line)
        previous = chain_of(made[-1] if made else before)
        made.append(make_line(one.seq, one.id, one.at_ms, one.type, one.payload, previous))
    return made


@pytest.mark.parametrize("strange", [slice(6, 7), slice(9, 10), slice(6, 12), slice(9, 12)])
def test_what_other_lines_hide_is_still_the_one_before_the_next(strange: slice) -> None:
    """In the place of the last line but one; the log has the lines behind the last."""
    lines, other = lines_of(12), lines_of(12, size=21)
    storage, store = of(HEADER + b"".join([*lines[:4], *other[strange], lines[5]]))
    for _ in range(2):
        store.append(UID, SESSION, 7, lines[6:9], allow_gap=True)
        assert store.read(UID, SESSION).lines == [*lines[:4], *lines[5:9]]
    assert content(storage) == HEADER + b"".join([*lines[:4], *lines[5:9]])


@pytest.mark.parametrize("last", [8, 9, 11])
def test_a_line_that_the_next_was_made_for_is_given_behind_the_checkpoint_too(last: int) -> None:
    """The log had told that it is the session's; lines of another one stood for it again."""
    lines, other = lines_of(12), lines_of(12, session="another")
    before = [*lines[:3], *other[4:last], lines[7]]
    storage, store = of(HEADER + b"".join(before))
    for _ in range(2):
        store.append(UID, SESSION, 9, lines[8:10], allow_gap=True)
        assert set(store.read(UID, SESSION).lines).issuperset([*lines[:3], *lines[7:10]])
    disk = SimulatedDisk(storage)
    kept = [disk.open(f"quarantine/{one.name}") for one in disk.list_dir("quarantine")]
    assert all(
        any(line in file.read_at(file.size(), 0) for file in kept)
        for line in before
        if line not in content(storage)
    )


@pytest.mark.parametrize("block", [slice(10, 13), slice(8, 13), slice(11, 13)])
@pytest.mark.parametrize("at", [2, 6])
def test_a_checkpoint_is_repeated_beside_a_copy_of_its_block(block: slice, at: int) -> None:
    """What stood between the copy and the end was cut, though the log had let go of it."""
    lines = lines_of(14)
    text = HEADER + b"".join([*lines[:at], *lines[block], *lines[at:13]])
    storage, store = of(text)
    store.append(UID, SESSION, 13, lines[12:13], allow_gap=True)
    assert content(storage) == text
    store.append(UID, SESSION, 13, lines[12:], allow_gap=True)
    assert content(storage) == text + lines[13]
    assert store.read(UID, SESSION).lines == lines


def test_wherever_a_block_stands_what_the_log_has_is_given_out_behind_its_checkpoint() -> None:
    random = Random(3)
    for _ in range(1500):
        count, more = random.randrange(4, 14), random.randrange(1, 5)
        lines, other = lines_of(count + more), lines_of(28, session="another")
        first = random.randrange(count + more)
        block = slice(first, first + random.choice([1, 2, 3, 6, 10]))
        at, gone = random.randrange(count + 1), random.choice([0, 1, block.stop - first])
        strange = b"".join((random.choice([lines, other, other]))[block])
        before = b"".join(lines[:at]) + strange[random.choice([0, 0, 37]) :]
        _, store = of(HEADER + before + b"".join(lines[at + gone : count]))
        told_before = store.read(UID, SESSION).lines
        for _ in range(2):
            store.append(UID, SESSION, count + 1, lines[count:], allow_gap=True)
            read = set(store.read(UID, SESSION).lines)
            assert read.issuperset(lines[count:])
            assert read.issuperset(set(told_before).intersection(lines))


def test_a_line_is_believed_before_one_that_follows_but_hides_more() -> None:
    lines, other = lines_of(90), lines_of(90, size=21)
    _, store = of(HEADER + b"".join([*lines[:9], *other[9:40], lines[9], *lines[40:]]))
    assert store.read(UID, SESSION).lines == [*lines[:9], *other[9:40], *lines[40:]]


def test_a_file_of_lines_that_do_not_follow_is_read_in_time() -> None:
    one, other = lines_of(3000), lines_of(3000, size=21)
    mixed = [line for at in range(0, 3000, 2) for line in (other[at + 1], one[at], other[at])]
    _, store = of(HEADER + b"".join(mixed))
    reading = store.read(UID, SESSION)
    assert len(reading.lines) >= 1500
