"""One daemon per data directory, and the epoch that fences a frozen one."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
import zlib
from pathlib import Path

import pytest

from walld.disk.lock import Owner, holding
from walld.disk.lock_record import (
    LOCK_BYTES,
    LOCK_NAME,
    WRITTEN_AT,
    LockRecord,
    believes_segments,
    lock_record,
    parse_lock,
)
from walld.errors import DirectoryTaken, FormatError

UUID, OTHER = bytes(range(16)), bytes(range(16, 32))


def test_each_owner_raises_the_epoch_and_the_log_keeps_its_name(tmp_path: Path) -> None:
    for epoch in (1, 2, 3):
        owner = Owner(str(tmp_path), UUID if epoch == 1 else OTHER)
        assert (owner.epoch, owner.log_uuid) == (epoch, UUID)
        assert owner.is_owner()
        owner.close()
    raw = (tmp_path / LOCK_NAME).read_bytes()
    assert len(raw) == LOCK_BYTES
    assert raw.split() == [b"walld", b"1", b"epoch", b"%020d" % 3, b"log", UUID.hex().encode()]
    assert (tmp_path / LOCK_NAME).stat().st_mode & 0o777 == 0o600


def test_a_log_that_begins_anew_has_a_new_name(tmp_path: Path) -> None:
    Owner(str(tmp_path), UUID).close()
    owner = Owner(str(tmp_path), OTHER, is_new=True)
    assert (owner.epoch, owner.log_uuid) == (2, OTHER)
    owner.close()


def test_a_directory_has_one_owner_at_a_time(tmp_path: Path) -> None:
    first = Owner(str(tmp_path), UUID)
    with pytest.raises(DirectoryTaken, match="another walld owns"):
        Owner(str(tmp_path), UUID)
    assert first.is_owner(), "who was refused has changed nothing"
    first.close()
    Owner(str(tmp_path), UUID).close()


def test_who_removes_lock_gets_no_second_owner(tmp_path: Path) -> None:
    """As the leftover of a crash, say. Two would both acknowledge."""
    first = Owner(str(tmp_path), UUID)
    (tmp_path / "LOCK").unlink()
    with pytest.raises(DirectoryTaken, match="another walld owns"):
        Owner(str(tmp_path), UUID)
    with pytest.raises(DirectoryTaken, match="another walld owns"), holding(str(tmp_path)):
        pass
    assert not (tmp_path / "LOCK").exists()
    first.close()
    Owner(str(tmp_path), UUID).close()


def test_a_directory_that_cannot_be_flocked_is_held_by_lock_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS: EBADF, for a directory is never open for writing."""
    flock = fcntl.flock

    def on_nfs(fd: int, how: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", on_nfs)
    first = Owner(str(tmp_path), UUID)
    with pytest.raises(DirectoryTaken, match="LOCK: another walld owns"):
        Owner(str(tmp_path), UUID)
    first.close()


def unlocked(owner: Owner) -> None:
    """As where the lease of a file server has run out."""
    for fd in (owner._fd, owner._root_fd):
        fcntl.flock(fd, fcntl.LOCK_UN)


def test_a_frozen_owner_that_thaws_is_none(tmp_path: Path) -> None:
    """Its lock was lost, as on NFS when a lease runs out, and another daemon came."""
    frozen = Owner(str(tmp_path), UUID)
    unlocked(frozen)
    other = Owner(str(tmp_path), UUID)
    assert (frozen.is_owner(), other.is_owner()) == (False, True)
    other.close()
    frozen.close()


@pytest.mark.parametrize("where", ["", "/dev/shm"])
@pytest.mark.parametrize("epoch", [3, 9])
def test_what_a_frozen_owner_adds_to_lock_takes_it_from_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, epoch: int
) -> None:
    """It stood still between its look at the epoch and its write, while another came."""
    if where and not Path(where).is_dir():
        pytest.skip("no /dev/shm: no file system without a device to try it on")
    with tempfile.TemporaryDirectory(dir=where or tmp_path) as root:
        frozen = Owner(root, UUID, epoch=epoch - 1)
        others: list[Owner] = []

        def looks() -> bool:
            unlocked(frozen)
            others.append(Owner(root, OTHER, epoch=epoch))
            return True

        with monkeypatch.context() as patch:
            patch.setattr(frozen, "is_owner", looks)
            frozen.synced(1, 7)
        (other,) = others
        assert (frozen.is_owner(), other.is_owner()) == (False, True)
        raw = Path(root, LOCK_NAME).read_bytes()
        told = LockRecord(epoch + 1, UUID, had_log=True, had_dirs=True)
        assert parse_lock(raw, LOCK_NAME) == told, "a segment was durable; which batch is in doubt"
        assert len(raw) == LOCK_BYTES
        other.close()
        frozen.close()


def test_a_lock_with_a_short_epoch_is_read(tmp_path: Path) -> None:
    raw = b"walld 1\nepoch 7\nlog " + UUID.hex().encode() + b"\nwritten\n"
    (tmp_path / LOCK_NAME).write_bytes(raw.ljust(LOCK_BYTES))
    owner = Owner(str(tmp_path), OTHER)
    assert (owner.epoch, owner.log_uuid, owner.lock_before.had_log) == (8, UUID, True)
    owner.close()


def test_on_no_device_of_this_machine_the_lock_is_read_past_the_page_cache(tmp_path: Path) -> None:
    """There another machine may be the one that wrote it; NFS for real: `tests/nfs/takeover.py`."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("no /dev/shm: no file system without a device to try it on")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as far:
        for root, is_direct in ((str(tmp_path), False), (far, True)):
            if is_direct is not (os.major(os.stat(root).st_dev) == 0):
                continue  # the tests' own folder may be on such a file system, too
            frozen = Owner(root, UUID)
            # tmpfs can since Linux 6.5.
            assert is_direct or frozen._direct < 0
            assert frozen.is_owner()
            unlocked(frozen)
            other = Owner(root, UUID)
            assert (frozen.is_owner(), other.is_owner()) == (False, True)
            other.close()
            frozen.close()


def test_where_a_read_past_the_page_cache_is_refused_later_it_goes_through_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Some of FUSE refuse it by the address of the buffer: at the probe of a start it went well."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("no /dev/shm: no file system without a device to try it on")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as far:
        owner = Owner(far, UUID)
        if owner._direct < 0:
            owner.close()
            pytest.skip("tmpfs of this kernel takes no O_DIRECT (Linux 6.5 does)")
        number = errno.EINVAL

        def refused(fd: int, _buffers: object, _offset: int) -> int:
            assert fd == owner._direct
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "preadv", refused)
        assert owner.is_owner()
        assert owner.is_owner()
        owner.begins(7)
        with open(owner.path, "rb") as file:
            told = parse_lock(file.read(), owner.path)
        assert told is not None
        assert told.first_no == 7
        (said,) = [one.getMessage() for one in caplog.records if "O_DIRECT" in one.getMessage()]
        assert said.startswith(f"{owner.path}: a read past the page cache (O_DIRECT) is refused"), (
            said
        )
        number = errno.EIO
        with pytest.raises(OSError, match="read of LOCK: Input/output error") as caught:
            owner.is_owner()
        assert (caught.value.errno, caught.value.filename) == (errno.EIO, owner.path)
        number = errno.EINVAL
        raw = Path(owner.path).read_bytes()
        later = lock_record(LockRecord(owner.epoch + 1, UUID))
        Path(owner.path).write_bytes(later + raw[len(later) :])
        assert not owner.is_owner(), "a later owner is seen that way, too"
        owner.close()


@pytest.mark.parametrize(
    "raw",
    [
        b"walld 1\nepoch x\nlog " + UUID.hex().encode() + b"\n",
        b"walld 1\nepoch 1\nlog 00\n",
        b"walld 1\n",
        b"wal",
        b"\xff\xfe",
        bytes(128),
    ],
)
def test_a_lock_that_power_loss_spoilt_is_made_anew_from_what_the_log_says(
    tmp_path: Path, raw: bytes
) -> None:
    (tmp_path / LOCK_NAME).write_bytes(raw)
    owner = Owner(str(tmp_path), UUID, epoch=7)
    assert (owner.epoch, owner.log_uuid) == (8, UUID)
    owner.close()
    again = Owner(str(tmp_path), OTHER, epoch=7)
    assert (again.epoch, again.log_uuid) == (9, UUID)
    again.close()


def test_a_lock_of_another_version_is_kept_and_said(tmp_path: Path) -> None:
    raw = b"walld 3\nepoch 1\nlog " + UUID.hex().encode() + b"\n"
    (tmp_path / LOCK_NAME).write_bytes(raw)
    with pytest.raises(FormatError, match="version 3, this walld reads 1 and 2"):
        Owner(str(tmp_path), UUID)
    assert (tmp_path / LOCK_NAME).read_bytes() == raw


def test_an_empty_lock_is_one_whose_first_owner_was_killed(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).write_bytes(b"")
    owner = Owner(str(tmp_path), UUID)
    assert owner.epoch == 1
    owner.close()


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"precious")
    (tmp_path / LOCK_NAME).symlink_to(tmp_path / "elsewhere")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="symbolic links"):
        Owner(str(tmp_path), UUID)
    assert (tmp_path / "elsewhere").read_bytes() == b"precious"
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_short_write_of_lock_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the daemon would read back another record than its own, and call itself fenced."""
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:37], at))
    owner = Owner(str(tmp_path), bytes(16))
    assert owner.is_owner()
    owner.close()


SLIP = b"\x01" + UUID[1:]


@pytest.mark.parametrize(
    ("known", "is_believed"),
    [
        ([], False),
        ([UUID], False),
        ([OTHER, UUID], False),
        ([OTHER], False),
        ([SLIP], True),
        ([OTHER, OTHER], True),
        ([OTHER, bytes(16)], False),
    ],
)
def test_a_whole_lock_is_believed_but_for_a_slip_or_against_many(
    tmp_path: Path, known: list[bytes], *, is_believed: bool
) -> None:
    """It has no checksum; and one segment may be that of another log."""
    assert believes_segments(UUID, known) is is_believed
    first = Owner(str(tmp_path), UUID)
    first.synced(1, 7)
    first.close()
    named = []

    def lost() -> None:
        told = parse_lock((tmp_path / LOCK_NAME).read_bytes(), LOCK_NAME)
        named.append(told and told.log_uuid)

    owner = Owner(str(tmp_path), known[0] if known else OTHER, known=known, lost=lost)
    assert (owner.log_uuid != UUID) is is_believed
    assert named == ([UUID] if is_believed and known != [SLIP] else []), "LOCK has it until then"
    owner.close()


@pytest.mark.parametrize("epoch", [2**27, 2**63, 2**64 - 2, 2**64 - 1, 10**20 - 1])
def test_an_epoch_that_nobody_reached_is_damage(tmp_path: Path, epoch: int) -> None:
    """A segment's header has 64 bits for it."""
    (tmp_path / LOCK_NAME).write_bytes(lock_record(LockRecord(epoch, UUID, had_log=True)))
    owner = Owner(str(tmp_path), OTHER, epoch=7)
    assert (owner.epoch, owner.log_uuid, owner.lock_before.had_log) == (8, UUID, True)
    owner.close()


def test_a_batch_is_named_once_a_segment_and_at_an_orderly_end(tmp_path: Path) -> None:
    def named() -> int:
        told = parse_lock((tmp_path / LOCK_NAME).read_bytes(), LOCK_NAME)
        assert told is not None
        return told.synced_no

    owner = Owner(str(tmp_path), UUID)
    owner.ended(3)
    assert named() == 0, "nothing of its own was synced"
    seen = []
    for segment_id, batch_no in [(1, 4), (1, 5), (2, 6), (1, 7), (2, 8), (3, 0), (3, 9), (3, 10)]:
        owner.synced(segment_id, batch_no)
        seen.append(named())
    assert seen == [4, 4, 6, 6, 6, 6, 9, 9]
    owner.ended(11)
    owner.close()
    following = Owner(str(tmp_path), UUID)
    assert (following.lock_before.synced_no, named()) == (11, 11)
    following.close()
    other = Owner(str(tmp_path), OTHER, is_new=True)
    assert (other.lock_before.synced_no, named()) == (0, 0), "of another log"
    other.close()


def test_no_bit_of_the_line_that_names_batches_makes_them_others(tmp_path: Path) -> None:
    whole = LockRecord(5, UUID, had_log=True, synced_no=1234, first_no=567)
    record = lock_record(whole)
    assert parse_lock(record, LOCK_NAME) == whole
    with_dirs = lock_record(whole._replace(had_dirs=True))
    assert parse_lock(with_dirs, LOCK_NAME) == whole._replace(had_dirs=True)
    assert (len(with_dirs), with_dirs[: len(record.rstrip())]) == (LOCK_BYTES, record.rstrip())
    for bit in range(8 * WRITTEN_AT, 8 * len(record.rstrip())):
        flipped = bytearray(record)
        flipped[bit // 8] ^= 1 << bit % 8
        told = parse_lock(bytes(flipped), LOCK_NAME)
        assert told is not None
        assert (told.synced_no, told.first_no) == (0, 0), bit


def test_the_line_of_an_older_version_names_the_batch_that_was_synced() -> None:
    named = b"%020d" % 1234
    crc = zlib.crc32(named, zlib.crc32(UUID))
    old = lock_record(LockRecord(5, UUID, had_log=True))[: WRITTEN_AT + 8]
    old += b"synced %s %08x\n" % (named, crc)
    told = LockRecord(5, UUID, had_log=True, synced_no=1234)
    assert parse_lock(old.ljust(128), LOCK_NAME) == told


def test_where_the_log_begins_is_written_before_a_segment_goes_and_only_rises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> tuple[int, int]:
        found = parse_lock((tmp_path / LOCK_NAME).read_bytes(), LOCK_NAME)
        assert found is not None
        return found.synced_no, found.first_no

    owner = Owner(str(tmp_path), UUID)
    owner.first_no = 1
    owner.synced(1, 4)
    assert told() == (4, 1)
    owner.begins(9)
    owner.begins(8)
    assert told() == (4, 9)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: os.close(-1))
        owner.synced(2, 12)
        with pytest.raises(OSError, match="Bad file descriptor"):
            owner.begins(11)
    assert owner.first_no == 9, "the segment stays"
    owner.begins(11)
    assert told() == (12, 11), "and it is tried again, all of it"
    owner.close()
    following = Owner(str(tmp_path), UUID)
    assert (following.lock_before.first_no, following.first_no, told()) == (11, 11, (12, 11))
    following.close()
    other = Owner(str(tmp_path), OTHER, is_new=True)
    assert (other.first_no, told()) == (0, (0, 0)), "of another log"
    other.close()


@pytest.mark.parametrize("most", [0, 30])
def test_a_write_that_takes_less_is_no_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """pwrite(2) may: what it took nothing of was never said, and the segment stays."""
    owner = Owner(str(tmp_path), UUID)
    owner.first_no = 1
    owner.synced(1, 4)
    whole = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda fd, data, at: most and whole(fd, data[:most], at))
        if most:
            owner.begins(9)
        else:
            with pytest.raises(OSError, match="took nothing"):
                owner.begins(9)
    found = parse_lock((tmp_path / LOCK_NAME).read_bytes(), LOCK_NAME)
    assert found is not None
    assert found.first_no == owner.first_no == (9 if most else 1)
    owner.close()


def test_lock_is_not_synced_again_once_that_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = Owner(str(tmp_path), UUID)
    tried = []

    def fails(fd: int) -> None:
        tried.append(fd)
        raise OSError(5, "I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        owner.synced(1, 4)
        owner.synced(2, 5)
        owner.ended(6)
    assert len(tried) == 1
    owner.close()


@pytest.mark.parametrize("call", ["pwrite", "fsync", "pread"])
def test_what_fails_at_a_start_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fails(*_given: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, fails)
    with pytest.raises(OSError, match=r"No space left on device: '.*/LOCK'"):
        Owner(str(tmp_path), bytes(16))
