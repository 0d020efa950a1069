"""A batch on its way to disk, and the parts it is made of.

Owns: the facts. Refuses: doing anything with them (`batch_builder.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from walld.engine.stream import Stream
    from walld.wal.encode import Batch

__all__ = ["Carry", "Part", "SealedBatch", "Tombstone"]


class Tombstone(NamedTuple):
    """A stream is done with. stream: whose watermark moves with it; flag: RELEASED or RESOLVED.

    body: its Begin, and BEGIN in flag, where no record before has it and somebody must be able to
    tell which reply it was.
    """

    no: int
    seq: int
    flag: int
    stream: Stream | None
    body: bytes = b""


class Carry(NamedTuple):
    """Records at..at+records of a stream, merged into one body, to be written again."""

    stream: Stream
    at: int
    records: int
    was: tuple[int, ...]
    """Where they stood: if that changed meanwhile the copy is stale."""
    first_seq: int
    last_seq: int
    flags: int
    body: bytes


class Part(msgspec.Struct, frozen=True, gc=False):
    """A record's share of a batch."""

    stream: Stream | None
    last_seq: int
    length: int
    """Body bytes that are of use; 0 for a tombstone, or where the stream was gone already."""
    is_tombstone: bool


class SealedBatch(NamedTuple):
    """A batch on its way, and whose records it holds."""

    batch: Batch
    parts: list[Part]
    new_bytes: int
    """Bytes of records written for the first time, counted as live bytes are."""
    carried_bytes: int
