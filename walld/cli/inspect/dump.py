"""`walld dump`: prints segments and partials field by field, damaged parts included.

Owns: how headers, batches, records and items are shown. Refuses: judging, joining and writing: a
reply as a whole is what `walld recover --data` prints.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import stat
from collections.abc import Iterator

import msgspec
from walld_client.wire import messages as wire

from walld.cli.exit_codes import CANNOT, DONE, complain
from walld.cli.inspect import directory_scan
from walld.daemon.settings import load
from walld.disk.base import Disk
from walld.disk.real import RealDisk
from walld.disk.retrying import RetryingDisk
from walld.errors import FormatError
from walld.escape import escaped_line
from walld.ledger.line import line_seq
from walld.partials.file import read_partial
from walld.partials.store import PartialStore, path_of
from walld.wal.layout import WAL_DIR, Flag, parse_segment_name, segment_name
from walld.wal.log_scan import list_segments
from walld.wal.records import (
    BODY_CRC_BYTES,
    Begin,
    Happened,
    Item,
    Text,
    Thought,
    check_body,
    decode_items,
)
from walld.wal.scan import ScannedBatch, SegmentScan

__all__ = ["run"]

SHOWN_CHARACTERS_MAX = 100

_FLAGS = {name: value for name, value in vars(Flag).items() if name.isupper()}
Row = dict[str, object]
"""One line of output: "what" it is, "depth" for indenting, and its fields."""
_Named = dict[int, str] | None
"""Stream number -> session, of sessions' lines that were met; None where no items are shown."""


def run(options: argparse.Namespace) -> int:
    """Prints rows; exit 1 where something could not be read or is damaged."""
    damaged = False
    for path in options.paths:
        # Named by a person: not there is a mistake, not "gone since".
        if stat.S_ISDIR(os.lstat(path).st_mode):
            raise IsADirectoryError(
                errno.EISDIR, "a directory: name a segment or partial, or give it as --data", path
            )
    for row in _rows(options):
        damaged |= row["what"] in ("hole", "damaged")
        if options.json:
            row.pop("depth")
            print(json.dumps(row))
        else:
            print(_line(row))
    if damaged:
        complain("some bytes could not be read; see the lines above")
    return CANNOT if damaged else DONE


def _rows(options: argparse.Namespace) -> Iterator[Row]:
    named: _Named = {} if options.items else None
    if options.paths:
        for path in options.paths:
            folder, name = os.path.split(os.path.abspath(path))
            with RealDisk(folder, read_only=True) as disk:
                yield from _file(disk, name, path, named)
        return
    data = load({"data": options.data}, os.environ, os.geteuid()).data
    with RealDisk(data, read_only=True) as disk:
        yield {"what": "directory", "depth": 0, "path": data}
        yield from _directory(RetryingDisk(directory_scan.named(disk)), named)


def _directory(disk: Disk, named: _Named) -> Iterator[Row]:
    for segment_id in list_segments(disk):
        path = f"{WAL_DIR}/{segment_name(segment_id)}"
        yield from _segment(disk, path, path, segment_id, named)
    for uid, sessions in PartialStore(disk).tree().items():
        for session_name, stream_names in sessions.items():
            for stream_name in stream_names:
                path = path_of(uid, session_name, stream_name)
                yield from _partial(disk, path, path, named)


def _file(disk: Disk, name: str, path: str, named: _Named) -> Iterator[Row]:
    segment_id = parse_segment_name(name)
    if segment_id is not None:
        return _segment(disk, name, path, segment_id, named)
    return _partial(disk, name, path, named)


# --- segments -------------------------------------------------------------------------------------


def _segment(disk: Disk, name: str, path: str, segment_id: int, named: _Named) -> Iterator[Row]:
    try:
        file = disk.open(name)
    except FileNotFoundError:
        yield {"what": "gone", "depth": 0, "path": path}  # reclaimed since it was listed
        return
    except OSError as error:
        yield {"what": "unreadable", "depth": 0, "path": path, "why": error.strerror}
        return
    try:
        scan = SegmentScan(file, segment_id)
        yield {"what": "segment", "depth": 0, "path": path, "size": file.size()}
        holes_shown = 0
        headed = False
        for batch in scan:
            if not headed:
                yield from _header(scan)
                headed = True
            yield from _holes(scan, holes_shown)
            holes_shown = len(scan.facts.holes)
            yield from _batch(batch, named)
        if not headed:
            yield from _header(scan)
        yield from _holes(scan, holes_shown)
        for row in scan.facts.settled:
            yield {"what": "settled", "depth": 1, **row._asdict()}
    finally:
        file.close()


def _header(scan: SegmentScan) -> Iterator[Row]:
    header = scan.facts.header
    if header is not None:
        yield {
            "what": "header",
            "depth": 1,
            "log": header.log_uuid.hex(),
            "epoch": header.epoch,
            "prev_batch_no": header.prev_batch_no,
        }


def _holes(scan: SegmentScan, shown: int) -> Iterator[Row]:
    for hole in scan.facts.holes[shown:]:
        yield {
            "what": "hole",
            "depth": 1,
            "offset": hole.offset,
            "length": hole.length,
            "reason": hole.reason,
            "batch_no": hole.batch_no or None,
        }


def _batch(batch: ScannedBatch, named: _Named) -> Iterator[Row]:
    yield {
        "what": "batch",
        "depth": 1,
        "batch_no": batch.batch_no,
        "offset": batch.offset,
        "payload": len(batch.payload),
        "records": len(batch.columns.flags),
        "synced_no": batch.synced_no,
    }
    for record in batch.records:
        yield {
            "what": "record",
            "depth": 2,
            "stream_no": record.stream_no,
            "seqs": f"{record.first_seq}..{record.last_seq}",
            "bytes": record.body_bytes,
            "flags": [name.lower() for name, bit in _FLAGS.items() if record.flags & bit],
        }
        if named is not None and record.body_bytes:
            body = batch.body(record.offset, record.body_bytes)
            if not check_body(record.stream_no, body):
                yield {"what": "damaged", "depth": 3, "why": "the body does not verify"}
            yield from _items(body[BODY_CRC_BYTES:], record.stream_no, named)


# --- partials -------------------------------------------------------------------------------------


def _partial(disk: Disk, name: str, path: str, named: _Named) -> Iterator[Row]:
    try:
        file = disk.open(name)
    except FileNotFoundError:
        yield {"what": "gone", "depth": 0, "path": path}  # resolved since it was listed
        return
    try:
        partial = read_partial(file, path)
    except FormatError as error:
        yield {"what": "damaged", "depth": 0, "path": path, "why": str(error)}
        return
    finally:
        file.close()
    facts = {
        key: value.hex() if isinstance(value, bytes) else value
        for key, value in partial.facts._asdict().items()
    }
    facts["place"] = partial.place.hex()
    yield {"what": "partial", "depth": 0, "path": path, "uid": partial.uid, **facts}
    if named is not None:
        yield from _items(partial.body, 0, {})


# --- items ----------------------------------------------------------------------------------------


def _items(body: bytes, stream_no: int, named: dict[int, str]) -> Iterator[Row]:
    try:
        items = decode_items(body)
    except FormatError as error:
        yield {"what": "damaged", "depth": 3, "why": str(error)}
        return
    for item in items:
        if isinstance(item, Begin) and not item.producer:
            named[stream_no] = item.session_id
        yield _ledger_line(item, named.get(stream_no)) or _item(item)


def _ledger_line(item: Item, session_id: str | None) -> Row | None:
    """A line of a session, as the text it is; None for anything else."""
    event = item.event if isinstance(item, Happened) else None
    if not isinstance(event, wire.Custom) or event.kind != "line":
        return None
    seq = line_seq(event.payload)
    if not seq:
        return None
    text = _readable(event.payload).removesuffix("\n")
    return {"what": "line", "depth": 3, "session": session_id, "ledger_seq": seq, "text": text}


def _item(item: Item) -> Row:
    if isinstance(item, Text):
        return {
            "what": "reasoning" if isinstance(item, Thought) else "text",
            "depth": 3,
            "seqs": f"{item.first_seq}..{item.last_seq}",
            "after_ms": item.after_ms,
            "text": _readable(item.text),
        }
    event: wire.Event | Begin = item if isinstance(item, Begin) else item.event
    row: Row = {"what": type(event).__name__.lower(), "depth": 3}
    if not isinstance(item, Begin):
        row["after_ms"] = item.after_ms
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if value is not None and name != "stream":
            row[name] = _plain(name, value)
    return row


def _plain(name: str, value: object) -> object:
    if isinstance(value, msgspec.Struct):
        return {key: _plain(key, getattr(value, key)) for key in value.__struct_fields__}
    if isinstance(value, bytes):
        opaque = name in ("producer", "info", "meta", "payload", "detail", "lengths")
        return value.hex() if opaque else _readable(value)
    return value


def _readable(text: bytes) -> str:
    try:
        return text.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:  # a run may start or end inside a character
        return text.decode("utf-8", "backslashreplace")


def _line(row: Row) -> str:
    depth = row.pop("depth")
    assert isinstance(depth, int)
    parts = [f"{'  ' * depth}{row.pop('what')}"]
    for name, value in row.items():
        if value is None or value == [] or value == "":
            continue
        shown = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        shown = escaped_line(shown)
        if len(shown) > SHOWN_CHARACTERS_MAX and name != "why":  # what it is, and what it is not
            shown = f"{shown[:SHOWN_CHARACTERS_MAX]}… ({len(str(value))} characters)"
        parts.append(shown if name == "path" else f"{name}={shown}")
    return " ".join(parts)
