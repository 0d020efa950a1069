"""The daemon's side of the wire: any bytes on a connection of an agent, a newcomer or a query.

Input: a byte for the role, one for how it is cut, the rest comes over the socket.
Oracle: nothing escapes but ProtocolError with a closing code; every answer reads back; however the
bytes are cut the engine ends up the same; what was taken in is sealed into batches that a scan
gives back, body for body; memory stays in proportion to what came.
"""

from __future__ import annotations

from typing import Any

import msgspec
from engine_world import LOG, World
from wal_files import BytesDisk
from walld_client.wire import framing
from walld_client.wire import messages as wire

from walld import limits
from walld.engine.protocol_errors import CLOSING_CODES, REQUEST_CODES, explain
from walld.engine.stream import Connection
from walld.errors import ProtocolError
from walld.wal.log_scan import LogScan
from walld.wal.records import decode_body

__all__ = ["one"]

_query = msgspec.msgpack.Decoder(wire.FromQuery)
_to_query = msgspec.msgpack.Decoder(wire.ToQuery)


def one(data: bytes) -> None:
    """One input."""
    role, cut, raw = data[:1], data[1:2], data[2:]
    kind = role[0] % 3 if role else 0
    if kind == 2:
        _asked(raw)
        return
    whole = _fed(raw, len(raw) or 1, newcomer=kind == 1)
    step = cut[0] if cut else 0
    if step:
        assert _fed(raw, step, newcomer=kind == 1) == whole, "however it is cut"


def _fed(raw: bytes, step: int, *, newcomer: bool) -> tuple[Any, ...]:
    """An engine that got these bytes in pieces, and what it knows then."""
    world = World()
    agent = world.connect()
    broken: ProtocolError | None = None
    at = 0
    try:
        if newcomer:
            while at < len(raw):
                found = world.engine.decoder.first(agent, raw[at : at + step])
                at += step
                if found is not None:
                    world.engine.decoder.take(agent, found[1], 5)
                    break
        while at < len(raw):
            world.engine.decoder.take(agent, raw[at : at + step], 5)
            at += step
    except ProtocolError as error:
        broken = error
    code = broken.code if broken is not None else ""
    assert broken is None or (code in CLOSING_CODES and len(broken.got) < 300), broken
    assert len(agent.tail) <= len(raw) + 4
    return code, *_looked_at(world, agent, len(raw))


def _looked_at(world: World, agent: Connection, size: int) -> tuple[Any, ...]:
    engine = world.engine
    assert agent.outbox_bytes <= limits.ACK_BYTES_MAX + 1024
    streams = engine.registry.by_no
    assert len(streams) <= size // 8 + 1
    assert engine.batches.queue_bytes <= 512 * (len(streams) + 1) + 16 * size
    answers = [(type(one), getattr(one, "code", None)) for one in world.heard(agent)]
    texts = {no: (stream.next_seq, world.items(stream)) for no, stream in streams.items()}
    if streams:
        _written(world, {no: items for no, (_, items) in texts.items()})
    refusals = [one for one in answers if one[0] is wire.Refused]
    return texts, refusals, dict(engine.counters.received), dict(engine.counters.protocol_errors)


def _written(world: World, taken: dict[int, list[Any]]) -> None:
    """What was taken is what is written, and read back."""
    world.flush()
    world.sync()
    read_back: dict[int, list[Any]] = {no: [] for no in taken}
    scan = LogScan(BytesDisk(world.files), LOG)
    for _, batch in scan:
        for record in batch.records:
            if record.body_bytes and record.stream_no in read_back:
                body = batch.body(record.offset, record.body_bytes)
                read_back[record.stream_no] += decode_body(record.stream_no, body)
    assert scan.verdict().is_clean
    assert read_back == taken


def _asked(raw: bytes) -> None:
    """A query connection: each body is a request, or gets an answer that its sender can read."""
    try:
        bodies, _ = framing.split(raw)
    except framing.FrameTooLong:
        return
    for body in bodies:
        try:
            request = _query.decode(body)
        except Exception as error:
            answer = explain(body, error, "query")
            assert isinstance(answer, wire.Error)
            frame = framing.encode(answer)
            assert len(frame) < 600
            assert _to_query.decode(frame[4:]) == answer
            assert answer.code in (REQUEST_CODES if answer.id else CLOSING_CODES)
        else:
            assert _query.decode(framing.encode(request)[4:]) == request, "and back again"
