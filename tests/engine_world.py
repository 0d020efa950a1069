"""An engine without a daemon: agents that speak bytes, and a log that is a dict of segments.

What the committer does with files is done here with bytes objects, so that every state of the
engine can be reached one step at a time, also those between two steps of a flush.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode, split

from walld.daemon.reading import Reader
from walld.engine.commit import GroupCommit
from walld.engine.engine import Engine
from walld.engine.peer import Connection, Process
from walld.engine.sealing import Sealed
from walld.engine.segments import Segment
from walld.engine.stream import Stream
from walld.wal import records
from walld.wal.layout import BATCH_HEADER_BYTES, ENTRY_BYTES, directory
from walld.wal.records import Owner

__all__ = ["LOG", "World", "entries"]

LOG = bytes(range(16))
UID = 1000
_answers: msgspec.msgpack.Decoder[wire.ToAgent] = msgspec.msgpack.Decoder(wire.ToAgent)


def entries(sealed: Sealed) -> list[tuple[int, int, int, int, int]]:
    """The directory of a batch: stream_no, first_seq, last_seq, body_bytes, flags."""
    table = sealed.batch.payload[: ENTRY_BYTES * sealed.batch.records]
    return list(directory.iter_unpack(table))


class World:
    """One engine, its log, and whoever talks to it."""

    def __init__(self, bound_ms: int = 3000, linger_ms: int | None = None) -> None:
        self.engine = Engine(GroupCommit(bound_ms, linger_ms))
        self.engine.log_uuid = LOG
        self.posted: set[Connection] = set()
        self.written: dict[tuple[int, int], bytes] = {}
        """(segment id, file offset) -> a batch without its header."""
        self.names = 0
        # Of the files it calls `read` alone; partials and threads are not met here.
        self.reader = Reader(self.engine, cast("Any", self), cast("Any", None), cast("Any", None))
        self.segment()

    # --- who talks ------------------------------------------------------------------------------

    def process(self, uid: int = UID, pid: int = 7) -> Process:
        return Process(uid, Owner("boot", pid, 0, 0), visible=pid > 0)

    def connect(self, producer: bytes = b"p" * 16, process: Process | None = None) -> Connection:
        """A connection that has said Hello."""
        self.names += 1
        process = process or self.process()
        connection = Connection(self.names, process.uid, process, self.posted)
        process.connections.add(connection)
        connection.producer = self.engine.registry.producer(process.uid, producer)
        connection.producer.connections += 1
        return connection

    def say(self, connection: Connection, *messages: msgspec.Struct, at_ms: int = 5) -> None:
        """Frames, in one read."""
        self.engine.feed.take(connection, b"".join(map(encode, messages)), at_ms)

    def begin(self, connection: Connection, number: int = 1, stream_id: str | None = None) -> Stream:
        """A stream that has begun."""
        name = stream_id or f"r{number}"
        self.say(connection, wire.Start(number, 0, name, "s"))
        assert connection.producer is not None
        return connection.producer.streams[number]

    def heard(self, connection: Connection) -> list[wire.ToAgent]:
        """What the daemon would have sent since the last call."""
        bodies, rest = split(b"".join(connection.outbox))
        assert not rest
        connection.outbox.clear()
        connection.outbox_bytes = 0
        return [_answers.decode(body) for body in bodies]

    # --- the log --------------------------------------------------------------------------------

    def segment(self) -> None:
        """Open the next segment."""
        segments = self.engine.segments
        segment_id = segments.current.segment_id + 1 if len(segments) else 1
        segments.add(Segment(segment_id, self.engine.sealing.written_no + 1, 0.0))

    def seal(self, records_max: int = 1000) -> Sealed | None:
        """Everything that fits into one batch."""
        self.engine.sealing.seal_some(records_max)
        return self.engine.sealing.finish(5)

    def write(self, sealed: Sealed, now: float = 0.0) -> None:
        """write(2) returned."""
        current = self.engine.segments.current
        offset = current.size
        self.written[current.segment_id, offset] = sealed.batch.payload
        self.engine.written(sealed, offset, now)

    def flush(self, now: float = 0.0) -> list[Sealed]:
        """Everything that waits is written, in as many batches as it takes."""
        engine = self.engine
        engine.commit.flush_begun()
        _, waiters = engine.begin_flush()
        batches = []
        while (sealed := self.seal()) is not None:
            self.write(sealed, now)
            batches.append(sealed)
        engine.flushed(waiters)
        return batches

    def sync(self) -> None:
        """fdatasync(2) returned for everything written."""
        self.engine.commit.sync_begun()
        self.engine.synced(self.engine.sealing.written_no)

    def replace_segment(self) -> None:
        """A write or sync failed: what is not synced is written again into a new segment (P8)."""
        engine = self.engine
        engine.segments.poison(engine.sealing.synced_no)
        again = engine.sealing.unwritten_again()
        self.segment()
        for sealed in again:
            self.write(sealed)
        engine.recount()

    def read(self, segment_id: int, offset: int, length: int) -> bytes:
        """As `SegmentFiles.read`: bytes of a segment by their place in the file."""
        starts = [at for owner, at in self.written if owner == segment_id and at <= offset]
        start = max(starts)
        at = offset - start - BATCH_HEADER_BYTES
        body = self.written[segment_id, start][at : at + length]
        assert len(body) == length, (segment_id, offset, length)
        return body

    def items(self, stream: Stream) -> list[records.Item]:
        """What a reader gets of a stream at this moment."""
        job, _ = self.reader.job(stream)
        return job()

    def text(self, stream: Stream) -> bytes:
        """The text of all items."""
        return b"".join(item.text for item in self.items(stream) if isinstance(item, records.Text))

    def recounted(self) -> dict[int, int]:
        """Live bytes of each segment, counted anew: what places lead to that is not released."""
        live = {segment.segment_id: 0 for segment in self.engine.segments}
        registry, sealing = self.engine.registry, self.engine.sealing
        for stream in [*registry.by_no.values(), *sealing.buried]:
            for place in stream.places():
                found = self.engine.segments.of_batch(place.batch_no)
                if found is not None:
                    live[found.segment_id] += place.length + ENTRY_BYTES
        return live
