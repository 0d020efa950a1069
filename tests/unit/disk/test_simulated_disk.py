"""The simulated disk: it keeps what a kernel keeps, and loses what power loss loses."""

from __future__ import annotations

import errno
from random import Random

import pytest

from walld.disk.medium import PROFILES, Crashed, Profile, Storage
from walld.disk.simulated import SimulatedDisk


def storage(profile: Profile = PROFILES["adversarial"], seed: int = 1) -> Storage:
    return Storage(Random(seed), profile)


def test_a_killed_process_loses_nothing_it_wrote() -> None:
    medium = storage()
    disk = SimulatedDisk(medium)
    disk.create("f").write_at(b"written", 0)
    medium.kill()
    assert medium.files() == {"f": b"written"}
    with pytest.raises(Crashed):
        disk.list_dir("")
    assert SimulatedDisk(medium).open("f").read_at(99, 0) == b"written"


def test_a_write_that_a_kill_interrupts_is_cut_at_a_page() -> None:
    lengths = set()
    for seed in range(60):
        medium = storage(seed=seed)
        disk = SimulatedDisk(medium)
        file = disk.create("f")
        file.write_at(b"a" * 100, 0)
        medium.crash_at = medium.ops + 1
        with pytest.raises(Crashed):
            file.write_at(b"b" * 10_000, 100)
        lengths.add(len(medium.files()["f"]))
    assert lengths == {100, 4096, 8192, 10_100}


def test_a_second_name_leads_to_the_same_file() -> None:
    medium = storage()
    disk = SimulatedDisk(medium)
    disk.make_dir("a")
    file = disk.create("f")
    file.write_at(b"one", 0)
    disk.link("f", "a/g")
    with pytest.raises(FileExistsError):
        disk.link("f", "a/g")
    with pytest.raises(FileNotFoundError):
        disk.link("none", "a/h")
    file.write_at(b"two", 0)
    disk.unlink("f")
    assert medium.files() == {"a/g": b"two"}
    assert disk.open("a/g").read_at(9, 0) == b"two"


def test_a_second_name_is_durable_with_its_directory() -> None:
    seen = set()
    for seed in range(60):
        medium = storage(seed=seed)
        disk = SimulatedDisk(medium)
        disk.make_dir("a")
        file = disk.create("f")
        file.write_at(b"synced", 0)
        file.sync()
        disk.sync_dir("")
        disk.link("f", "a/g")
        disk.sync_dir("a")
        disk.link("f", "a/late")
        medium.cut_power()
        found = medium.files()
        assert found["f"] == found["a/g"] == b"synced"
        assert medium.node("f") is medium.node("a/g"), "one file still"
        seen.add("a/late" in found)
    assert seen == {False, True}


def test_power_keeps_what_file_and_directory_were_synced_for_and_maybe_the_rest() -> None:
    seen = set()
    for seed in range(60):
        medium = storage(seed=seed)
        disk = SimulatedDisk(medium)
        kept, unnamed = disk.create("kept"), disk.create("unnamed")
        for file in (kept, unnamed):
            file.write_at(b"synced", 0)
            file.sync()
        disk.sync_dir("")
        late = disk.create("late")
        late.write_at(b"synced", 0)
        late.sync()  # its name is not
        kept.write_at(b" and not", 6)
        medium.cut_power()
        files = medium.files()
        assert files["kept"].startswith(b"synced")
        assert files["unnamed"] == b"synced"
        assert files.get("late", b"synced") == b"synced"
        seen.add((files["kept"], "late" in files))
    assert (b"synced and not", True) in seen
    assert (b"synced", False) in seen
    assert len(seen) > 4, "torn, zero and garbage ends too"


def test_a_failed_sync_drops_the_pages_and_the_next_one_lies() -> None:
    medium = storage(PROFILES["ext4"])
    disk = SimulatedDisk(medium)
    file = disk.create("f")
    disk.sync_dir("")
    file.write_at(b"lost", 0)
    medium.fail = lambda verb, _path: errno.EIO if verb == "sync" else 0
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    with pytest.raises(AssertionError):
        file.sync()
    medium.fail = lambda _verb, _path: 0
    again = SimulatedDisk(medium).open("f")
    assert again.read_at(9, 0) == b"lost"
    again.sync()
    medium.cut_power()
    assert medium.files()["f"].strip(b"\0") == b""


def test_a_full_disk_says_so_at_the_write_or_at_the_sync() -> None:
    medium = storage(PROFILES["ext4"])
    medium.room = 5
    file = SimulatedDisk(medium).create("f")
    assert file.write_at(b"seventy", 0) == 5
    with pytest.raises(OSError, match="No space"):
        file.write_at(b"ty", 5)
    medium = storage(PROFILES["nfs"])
    medium.room = 5
    file = SimulatedDisk(medium).create("f")
    assert file.write_at(b"seventy", 0) == 7
    with pytest.raises(OSError, match="No space"):
        file.sync()


def test_a_rename_is_one_step_and_a_lying_disk_keeps_nothing() -> None:
    for seed in range(30):
        medium = storage(seed=seed)
        disk = SimulatedDisk(medium)
        disk.replace("name", b"old")
        disk.make_dir("d")
        for data in (b"new", b"newer"):
            disk.replace("name", data)
        file = disk.create(".name.tmp")
        file.write_at(b"newest", 0)
        file.sync()
        disk.rename(".name.tmp", "name")
        medium.cut_power()
        assert medium.files()["name"] in (b"newer", b"newest")
    liar = Storage(Random(1), Profile(fates=("lost",), ignores_sync=True))
    SimulatedDisk(liar).replace("name", b"x")
    liar.cut_power()
    assert liar.files().get("name", b"").strip(b"\0") == b""


@pytest.mark.parametrize("kind", ["flip", "zero", "stale"])
def test_rot_changes_what_was_synced_and_says_where(kind: str) -> None:
    for seed in range(20):
        medium = storage(seed=seed)
        content = Random(seed).randbytes(5000)
        SimulatedDisk(medium).replace("f", content)
        where = medium.damage("f", kind)  # type: ignore[arg-type]
        now = medium.files()["f"]
        changed = [at for at in range(5000) if now[at] != content[at]]
        assert (where is None) == (not changed)
        assert where is None or all(0 <= at - where[0] < where[1] for at in changed)
        assert changed or kind == "stale"


def test_what_happens_to_a_copy_happens_to_nothing_else() -> None:
    medium = storage(PROFILES["orderly"])
    disk = SimulatedDisk(medium)
    disk.make_dir("a")
    file = disk.create("a/f")
    file.write_at(b"durable", 0)
    file.sync()
    disk.sync_dir("a")
    disk.sync_dir("")
    disk.link("a/f", "a/g")
    file.write_at(b"not yet", 0)
    twin = medium.copy(Random(2))
    assert twin.files() == medium.files() == {"a/f": b"not yet", "a/g": b"not yet"}
    SimulatedDisk(twin).open("a/g").write_at(b"of both names", 0)
    assert twin.files() == {"a/f": b"of both names", "a/g": b"of both names"}
    twin.cut_power()
    twin.cut_power()
    assert twin.files().keys() <= {"a/f", "a/g"}
    assert medium.files() == {"a/f": b"not yet", "a/g": b"not yet"}
    assert medium.files(durable=True) == {"a/f": b"durable"}
    assert disk.list_dir("a")  # its life goes on
