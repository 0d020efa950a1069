"""The backlog: frames that are not known synced, resent to a restarted daemon.

Owns: the order of frames (`ring.py` has them), how they are folded, sent, taken back, and which are
dropped when they are too many. Refuses: sockets (a `send` is passed in), time, the lock (the caller
holds it).

`endings` and `kept` hold the frames a full ring does not drop (starts, moves, ends, releases)
once everything droppable around them is gone. `outgoing` is committed: its bytes may be cut in
the middle on the wire, so it is never dropped, folded or reordered.

Invariants: frames of one stream leave in seq order; no frame is lost by `rewind`; `frames_bytes`
is at most `bytes_max` after `make_room`, outgoing aside.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

from walld_client.encoding import event_frames
from walld_client.limits import FOLD_AFTER_EVENTS
from walld_client.link.ring import FRAME_OVERHEAD_BYTES, Ring, bytes_of
from walld_client.link.stream import Stream

__all__ = ["Backlog"]

_CHUNK_BYTES = 64 * 1024
_SLACK_BYTES = 16 * 1024
"""Room made beyond what is needed, so that a full ring is not trimmed at every event."""
_REWIND_TRIM_FRAMES_MAX = 4096
"""Synced frames let go of before a resend; the others are passed over as they come up."""

_ids = event_frames.ids_of


class Backlog(Ring):
    """The ring of one link, and the ways through it.

    gave_up: told of each stream of which nothing is sent any more, because endings alone were too
    many.
    """

    __slots__ = ("_gave_up",)

    def __init__(
        self, streams: dict[int, Stream], bytes_max: int, gave_up: Callable[[Stream], None]
    ) -> None:
        super().__init__(streams, bytes_max)
        self._gave_up = gave_up

    # --- in ---

    def hold(self, stream: Stream, frame: bytes) -> None:
        """A frame that waits for the kernel."""
        if stream.stall_no != self.stall_no:
            stream.stall_no = self.stall_no
            stream.taken = _ids(frame)[2] - 1
        self.waiting.append(frame)
        self._waits(len(frame) + FRAME_OVERHEAD_BYTES, 1)
        self._loose += 1
        if self._loose >= FOLD_AFTER_EVENTS:
            self._fold()

    def hold_control(self, frame: bytes) -> None:
        """A Drain: goes after all that waits now."""
        self.waiting.append(frame)
        self._waits(len(frame) + FRAME_OVERHEAD_BYTES, 0)
        self._loose += 1

    def unsend(self, stream: Stream, taken_bytes: int) -> None:
        """The latest frame of `sent`, appended just now, was taken in part or not at all."""
        frame = self.sent.pop()
        if self._counted > len(self.sent):
            self._counted -= 1
            self.frames_bytes -= len(frame) + FRAME_OVERHEAD_BYTES
        self.hold(stream, frame)
        if taken_bytes:
            self._refill()
            self._out_at = taken_bytes

    def _fold(self) -> None:
        """Tokens that wait become runs, so that a long absence costs little memory."""
        waiting = self.waiting.copy()
        loose = [waiting.pop() for _ in range(self._loose)]
        loose.reverse()
        fewer = event_frames.folded(loose)
        waiting.extend(fewer)
        # In this order: a signal's exception between two steps loses nothing, folds nothing twice.
        self._loose = 0
        self.waiting = waiting
        self._waits(bytes_of(fewer) - bytes_of(loose), 0)

    # --- out ---

    def pump(self, send: Callable[[memoryview], int], bytes_max: int) -> None:
        """Hand the kernel up to about `bytes_max` of what waits. Lets what `send` raises through.

        Whatever happens inside `send`, the books say at most what the kernel has; if a signal
        makes even that doubtful the link ends the connection and rewinds.
        """
        while bytes_max > 0 and (self.outgoing or self._refill()):
            taken = send(memoryview(self._out)[self._out_at :])
            bytes_max -= taken
            self._out_at += taken
            self._move_taken_to_sent()
        if self.is_clear():
            self.stall_no += 1

    def _refill(self) -> bool:
        """Commit the next frames to leave. False where nothing waits."""
        if self._loose > 1:  # one alone has nothing to be folded with
            self._fold()
        chunk = self.outgoing
        size = self._loose = 0
        size_max = min(_CHUNK_BYTES, 1 + self.bytes_max // 8)  # it cannot be dropped to make room
        while size < size_max:
            queue = self.greeting or self.kept or self.waiting
            if not queue:
                break
            frame = queue.popleft()
            if frame[5] not in event_frames.CONTROL_TAGS and not self._leaves(frame):
                continue
            chunk.append(frame)
            size += len(frame)
        self._out = b"".join(chunk) if len(chunk) != 1 else chunk[0]
        self._out_at = self._out_start = 0
        return bool(chunk)

    def _leaves(self, frame: bytes) -> bool:
        """False for a frame nobody needs any more; it is off the books then."""
        tag, number, seq = _ids(frame)
        count = event_frames.count_of(frame)
        stream = self.streams.get(number)
        if stream is not None:
            last = seq + count - 1
            if not stream.gone and last > stream.synced and seq not in stream.refused:
                if tag == event_frames.START:
                    stream.introduced = True
                return True
            stream.taken = last
            stream.held_from = last + 1
            if stream.gone and not stream.released:
                self.dropped_events += count
        self._waits(-len(frame) - FRAME_OVERHEAD_BYTES, -count)
        return False

    def _move_taken_to_sent(self) -> None:
        """Move what was wholly taken to `sent`."""
        self.count()
        while self.outgoing and self._out_at >= self._out_start + len(self.outgoing[0]):
            frame = self.outgoing.popleft()
            size = len(frame)
            self._out_start += size
            if frame[5] in event_frames.GREETING_TAGS:
                continue
            size += FRAME_OVERHEAD_BYTES
            self.waiting_bytes -= size
            if frame[5] == event_frames.DRAIN:
                self.frames_bytes -= size
                continue
            count = event_frames.count_of(frame)
            _, number, seq = _ids(frame)
            self.waiting_events -= count
            self._sent_extra += count - 1
            self.sent.append(frame)
            self._counted += 1
            stream = self.streams.get(number)
            if stream is not None:
                stream.taken = seq + count - 1

    # --- the end of a connection ---

    def rewind(self) -> None:
        """The connection is gone: everything held waits for the next one, in order, unchanged."""
        self.trim(_REWIND_TRIM_FRAMES_MAX)
        self.greeting.clear()
        self.waiting_events += len(self.sent) + self._sent_extra + len(self.endings)
        self.waiting_bytes = self.frames_bytes
        everything = self.endings.copy()
        everything.extend(self.sent)
        everything.extend(
            frame for frame in self.outgoing if frame[5] not in event_frames.GREETING_TAGS
        )
        everything.extend(self.kept)
        everything.extend(self.waiting)
        self.waiting = everything  # cut short behind this, frames are held twice and none is lost
        self.sent, self.outgoing, self.kept, self.endings = deque(), deque(), deque(), deque()
        self._counted = self._sent_extra = 0
        for stream in self.streams.values():
            stream.stall_no = self.stall_no
            stream.rewind()

    def drop_drains(self) -> None:
        """Take every Drain out of what waits, to be asked again behind it."""
        drains = [frame for frame in self.waiting if frame[5] == event_frames.DRAIN]
        if drains:
            self._waits(-bytes_of(drains), 0)
            self._fold()
            self.waiting = deque(frame for frame in self.waiting if frame[5] != event_frames.DRAIN)

    # --- too old ---

    def trim(self, frames_max: int) -> None:
        """Let go of what is synced, from the oldest on, at most `frames_max` frames of it."""
        self.count()
        for queue in (self.endings, self.sent):
            frames_max -= self._trim_bulk(queue, frames_max)
            while queue and frames_max > 0:
                frames_max -= 1
                frame = queue[0]
                tag, number, seq = _ids(frame)
                stream = self.streams.get(number)
                if stream is not None:
                    last = seq if tag != event_frames.RUN else event_frames.last_seq_of(frame)
                    if last > stream.synced and not stream.gone and seq not in stream.refused:
                        return
                    stream.held_from = max(stream.held_from, last + 1)
                queue.popleft()
                self._unsent(frame, queue is self.sent)

    def _trim_bulk(self, queue: deque[bytes], frames_max: int) -> int:
        """Let go at once of frames at the front that are all of one stream; how many.

        Where no frame is a run and no seq is missing, the n-th frame can only be seq+n-1 of the
        same stream if all before it are that stream's too.
        """
        dense = not (self._sent_extra or self.dropped_events)
        if not dense or queue is not self.sent or not queue:
            return 0
        _, number, seq = _ids(queue[0])
        stream = self.streams.get(number)
        if stream is None or stream.refused:
            return 0
        count = min(stream.synced - seq + 1, len(queue), frames_max)
        if count <= 1 or _ids(queue[count - 1])[1:] != (number, seq + count - 1):
            return 0
        self.frames_bytes -= sum(map(len, islice(queue, count))) + count * FRAME_OVERHEAD_BYTES
        self._counted -= count
        for _ in range(count):
            queue.popleft()
        stream.held_from = seq + count
        return count

    # --- too much ---

    def make_room(self) -> bool:
        """Drop the oldest until the ring fits again. True where an event was lost by it.

        What the kernel has taken goes first: it is lost only if the daemon dies now, too.
        """
        self.count()
        if self.frames_bytes <= self.bytes_max:
            return False
        dropped_events = self.dropped_events
        goal = max(0, self.bytes_max - min(_SLACK_BYTES, self.bytes_max // 8))
        while self.frames_bytes > goal and self.sent:
            self._drop_sent()
        while self.frames_bytes > goal and self.waiting:
            self._drop_waiting()
        while self.frames_bytes > self.bytes_max and (self.endings or self.kept):
            self._give_up()
        return self.dropped_events > dropped_events

    def _drop_sent(self) -> None:
        frame = self.sent.popleft()
        self._unsent(frame, True)
        tag, number, seq = _ids(frame)
        stream = self.streams.get(number)
        if stream is None or stream.gone:
            return
        if (
            tag in event_frames.ENDING_TAGS and tag != event_frames.START
        ):  # Resume brings the Start again
            self.endings.append(frame)
            self.frames_bytes += len(frame) + FRAME_OVERHEAD_BYTES
            return
        count = event_frames.count_of(frame)
        stream.held_from = max(stream.held_from, seq + count)
        if seq + count - 1 > stream.synced:
            self.unheld_events += count

    def _drop_waiting(self) -> None:
        frame = self.waiting.popleft()
        self._loose = min(self._loose, len(self.waiting))
        if frame[5] == event_frames.DRAIN:
            self.kept.append(frame)
            return
        tag, number, seq = _ids(frame)
        stream = self.streams.get(number)
        if tag in event_frames.ENDING_TAGS and stream is not None and not stream.gone:
            self.kept.append(frame)
            return
        count = event_frames.count_of(frame)
        self._waits(-len(frame) - FRAME_OVERHEAD_BYTES, -count)
        if stream is not None and not stream.gone:
            stream.held_from = max(stream.held_from, seq + count)
            stream.mark_unsendable(seq, seq + count - 1)
            self.dropped_events += count

    def _give_up(self) -> None:
        """Nothing but endings is left: memory is bounded all the same, so whole replies go."""
        if self.endings:
            frame = self.endings.popleft()
            self._unsent(frame, False)
            self.unheld_events += 1
        else:
            frame = self.kept.popleft()
            control = frame[5] == event_frames.DRAIN
            self._waits(-len(frame) - FRAME_OVERHEAD_BYTES, 0 if control else -1)
            if control:
                return
            self.dropped_events += 1
        stream = self.streams.get(_ids(frame)[1])
        if stream is not None:
            stream.lose(_ids(frame)[2], stream.next_seq - 1)
            stream.stop_sending()
            self._gave_up(stream)
