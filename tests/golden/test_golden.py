"""Files of every version that was released are read for ever, and say what they said then.

v1 was written once by `make_v1.py`. If a test here fails, the code is wrong, never the file.
"""

from __future__ import annotations

import json
from pathlib import Path

import make_v1
import pytest
from ledger_world import digest_of

from walld.partials.file import pack_partial, unpack_partial
from walld.wal.records import Begin, Happened, Text, Thought, decode_body, decode_items

V1 = make_v1.V1
LOGS = ["clean", "corrupt", "settled", "torn"]
PARTIALS = ["empty.partial", "whole.partial"]


def test_the_files_are_those_that_were_written_then() -> None:
    """SHA-256 over names and bytes of all of v1."""
    assert digest_of(V1) == "c551360b4394022c378e7f4acbc68d8e7023aa8308ce82bbafe6f8f0ef8ebab8"


def test_the_cases_are_all_there() -> None:
    assert sorted(path.name for path in V1.iterdir() if path.is_dir()) == LOGS
    assert sorted(path.name for path in V1.glob("*.partial")) == PARTIALS


@pytest.mark.parametrize("name", LOGS)
def test_logs_read_as_they_did(name: str) -> None:
    assert make_v1.read_log(V1 / name) == json.loads((V1 / name / "expected.json").read_text())


def test_what_the_logs_mean() -> None:
    """The JSON above came from the code: this much of it was worked out by hand."""
    found = {name: make_v1.read_log(V1 / name) for name in LOGS}
    numbers = {name: [item["place"][2] for item in log["batches"]] for name, log in found.items()}
    assert numbers == {
        "clean": [1, 2, 3, 4],
        "corrupt": [2, 3, 4],
        "settled": [1, 2, 3],
        "torn": [1, 2, 3],
    }
    costs = {
        name: (
            [item[:2] + item[3:] for item in log["torn"]],
            [item[:2] + item[3:] for item in log["corrupt"]],
        )
        for name, log in found.items()
    }
    assert costs == {
        "clean": ([], []),
        "corrupt": ([], [[1, 64, 1, 1, "payload"]]),
        "settled": ([], []),
        "torn": ([[2, 136, 4, 4, "short"]], []),
    }
    assert [log["last_batch_no"] for log in found.values()] == [4, 4, 5, 4]


@pytest.mark.parametrize("name", PARTIALS)
def test_partials_read_as_they_did(name: str) -> None:
    partial = unpack_partial((V1 / name).read_bytes(), name)
    expected = json.loads((V1 / f"{name}.json").read_text())
    found = make_v1.partial_facts(partial)
    # A later walld may know more of a file, never less or something else.
    assert {key: found[key] for key in expected} == expected
    assert partial == make_v1.partials()[name]


def test_items_read_as_they_did() -> None:
    body = unpack_partial((V1 / "whole.partial").read_bytes(), "whole").body
    begin, text, half, tool, result, finish, end = decode_items(body)
    assert isinstance(begin, Begin)
    assert (begin.uid, begin.stream_id, begin.session_id) == (1000, "st-1", "chat/7")
    assert (begin.owner.pid, begin.owner.pidfd_inode) == (4242, 987654)
    assert isinstance(text, Text)
    assert (text.first_seq, text.last_seq, text.kind) == (1, 3, 3)
    assert (text.text, text.lengths) == (b"Hello wor", b"\x05\x01\x04")
    assert text.after_ms == 10
    assert isinstance(half, Thought)
    assert (half.first_seq, half.last_seq, half.kind) == (4, 4, 4)
    assert half.text == b"\xed\xa0\xbd"
    happened = [item for item in (tool, result, finish, end) if isinstance(item, Happened)]
    assert [item.after_ms for item in happened] == [-30, 40, 50, 60]
    events = [item.event for item in happened]
    assert [type(event).__name__ for event in events] == ["Tool", "ToolResult", "Finish", "End"]
    assert [event.seq for event in events] == [5, 6, 7, 8]


def test_bodies_in_a_log_are_those_items() -> None:
    first, _, third, _ = make_v1.read_log(V1 / "clean")["batches"]
    ((stream_no, first_seq, last_seq, _, body),) = first["records"]
    assert (stream_no, first_seq, last_seq) == (1, 0, 8)
    partial = unpack_partial((V1 / "whole.partial").read_bytes(), "whole")
    assert decode_body(1, bytes.fromhex(body)) == decode_items(partial.body)
    assert [record[:3] for record in third["records"]] == [
        [2**40, 2**32 - 2**16, 2**32 - 1],
        [3, 0, 0],
    ]


def test_version_1_is_still_written_as_it_was() -> None:
    """Goes when a version 2 is written; the tests above stay."""
    for name, files in make_v1.logs().items():
        for path, content in zip(
            sorted((V1 / name / "wal").iterdir()), files.values(), strict=True
        ):
            assert path.read_bytes() == content, path
    for name, partial in make_v1.partials().items():
        assert (V1 / name).read_bytes() == pack_partial(*partial)


def test_they_are_never_written_again() -> None:
    with pytest.raises(FileExistsError):
        make_v1.main()
    assert Path(make_v1.__file__).parent == V1.parent
