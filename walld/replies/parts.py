"""A reply that stands under several stream numbers, as one.

Owns: which streams are one reply, and its parts' items counted from one Begin. Refuses: files, and
what is done about a part that cannot be joined. Pure: a start and the command line have one rule.

A producer that comes back to a daemon which could not read what stood of its reply begins it anew
under a later number, and goes on with the seqs it is at. It names the reply as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from walld.wal.records import Begin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from walld.wal.records import Item

__all__ = ["Key", "by_reply", "counted_from", "in_parts", "key_of"]

Key = tuple[int, bytes, int, str]
"""Who a reply is, whatever its number: uid, producer, the producer's number, the stream id."""


def key_of(begin: Begin) -> Key:
    """Of the reply that it begins."""
    return begin.uid, begin.producer, begin.number, begin.stream_id


def by_reply(begins: Mapping[int, Begin]) -> dict[Key, list[int]]:
    """Numbers of each reply, ascending. Lines of a session are no reply.

    begins: of streams that have no tombstone, by number.
    """
    found: dict[Key, list[int]] = {}
    for no, begin in sorted(begins.items()):
        if begin.producer:
            found.setdefault(key_of(begin), []).append(no)
    return found


def in_parts(begins: Mapping[int, Begin]) -> list[list[int]]:
    """Numbers of each reply that stands under more than one: it goes on as the last."""
    return [numbers for numbers in by_reply(begins).values() if len(numbers) > 1]


def counted_from(begin: Begin, earlier: Begin, items: Iterable[Item]) -> list[Item]:
    """Items of the part that `earlier` began, as if they were of the one that `begin` did."""
    later_ms = begin.at_ms - earlier.at_ms
    events = [item for item in items if not isinstance(item, Begin)]
    if not later_ms:
        return list(events)
    return [msgspec.structs.replace(item, after_ms=item.after_ms - later_ms) for item in events]
