"""`walld salvage`: what is taken of a damaged directory, and a daemon that starts on it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import walld_client
from agents.process import MakeAgent
from daemon_process import DaemonProcess, MakeDaemon
from damaged_directory import (
    LOG,
    UID,
    DamagedDirectory,
    begin,
    ended,
    flip,
    row,
    snapshot,
    text,
    two_replies,
)
from walld_client.wire import messages as wire

from walld.cli import main
from walld.cli.inspect import fsck
from walld.cli.inspect.offline import find
from walld.disk.real import RealDisk
from walld.partials.tombstone_file import done_with
from walld.wal.layout import Flag, Settled
from walld.wal.records import Happened

pytestmark = pytest.mark.usefixtures("no_daemon_writes_it")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[DamagedDirectory]:
    directory = DamagedDirectory(tmp_path / "old")
    yield directory
    directory.close()


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return tmp_path / "data"


def salvage(old: Path, new: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """Exit code and account; the old directory stays as it is, the text can be told too."""
    before = snapshot(old)
    code = main(["salvage", str(old), "--to", str(new), "--json"])
    account = json.loads(capsys.readouterr().out)
    again = new.parent / "again"
    assert main(["salvage", str(old), "--to", str(again)]) == code
    assert capsys.readouterr().out.isascii()
    assert sorted(snapshot(again)) == sorted(snapshot(new))
    shutil.rmtree(again)
    assert snapshot(old) == before
    return code, account


IN_QUARANTINE = "files in quarantine/ tell of damage"


def texts(path: Path) -> dict[str, str]:
    """Stream id -> its text, by the offline reader: it doubts nothing but quarantine/."""
    found = find(str(path))
    assert [doubt for doubt in found.doubts if not doubt.endswith(IN_QUARANTINE)] == []
    return {
        reply.stream_id: "".join(
            (part.text or b"").decode() if part.kind == "text" else f"<{part.kind}>"
            for part in reply.segments
        )
        for reply in found.replies
    }


def test_a_whole_directory_comes_over_whole(
    made: DamagedDirectory, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_replies(made)
    made.partial(9, begin("s9", "nine"), text(1, "kept"), last_seq=1)
    code, account = salvage(made.path, new, capsys)
    assert code == 0
    assert texts(new) == {"s1": "Hello world!.", "s2": "zwei drei", "s9": "kept"}
    taken = {one["stream_id"]: one for one in account["taken"]}
    assert taken["s1"]["segments"] == [1, 2]
    assert taken["s9"]["from_partial"] is True
    assert (account["missing"], account["unread"]) == ([], [])
    assert os.stat(new).st_mode & 0o777 == 0o700


def test_a_lost_lock_and_a_damaged_header_cost_nothing(
    made: DamagedDirectory, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_replies(made)
    made.file(2).unlink()
    (made.path / "LOCK").unlink()
    flip(made.file(1), 20)
    code, _ = salvage(made.path, new, capsys)
    assert code == 0
    assert texts(new) == {"s1": "Hello world!", "s2": "zwei"}


def test_a_daemon_starts_on_it_and_serves_what_was_taken(
    made: DamagedDirectory, tmp_path: Path, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_replies(made)
    made.flip(2, 0)
    code, _ = salvage(made.path, new, capsys)
    assert code == 1
    daemon = DaemonProcess(tmp_path)
    assert daemon.data == new
    daemon.start()
    try:
        client = walld_client.connect(daemon.socket_path)
        reply = client.recover("chat")
        assert reply is not None
        assert reply.text == "Hello ld!."
        assert [(gap.first_seq, gap.last_seq, gap.verdict) for gap in reply.gaps] == [
            (3, 3, "corrupt")
        ]
        assert reply.partial
        assert {one.stream_id for one in client.orphans()} == {"s1", "s2", "s3"}
        assert client.resolve("s1", reply.last_seq)
        with client.reply("chat") as fresh:
            fresh.token("new")
            assert fresh.drain(30, level="synced")
            fresh.end()
        client.close()
        assert daemon.status()["start"]["corrupt"] == 0
    finally:
        daemon.kill()


def test_what_it_could_not_take_is_not_proven_never_to_have_been(
    made: DamagedDirectory, tmp_path: Path, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The new log is whole: it would prove that there was nothing of what the old one has lost."""
    two_replies(made)
    made.flip(2, 0)
    assert salvage(made.path, new, capsys)[0] == 1
    note = new / "quarantine" / "salvage"
    assert [path.name for path in note.parent.iterdir()] == [note.name]
    assert "lost: stream s1 of session chat" in note.read_text()
    assert find(str(new)).doubts
    daemon = DaemonProcess(tmp_path)
    daemon.start()
    try:
        with pytest.raises(walld_client.Unavailable):
            daemon.reader.recover("of nobody")
        note.unlink()
        daemon.restart()
        assert daemon.reader.recover("of nobody") is None
    finally:
        daemon.close()
    again = tmp_path / "again"
    note.write_text("before\n")
    assert main(["salvage", str(new), "--to", str(again)]) == 0
    assert (again / "quarantine" / "salvage").read_text() == "before\n"


def test_records_of_a_bad_batch_that_verify_are_taken(
    made: DamagedDirectory, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_replies(made)
    made.flip(3, -3)
    code, account = salvage(made.path, new, capsys)
    assert code == 1
    assert texts(new) == {"s1": "Hello world!."}, "the second record of it is stream 2's beginning"
    assert account["taken"][0]["from_bad_batches"] == 1
    assert account["quarantined"] == ["quarantine/stream-2"]
    assert b" drei" in (new / "quarantine/stream-2").read_bytes()
    (missing,) = account["missing"]
    assert [one["stream_no"] for one in missing["lost"]] == [2]


def test_a_bad_batch_whose_bodies_are_all_whole_costs_nothing(
    made: DamagedDirectory, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.segment()
    made.batch(row(1, 0, 1, begin(), text(1, "abc"), flags=Flag.BEGIN))
    made.batch(row(1, 2, 2, text(2, "def")))
    made.batch()
    segment, offset, length = made.places[1]
    content = bytearray(made.file(segment).read_bytes())
    assert content[offset + length - 1] == 0, "padding"
    content[offset + length - 1] = 1
    made.file(segment).write_bytes(content)
    assert main(["fsck", str(made.path)]) == 2
    capsys.readouterr()
    code, account = salvage(made.path, new, capsys)
    assert (code, account["missing"]) == (0, [])
    assert texts(new) == {"s1": "abcdef"}


def test_a_tombstone_of_a_bad_batch_is_not_believed(
    made: DamagedDirectory, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_replies(made)
    made.flip(2, 40)
    code, account = salvage(made.path, new, capsys)
    assert code == 1
    assert texts(new)["s3"] == "bye<gap>", "it had not ended: as a daemon would say"
    assert account["tombstones_doubted"] >= 1


def test_whole_records_of_a_torn_tail_are_taken(
    made: DamagedDirectory, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.segment()
    made.batch(row(1, 0, 0, begin(), flags=Flag.BEGIN))
    made.batch(row(1, 1, 1, text(1, "first")), row(2, 0, 0, begin("s2"), flags=Flag.BEGIN))
    os.truncate(made.file(), made.file().stat().st_size - 20)
    code, account = salvage(made.path, new, capsys)
    assert code == 1
    assert texts(new) == {"s1": "first"}
    assert account["missing"][0]["verdict"] == "torn"
    assert list((new / "quarantine").iterdir()) == [], "nobody was told that it is safe"


def test_a_gap_that_an_agent_left_itself_is_no_damage(
    made: DamagedDirectory, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.segment()
    made.batch(row(1, 0, 0, begin(), flags=Flag.BEGIN))
    made.batch(row(1, 7, 7, text(7, "late")), row(1, 8, 8, ended(8), flags=Flag.TERMINAL))
    code, account = salvage(made.path, new, capsys)
    assert code == 0
    (taken,) = account["taken"]
    assert (taken["gaps"], taken["gap_word"]) == ([[1, 6]], "dropped")


def test_what_a_start_has_settled_keeps_its_word(
    made: DamagedDirectory, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_replies(made)
    segment, offset, _ = made.places[2]
    made.flip(2, 0)
    made.segment()
    made.settle(Settled(segment, offset, 2, 2, 2))
    code, account = salvage(made.path, new, capsys)
    taken = {one["stream_id"]: one for one in account["taken"]}
    assert (code, account["missing"]) == (1, [])
    assert (taken["s1"]["gaps"], taken["s1"]["gap_word"]) == ([[3, 3]], "corrupt")


def test_a_partial_and_what_came_later_are_one_reply(
    made: DamagedDirectory, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.segment()
    made.batch(row(1, 3, 3, text(3, "c")))
    made.partial(1, begin(), text(1, "a", "b"), last_seq=2)
    moved = Happened(1, wire.Move(1, 4, "elsewhere"))
    made.batch(row(1, 4, 4, moved, flags=Flag.MOVED))
    code, account = salvage(made.path, new, capsys)
    assert code == 0
    assert texts(new) == {"s1": "abc"}
    assert account["taken"][0]["session_id"] == "elsewhere"
    assert (new / f"partials/{UID}/elsewhere/s1").exists()


def test_a_damaged_partial_is_kept_with_a_note(
    made: DamagedDirectory, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.segment()
    path = made.partial(1, begin(), text(1, "kept"))
    flip(path, path.stat().st_size - 1)
    code, account = salvage(made.path, new, capsys)
    assert code == 1
    (name,) = account["quarantined"]
    assert (new / name).read_bytes() == path.read_bytes()
    assert f"from: partials/{UID}/chat/s1" in (new / f"{name}.note").read_text()


def test_a_partial_in_anothers_place_is_taken_under_its_own_names(
    made: DamagedDirectory, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.segment()
    made.partial(1, begin("s1", "own"), text(1, "a"))
    copied = made.partial(2, begin("s2"), text(1, "b"))
    partials = made.path / "partials" / str(UID)
    (partials / "own").rename(partials / "elsewhere")
    shutil.copy(copied, partials / "elsewhere/s2")
    code, account = salvage(made.path, new, capsys)
    assert [(one["session_id"], one["stream_id"]) for one in account["taken"]] == [
        ("own", "s1"),
        ("chat", "s2"),
    ]
    copy = f"partials+{UID}+elsewhere+s2"
    assert account["quarantined"] == [f"quarantine/{copy}"], "its own place is not empty"
    assert code == 1
    assert (new / "partials" / str(UID) / "own/s1").exists()


def test_a_misplaced_partial_of_a_resolved_reply_is_not_taken(
    made: DamagedDirectory, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Resolved while it could not be read: only partials/.gone says so by now."""
    made.segment()
    path = made.partial(7, begin(), text(1, "resolved"))
    with RealDisk(str(made.path)) as disk:
        assert done_with(disk, LOG, [7], [7], is_all=False) == ([], True)
    path.rename(path.with_name("other"))
    _, account = salvage(made.path, new, capsys)
    assert account["taken"] == []


def test_a_partial_of_another_log_is_taken_as_it_is(
    made: DamagedDirectory, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_replies(made)
    path = made.partial(1, begin("old"), text(1, "older"), log_uuid=b"M" * 16)
    code, account = salvage(made.path, new, capsys)
    assert code == 0
    (name,) = account["copied_partials"]
    assert (new / name).read_bytes() == path.read_bytes()
    assert texts(new)["old"] == "older"


def test_of_two_replies_of_one_id_the_later_one_is_the_reply(
    made: DamagedDirectory, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.segment()
    made.batch(row(1, 0, 1, begin(), text(1, "old"), flags=Flag.BEGIN))
    again = msgspec.structs.replace(begin(), number=2)
    made.batch(row(2, 0, 1, again, text(1, "new"), flags=Flag.BEGIN))
    code, account = salvage(made.path, new, capsys)
    assert code == 0
    assert texts(new) == {"s1": "new"}
    assert len(account["quarantined"]) == 1


def test_released_replies_do_not_come_back(
    made: DamagedDirectory, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_replies(made)
    made.partial(3, begin("s3", "chat3"), text(1, "bye"))
    code, account = salvage(made.path, new, capsys)
    assert code == 0
    assert "s3" not in texts(new)
    assert account["released_partials"] == [f"partials/{UID}/chat3/s3"]


def test_quarantine_comes_along(
    made: DamagedDirectory, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.segment()
    (made.path / "quarantine/stream-7").write_bytes(b"bytes")
    code, account = salvage(made.path, new, capsys)
    assert (code, account["taken"]) == (0, [])
    assert (new / "quarantine/stream-7").read_bytes() == b"bytes"


def test_nothing_that_could_be_taken_is_two(
    made: DamagedDirectory, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.segment()
    made.batch(row(1, 0, 1, begin(), text(1, "gone"), flags=Flag.BEGIN))
    made.file().write_bytes(b"\xff" * made.file().stat().st_size)
    code, account = salvage(made.path, new, capsys)
    assert code == 2
    assert account["missing"]


def test_where_it_may_not_write(
    made: DamagedDirectory, new: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    two_replies(made)
    before = snapshot(made.path)
    for to in (made.path, made.path / "inside", tmp_path):
        assert main(["salvage", str(made.path), "--to", str(to)]) == 64, to
        assert "walld: --to" in capsys.readouterr().err
    assert main(["salvage", str(made.path)]) == 64
    assert main(["salvage", str(tmp_path / "nowhere"), "--to", str(new)]) == 66
    assert main(["salvage", "/etc", "--to", str(new)]) == 66
    assert not new.exists()
    assert snapshot(made.path) == before
    new.mkdir(mode=0o700)
    capsys.readouterr()
    assert main(["salvage", str(made.path), "--to", str(new)]) == 0, "empty is fine"


def test_every_flip_and_every_length_is_taken_without_a_lie(
    made: DamagedDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is broken: words come out only as they were said, and 0 means all of them."""
    two_replies(made)
    whole = {"s1": "Hello world!.", "s2": "zwei drei"}
    path = made.file(1)
    content = path.read_bytes()
    damaged = [content[:size] for size in range(0, len(content), 7)]
    damaged += [
        content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :]
        for at in range(0, len(content), 3)
    ]
    for number, broken in enumerate(damaged):
        path.write_bytes(broken)
        new = tmp_path / f"new{number}"
        code = main(["salvage", str(made.path), "--to", str(new)])
        assert capsys.readouterr().err == ""
        for stream_id, said in texts(new).items():
            parts = {"s3": "bye", **whole}[stream_id]
            for part in said.split("<gap>"):
                at = parts.find(part)
                assert at >= 0, (number, stream_id, said)
                parts = parts[at + len(part) :]
        if code == 0:
            assert whole.items() <= texts(new).items(), number
        shutil.rmtree(new)


def test_beside_a_daemon_that_writes_meanwhile_it_says_so(
    make_daemon: MakeDaemon,
    make_agent: MakeAgent,
    new: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    daemon = make_daemon("--reclaim-seconds", "0").start()
    agent = make_agent(daemon)
    agent.do("r = client.reply('session', stream_id='stream')")
    agent.do("r.token('before'); assert r.drain(20, level='synced')")
    daemon.restart()  # the first segment may go as soon as nothing in it is needed
    inspect = fsck.inspect

    def inspected(*arguments: Any) -> fsck.Report:
        report = inspect(*arguments)
        agent.do("r.token(' and meanwhile'); assert r.drain(20, level='synced')")
        return report

    command = ["salvage", str(daemon.data), "--to", str(new)]
    monkeypatch.setattr(fsck, "inspect", inspected)
    assert main(command) == 1
    assert "in doubt: the log was written to while it was read" in capsys.readouterr().out
    assert "was written to" in (new / "quarantine" / "salvage").read_text()
    (reply,) = find(str(new)).replies
    assert b"".join(part.text for part in reply.segments).startswith(b"before")

    monkeypatch.undo()
    daemon.kill()
    shutil.rmtree(new)
    assert main(command) == 0
    assert texts(new) == {"stream": "before and meanwhile"}
    agent.kill()


def test_partials_of_two_logs_are_not_taken_for_one_reply(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each log counts its streams from 1; without a segment nothing says which log is this one."""
    made.partial(1, begin("a", "one"), text(1, "first log"))
    made.partial(1, begin("b", "two"), text(1, "second"), log_uuid=b"M" * 16)
    assert texts(made.path) == {"a": "first log", "b": "second"}
