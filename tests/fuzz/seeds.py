"""The first inputs of each target, out of the protocol's vectors and the golden files.

Owns: making them. Refuses: keeping them (`corpus.py`), what one means (the targets).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
from wal_files import BytesFile
from walld_client.wire import messages as wire

from walld.ledger.line import chain_of, make_line
from walld.partials.file import unpack_partial
from walld.sessions.state.entries import line_event
from walld.sessions.state.session_state import SessionState
from walld.wal.records import BODY_CRC_BYTES
from walld.wal.scan import SegmentScan

from . import sessions, shapes
from .corpus import INPUT_BYTES_MAX, keep

__all__ = ["make_seeds"]

ROOT = Path(__file__).parents[2]


def make_seeds() -> int:
    """Write the seeds of all targets; how many there are."""
    count = 0
    for target, make in (
        ("frames", _frames),
        ("segments", _segments),
        ("client", _client),
        ("directory", _directory),
        ("sessions", _sessions),
    ):
        for data in make():
            if len(data) <= INPUT_BYTES_MAX:
                keep(target, data)
                count += 1
    return count


def _vectors(name: str, key: str) -> list[dict[str, object]]:
    text = (ROOT / "clients/vectors" / name).read_text(encoding="ascii")
    found: list[dict[str, object]] = json.loads(text)[key]
    return [one for one in found if "hex" in one]


def _frames() -> Iterator[bytes]:
    """Each vector alone, in its role; then all good ones of an agent in one conversation."""
    agent = b""
    for one in _vectors("frames.json", "frames"):
        raw = bytes.fromhex(str(one["hex"]))
        if one["from"] == "agent":
            yield b"\x00\x00" + raw
            yield b"\x01\x03" + raw
            agent += raw
        elif one["from"] == "query":
            yield b"\x02\x00" + raw
    yield from (b"\x00" + bytes((cut,)) + agent[:INPUT_BYTES_MAX] for cut in (0, 1, 7))
    roles = {"agent": b"\x00", "query": b"\x02", None: b"\x01"}
    for one in _vectors("malformed.json", "cases"):
        yield roles[one["role"]] + b"\x05" + bytes.fromhex(str(one["hex"]))  # type: ignore[index]


def _sessions() -> Iterator[bytes]:
    """A session's file whole, cut, line by line; what it comes to."""
    lines, chain = [], chain_of(sessions.HEADER)
    state = SessionState()
    for seq, (kind, payload, turn) in enumerate(_ENTRIES, 1):
        ident = f"e{seq}" if kind != "turn_submitted" else "t"
        line = make_line(seq, ident, 5 * seq, kind, payload.encode(), chain, turn=turn)
        chain = chain_of(line)
        lines.append(line)
        state.apply(line_event(line))
        yield b"\x00" + b"".join(lines)
    yield b"\x03" + b"".join(lines)
    yield b"\x00" + b"".join(lines)[:-7]
    yield b"\x00" + lines[0] + b"torn" + lines[2]
    yield b"\x00" + lines[1] + lines[0] + lines[1]
    yield b"\x02" + state.take_delta()
    yield b"\x01" + state.to_base()


_ENTRIES = (
    ("message", '{"role":"user","content":"hi \\ud83d"}', None),
    ("turn_submitted", '{"message_id":"m","content":"go"}', "t"),
    ("turn_worker_started", "{}", "t"),
    (
        "tool_intent",
        '{"call_id":"c","tool":"ls","side_effect":"read","resume_policy":"rerun-after-check"}',
        "t",
    ),
    ("tool_started", '{"call_id":"c"}', "t"),
    ("tool_finished", '{"call_id":"c","result":"a b"}', "t"),
    ("label", '{"target":"e1","text":"here"}', None),
    ("undo", '{"n":1}', None),
    ("compaction", '{"summary":"so far","first_kept":"e1"}', None),
    ("leaf", '{"target":"e1"}', None),
    ("message_edit", '{"target":"e1","message":{"role":"user","content":"ho"}}', None),
    ("turn_completed", "{}", "t"),
)


def _golden(pattern: str) -> list[bytes]:
    paths = sorted((ROOT / "tests/golden/v1").rglob(pattern))
    return [path.read_bytes() for path in paths if path.suffix != ".json"]


def _arrays() -> list[bytes]:
    """The arrays of items in the golden segments and partials."""
    found = [unpack_partial(raw, "").body for raw in _golden("*.partial")]
    for raw in _golden("*.wal"):
        for batch in SegmentScan(BytesFile("", raw), shapes.named(raw)):
            bodies = (batch.body(one.offset, one.body_bytes) for one in batch.records)
            found += [body[BODY_CRC_BYTES:] for body in bodies if body]
    return found


def _segments() -> Iterator[bytes]:
    for raw in _golden("*.wal"):
        yield b"\x00" + raw
        yield b"\x01" + raw[64:]
    for raw in _golden("*.partial"):
        yield b"\x03" + raw
    for array in _arrays():
        yield b"\x02" + shapes.seed(array)
    yield b"\x02" + shapes.seed(*_arrays())


def _client() -> Iterator[bytes]:
    for one in _vectors("frames.json", "frames"):
        raw = bytes.fromhex(str(one["hex"]))
        if one["from"] != "agent":
            yield b"\x00\x00" + raw
            yield b"\x01\x02" + raw
    piece = wire.RecoveredSegment("text", 0, 0, 1, 2, 5, b"Hello")
    tool = wire.RecoveredSegment(
        "tool", 0, 0, 3, 4, 5, call_id="c", name="t", arguments=b'{"a":1}', arguments_complete=True,
        result=b'{"b":[2]}', result_json=True, outcome="done", info=b"\x81\xa1k\xa1v",
    )  # fmt: skip
    custom = wire.RecoveredSegment("custom", 1, 0, 5, 5, 5, name="k", result=b"\x93\x01\x02\x03")
    reply = wire.Recovered(
        "r", "s", 0, "t", None, b"\x80", "crashed", False, "agent_lost",
        wire.ReplyError("m", "k", b"\x90"), None, 1, 2, 6, [wire.Gap(6, 6, "dropped")], 1, 6, True,
        "gap", [piece, tool, custom],
    )  # fmt: skip
    yield b"\x02\x00" + msgspec.msgpack.encode([reply])
    yield b"\x02\x00" + msgspec.msgpack.encode([])


def _directory() -> Iterator[bytes]:
    for raw in _golden("*.wal"):
        yield b"\x00" + raw
    for raw in _golden("*.partial"):
        yield b"\x01" + raw
    for array in _arrays():
        yield b"\x02" + shapes.seed(array)
        yield b"\x03" + array
