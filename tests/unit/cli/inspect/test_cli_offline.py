"""The command line on a data directory alone: real files, without a daemon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from damaged_directory import LOG, DamagedDirectory, begin, ended, row, text

from walld.cli import main
from walld.cli.inspect.offline import find
from walld.cli.page import columns
from walld.daemon.transport import credentials
from walld.wal.layout import Flag

EVIL = "a\x1b[2J\u202eb"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[DamagedDirectory]:
    made = DamagedDirectory(tmp_path / "data")
    made.segment()
    yield made
    made.close()


def test_offline_recovers_what_segments_and_partials_hold(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    made.batch(row(1, 0, 2, begin(), text(1, "Hel", "lo "), flags=Flag.BEGIN))
    made.batch(row(1, 3, 3, text(3, "wor")))
    assert main(["recover", "chat", "--data", str(made.path), "--json"]) == 0
    reply = json.loads(capsys.readouterr().out)
    assert (reply["text"], reply["status"], reply["last_seq"]) == ("Hello wor", "crashed", 3)
    assert (reply["lost_reason"], reply["owner_alive"]) == ("host_restart", False)
    assert reply["messages"][0]["content"] == "Hello wor"
    assert reply["messages"][0]["_wal_recovered"] is True
    assert main(["recover", "chat", "--data", str(made.path), "--text"]) == 0
    assert capsys.readouterr().out == "Hello wor\n"
    assert main(["recover", "--stream", "s1", "--data", str(made.path)]) == 0
    assert "crashed (host_restart) owner gone" in capsys.readouterr().out


def test_a_partial_and_later_records_are_one_reply(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    made.partial(1, begin(), text(1, "a", "b"))
    made.batch(row(1, 2, 4, text(2, "b", "c", "d")))
    (reply,) = find(str(made.path)).replies
    assert (reply.last_seq, reply.events, reply.gaps) == (4, 4, [])
    assert b"".join(part.text for part in reply.segments) == b"abcd"
    made.batch(row(1, 4, 4, flags=Flag.RESOLVED))
    assert find(str(made.path)).replies == []


def test_released_is_gone_and_nothing_is_proven(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    made.batch(row(1, 0, 1, begin(), text(1, "x"), flags=Flag.BEGIN))
    made.batch(row(1, 2, 3, ended(2), flags=Flag.TERMINAL | Flag.RELEASED))
    assert main(["recover", "chat", "--data", str(made.path)]) == 3
    assert main(["recover", "chat", "--data", str(made.path), "--json"]) == 3
    assert capsys.readouterr().out == "null\n"
    assert main(["ls", "--data", str(made.path)]) == 0


def test_a_partial_of_another_log_keeps_to_itself(made: DamagedDirectory) -> None:
    made.batch(row(1, 0, 1, begin("other"), text(1, "x"), flags=Flag.BEGIN))
    made.partial(1, begin(), text(1, "a"), log_uuid=b"M" * 16)
    assert sorted(reply.stream_id for reply in find(str(made.path)).replies) == ["other", "s1"]


def test_a_carried_record_is_no_second_copy(made: DamagedDirectory) -> None:
    made.batch(row(1, 0, 2, begin(), text(1, "a", "b"), flags=Flag.BEGIN))
    made.batch(row(1, 3, 3, text(3, "c")))
    carried = row(1, 0, 3, begin(), text(1, "a", "b", "c"), flags=Flag.BEGIN | Flag.CARRIED)
    made.batch(carried)
    (reply,) = find(str(made.path)).replies
    assert (reply.events, reply.segments[0].text) == (3, b"abc")


def test_damage_is_a_doubt_and_never_nothing(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    made.batch(row(1, 0, 1, begin(), text(1, "x"), flags=Flag.BEGIN))
    made.batch(row(2, 0, 1, begin("s2", "chat2"), text(1, "y"), flags=Flag.BEGIN))
    made.batch(row(2, 2, 2, text(2, "z")))
    with open(str(made.file()), "r+b") as file:
        file.seek(64 + 60)
        file.write(b"\xff\xff\xff")
    assert main(["recover", "chat", "--data", str(made.path)]) == 1
    corrupt, said = capsys.readouterr().err.splitlines()
    assert "corrupt" in corrupt
    assert "that there is none is not proven" in said
    assert main(["recover", "chat2", "--data", str(made.path), "--text"]) == 0
    assert capsys.readouterr().err.splitlines()[1].endswith("more of it, or a later one")
    assert main(["ls", "--data", str(made.path)]) == 1
    assert capsys.readouterr().err.splitlines()[1].endswith("more than can be read")
    assert main(["dump", "--data", str(made.path)]) == 1
    assert "hole offset=64" in capsys.readouterr().out


def test_a_damaged_partial_is_a_doubt(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    with made.partial(1, begin(), text(1, "x")).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    assert main(["recover", "chat", "--data", str(made.path)]) == 1
    assert main(["dump", "--data", str(made.path)]) == 1
    assert "damaged" in capsys.readouterr().out


def test_a_torn_tail_is_no_doubt(made: DamagedDirectory) -> None:
    made.batch(row(1, 0, 1, begin(), text(1, "x"), flags=Flag.BEGIN))
    made.batch(row(1, 2, 2, text(2, "y" * 100)))
    with open(str(made.file()), "r+b") as file:
        file.truncate(made.offset - 20)
    found = find(str(made.path))
    assert found.doubts == []
    assert [reply.last_seq for reply in found.replies] == [1]


def test_reading_writes_nothing_and_gives_the_same_twice(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    made.batch(row(1, 0, 1, begin(), text(1, "x"), flags=Flag.BEGIN))
    made.partial(7, begin("s7"), text(1, "x"))

    def everything():
        return sorted(
            (folder, name, os.stat(os.path.join(folder, name)).st_mtime_ns)
            for folder, _, names in os.walk(str(made.path))
            for name in [*names, "."]
        )

    before = everything()
    outputs = set()
    for _ in range(2):
        assert main(["ls", "--data", str(made.path), "--json"]) == 0
        assert main(["recover", "chat", "--data", str(made.path), "--json"]) == 0
        assert main(["dump", "--data", str(made.path), "--items", "--json"]) == 0
        outputs.add(capsys.readouterr().out)
    assert len(outputs) == 1
    assert everything() == before


def test_owner_that_lives_is_seen(made: DamagedDirectory) -> None:
    pid = os.getpid()
    pidfd = os.pidfd_open(pid)
    try:
        me = credentials.describe(pid, pidfd, credentials.boot_id())
    finally:
        os.close(pidfd)
    mine = msgspec.structs.replace(begin(), owner=me)
    made.batch(row(1, 0, 1, mine, text(1, "x"), flags=Flag.BEGIN))
    (reply,) = find(str(made.path)).replies
    assert (reply.status, reply.owner_alive, reply.lost_reason) == ("live", True, None)


def test_two_users_with_one_session(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    made.batch(row(1, 0, 1, begin(uid=1), text(1, "mine"), flags=Flag.BEGIN))
    made.batch(row(2, 0, 1, begin("s2", uid=2), text(1, "yours"), flags=Flag.BEGIN))
    assert main(["recover", "chat", "--data", str(made.path)]) == 1
    assert "--uid" in capsys.readouterr().err
    arguments = ["recover", "chat", "--data", str(made.path), "--uid", "2", "--text"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == "yours\n"
    assert main(["ls", "--data", str(made.path), "--uid", "1", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["uid"], listed["stream_id"]) == (1, "s1")
    assert "text" not in listed


def test_nothing_a_stranger_wrote_acts_on_the_terminal(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    made.batch(row(1, 0, 1, begin(EVIL, EVIL), text(1, EVIL, "\ud83d"), flags=Flag.BEGIN))
    made.partial(7, begin("s7", EVIL), text(1, EVIL))
    for arguments in (
        ["ls"],
        ["ls", "--json"],
        ["recover", EVIL],
        ["recover", EVIL, "--json"],
        ["recover", EVIL, "--text"],
        ["dump", "--items"],
        ["dump", "--items", "--json"],
    ):
        assert main([*arguments, "--data", str(made.path)]) == 0
        output = capsys.readouterr().out
        assert not set(output) & {"\x1b", "\u202e", "\ud83d"}, arguments
        assert "[2J" in output


def test_dump_shows_every_layer(made: DamagedDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    made.batch(
        row(1, 0, 2, begin(), text(1, "Hel", "lo"), flags=Flag.BEGIN),
        row(2, 0, 0, begin("s2"), flags=Flag.BEGIN),
    )
    made.batch(row(1, 3, 3, ended(3), flags=Flag.TERMINAL))
    made.partial(9, begin("s9"), text(1, "kept"))
    assert main(["dump", "--data", str(made.path), "--items"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0].startswith("directory ")
    assert lines[1].startswith("segment wal/00000000000000000001.wal size=")
    assert lines[2] == f"header log={LOG.hex()} epoch=1 prev_batch_no=0"
    assert [line.split()[0] for line in lines[3:]] == [
        *("batch", "record", "begin", "text", "record", "begin", "batch", "record", "end"),
        *("partial", "begin", "text"),
    ]
    assert "stream_no=1 seqs=0..2" in lines[4]
    assert "flags=begin" in lines[4]
    assert lines[6].endswith("text=Hello")
    assert main(["dump", "--items", "--json", str(made.file())]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["what"] for row in rows][:3] == ["segment", "header", "batch"]


def test_dump_says_which_body_does_not_verify(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its batch is whole: walld itself wrote it under another number."""
    one = row(1, 0, 1, begin(), text(1, "x"), flags=Flag.BEGIN)
    made.batch((2, *one[1:]), row(3, 0, 0, begin("s3"), flags=Flag.BEGIN))
    assert main(["dump", "--data", str(made.path), "--items"]) == 1
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    kinds = ["batch", "record", "damaged", "begin", "text", "record", "begin"]
    assert [line.split()[0] for line in lines[3:]] == kinds
    assert "does not verify" in lines[5]


def test_dump_of_a_directory_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dump", "--data", str(tmp_path / "none")]) == 1
    assert main(["recover", "chat", "--data", str(tmp_path / "none")]) == 1
    assert "No such file" in capsys.readouterr().err


def test_a_reader_that_leaves_is_no_traceback(made: DamagedDirectory) -> None:
    for number in range(1, 400):
        made.batch(row(number, 0, 0, begin(f"s{number}"), flags=Flag.BEGIN))
    with subprocess.Popen(
        [sys.executable, "-m", "walld", "dump", "--items", "--data", str(made.path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as dump:
        dump.stdout.readline()
        dump.stdout.close()
        assert dump.stderr.read() == b""
        assert dump.wait(30) == 1


def test_the_columns_of_a_list_stand_below_each_other(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    """A terminal gives a letter of Chinese two of them, and a combining one none."""
    made.batch(row(1, 0, 1, begin("s1", "世界"), text(1, "x"), flags=Flag.BEGIN))
    made.batch(row(2, 0, 1, begin("s2", "e\u0301tat"), text(1, "x"), flags=Flag.BEGIN))
    assert main(["ls", "--data", str(made.path)]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    before = [line.rpartition("  ")[0] + "  " for line in lines]
    assert list(map(columns, before)) == [head.index("STREAM")] * 2


def test_why_a_file_is_no_segment_is_said_to_its_end(
    made: DamagedDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    path = made.path / "a-log-file"
    path.write_bytes(b"2026-11-27 info " * 20)
    assert main(["dump", str(path)]) == 1
    assert "the file is damaged or of another version" in capsys.readouterr().out
