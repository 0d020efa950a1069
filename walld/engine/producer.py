"""A producer of streams: its process, as the kernel names it, and its connections.

Owns: the facts the engine needs of a peer. Refuses: asking the kernel for them
(`daemon/transport/credentials.py`), sockets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from walld import limits

if TYPE_CHECKING:
    from walld.engine.stream import Stream
    from walld.wal.records import Owner

__all__ = ["Connection", "Process", "Producer"]


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

    def __init__(self, uid: int, owner: Owner, *, visible: bool) -> None:
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
        self.producer: Producer | None = None
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
        if not self.outbox_bytes or self.producer is None:
            return False
        return len(self.dirty) > len(self.producer.streams) + limits.UNHEARD_STREAMS_MAX

    def post(self, frame: bytes) -> bool:
        """A frame for the peer. One that does not read gets no more than the bound: False."""
        if self.outbox_bytes + len(frame) > self.outbox_bytes_max:
            return False
        self.outbox.append(frame)
        self.outbox_bytes += len(frame)
        self.posted.add(self)
        return True
