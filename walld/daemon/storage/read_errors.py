"""Handles records that fail their checksum when a running daemon reads them.

Owns: which records were met, and counting what they held as `lost_acked`, each once however often
it is read. Refuses: how a reply is served without it (`reply_reader.py`), and what a start finds
(`quarantine.py`).

A record that is read from disk was synced, and everybody who asked was told so: what it held was
acknowledged and is lost. Which seqs that were its batch's directory says. That has no check of its
own where the payload's fails (`wal/partial_batch.py`), so it is believed within what is synced of
the stream; where it says nothing that can be, one event is counted.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from walld.wal.partial_batch import doubtful_at

if TYPE_CHECKING:
    from walld.daemon.storage.disk_threads import Worker
    from walld.disk.base import Disk
    from walld.engine.engine import Engine
    from walld.engine.stream import Stream
    from walld.wal.ranges import Range
    from walld.wal.segment_files import SegmentFiles

__all__ = ["BadRecord", "Located", "ReadErrors"]

_log = logging.getLogger("walld.reply_reader")


class Located(NamedTuple):
    """A record body on disk."""

    segment_id: int
    offset: int
    length: int
    batch_offset: int
    """Where the batch stands that it is in."""


class BadRecord(NamedTuple):
    """A record that does not verify. place: where its body stands, None: in memory."""

    why: str
    place: Located | None


class ReadErrors:
    """Counts what was lost while the daemon ran."""

    def __init__(self, engine: Engine, files: SegmentFiles, background: Worker) -> None:
        self._engine = engine
        self._files = files
        self._background = background
        self._met: list[tuple[Stream, Located]] = []
        self._counted: set[tuple[int, int]] = set()
        """Segment and offset of each: neither is given twice. As many as there is damage."""

    def met(self, stream: Stream, damaged: list[BadRecord]) -> None:
        """These records of a stream did not verify. From any thread; `count` comes later."""
        if not stream.is_ledger:  # those lines are in memory until their session's file has them
            self._met += [(stream, bad.place) for bad in damaged if bad.place is not None]

    async def count(self) -> None:
        """Count those that are new. On the loop."""
        while self._met:
            stream, place = self._met.pop()
            if place[:2] in self._counted:
                continue
            self._counted.add(place[:2])
            first_seq, last_seq = await self._background.run(
                partial(_claimed, self._files.disk, self._engine.log_uuid, stream.no, place)
            )
            if not 0 <= first_seq <= last_seq <= stream.synced_seq:
                _log.error("stream %d: which seqs it held cannot be told", stream.no)
                first_seq = last_seq = max(stream.synced_seq, 0)
            self._engine.lost_acked.count(
                stream.begin.uid, stream.begin.stream_id, first_seq, last_seq
            )


def _claimed(disk: Disk, log_uuid: bytes, stream_no: int, place: Located) -> Range:
    """The seqs of a record as its batch's directory has them; 0 to -1 where it does not say."""
    batch = doubtful_at(disk, log_uuid, place.segment_id, place.batch_offset)
    for record in () if batch is None else batch.claimed:
        if record.stream_no == stream_no and record.offset == place.offset - place.batch_offset:
            return record.first_seq, record.last_seq
    return 0, -1
