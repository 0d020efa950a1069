"""Restores the engine's streams, segments and partials from what recovery found.

Owns: which streams of the log are live, orphans, kept or done with. Refuses: reading
(`startup_recovery.py`).

Invariants: a stream whose owner's process is there is live, however long it is silent; one whose
owner is gone, or of another boot, is an orphan at once. Recovery of the recovered gives the same.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from typing import TYPE_CHECKING

from walld.engine.batch import Tombstone
from walld.engine.partial_index import IndexedPartial
from walld.engine.segments import Segment
from walld.engine.stream import Stream
from walld.wal.index import OFFSET_BITS
from walld.wal.layout import Flag

if TYPE_CHECKING:
    from collections.abc import Callable

    from walld.engine.engine import Engine
    from walld.engine.stream import Process
    from walld.recovery.startup_recovery import Found, RecoveredStorage
    from walld.wal.records import Owner

__all__ = ["restore"]

_log = logging.getLogger("walld.restore")


def restore(
    engine: Engine,
    recovered: RecoveredStorage,
    boot: str,
    watch: Callable[[int, Owner], Process | None],
    now: float,
) -> None:
    """Give the engine what a start found. watch: the living process of an owner, None if gone."""
    verdict = recovered.verdict
    engine.batches.restored(verdict.reserved_no, verdict.synced_no)
    engine.lost_acked.found(verdict.last_batch_no)
    _segments(engine, recovered, now)
    partials = _kept(engine, recovered)
    engine.registry.found(recovered.last_stream_no)
    engine.found_damage(recovered.lost, is_unread=recovered.pieces.is_unread)
    for no in (
        partials.keys() & recovered.dead
    ):  # killed between its tombstone and the file's unlink
        engine.unwant(partials[no][0], no)
    for no, seq in recovered.pieces.buried:
        engine.batches.bury(Tombstone(no, seq, Flag.RELEASED, None))
        engine.schedule.offered(now)
    for no, found in recovered.streams.items():
        if found.begin is not None and not found.begin.producer:
            _ledger_stream(engine, no, found)
            continue
        held, known = partials.get(no, (None, None))
        if found.begin is not None and (
            known is None
            or known.held_seq < found.index.last_seq
            or held in recovered.undurable
            or no in recovered.pieces.beyond
        ):
            last_seq = max(found.index.last_seq, recovered.pieces.beyond.get(no, 0))
            stream = _stream(engine, no, found, boot, watch, last_seq)
            first_no = min(stream.where, default=0) >> OFFSET_BITS
            stream.is_behind_torn = first_no > verdict.torn_no
            stream.possible_last_seq = max(
                recovered.possible_last_seqs.get(no, -1), known.last_seq if known else -1
            )
            if stream.moved_to is None and known is not None and known.whose is not None:
                engine.registry.move(stream, known.whose.session_id)  # no Move in the log
    _live_bytes(engine, recovered)


def _segments(engine: Engine, recovered: RecoveredStorage, now: float) -> None:
    last_batch = 0
    for found in recovered.segments:
        first_batch = max(found.first_no, last_batch + 1)
        if found.batches:
            first_batch = found.batches[0][0]
        released_at = now if recovered.dead else None
        segment = Segment(
            found.segment_id,
            first_batch,
            now,
            found.size,
            released_since=released_at,
            last_release_at=released_at,
            unreadable=found.unreadable,
            nameless=not found.first_no,
            undurable=found.segment_id in recovered.not_synced.segment_ids,
        )
        for batch_no, offset in found.batches:
            # Numbers that are missing get a place no header can have; no index leads there.
            segment.offsets.extend([0] * (batch_no - segment.last_batch - 1))
            segment.offsets.append(offset)
        engine.segments.add(segment)
        last_batch = max(last_batch, segment.last_batch)


def _kept(
    engine: Engine, recovered: RecoveredStorage
) -> dict[int, tuple[tuple[int, str, str], IndexedPartial]]:
    """The partials of this log by stream number."""
    by_no: dict[int, tuple[tuple[int, str, str], IndexedPartial]] = {}
    until = recovered.verdict.reserved_no
    for names, facts in recovered.partials.items():
        known = None
        if facts.log_uuid == engine.log_uuid:
            no, last_seq, word = facts.stream_no, facts.last_seq, facts.gap_word
            possibly_missing = last_seq - recovered.held.get(names, last_seq)
            known = IndexedPartial(
                *(no, last_seq, until, facts.begun_at_ms),
                possibly_missing=possibly_missing,
                gap_word=word,
                whose=facts.whose,
            )
            by_no[no] = names, known
        engine.partials.add(*names, known)
    named = {(uid, name) for uid, _, name in recovered.partials}
    for uid, session, name in recovered.unread:
        if (uid, name) not in named:  # whoever asks for it is told why not
            engine.partials.add(uid, session, name, None)
            engine.partials.unread.add((uid, session, name))
    return by_no


def _stream(
    engine: Engine,
    no: int,
    found: Found,
    boot: str,
    watch: Callable[[int, Owner], Process | None],
    last_seq: int,
) -> Stream:
    assert found.begin is not None
    earlier = engine.registry.by_key.get((found.begin.uid, found.begin.stream_id))
    if earlier is not None:
        # Its producer gives an id again only after a release: what lost its tombstone is the older
        # one. Where that is another's it is not here (`fragment_merge.py`).
        _log.warning("stream %d: its id was given again as %d; taken as released", earlier.no, no)
        engine.found_released(earlier)
    owner = found.begin.owner
    process = watch(found.begin.uid, owner)
    stream = Stream(no, found.begin, process, found.moved_to, terminal=found.terminal)
    stream.found(last_seq, found.index.where, found.index.sizes)
    engine.registry.add(stream)
    if process is None:
        engine.orphan(stream, "agent_lost" if owner.boot_id == boot else "host_restart")
    return stream


def _ledger_stream(engine: Engine, no: int, found: Found) -> None:
    """Lines of a session that are not in its file, as far as is known: `open_sessions.py` reads
    them.
    """
    assert found.begin is not None
    stream = Stream(no, found.begin, None, terminal=True)
    stream.found(found.index.last_seq, found.index.where, found.index.sizes)
    engine.registry.add(stream)


def _live_bytes(engine: Engine, recovered: RecoveredStorage) -> None:
    """Live bytes by segment: by bisection where a stream's records are in log order."""
    segments = list(engine.segments)
    for stream in engine.registry.by_no.values():
        if recovered.streams[stream.no].index.carried or engine.segments.overlaps:
            for place in stream.places():
                segment = engine.segments.of_batch(place.batch_no)
                if segment is not None:
                    engine.segments.lived(segment, place.length)
            continue
        start = 0
        for segment in segments:
            stop = bisect_left(stream.where, (segment.last_batch + 1) << OFFSET_BITS, lo=start)
            if stop > start:
                engine.segments.lived(segment, sum(stream.sizes[start:stop]), stop - start)
                start = stop
    engine.found_all()
