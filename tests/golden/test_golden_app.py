"""What a log says of whose application a reply is, as the first build that had it wrote it.

If a test here fails, the code is wrong, never the file.
"""

from __future__ import annotations

from hashlib import sha256

from make_app_v1 import APP, APP_V1
from make_v1 import AT_MS, ITEMS, OWNER
from msgspec.structs import replace

from walld.disk.real import RealDisk
from walld.wal.log_scan import LogScan
from walld.wal.records import Begin, decode_body, decode_items, encode_item, join_items


def test_the_file_is_the_one_that_was_written_then() -> None:
    (path,) = (APP_V1 / "wal").iterdir()
    assert (
        sha256(path.read_bytes()).hexdigest()
        == "8ecd00f5c96971d726d6fd71b1c702ef23bd6182f9067628e379f572428b91a5"
    )


def test_its_replies_are_whose_they_were() -> None:
    with RealDisk(str(APP_V1), read_only=True) as disk:
        begins = [
            decode_body(record.stream_no, each.body(record.offset, record.body_bytes))[0]
            for _, each in LogScan(disk)
            for record in each.records
        ]
    assert [
        (one.stream_id, one.app, one.owner, one.at_ms) for one in begins if isinstance(one, Begin)
    ] == [("st-1", APP, OWNER, AT_MS), ("st-2", None, OWNER, AT_MS)]


def test_a_record_of_a_build_that_had_none_is_every_applications() -> None:
    begin = ITEMS[0]
    assert isinstance(begin, Begin)
    raw = join_items([encode_item(begin)])
    assert (raw[1], decode_items(raw)) == (0x9B, [begin]), "an array of 11, tag and all"
    named = join_items([encode_item(replace(begin, app=APP))])
    assert (named[1], decode_items(named)) == (0x9C, [replace(begin, app=APP)])
