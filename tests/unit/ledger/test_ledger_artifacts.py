"""Artifacts: A1 a file with the name of a hash was verified, and is again when it is read."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest
from ledger_world import SESSION, UID

from walld.disk.medium import Crashed, Storage
from walld.disk.real import RealDisk
from walld.disk.simulated import SimulatedDisk
from walld.errors import FormatError, ProtocolError
from walld.ledger.artifacts import ArtifactStore
from walld.ledger.store import LedgerStore
from walld.limits import ARTIFACT_BYTES_MAX, ARTIFACT_UPLOADS_PER_UID_MAX

CONTENT = bytes(range(256)) * 40
DIGEST = sha256(CONTENT).digest()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[RealDisk]:
    with RealDisk(str(tmp_path / "root")) as found:
        yield found


@pytest.fixture
def store(disk: RealDisk) -> ArtifactStore:
    return ArtifactStore(disk)


def names(disk: RealDisk) -> list[str]:
    return sorted(path.name for path in Path(disk.root).rglob("*") if path.is_file())


def put(store: ArtifactStore, content: bytes, step: int, session: str = SESSION) -> list[bool]:
    digest, size = sha256(content).digest(), len(content)
    return [
        store.put(UID, session, digest, size, at, content[at : at + step])
        for at in range(0, max(1, size), step)
    ]


@pytest.mark.parametrize("planted", ["dir", "full", "link", "dangling", "fifo"])
@pytest.mark.parametrize("step", [1000, len(CONTENT)])
def test_what_is_no_file_makes_room(
    disk: RealDisk, store: ArtifactStore, planted: str, step: int
) -> None:
    put(store, CONTENT, step)
    (path,) = Path(disk.root).rglob(DIGEST.hex())
    path.unlink()
    if planted in ("dir", "full"):
        path.mkdir()
        if planted == "full":
            (path / "theirs").write_text("kept")
    elif planted == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(Path(__file__) if planted == "link" else "nowhere")
    for _ in range(2):
        assert put(store, CONTENT, step)[-1]
        assert store.read(UID, SESSION, DIGEST) == CONTENT
    kept = {one.name: one for one in (Path(disk.root) / "quarantine").iterdir()}
    (name,) = [one for one in kept if not one.endswith(".note")]
    assert sorted(kept) == [name, f"{name}.note"]
    assert b"no file, where an artifact belongs" in kept[f"{name}.note"].read_bytes()
    assert not kept[name].is_file() or kept[name].is_symlink()
    assert [one.read_text() for one in kept[name].glob("*")] == ["kept"] * (planted == "full")
    LedgerStore(disk).delete(UID, SESSION)
    left = [one.name for one in (Path(disk.root) / "quarantine").iterdir()]
    assert left == ([name] if planted in ("dir", "full") else [])


@pytest.mark.parametrize("step", [1000, 4096, len(CONTENT), 99_999])
def test_pieces_make_a_whole(disk: RealDisk, store: ArtifactStore, step: int) -> None:
    answers = put(store, CONTENT, step)
    assert answers == [False] * (len(answers) - 1) + [True]
    assert store.read(UID, SESSION, DIGEST) == CONTENT
    assert names(disk) == [DIGEST.hex()]
    assert store.exists(UID, SESSION, DIGEST)
    assert store.list(UID, SESSION) == {DIGEST: len(CONTENT)}
    assert store.list(UID, "other") == {}
    assert store.put(UID, SESSION, DIGEST, len(CONTENT), 0, b"any") is True


def test_nothing_is_an_artifact_too(store: ArtifactStore) -> None:
    assert put(store, b"", 10) == [True]
    assert store.read(UID, SESSION, sha256(b"").digest()) == b""


def test_what_is_not_there_and_what_was_changed(disk: RealDisk, store: ArtifactStore) -> None:
    with pytest.raises(FileNotFoundError):
        store.read(UID, SESSION, DIGEST)
    assert not store.exists(UID, SESSION, DIGEST)
    put(store, CONTENT, 5000)
    (path,) = Path(disk.root).rglob(DIGEST.hex())
    path.write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(FormatError, match=f"expected {DIGEST.hex()}"):
        store.read(UID, SESSION, DIGEST)
    assert put(store, CONTENT, 5000)[-1]
    assert store.read(UID, SESSION, DIGEST) == CONTENT


def refused(store: ArtifactStore, code: str, *given: object) -> tuple[str, str]:
    with pytest.raises(ProtocolError) as caught:
        store.put(UID, SESSION, *given)  # type: ignore[arg-type]
    assert caught.value.code == code
    return caught.value.got, caught.value.limit


def test_one_clear_error_each_and_nothing_is_left(disk: RealDisk, store: ArtifactStore) -> None:
    size = len(CONTENT)
    assert refused(store, "bad_artifact", b"short", size, 0, b"x") == ("5", "32")
    for wrong in (-1, ARTIFACT_BYTES_MAX + 1):
        got = refused(store, "bad_artifact", DIGEST, wrong, 0, b"x")
        assert got == (str(wrong), str(ARTIFACT_BYTES_MAX))
    assert refused(store, "artifact_offset", DIGEST, size, 5, b"x") == ("5", "0")
    assert names(disk) == []
    store.put(UID, SESSION, DIGEST, size, 0, CONTENT[:100])
    assert refused(store, "artifact_offset", DIGEST, size, 99, b"x") == ("99", "100")
    assert store.put(UID, SESSION, DIGEST, size, 100, CONTENT[100:])
    other = sha256(b"abc").digest()
    assert refused(store, "artifact_hash", other, 3, 0, b"xyz") == (
        sha256(b"xyz").hexdigest(),
        other.hex(),
    )
    assert refused(store, "artifact_size", other, 3, 0, b"abcd") == ("4", "3")
    store.put(UID, SESSION, other, 3, 0, b"ab")
    assert refused(store, "artifact_size", other, 4, 2, b"c") == ("4", "3")
    assert names(disk) == [DIGEST.hex()]


def test_a_beginning_again_begins_again(disk: RealDisk, store: ArtifactStore) -> None:
    store.put(UID, SESSION, DIGEST, len(CONTENT), 0, b"wrong")
    assert put(store, CONTENT, 3000)[-1]
    store.put(UID, SESSION, sha256(b"z").digest(), 100, 0, b"a")
    store.forget(UID, "another")
    store.forget(UID + 1, SESSION)
    assert len(names(disk)) == 2
    store.forget(UID, SESSION)
    assert names(disk) == [DIGEST.hex()]


def test_what_went_with_its_session_is_sent_again_from_the_beginning(
    disk: RealDisk, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A2."""
    size, other = len(CONTENT), sha256(b"z").digest()
    assert put(store, b"z", 1)[-1]
    store.put(UID, SESSION, DIGEST, size, 0, CONTENT[:100])
    store.forget(UID, SESSION)
    LedgerStore(disk).delete(UID, SESSION)
    assert store.deleted(UID, SESSION) == {DIGEST.hex(), other.hex()}
    assert store.deleted(UID, "another") == store.deleted(UID + 1, SESSION) == set()
    for _ in range(2):
        assert refused(store, "artifact_missing", DIGEST, size, 100, CONTENT[100:]) == ("100", "0")
    assert names(disk) == []
    assert put(store, CONTENT, 3000)[-1]
    assert store.deleted(UID, SESSION) == {other.hex()}
    monkeypatch.setattr("walld.ledger.artifacts._DELETED_MAX", 10)
    for at in range(10):
        store.put(UID, f"s{at}", other, 1, 0, b"z")
        store.forget(UID, f"s{at}")
    assert store.deleted(UID, SESSION) == set()
    assert store.deleted(UID, "s9") == {other.hex()}
    for at in range(9):  # sent again, they are remembered no more
        store.put(UID, f"s{at}", other, 1, 0, b"z")
    assert len(store._deleted) == 1


def test_what_was_begun_first_makes_room(disk: RealDisk, store: ArtifactStore) -> None:
    digests = [sha256(bytes([at])).digest() for at in range(ARTIFACT_UPLOADS_PER_UID_MAX + 3)]
    for digest in digests:
        store.put(UID, SESSION, digest, 100, 0, b"a")
    store.put(UID + 1, SESSION, DIGEST, 100, 0, b"a")
    assert len(names(disk)) == ARTIFACT_UPLOADS_PER_UID_MAX + 1
    assert refused(store, "artifact_offset", digests[0], 100, 1, b"b") == ("1", "0")
    assert not store.put(UID, SESSION, digests[-1], 100, 1, b"b")


def test_durable_when_it_is_true() -> None:
    storage = Storage(Random(1))
    store = ArtifactStore(SimulatedDisk(storage))
    assert put(store, CONTENT, 4000)[-1]
    storage.cut_power()
    assert ArtifactStore(SimulatedDisk(storage)).read(UID, SESSION, DIGEST) == CONTENT


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_an_error_at_each_verb_leaves_nothing_in_the_way(number: int) -> None:
    for at in range(1, 60):
        storage = Storage(Random(1))
        store = ArtifactStore(SimulatedDisk(storage))
        storage.fail = lambda verb, path, s=storage, at=at: number if s.ops == at else 0
        try:
            put(store, CONTENT, 4000)
            fails = storage.ops >= at
        except OSError:
            fails = True
        storage.fail = lambda verb, path: 0
        assert put(store, CONTENT, 4000)[-1]
        assert store.read(UID, SESSION, DIGEST) == CONTENT
        assert list(store.list(UID, SESSION)) == [DIGEST]
        if not fails:
            break
    else:
        raise AssertionError("more verbs than looked at")


def test_a_crash_at_each_verb_leaves_all_or_nothing() -> None:
    for at in range(1, 60):
        storage = Storage(Random(at))
        storage.crash_at = at
        is_done = False
        with suppress(Crashed):
            is_done = put(ArtifactStore(SimulatedDisk(storage)), CONTENT, 4000)[-1]
        storage.cut_power()
        later = ArtifactStore(SimulatedDisk(storage))
        if is_done or later.exists(UID, SESSION, DIGEST):
            assert later.read(UID, SESSION, DIGEST) == CONTENT
        assert put(later, CONTENT, 4000)[-1]
        storage.cut_power()
        again = ArtifactStore(SimulatedDisk(storage))
        assert again.read(UID, SESSION, DIGEST) == CONTENT


# --- forks ----------------------------------------------------------------------------------------


def test_a_forks_artifacts_are_the_same_files(disk: RealDisk, store: ArtifactStore) -> None:
    other = sha256(b"other").digest()
    put(store, CONTENT, 9999)
    put(store, b"other", 9999)
    made: list[bytes] = []
    store.link(UID, SESSION, "fork", [DIGEST, other, sha256(b"gone").digest()], made)
    assert made == [DIGEST, other]
    store.link(UID, SESSION, "fork", [DIGEST], again := [])  # of a fork that was killed before
    assert again == []
    assert store.list(UID, "fork") == {DIGEST: len(CONTENT), other: 5}
    first, second = Path(disk.root).rglob(DIGEST.hex())
    assert first.samefile(second)
    LedgerStore(disk).delete(UID, SESSION)
    assert store.list(UID, SESSION) == {}
    assert store.read(UID, "fork", DIGEST) == CONTENT
    store.link(UID, "never", "empty", [], [])
    assert "empty" not in str(list(Path(disk.root).rglob("*")))


def test_what_changed_in_a_fork_is_put_right_there_alone(
    disk: RealDisk, store: ArtifactStore
) -> None:
    """What is put replaces the name, and never the bytes that another name leads to."""
    put(store, CONTENT, 9999)
    store.link(UID, SESSION, "fork", [DIGEST], [])
    path = next(Path(disk.root).rglob(DIGEST.hex()))
    path.write_bytes(b"changed")
    assert put(store, CONTENT, 9999, "fork")[-1]
    assert store.read(UID, "fork", DIGEST) == CONTENT
    with pytest.raises(FormatError, match="7 bytes"):
        store.read(UID, SESSION, DIGEST)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EMLINK, errno.EXDEV, errno.ENOTSUP])
def test_where_there_are_no_second_names_it_is_a_copy(number: int) -> None:
    storage = Storage(Random(1))
    disk = SimulatedDisk(storage)
    store = ArtifactStore(disk)
    put(store, CONTENT, 9999)
    storage.fail = lambda verb, path: number if verb == "link" else 0
    store.link(UID, SESSION, "fork", [DIGEST, sha256(b"gone").digest()], [])
    storage.cut_power()
    nodes = [storage.node(path) for path in storage.files()]
    assert [bytes(node.data) for node in nodes] == [CONTENT, CONTENT]
    assert nodes[0] is not nodes[1]


def test_an_error_that_is_no_refusal_ends_a_fork() -> None:
    storage = Storage(Random(1))
    store = ArtifactStore(SimulatedDisk(storage))
    put(store, CONTENT, 9999)
    storage.fail = lambda verb, path: errno.ENOSPC if verb == "link" else 0
    with pytest.raises(OSError, match="No space"):
        store.link(UID, SESSION, "fork", [DIGEST], [])


@pytest.mark.parametrize("crash", ["kill", "cut_power"])
def test_a_crash_at_each_verb_of_a_fork_hurts_no_artifact(crash: str) -> None:
    for at in range(1, 60):
        storage = Storage(Random(at))
        put(ArtifactStore(SimulatedDisk(storage)), CONTENT, 9999)
        storage.crash_at = storage.ops + at
        is_done = False
        with suppress(Crashed):
            ArtifactStore(SimulatedDisk(storage)).link(UID, SESSION, "fork", [DIGEST], [])
            is_done = True
        getattr(storage, crash)()
        later = ArtifactStore(SimulatedDisk(storage))
        assert later.read(UID, SESSION, DIGEST) == CONTENT
        if is_done or later.exists(UID, "fork", DIGEST):
            assert later.read(UID, "fork", DIGEST) == CONTENT
        later.link(UID, SESSION, "fork", [DIGEST], [])
        storage.cut_power()
        assert ArtifactStore(SimulatedDisk(storage)).read(UID, "fork", DIGEST) == CONTENT
        if is_done:
            break
    else:
        raise AssertionError("more verbs than looked at")


def test_what_is_being_sent_is_not_swept(disk: RealDisk, store: ArtifactStore) -> None:
    ledgers, half = LedgerStore(disk), len(CONTENT) // 2
    assert not store.put(UID, "abandoned", DIGEST, len(CONTENT), 0, CONTENT[:half])
    store = ArtifactStore(disk)  # the next process
    assert not store.put(UID, SESSION, DIGEST, len(CONTENT), 0, CONTENT[:half])
    assert sum(ledgers.sweeping(store.is_begun)) == 1
    assert store.put(UID, SESSION, DIGEST, len(CONTENT), half, CONTENT[half:])
    assert store.read(UID, SESSION, DIGEST) == CONTENT


@pytest.mark.parametrize("step", [1000, len(CONTENT)])
def test_one_that_cannot_be_read_is_replaced_when_it_is_put_again(step: int) -> None:
    """As one that changed is; else it could not be had again."""
    storage = Storage(Random(1))
    store = ArtifactStore(SimulatedDisk(storage))
    put(store, CONTENT, step)
    path = next(name for name in storage.files() if name.endswith(DIGEST.hex()))
    storage.fail = lambda verb, name: errno.EIO if (verb, name) == ("read", path) else 0
    with pytest.raises(OSError, match="Input/output"):
        store.read(UID, SESSION, DIGEST)
    assert put(store, CONTENT, step)[-1] is True
    storage.fail = lambda *_: 0
    assert store.read(UID, SESSION, DIGEST) == CONTENT
