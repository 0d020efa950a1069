"""An engine without a daemon: agents that speak bytes, and a log that is a dict of segments.

What writer and syncer do with files is done here with bytes objects, so that every state of the
engine can be reached one step at a time, also those between two steps of a flush.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from wal_files import BytesDisk, BytesFile
from walld_client.wire import messages as wire
from walld_client.wire.framing import encode, split

from walld.daemon.startup.restore_streams import restore
from walld.daemon.storage.reply_reader import BadRecord, ReplyReader
from walld.disk.base import Entry
from walld.engine.batch import Carry, SealedBatch
from walld.engine.engine import Engine
from walld.engine.flush_schedule import FlushSchedule
from walld.engine.partial_index import PartialIndex
from walld.engine.segments import Segment
from walld.engine.stream import Connection, Process, Stream
from walld.partials.file import PartialFacts
from walld.partials.names import PartialOwner
from walld.partials.store import Stray
from walld.partials.tombstone_file import GONE_PATH
from walld.recovery.startup_recovery import RecoveredStorage, recover_storage
from walld.wal import records
from walld.wal.layout import (
    ENTRY_BYTES,
    BatchHeader,
    Flag,
    SegmentHeader,
    pack_segment_header,
    segment_seed,
    unpack_directory,
)
from walld.wal.records import Owner

__all__ = ["LOG", "UID", "World", "carry_of", "entries"]

LOG = bytes(range(16))
UID = 1000
_answers: msgspec.msgpack.Decoder[wire.ToAgent] = msgspec.msgpack.Decoder(wire.ToAgent)


def entries(sealed: SealedBatch) -> list[tuple[int, int, int, int, int]]:
    """The directory of a batch: stream_no, first_seq, last_seq, body_bytes, flags."""
    batch = sealed.batch
    header = BatchHeader(
        batch.kind, batch.widths, batch.records, 0, len(batch.payload), batch.batch_no, 0
    )
    columns = unpack_directory(header, memoryview(batch.payload))
    assert columns is not None
    return [
        (stream_no, first_seq, first_seq + span, body_bytes, flags)
        for stream_no, first_seq, span, body_bytes, flags in zip(*columns, strict=True)
    ]


class LogDisk(BytesDisk):
    """A data directory with nothing but wal/, for a start to look at."""

    def __init__(self, files: dict[int, bytes | bytearray]) -> None:
        super().__init__(files)
        self.replaced: dict[str, bytes] = {}

    def replace(self, path: str, data: bytes) -> None:
        self.replaced[path] = data

    def make_dir(self, path: str) -> None:
        pass

    def sync_dir(self, path: str) -> None:
        pass

    def list_dir(self, path: str) -> list[Entry]:
        return super().list_dir(path) if path == "wal" else []

    def open(self, path: str) -> BytesFile:
        if path == GONE_PATH:
            raise FileNotFoundError(path)
        file = super().open(path)
        file.sync = lambda: None  # type: ignore[method-assign]
        return file

    def reopen(self, path: str) -> BytesFile:
        file = self.open(path)

        def write_at(data: bytes, offset: int) -> int:
            assert file.read_at(len(data), offset) == data, "what stands there, and nothing else"
            return len(data)

        file.write_at = write_at  # type: ignore[method-assign]
        return file


class KeptAlone:
    """Of a PartialStore what a start asks: which partials there are."""

    def __init__(self, kept: PartialIndex) -> None:
        self._kept = kept

    def sweep_temporary(self, unsynced: list[Stray]) -> int:
        return 0

    def tree(self, strays: list[Stray]) -> dict[int, dict[str, list[str]]]:
        found: dict[int, dict[str, list[str]]] = {}
        for uid, session, stream in self._kept.all_names():
            found.setdefault(uid, {}).setdefault(session, []).append(stream)
        return found

    def read_facts(self, uid: int, session: str, stream: str) -> PartialFacts:
        facts = self._kept.facts(uid, session, stream)
        assert facts is not None
        numbers = facts.stream_no, facts.begun_at_ms, 5, 0, facts.last_seq
        whose = PartialOwner(bytes(16), 1, session)
        return PartialFacts(LOG, *numbers, "agent_lost", whose=whose)


class World:
    """One engine, its log, and whoever talks to it."""

    def __init__(self, bound_ms: int = 3000, linger_ms: int | None = None) -> None:
        self.engine = Engine(FlushSchedule(bound_ms, linger_ms))
        self.engine.log_uuid = LOG
        self.posted: set[Connection] = set()
        self.files: dict[int, bytes | bytearray] = {}
        """Segment id -> its bytes."""
        self.wrote: list[tuple[int, int, int]] = []
        """(batch number, segment id, file offset) of every write."""
        self.names = 0
        self.recovered: RecoveredStorage | None = None
        """Of one that came out of `restarted`, as its start saw it."""
        self.replaced: dict[str, bytes] = {}
        """Files that its start wrote."""
        # Of the files it calls `read` alone; partials and threads are not met here.
        self.reader = ReplyReader(
            self.engine, cast("Any", self), cast("Any", None), cast("Any", None)
        )
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
        connection.producer.connections.append(connection)
        return connection

    def say(self, connection: Connection, *messages: msgspec.Struct, at_ms: int = 5) -> None:
        """Frames, in one read."""
        self.engine.decoder.take(connection, b"".join(map(encode, messages)), at_ms)

    def begin(
        self, connection: Connection, number: int = 1, stream_id: str | None = None
    ) -> Stream:
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
        segment_id = max(self.files, default=0) + 1
        prev_batch_no = self.engine.batches.written_no
        segments.add(Segment(segment_id, prev_batch_no + 1, 0.0))
        header = pack_segment_header(SegmentHeader(LOG, segment_id, prev_batch_no, 1))
        self.files[segment_id] = bytearray(header)

    def seal(self, records_max: int = 1000) -> SealedBatch | None:
        """Everything that fits into one batch."""
        self.engine.batches.seal_some(records_max, self.engine.batches.now)
        return self.engine.batches.finish()

    def write(self, sealed: SealedBatch, now: float = 0.0) -> None:
        """write(2) returned."""
        current = self.engine.segments.current
        offset = current.size
        seed = segment_seed(LOG, current.segment_id)
        file = self.files[current.segment_id]
        assert isinstance(file, bytearray)
        assert len(file) == offset
        raw = sealed.batch.stamped(self.engine.batches.synced_no, seed, offset)
        self.engine.written(sealed, offset, now)
        file += raw
        self.wrote.append((sealed.batch.batch_no, current.segment_id, offset))

    def flush(self, now: float = 0.0) -> list[SealedBatch]:
        """Everything that waits is written, in as many batches as it takes."""
        engine = self.engine
        engine.schedule.flush_begun()
        _, waiters = engine.begin_flush()
        batches = []
        while (sealed := self.seal()) is not None:
            self.write(sealed, now)
            batches.append(sealed)
        engine.flushed(waiters)
        return batches

    def sync(self) -> None:
        """fdatasync(2) returned for everything written."""
        self.engine.schedule.sync_begun()
        self.engine.synced(self.engine.batches.written_no)

    def replace_segment(self) -> None:
        """A write or sync failed: what is not synced is written again into a new segment (P8)."""
        engine = self.engine
        engine.segments.poison(engine.batches.synced_no)
        again = engine.batches.batches_to_rewrite()
        self.segment()
        for sealed in again:
            self.write(sealed)
        engine.recount()

    def unlink(self) -> None:
        """Segments that nobody needs go."""
        while (
            segment := self.engine.segments.can_unlink(self.engine.batches.synced_no)
        ) is not None:
            self.engine.segments.unlinked(segment)
            del self.files[segment.segment_id]

    def read(self, segment_id: int, offset: int, length: int) -> bytes:
        """As `SegmentFiles.read`: bytes of a segment by their place in the file."""
        body = bytes(self.files[segment_id][offset : offset + length])
        assert len(body) == length, (segment_id, offset, length)
        return body

    def restarted(self, *, power: bool, kept: PartialIndex | None = None) -> World:
        """What a start makes of this log. power: what is not synced is gone too."""
        files = dict(self.files)
        if power:
            for batch_no, segment_id, offset in reversed(self.wrote):
                if segment_id in files and batch_no > self.engine.batches.synced_no:
                    files[segment_id] = files[segment_id][:offset]
        disk = LogDisk(files)
        recovered = recover_storage(disk, cast("Any", KeptAlone(kept or PartialIndex())), LOG)
        world = World.__new__(World)
        world.recovered, world.replaced = recovered, disk.replaced
        world.engine = Engine(FlushSchedule(3000, None))
        world.engine.log_uuid = LOG
        world.posted, world.names, world.files, world.wrote = set(), 0, files, []
        world.reader = ReplyReader(
            world.engine, cast("Any", world), self.reader._store, cast("Any", None)
        )
        restore(world.engine, recovered, "boot", lambda _uid, _owner: None, 0.0)
        return world

    def items(self, stream: Stream) -> list[records.Item]:
        """What a reader gets of a stream at this moment."""
        damaged: list[BadRecord] = []
        items = self.reader.job(stream, damaged)()
        assert not damaged
        return items

    def text(self, stream: Stream) -> bytes:
        """The text of all items."""
        return b"".join(item.text for item in self.items(stream) if isinstance(item, records.Text))

    def recounted(self) -> dict[int, int]:
        """Live bytes of each segment, counted anew: what places lead to that is not released."""
        live = {segment.segment_id: 0 for segment in self.engine.segments}
        registry, batches = self.engine.registry, self.engine.batches
        for stream in [*registry.by_no.values(), *batches.buried]:
            for place in stream.places():
                found = self.engine.segments.of_batch(place.batch_no)
                if found is not None:
                    live[found.segment_id] += place.length + ENTRY_BYTES
        return live


def carry_of(world: World, stream: Stream, at: int, count: int) -> Carry:
    """What the reclaimer makes of a stream's records."""
    items = world.reader.job(stream, [], at, count)()
    first = items[0].first_seq if isinstance(items[0], records.Text) else 0
    last = items[-1]
    assert isinstance(last, records.Text)
    array = records.join_items([records.encode_item(item) for item in items])
    body = records.pack_body(stream.no, array)
    flags = Flag.BEGIN if isinstance(items[0], records.Begin) else 0
    was = tuple(stream.where[at : at + count])
    stream.carrying = True
    return Carry(stream, at, count, was, first, last.last_seq, flags, body)
