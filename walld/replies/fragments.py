"""Joins the fragments of a reply that stand under several stream numbers.

Owns: which streams are one reply, which of them are done with since it ended under a later number,
and its parts' items counted from one Begin. Refuses: files, and what is done about a part that
cannot be joined. Pure: a start and the command line have one rule.

A producer that comes back to a daemon which could not read what stood of its reply begins it anew
under a later number, and goes on with the seqs it is at. It names the reply as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from walld.wal.layout import EPOCH_STREAMS_BITS
from walld.wal.records import Begin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from walld.wal.records import Item

__all__ = ["Key", "counted_from", "ended_later", "epoch_of", "in_parts", "key_of"]

Key = tuple[int, bytes, int, str]
"""Who a reply is, whatever its number: uid, producer, the producer's number, the stream id."""


def key_of(begin: Begin) -> Key:
    """Of the reply that it begins."""
    return begin.uid, begin.producer, begin.number, begin.stream_id


def epoch_of(no: int) -> int:
    """Of the daemon that gave the number, where something could not be read then; else 0."""
    return no >> EPOCH_STREAMS_BITS


def in_parts(begins: Mapping[int, Begin], kept: Mapping[int, Begin]) -> list[list[int]]:
    """Numbers of each reply that stands under more than one, ascending: it goes on as the last.

    begins: of streams in the log that have no tombstone, by number. kept: of partials without one;
    of those alone there is nothing to join. Lines of a session are no reply.
    """
    found: dict[Key, list[int]] = {}
    for no, begin in sorted({**kept, **begins}.items()):
        if begin.producer:
            found.setdefault(key_of(begin), []).append(no)
    return [
        numbers
        for numbers in found.values()
        if len(numbers) > 1 and not begins.keys().isdisjoint(numbers)
    ]


def ended_later(begins: Mapping[int, Begin], ended: Mapping[int, Begin]) -> dict[int, int]:
    """Those of `begins` whose reply has ended under a number of a later epoch, and that number.

    ended: Begins of streams that have a tombstone. Segments go oldest first and an earlier number's
    records are never carried, so what tells it outlives them.
    """
    last: dict[Key, int] = {}
    for no, begin in ended.items():
        last[key_of(begin)] = max(no, last.get(key_of(begin), no))
    found = {no: last.get(key_of(begin), no) for no, begin in begins.items() if begin.producer}
    return {no: later for no, later in found.items() if epoch_of(no) < epoch_of(later)}


def counted_from(begin: Begin, earlier: Begin, items: Iterable[Item]) -> list[Item]:
    """Items of the part that `earlier` began, as if they were of the one that `begin` did."""
    later_ms = begin.at_ms - earlier.at_ms
    events = [item for item in items if not isinstance(item, Begin)]
    if not later_ms:
        return list(events)
    return [msgspec.structs.replace(item, after_ms=item.after_ms - later_ms) for item in events]
