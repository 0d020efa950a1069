"""Partial files: bytes (T1), the tree they stand in (T2), and what damage does (T3)."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from damaged_directory import begin
from hypothesis import given
from hypothesis import strategies as st
from walld_client.paths import path_name
from walld_client.wire import messages as wire

from walld.disk.medium import PROFILES, Storage
from walld.disk.real import RealDisk
from walld.disk.simulated import SimulatedDisk
from walld.errors import FormatError, Misplaced
from walld.partials.file import (
    PARTIAL_HEADER_BYTES,
    Partial,
    PartialFacts,
    pack_partial,
    unpack_partial,
)
from walld.partials.names import place_of
from walld.partials.store import PARTIALS_DIR, PartialStore, Stray
from walld.recovery.partial_scan import find_partials
from walld.recovery.quarantine import kept_aside
from walld.wal.records import Happened, Item, encode_item, join_items

FACTS = PartialFacts(bytes(range(16)), 7, 1_700_000_000_123, 1_700_000_009_456, 0, 41, "agent_lost")
PLACE = place_of("session", "stream")
ODD_IDS = [
    ".",
    "..",
    "",
    "a/b",
    "../../x",
    "\0",
    "\ud83d",
    "é",
    "x" * 97,
    "h~" + "0" * 40,
    "-",
    "_",
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[RealDisk]:
    with RealDisk(str(tmp_path / "root")) as found:
        yield found


def files(disk: RealDisk) -> list[str]:
    root = Path(disk.root)
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_what_is_written_is_read(disk: RealDisk) -> None:
    store = PartialStore(disk)
    store.write(1000, "session", "stream", FACTS, b"body")
    assert store.read(1000, "session", "stream") == Partial(1000, FACTS, b"body", PLACE)
    assert store.read_facts(1000, "session", "stream") == FACTS
    longer = FACTS._replace(last_seq=50, lost_reason=None)
    store.write(1000, "session", "stream", longer, b"")
    assert store.read(1000, "session", "stream") == Partial(1000, longer, b"", PLACE)
    assert files(disk) == [
        "partials",
        "partials/1000",
        "partials/1000/session",
        "partials/1000/session/stream",
    ]


def test_one_that_is_longer_than_it_says_is_damaged_before_it_is_read(disk: RealDisk) -> None:
    store = PartialStore(disk)
    store.write(1000, "session", "stream", FACTS, b"body")
    (path,) = (Path(disk.root, name) for name in files(disk) if name.endswith("/stream"))
    os.truncate(path, 1 << 40)
    with pytest.raises(FormatError, match="length at offset 112 is 1099511627776"):
        store.read(1000, "session", "stream")


def test_any_id_is_a_file_of_its_own(disk: RealDisk) -> None:
    store = PartialStore(disk)
    for session in ODD_IDS:
        for index, stream in enumerate(ODD_IDS):
            store.write(
                0,
                session,
                stream,
                FACTS._replace(stream_no=index),
                stream.encode("utf-16-le", "surrogatepass"),
            )
    for session in ODD_IDS:
        for index, stream in enumerate(ODD_IDS):
            found = store.read(0, session, stream)
            assert found.facts.stream_no == index
            assert found.body.decode("utf-16-le", "surrogatepass") == stream
    tree = store.tree()
    assert len(tree[0]) == len(ODD_IDS)
    assert all(len(names) == len(ODD_IDS) for names in tree[0].values())
    for session in ODD_IDS:
        for stream in ODD_IDS:
            assert store.remove_named(0, path_name(session), path_name(stream))
    assert files(disk) == ["partials"]


def test_the_tree_is_names_only(disk: RealDisk) -> None:
    store = PartialStore(disk)
    assert store.tree() == {}
    for uid, session, stream in [(1, "a", "x"), (1, "a", "y"), (1, "b", "x"), (22, "a", "x")]:
        store.write(uid, session, stream, FACTS, b"")
    root = Path(disk.root) / "partials"
    (root / "1" / "a" / ".z.tmp").write_bytes(b"")
    (root / "1" / "a" / ".nfs0001").write_bytes(b"")
    (root / "1" / "empty").mkdir()
    (root / "notes").mkdir()
    (root / "1" / "b" / "link").symlink_to("x")
    assert store.tree() == {1: {"a": ["x", "y"], "b": ["x"]}, 22: {"a": ["x"]}}
    assert store.read_named(22, "a", "x").uid == 22


def test_remove_takes_empty_directories_and_no_others(disk: RealDisk) -> None:
    store = PartialStore(disk)
    for session, stream in [("a", "x"), ("a", "y"), ("b", "x")]:
        store.write(1, session, stream, FACTS, b"")
    assert store.remove_named(1, path_name("a"), path_name("x"))
    assert not store.remove_named(1, path_name("a"), path_name("x"))
    assert not store.remove_named(2, path_name("a"), path_name("x"))
    assert files(disk)[-4:] == [
        "partials/1/a",
        "partials/1/a/y",
        "partials/1/b",
        "partials/1/b/x",
    ]
    assert store.remove_named(1, path_name("a"), path_name("y"))
    assert files(disk) == ["partials", "partials/1", "partials/1/b", "partials/1/b/x"]
    assert store.remove_named(1, path_name("b"), path_name("x"))
    assert files(disk) == ["partials"]
    with pytest.raises(FileNotFoundError):
        store.read(1, "b", "x")


def test_what_a_crash_left_is_swept(disk: RealDisk) -> None:
    store = PartialStore(disk)
    disk.make_dir(PARTIALS_DIR)
    assert store.sweep_temporary() == 0
    store.write(1, "a", "x", FACTS, b"")
    root = Path(disk.root) / "partials"
    (root / "1" / "a" / ".y.tmp").write_bytes(b"half")
    (root / "1" / "gone").mkdir()
    (root / "2" / "a").mkdir(parents=True)
    (root / "2" / "a" / ".x.tmp").write_bytes(b"half")
    assert store.sweep_temporary() == 2
    assert files(disk) == ["partials", "partials/1", "partials/1/a", "partials/1/a/x"]


def test_every_flipped_bit_is_noticed() -> None:
    whole = pack_partial(1000, FACTS, b"a body", PLACE)
    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError, match="some/path"):
            unpack_partial(bytes(damaged), "some/path")


def test_every_length_but_its_own_is_refused() -> None:
    whole = pack_partial(1000, FACTS, b"a body", PLACE)
    for length in range(len(whole)):
        with pytest.raises(FormatError):
            unpack_partial(whole[:length], "p")
    with pytest.raises(FormatError, match="is 135, expected 134"):
        unpack_partial(whole + b"x", "p")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_format_error(content: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_partial(content, "p")


def test_errors_name_the_file_the_offset_and_both_numbers(disk: RealDisk) -> None:
    store = PartialStore(disk)
    store.write(1, "a", "x", FACTS, b"body")
    path = Path(disk.root) / "partials/1/a/x"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FormatError) as caught:
        store.read(1, "a", "x")
    whole = PARTIAL_HEADER_BYTES + 4
    for part in ("partials/1/a/x", f"is {whole - 1}, expected {whole}", "offset 112"):
        assert part in str(caught.value)
    with pytest.raises(FormatError):
        store.read_facts(1, "a", "x")


def test_a_file_of_another_user_is_not_served(disk: RealDisk) -> None:
    store = PartialStore(disk)
    store.write(1, "a", "x", FACTS, b"body")
    store.write(2, "a", "y", FACTS, b"")
    os.rename(Path(disk.root) / "partials/1/a/x", Path(disk.root) / "partials/2/a/x")
    for read in (store.read, store.read_facts):
        with pytest.raises(FormatError, match="uid at offset 32 is 1, expected 2"):
            read(2, "a", "x")


def test_quarantine_keeps_the_bytes_and_says_where_they_came_from(disk: RealDisk) -> None:
    store = PartialStore(disk)
    for content in (b"first", b"second"):
        store.write(1, "a", "x", FACTS, b"")
        path = Path(disk.root) / "partials/1/a/x"
        path.write_bytes(content)
        store.quarantine("partials/1/a/x", "body CRC\nis wrong \ud83d")
        assert not path.parent.exists()
    assert store.tree() == {}
    kept = Path(disk.root) / "quarantine"
    assert sorted(item.name for item in kept.iterdir()) == [
        "partials+1+a+x",
        "partials+1+a+x.2",
        "partials+1+a+x.2.note",
        "partials+1+a+x.note",
    ]
    assert (kept / "partials+1+a+x").read_bytes() == b"first"
    assert (kept / "partials+1+a+x.2").read_bytes() == b"second"
    assert (kept / "partials+1+a+x.note").read_text().startswith("from: partials/1/a/x\n")


def test_a_reason_that_does_not_fit_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        pack_partial(1, FACTS._replace(lost_reason="x" * 25), b"", PLACE)


class Tracing(RealDisk):
    """Notes what is made durable, and fails where it is told to."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.calls: list[str] = []
        self.fail_at = ""

    def _note(self, verb: str, path: str) -> None:
        self.calls.append(f"{verb} {path}")
        if self.calls[-1] == self.fail_at:
            raise OSError(errno.EIO, "planted", path)

    def sync_dir(self, path: str) -> None:
        self._note("sync_dir", path)
        super().sync_dir(path)

    def rename(self, path: str, new_path: str) -> None:
        self._note("rename", new_path)
        super().rename(path, new_path)

    def unlink(self, path: str) -> None:
        self._note("unlink", path)
        super().unlink(path)


def test_every_new_name_is_synced_before_write_returns(tmp_path: Path) -> None:
    with Tracing(str(tmp_path / "root")) as disk:
        store = PartialStore(disk)
        store.write(1, "a", "x", FACTS, b"")
        assert [call for call in disk.calls if not call.startswith("unlink")] == [
            "sync_dir ",
            "sync_dir partials",
            "sync_dir partials/1",
            "rename partials/1/a/x",
            "sync_dir partials/1/a",
        ]
        disk.calls.clear()
        store.remove_named(1, path_name("a"), path_name("x"))
        assert disk.calls == ["unlink partials/1/a/x", "sync_dir partials"]


def test_a_write_that_fails_leaves_the_old_partial(tmp_path: Path) -> None:
    with Tracing(str(tmp_path / "root")) as disk:
        store = PartialStore(disk)
        store.write(1, "a", "x", FACTS, b"old")
        disk.fail_at = "rename partials/1/a/x"
        with pytest.raises(OSError, match="planted"):
            store.write(1, "a", "x", FACTS, b"new")
        assert store.read(1, "a", "x").body == b"old"
        assert disk.list_dir("partials/1/a") == [("x", "file", PARTIAL_HEADER_BYTES + 3, False)]


@pytest.mark.parametrize("seed", range(8))
def test_a_name_that_a_killed_daemon_did_not_sync_is_durable_after_a_start(seed: int) -> None:
    """Both ways: a partial it made stays, one it removed stays away, whatever power loss does."""
    storage = Storage(Random(seed), PROFILES["adversarial"])
    first = SimulatedDisk(storage)
    first.make_dir(PARTIALS_DIR)
    store = PartialStore(first)
    store.write(1000, "s", "gone", FACTS, b"body")
    store.write(1000, "s", "made", FACTS, b"body")
    first.rename(f"{PARTIALS_DIR}/1000/s/made", f"{PARTIALS_DIR}/1000/s/made-too")
    first.unlink(f"{PARTIALS_DIR}/1000/s/gone")
    storage.kill()
    PartialStore(SimulatedDisk(storage)).sweep_temporary()
    storage.cut_power()
    assert PartialStore(SimulatedDisk(storage)).tree() == {1000: {"s": ["made-too"]}}


def test_whose_a_partial_is_its_items_say(disk: RealDisk) -> None:
    """Its session is that of the last Move; damage may have taken that."""
    store, uid = PartialStore(disk), 1000
    first = begin("r", "before", uid)
    moves: list[Item] = [
        Happened(5, wire.Move(1, seq, name)) for seq, name in ((1, "between"), (2, "after"))
    ]
    for items, gap_word, fits in (
        ([first, *moves], "dropped", {"after"}),
        ([first], "dropped", {"before"}),
        ([first], "corrupt", {"before", "between", "after", "elsewhere"}),
    ):
        body = join_items([encode_item(one) for one in items])
        for session_id in ("before", "between", "after", "elsewhere"):
            store.write(uid, session_id, "r", FACTS._replace(gap_word=gap_word), body)
            if session_id in fits:
                assert store.read_reply(uid, session_id, "r")[1] == items
            else:
                with pytest.raises(Misplaced, match=f"partials/{uid}/{session_id}/r: it belongs"):
                    store.read_reply(uid, session_id, "r")
        store.write(uid, "before", "other", FACTS._replace(gap_word=gap_word), body)
        with pytest.raises(Misplaced):
            store.read_reply(uid, "before", "other")
    store.write(uid, "before", "r", FACTS, join_items([encode_item(one) for one in moves]))
    with pytest.raises(FormatError, match="no Begin"):
        store.read_reply(uid, "before", "r")


def test_a_file_in_anothers_place_is_misplaced_by_its_header_alone(disk: RealDisk) -> None:
    """Damage that may have taken a Move makes no exception; nor does a body that says nothing."""
    store, root = PartialStore(disk), Path(disk.root)
    items: list[Item] = [begin("r", "s", 1000)]
    body = join_items([encode_item(one) for one in items])
    for gap_word, content, where in (
        ("dropped", body, "in partials/1000/s/r"),
        ("corrupt", body, "in partials/1000/s/r"),
        ("dropped", b"x", "somewhere else"),
    ):
        store.write(1000, "s", "r", FACTS._replace(gap_word=gap_word), content)
        for session, name in (("t", "r"), ("s", "q")):
            path = root / "partials/1000" / session / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes((root / "partials/1000/s/r").read_bytes())
            for read in (store.read_facts, store.read_named, store.read_reply):
                with pytest.raises(Misplaced, match=f"{session}/{name}: it belongs {where}:"):
                    read(1000, session, name)


def test_what_is_kept_is_never_named_like_a_note(disk: RealDisk) -> None:
    """An id may end in .note; a note that is written takes no place of what is kept."""
    store, root = PartialStore(disk), Path(disk.root)
    for session, names in (("s", ("x.note", "x", "x.note.2")), ("sessions", (".note",))):
        for name in names:
            store.write(1, session, name, FACTS, name.encode())
            path = f"partials/1/{session}/{path_name(name)}"
            kept = store.quarantine(path, "why")
            assert not kept.endswith(".note")
            assert unpack_partial((root / kept).read_bytes(), kept).body == name.encode()
            assert (root / f"{kept}.note").read_text() == f"from: {path}\nreason: why\n"
    kept_names = {path.name for path in (root / "quarantine").iterdir()}
    assert len(kept_names) == 8
    assert kept_aside(disk) == 4


def test_what_stands_in_the_way_is_told(disk: RealDisk, tmp_path: Path) -> None:
    """Names that are none of ours are not."""
    store, root = PartialStore(disk), Path(disk.root)
    store.write(1, "s", "r", FACTS, b"x")
    for ignored in ("partials/lost+found", "partials/1/.nfs1", "partials/007"):
        (root / ignored).mkdir()
    for name in ("partials/2", "partials/1/linked", "partials/1/s/linked"):
        (root / name).symlink_to(tmp_path)
    (root / "partials/1/file").write_bytes(b"x")
    (root / "partials/1/s/folder").mkdir()
    strays: list[Stray] = []
    assert store.tree(strays) == {1: {"s": ["r"]}}
    assert not any(stray.may_pass for stray in strays)
    assert sorted(stray.path for stray in strays) == [
        "partials/1/file",
        "partials/1/linked",
        "partials/1/s/folder",
        "partials/1/s/linked",
        "partials/2",
    ]


def test_a_directory_that_cannot_be_synced_is_told_of(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power may take the names in it: what the log has of those is kept once more."""
    store = PartialStore(disk)
    store.write(7, "s", "r", FACTS, join_items([encode_item(begin("r", "s", 7))]))
    sync_dir = RealDisk.sync_dir

    def failing(disk: RealDisk, path: str) -> None:
        if path == "partials/7/s":
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        sync_dir(disk, path)

    monkeypatch.setattr(RealDisk, "sync_dir", failing)
    unsynced: list[Stray] = []
    store.sweep_temporary(unsynced)
    assert [stray.path for stray in unsynced] == ["partials/7/s"]
    assert find_partials(store, unsynced).undurable == {(7, "s", "r")}
    with pytest.raises(OSError, match="Input/output"):
        store.sweep_temporary()
