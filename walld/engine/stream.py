"""One stream in memory: identity, watermarks, queued items, index of records; and its producer.

Owns: the folding of consecutive tokens into runs, the index of a stream's records, and the facts of
a peer: its process, as the kernel names it, and its connections. Refuses: which stream may do what
(`event_handlers.py`), when to flush (`flush_schedule.py`), bytes on disk (`wal/`), sockets, asking
the kernel for a peer (`daemon/transport/credentials.py`).

Invariants
- S1 Seqs are taken in order: `next_seq` only grows; what lies between two items is a gap.
- S2 Memory of an idle stream is bounded: 12 bytes per record, and records are folded into one
  at `limits.INDEX_ENTRIES_MAX`. The text itself lives on disk.
- S3 What was taken is in one place at a time: the open run, `waiting` (sealed items), `building`
  (the batch being built) or `where` (records), so a reader at any moment finds all of it once.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from walld import limits
from walld.wal import records
from walld.wal.index import OFFSET_BITS

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["NOBODY", "Connection", "Place", "Process", "Producer", "Stream", "varint_lengths"]

RUN_BYTES_CUT = 4096
"""A run becomes an item at this size, so that batches fill to within 2 % of their cut."""
WAITING_OVERHEAD_BYTES = 120
"""What an item costs in memory beside its bytes, counted into the queue's bound."""


class Place(NamedTuple):
    """Where one record's body stands."""

    batch_no: int
    offset: int
    length: int


class _Waiting(msgspec.Struct, frozen=True, gc=False):
    """A sealed item not yet in a batch. flags: `layout.Flag` bits it brings to its record."""

    first_seq: int
    last_seq: int
    flags: int
    item: bytes


def varint_lengths(lengths: list[int]) -> bytes:
    """LEB128 lengths of tokens, one behind the other."""
    out = bytearray()
    for length in lengths:
        while length > 127:
            out.append(length & 127 | 128)
            length >>= 7
        out.append(length)
    return bytes(out)


class _Run:
    """Consecutive tokens (kind 3) or reasoning (kind 4), folded as they arrive."""

    __slots__ = ("at_ms", "first_seq", "kind", "lengths", "text")

    def __init__(self, kind: int, first_seq: int, at_ms: int) -> None:
        self.kind = kind
        self.first_seq = first_seq
        self.at_ms = at_ms
        self.lengths = bytearray()
        self.text = bytearray()


class Stream:
    """A reply that is not released, from its Start on. `no` names it in the log for ever."""

    __slots__ = (
        "_run",
        "anew_seq",
        "begin",
        "building",
        "carrying",
        "connection",
        "damaged",
        "dropped",
        "dropped_seq",
        "fresh",
        "fresh_kind",
        "gone",
        "is_anew",
        "is_behind_torn",
        "lost_reason",
        "may_have_calls",
        "may_release",
        "moved_to",
        "next_seq",
        "no",
        "owner",
        "passed_seq",
        "possible_last_seq",
        "queued",
        "restored_seq",
        "sizes",
        "synced_seq",
        "terminal",
        "waiting",
        "waiting_bytes",
        "where",
        "written_seq",
    )

    def __init__(
        self,
        no: int,
        begin: records.Begin,
        owner: Process | None,
        moved_to: str | None = None,
        *,
        terminal: bool = False,
    ) -> None:
        self.no = no
        self.begin = begin
        self.moved_to = moved_to
        self.owner = owner
        self.connection: Connection | None = None
        self.next_seq = 0
        self.passed_seq = -1
        """Highest seq that came and was refused or dropped: who asks need not wait for it."""
        self.dropped = -1, -1
        """Which connection was told last that a full disk drops of it, and behind which seq."""
        self.dropped_seq = -1
        """The lowest that a full disk dropped of it since its client came, or came back."""
        self.anew_seq = -1
        """Up to here somebody has let go of it, and its producer went on
        (`resolved_streams.py`)."""
        self.fresh: list[bytes] = []
        self.fresh_kind: type | None = None
        """Tokens (or reasoning) of the read at hand, not folded yet: `frame_decoder.py` alone sees
        them."""
        self.written_seq = -1
        self.synced_seq = -1
        self.terminal = terminal
        self.may_release = False
        """Its end may be lost, or stand in a partial nobody has read: its owner knows."""
        self.may_have_calls = True
        """It has events of tools or of its model, or what it has was not looked at."""
        self.is_anew = False
        """Begun again under this number, since what there was of it could not be read."""
        self.gone = False
        """Released, resolved or kept as a partial: the WAL no longer needs its records."""
        self.lost_reason: str | None = None
        """Set once the owner is gone: the stream is an orphan."""
        self.queued = False
        self.restored_seq = -1
        """How far a start found it; a gap up to here is older than this daemon."""
        self.is_behind_torn = False
        """It begins behind all batches that a start has called torn: no gap of it is."""
        self.damaged = False
        """Some record of it did not verify and is left out: its gaps are put down to that."""
        self.possible_last_seq = -1
        """The highest seq it may have reached: damage behind its last record may have held more of
        it, or its producer was told that more is synced."""
        self.building: tuple[bytes, ...] = ()
        """Bodies in the batch that is being built: neither waiting nor placed."""
        self.carrying = False
        self.waiting: list[_Waiting] = []
        self.waiting_bytes = 0
        self._run: _Run | None = None
        self.where = array("Q")
        self.sizes = array("I")
        """Body bytes of the record at the same position of `where`."""

    def __hash__(self) -> int:
        """By number: sets of streams have the same order in every run of a simulation."""
        return self.no

    @property
    def is_ledger(self) -> bool:
        """Lines of a session's ledger on their way to its file, not a reply: nobody produces it."""
        return not self.begin.producer

    @property
    def is_synced(self) -> bool:
        """All that was taken of it is durable."""
        return self.synced_seq >= self.next_seq - 1

    @property
    def known_seq(self) -> int:
        """The highest seq it has, or may have reached."""
        return max(self.next_seq - 1, self.possible_last_seq)

    @property
    def session_id(self) -> str:
        """The session it belongs to now."""
        return self.begin.session_id if self.moved_to is None else self.moved_to

    @property
    def session_ids(self) -> tuple[str, str]:
        """Where it is now; and where it began, and its turn with it."""
        return self.session_id, self.begin.session_id

    @property
    def key(self) -> tuple[int, str]:
        """(uid, stream_id): the name it has for its user."""
        return self.begin.uid, self.begin.stream_id

    def found(self, last_seq: int, where: array[int], sizes: array[int]) -> None:
        """A start found it up to `last_seq`, in records that stand there; all of that is synced."""
        assert not self.next_seq, self.next_seq
        self.next_seq = last_seq + 1
        self.restored_seq = self.written_seq = self.synced_seq = last_seq
        self.where, self.sizes = where, sizes

    def lost_record(self) -> None:
        """A record of it cannot be read: its gaps are put down to that."""
        self.damaged = True

    def attested(self, synced: int) -> None:
        """Its producer, who was told that all up to there is synced, is back: whatever of that is
        behind its last event is lost, a gap, and nothing else is to be feared.
        """
        self.possible_last_seq = synced
        self.damaged |= synced >= self.next_seq
        self.may_release |= synced >= self.next_seq

    # --- taking events in ---------------------------------------------------------------------

    def take_run(
        self, kind: int, first_seq: int, count: int, lengths: bytes, text: bytes, at_ms: int
    ) -> int:
        """`count` tokens from `first_seq`, folded. Returns the bytes the queue grew by."""
        grown = len(lengths) + len(text)
        run = self._run
        if run is None or run.kind != kind or first_seq != self.next_seq:
            if run is not None:
                self._close_run()
            run = self._run = _Run(kind, first_seq, at_ms)
            grown += WAITING_OVERHEAD_BYTES
        run.lengths += lengths
        run.text += text
        self.next_seq = first_seq + count
        if len(run.text) >= RUN_BYTES_CUT:
            self._close_run()
        self.waiting_bytes += grown
        return grown

    def take_item(self, seq: int, flags: int, item: bytes) -> int:
        """Any other event, encoded. Returns the bytes the queue grew by."""
        if self._run is not None:
            self._close_run()
        self.waiting.append(_Waiting(seq, seq, flags, item))
        self.next_seq = seq + 1
        grown = len(item) + WAITING_OVERHEAD_BYTES
        self.waiting_bytes += grown
        return grown

    def _close_run(self) -> None:
        run = self._run
        assert run is not None
        self._run = None
        self.waiting.append(
            _Waiting(run.first_seq, self.next_seq - 1, 0, records.encode_item(self._text(run)))
        )

    def _text(self, run: _Run) -> records.Text:
        kind = records.Text if run.kind == records.Text.kind else records.Thought
        after_ms = run.at_ms - self.begin.at_ms
        # msgspec writes a bytearray like bytes.
        return kind(run.first_seq, after_ms, run.lengths, run.text)  # type: ignore[arg-type]

    def seal(self) -> None:
        """Close the open run: from here on what waits is in `waiting` alone."""
        if self._run is not None:
            self._close_run()

    def drop_waiting(self) -> int:
        """Forget what waits. Returns the bytes the queue shrank by."""
        self._run = None
        self.waiting.clear()
        freed, self.waiting_bytes = self.waiting_bytes, 0
        return freed

    @property
    def has_waiting(self) -> bool:
        """True while something of it is not in a sealed batch."""
        return bool(self.waiting or self.building) or self._run is not None

    # --- where its records lie ------------------------------------------------------------------

    def carry_begun(self) -> None:
        """Some of its records are being read, to be written again as one. A start that rescues them
        may do so behind others of it that nobody could carry, which stays said.
        """
        self.carrying = True

    def carry_failed(self) -> None:
        """They could not be read now; another time maybe."""
        self.carrying = False

    def place(self, place: Place) -> None:
        """One more record, behind those it has."""
        self.where.append(place.batch_no << OFFSET_BITS | place.offset)
        self.sizes.append(place.length)

    def replace_places(self, at: int, count: int, place: Place) -> None:
        """Records at..at+count are now one, at `place`."""
        self.where[at : at + count] = array("Q", (place.batch_no << OFFSET_BITS | place.offset,))
        self.sizes[at : at + count] = array("I", (place.length,))

    def forget_places(self) -> None:
        """Its records are not needed any more."""
        del self.where[:]
        del self.sizes[:]

    def places(self, at: int = 0, count: int | None = None) -> Iterator[Place]:
        """Its records in seq order, or `count` of them from the one at `at`."""
        stop = None if count is None else at + count
        for where, size in zip(self.where[at:stop], self.sizes[at:stop], strict=True):
            yield Place(where >> OFFSET_BITS, where & (1 << OFFSET_BITS) - 1, size)

    @property
    def records(self) -> int:
        """Number of records on disk or on their way there."""
        return len(self.where)


class Process:
    """A peer's process, as the kernel names it. `visible` is False where its pid cannot be seen."""

    __slots__ = (
        "connections",
        "has_exited",
        "is_lost",
        "owner",
        "queries",
        "streams",
        "turns",
        "uid",
        "visible",
        "work_per_byte",
    )

    def __init__(self, uid: int, owner: records.Owner, *, visible: bool) -> None:
        self.uid = uid
        self.owner = owner
        self.visible = visible
        self.streams: dict[int, Stream] = {}
        """By stream_no: what it produces and has not released."""
        self.connections: set[Connection] = set()
        self.queries = 0
        """Connections of it that only ask: they may begin a turn at any time."""
        self.work_per_byte = 1
        """What it says is so many times as much work as tokens of as many bytes."""
        self.has_exited = False
        """The kernel says so; what it sent may not all be read."""
        self.is_lost = False
        """It is gone, and all it sent is read."""
        self.turns: dict[tuple[int, str, str], None] = {}
        """Open turns that it advanced last, in the order it took them on: uid, session, turn."""

    def named(self, inode: int) -> None:
        """The kernel does not name it, and its producer does."""
        self.owner = replace(self.owner, pidfd_inode=inode)

    def gave(self, count: int, work: int) -> None:
        """So many bytes in its turn, which are as much work as `work` bytes of tokens."""
        self.work_per_byte = work // count if count else 1

    def query_began(self) -> None:
        """One more connection of it only asks."""
        self.queries += 1

    def query_ended(self) -> None:
        """One of those is closed."""
        self.queries -= 1


class Producer:
    """128 random bits drawn once per process: tells a returning producer from a second one."""

    __slots__ = ("connections", "id", "number_max", "refused", "said_max", "streams", "uid")

    def __init__(self, uid: int, producer_id: bytes) -> None:
        self.uid = uid
        self.id = producer_id
        self.streams: dict[int, Stream] = {}
        """By the producer's own number for it."""
        self.connections: list[Connection] = []
        """Open ones: after a reconnect the old one may be read to its end later than the new."""
        self.refused: set[int] = set()
        """Numbers without a stream, refused once: what else comes for them is not answered."""
        self.number_max = 0
        """Highest number seen: an unknown number up to it is a stream that is done with."""
        self.said_max = 0
        """Highest number it began or resumed since the start: a client says them in order."""


NOBODY = Producer(-1, b"")
"""Of a connection that has not said Hello."""


class Connection:
    """One agent connection, sans socket. `name` is a number for the log."""

    __slots__ = (
        "dirty",
        "frame_bytes",
        "name",
        "outbox",
        "outbox_bytes",
        "outbox_bytes_max",
        "posted",
        "process",
        "producer",
        "started",
        "tail",
        "told_no",
        "uid",
        "untold",
    )

    def __init__(self, name: int, uid: int, process: Process, posted: set[Connection]) -> None:
        self.name = name
        self.uid = uid
        self.process = process
        self.producer = NOBODY
        self.tail: bytes | bytearray = b""
        """The beginning of a frame whose rest has not come."""
        self.frame_bytes = 0
        """How long `tail` must get before it is worth looking at."""
        self.started = 0, ""
        """Number and stream id of the last Start that came on it: the next one has a higher number.
        """
        self.told_no = -1
        """Batch up to which a Drain has told it what is written and not synced."""
        self.dirty: set[Stream] = set()
        """Streams whose synced watermark moved since the last Ack."""
        self.untold: dict[int, bytes] = {}
        """By number of a stream: that a full disk drops of it, to be said before the next Ack."""
        self.outbox: list[bytes] = []
        """Frames for the peer that are not sent yet."""
        self.outbox_bytes = 0
        self.outbox_bytes_max = limits.ACK_BYTES_MAX
        """More for one round of Acks, however many streams it names."""
        self.posted = posted
        """All connections with something in their outbox."""

    def __hash__(self) -> int:
        """By name: sets of connections have the same order in every run of a simulation."""
        return self.name

    def belongs(self, process: Process) -> None:
        """It has said whose it is."""
        self.process.connections.discard(self)
        self.process = process
        process.connections.add(self)

    def forget(self) -> None:
        """It is closed: nothing more comes or goes."""
        self.tail = b""
        self.outbox = []
        self.outbox_bytes = 0
        self.dirty.clear()
        self.untold.clear()

    def post_acks(self, acks: list[bytes]) -> None:
        """One round of Acks, whole: a Drained behind them says that they were sent."""
        self.outbox_bytes_max = self.outbox_bytes + sum(map(len, acks)) + limits.ACK_BYTES_MAX
        for ack in acks:
            self.post(ack)

    @property
    def has_stopped_reading(self) -> bool:
        """It does not read what it is told, and much that it has released waits for that."""
        most = len(self.producer.streams) + limits.UNHEARD_STREAMS_MAX
        return self.outbox_bytes > 0 and len(self.dirty) > most

    def post(self, frame: bytes) -> bool:
        """A frame for the peer. One that does not read gets no more than the bound: False."""
        if self.outbox_bytes + len(frame) > self.outbox_bytes_max:
            return False
        self.outbox.append(frame)
        self.outbox_bytes += len(frame)
        self.posted.add(self)
        return True
