"""Wrote the files in app_v1/, once. It refuses to write over them: they stay for ever.

A log with two replies, one of an application and one of a client that named none.
"""

from __future__ import annotations

from pathlib import Path

from make_v1 import AT_MS, OWNER, batch, segment

from walld.wal.layout import Flag, segment_name
from walld.wal.records import Begin, Text, encode_item, join_items, pack_body

APP_V1 = Path(__file__).parent / "app_v1"
APP = "/srv/chat/main.py"


def reply(number: int, app: str | None) -> bytes:
    begin = Begin(
        1000, bytes(16), number, f"st-{number}", "chat/7", None, None, None, AT_MS, OWNER, app
    )
    items = [begin, Text(1, 10, bytes([5]), b"words")]
    return pack_body(number, join_items([encode_item(item) for item in items]))


def main() -> None:
    named, unnamed = ((number, 0, 1, Flag.BEGIN, reply(number, app)) for number, app in APPS)
    (APP_V1 / "wal").mkdir(parents=True)
    path = APP_V1 / "wal" / segment_name(1)
    path.write_bytes(segment(1, [(batch(1, named, unnamed), 0)]))


APPS = ((1, APP), (2, None))

if __name__ == "__main__":
    main()
