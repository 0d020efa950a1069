"""The ring of frames that a link holds, with their count and size.

Owns: where each frame is, and the numbers that say so. Refuses: why one goes from one place to
another (`backlog.py`).

In the order in which they came:

    endings | sent | outgoing | kept | waiting
    `------ taken --'`------- not yet taken by the kernel ---'

The short way of a token appends to `sent` and counts nothing: `count` does it for all of them at
once, in the chores.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from walld_client.encoding import event_frames
from walld_client.link.stream import Stream

__all__ = ["FRAME_OVERHEAD_BYTES", "Ring", "bytes_of"]

FRAME_OVERHEAD_BYTES = 48
"""What Python adds to a frame: the bytes object's header and its place in the deque."""


class Ring:
    """The frames of one link.

    streams: number -> Stream, shared with the link; a frame whose stream is not in it is dead.
    waiting_events, waiting_bytes: not yet taken by the kernel. dropped_events: never taken, lost.
    unheld_events: taken, but given up before they were known synced.
    """

    __slots__ = (
        "_counted",
        "_loose",
        "_out",
        "_out_at",
        "_out_start",
        "_sent_extra",
        "bytes_max",
        "dropped_events",
        "endings",
        "frames_bytes",
        "greeting",
        "kept",
        "outgoing",
        "sent",
        "stall_no",
        "streams",
        "unheld_events",
        "waiting",
        "waiting_bytes",
        "waiting_events",
    )

    def __init__(self, streams: dict[int, Stream], bytes_max: int) -> None:
        self.streams = streams
        self.bytes_max = bytes_max
        self.endings: deque[bytes] = deque()
        """Taken by the kernel; of a full ring what stays of `sent`: moves, ends, releases."""
        self.sent: deque[bytes] = deque()
        """Taken by the kernel, and not known to be synced."""
        self.outgoing: deque[bytes] = deque()
        """On their way to the kernel, which may have taken a part."""
        self.kept: deque[bytes] = deque()
        """Not taken; of a full ring what stays of `waiting`: starts too, and drains."""
        self.waiting: deque[bytes] = deque()
        """Not taken."""
        self.greeting: deque[bytes] = deque()
        """Control frames of the connection at hand: they go before everything else."""
        self.frames_bytes = 0
        self.waiting_bytes = 0
        self.waiting_events = 0
        self.dropped_events = 0
        self.unheld_events = 0
        self.stall_no = 0
        """Names the present stall: raised when nothing waits any more."""
        self._counted = 0
        self._sent_extra = 0
        self._loose = 0
        self._out = b""
        self._out_at = 0
        self._out_start = 0

    def is_light(self) -> bool:
        """The ring is less than half full: an overflow is over."""
        return self.frames_bytes * 2 < self.bytes_max

    def is_clear(self) -> bool:
        """The kernel has taken everything."""
        return not (self.outgoing or self.waiting or self.kept or self.greeting)

    def holds_any(self) -> bool:
        """Something is held for a daemon, taken or not."""
        return not self.is_clear() or bool(self.sent or self.endings)

    def taken_seq(self, stream: Stream) -> int:
        """Highest seq of the stream that the kernel has, on the connection at hand."""
        return stream.taken if stream.stall_no == self.stall_no else stream.next_seq - 1

    # --- the books ---

    def count(self) -> None:
        """Measure what took the short way since the last count."""
        fresh = len(self.sent) - self._counted
        if fresh:
            self.frames_bytes += bytes_of(list(islice(reversed(self.sent), fresh)))
            self._counted += fresh

    def recount(self) -> None:
        """All of it anew: a change was cut short, and no number is believed."""
        waiting = [*self.outgoing, *self.kept, *self.waiting]
        waiting = [frame for frame in waiting if frame[5] not in event_frames.GREETING_TAGS]
        self.waiting_events = sum(
            event_frames.count_of(f) for f in waiting if f[5] != event_frames.DRAIN
        )
        self.waiting_bytes = bytes_of(waiting)
        self.frames_bytes = self.waiting_bytes + bytes_of([*self.endings, *self.sent])
        self._counted, self._loose = len(self.sent), 0
        self._sent_extra = sum(map(event_frames.count_of, self.sent)) - len(self.sent)

    def _waits(self, size: int, events: int) -> None:
        self.frames_bytes += size
        self.waiting_bytes += size
        self.waiting_events += events

    def _unsent(self, frame: bytes, was_sent: bool) -> None:
        self.frames_bytes -= len(frame) + FRAME_OVERHEAD_BYTES
        if was_sent:
            self._counted -= 1
            if frame[5] == event_frames.RUN:
                self._sent_extra -= event_frames.count_of(frame) - 1


def bytes_of(held: list[bytes]) -> int:
    """What these frames take in memory."""
    return sum(map(len, held)) + len(held) * FRAME_OVERHEAD_BYTES
