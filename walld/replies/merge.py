"""Orders the items of a stream and joins neighbouring runs.

Owns: what counts as seen already (by seq alone, also inside a run), and how runs join. Refuses:
what the items mean (`fold.py`), files, clocks.

Invariant: `fold(merge(x)) == fold(x)`. A merged run keeps the time of its first event only; that
is all a fold asks for, but of the very last event, so the last run is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from walld_client.wire import messages as wire

from walld import limits
from walld.errors import FormatError
from walld.wal.records import Begin, Happened, Item, Text, Thought

__all__ = ["MERGED_TEXT_BYTES_MAX", "in_order", "merge", "seqs_of", "token_sizes"]

MERGED_TEXT_BYTES_MAX: Final = 64 * limits.KIB
"""Text in one merged run: what a reader must skip through to find a seq inside it."""


def token_sizes(lengths: bytes) -> list[int]:
    """The bytes of each token of a run: its LEB128 varints, read."""
    sizes = []
    size = shift = 0
    for byte in lengths:
        size |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
        else:
            sizes.append(size)
            size = shift = 0
    return sizes


def seqs_of(item: Item) -> tuple[int, int]:
    """First and last seq of an item."""
    match item:
        case Begin():
            return 0, 0
        case Text():
            return item.first_seq, item.last_seq
        case Happened():
            return item.event.seq, item.event.seq


def in_order(items: Iterable[Item], seen: int = 0) -> list[Text | Happened]:
    """The events among `items` behind seq `seen`, each once, by seq. Holes stay; Begin and seq 0
    are left out.

    Of two copies of an event the one that came first in `items` counts. Raises FormatError where
    a run must be cut and its lengths do not say where.
    """
    events = [_as_stored(item) for item in items if not isinstance(item, Begin)]
    firsts = [item.first_seq if isinstance(item, Text) else _seq(item) for item in events]
    if firsts != sorted(firsts):
        events = [item for _, item in sorted(zip(firsts, events, strict=True), key=_first)]
    kept: list[Text | Happened] = []
    for item in events:
        if isinstance(item, Text):
            if item.last_seq <= seen:
                continue
            kept.append(item if item.first_seq > seen else _cut(item, seen + 1))
            seen = item.last_seq
        elif (seq := _seq(item)) > seen:
            kept.append(item)
            seen = seq
    return kept


def merge(items: Iterable[Item], text_bytes_max: int = MERGED_TEXT_BYTES_MAX) -> list[Item]:
    """The same reply in fewer items: Begin (if any) first, runs of one kind joined.

    No run grows past `text_bytes_max` by joining; a longer one stays whole.
    """
    listed = list(items)
    merged: list[Item] = []
    merged.extend([item for item in listed if isinstance(item, Begin)][:1])
    events = in_order(listed)
    waiting: list[Text] = []
    waiting_bytes = 0
    for item in events:
        if not isinstance(item, Text):
            _join(waiting, merged)
            merged.append(item)
            continue
        last = waiting[-1] if waiting else None
        if last is not None and (
            item is events[-1]
            or type(item) is not type(last)
            or item.first_seq != last.last_seq + 1
            or waiting_bytes + len(item.text) > text_bytes_max
        ):
            _join(waiting, merged)
        if not waiting:
            waiting_bytes = 0
        waiting.append(item)
        waiting_bytes += len(item.text)
    _join(waiting, merged)
    return merged


def _join(waiting: list[Text], merged: list[Item]) -> None:
    """Empties `waiting` into one run at the end of `merged`."""
    if len(waiting) < 2:
        merged.extend(waiting)
    else:
        first = waiting[0]
        merged.append(
            type(first)(
                first.first_seq,
                first.after_ms,
                b"".join([run.lengths for run in waiting]),
                b"".join([run.text for run in waiting]),
            )
        )
    waiting.clear()


def _as_stored(item: Text | Happened) -> Text | Happened:
    """A Run that was kept as it came is a Text like any other."""
    if isinstance(item, Happened) and isinstance(item.event, wire.Run):
        run = item.event
        kind = Text if run.kind == Text.kind else Thought
        return kind(run.seq, item.after_ms, run.lengths, run.text)
    return item


def _seq(item: Happened) -> int:
    return item.event.seq


def _first(pair: tuple[int, object]) -> int:
    return pair[0]


def _cut(run: Text, first_seq: int) -> Text:
    """What `run` holds from `first_seq` on."""
    tokens = run.last_seq - run.first_seq + 1
    # Tokens below 128 bytes have one byte of length each, which then is the size itself.
    plain = len(run.lengths) == tokens and run.lengths.isascii()
    sizes = run.lengths if plain else token_sizes(run.lengths)
    if len(sizes) != tokens or sum(sizes) != len(run.text):
        raise FormatError(
            f"run of seqs {run.first_seq}..{run.last_seq} cannot be cut at {first_seq}: its lengths"
            f" give {len(sizes)} tokens of {sum(sizes)} bytes, limit {tokens} of {len(run.text)};"
            " look at its segment with `walld dump`"
        )
    dropped = first_seq - run.first_seq
    lengths_at = dropped
    if not plain:
        lengths_at = [at for at, byte in enumerate(run.lengths, 1) if byte < 0x80][dropped - 1]
    text_at = sum(sizes[:dropped])
    return type(run)(first_seq, run.after_ms, run.lengths[lengths_at:], run.text[text_at:])
