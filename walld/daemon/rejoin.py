"""A reply that stands in the log under two numbers, made one again.

Owns: what a start does where its producer began it anew because an earlier start could not read
what stood of it, and that can be read now. Refuses: reading the log (`mend.py`).

The earlier part becomes a partial under the later number, durable before anything says that the
earlier one is done with; so the reply is one, and what was acknowledged is in it (P4). Where that
cannot be, for want of room or of what stands in its place, its bytes are kept in quarantine: they
are nobody's, and "nothing" is not proven while they lie there.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import msgspec
from walld_client.paths import path_name

from walld.errors import FormatError
from walld.partials.store import PartialFacts, PartialStore
from walld.replies.merge import merge, seqs_of
from walld.wal import ranges, records

if TYPE_CHECKING:
    from collections.abc import Callable

    from walld.daemon.kept_found import KeptFound
    from walld.daemon.mend import Found

    Read = Callable[[int, int], bytes]
    """(place, length): the body of a record."""

__all__ = ["rejoin"]

_log = logging.getLogger("walld.mend")


def rejoin(
    store: PartialStore,
    log_uuid: bytes,
    streams: dict[int, Found],
    kept: KeptFound,
    read: Read,
    set_aside: Callable[[int], None],
) -> list[tuple[int, int]]:
    """(number, last seq) of each earlier part that is in its partial now.

    Each one is taken out of `streams`. set_aside: what to do about one that could not be joined.
    """
    parts: dict[tuple[int, bytes, int, str], list[int]] = {}
    for no, found in streams.items():
        if found.begin is not None and found.is_reply:
            begin = found.begin
            key = begin.uid, begin.producer, begin.number, begin.stream_id
            parts.setdefault(key, []).append(no)
    joined: list[tuple[int, int]] = []
    for numbers in parts.values():
        *earlier, last = sorted(numbers)
        for no in earlier:
            try:
                _keep(store, log_uuid, streams, kept, read, no, last)
            except (OSError, FormatError) as error:
                _log.error("stream %d goes on as %d, and cannot be joined: %s", no, last, error)
                set_aside(no)
                del streams[no]
                continue
            _log.warning("stream %d goes on as %d: they are one reply again", no, last)
            joined.append((no, streams.pop(no).index.last_seq))
    return joined


def _keep(
    store: PartialStore,
    log_uuid: bytes,
    streams: dict[int, Found],
    kept: KeptFound,
    read: Read,
    no: int,
    last: int,
) -> None:
    earlier, later = streams[no], streams[last]
    begin = later.begin
    assert earlier.begin is not None, no
    assert begin is not None, last
    session_id = later.moved_to or earlier.moved_to or begin.session_id
    names = begin.uid, path_name(session_id), path_name(begin.stream_id)
    if names in kept.unread:
        raise FormatError("its partial could not be read")
    facts = kept.facts.get(names)
    before: list[records.Item] = []
    if facts is not None:
        if facts.log_uuid != log_uuid or facts.stream_no not in (no, last):
            raise FormatError("the partial of another reply stands in its place")
        before = store.read_reply(*names)[1]
    later_ms = begin.at_ms - earlier.begin.at_ms
    found: list[records.Item] = []
    for where, size in zip(earlier.index.where, earlier.index.sizes, strict=True):
        found += records.decode_body(no, read(where, size))
    if facts is not None and facts.stream_no == last:
        if not ranges.without(_seqs(found), _seqs(before)):
            return  # killed before the tombstone of the earlier part was written
    else:
        before = [_moved(item, later_ms) for item in before]
    items = merge([begin, *before, *(_moved(item, later_ms) for item in found)])
    until = max(seqs_of(items[-1])[1], facts.last_seq if facts is not None else 0)
    made_at_ms = time.time_ns() // 1_000_000
    facts = PartialFacts(log_uuid, last, begin.at_ms, made_at_ms, 0, until, "agent_lost", "unknown")
    body = records.join_items([records.encode_item(item) for item in items])
    store.write(begin.uid, session_id, begin.stream_id, facts, body)
    kept.facts[names] = facts


def _seqs(items: list[records.Item]) -> list[ranges.Range]:
    return ranges.merged(seqs_of(item) for item in items)


def _moved(item: records.Item, later_ms: int) -> records.Item:
    """Its time counted from another Begin."""
    if isinstance(item, records.Begin) or not later_ms:
        return item
    return msgspec.structs.replace(item, after_ms=item.after_ms - later_ms)
