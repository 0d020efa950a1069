"""Finds lines of sessions in the log of a data directory that no daemon serves.

Owns: which records are lines that no tombstone covers, and whose. Refuses: files of sessions
(`session_scan.py`), which of the lines count (`ledger/pending.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from walld_client.wire import messages as wire

from walld.errors import FormatError
from walld.ledger.line import line_seq
from walld.ledger.pending import LEAPT, FoundLines, Joined, Pending, join
from walld.wal.layout import Flag
from walld.wal.records import Begin, Happened, decode_body

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walld.wal.records import Item
    from walld.wal.scan import ScannedBatch

__all__ = ["Key", "LogLines"]

_LINE: Final = b"line"
Key = tuple[int, str]
"""Uid and session id."""


class _Begun(NamedTuple):
    begin: Begin
    batch_no: int


class LogLines:
    """Feed it each good batch, or the items of each stream, then what is known of the whole log.

    Memory: those lines, which a daemon holds below `ledger_bytes_max`.
    """

    def __init__(self) -> None:
        self._begins: dict[int, _Begun] = {}
        self._lines: dict[int, list[tuple[int, bytes]]] = {}
        """By stream number: (seq in the stream, line)."""
        self._dead: set[int] = set()
        self._synced_no = 0
        self._met_damage = True

    def take(self, _segment_id: int, batch: ScannedBatch) -> None:
        """One good batch."""
        for record in batch.records:
            no = record.stream_no
            if record.flags & (Flag.RELEASED | Flag.RESOLVED):
                self._dead.add(no)
                self._lines.pop(no, None)
                self._begins.pop(no, None)
            if no in self._dead or not record.body_bytes:
                continue
            body = batch.body(record.offset, record.body_bytes)
            if not record.flags & Flag.BEGIN and _LINE not in bytes(body):
                continue
            try:
                items = decode_body(no, body)
            except FormatError:
                continue
            begin = next((item for item in items if isinstance(item, Begin)), None)
            # A record that was carried may stand before its Begin.
            self.add(no, begin, items, batch.batch_no)

    def add(self, no: int, begin: Begin | None, items: list[Item], batch_no: int = 0) -> None:
        """Items of one stream. batch_no: where they stand, 0 where that is not known."""
        if begin is not None and not begin.producer:
            self._begins[no] = _Begun(begin, batch_no)
        if found := list(_lines(items)):
            self._lines.setdefault(no, []).extend(found)

    def judged(self, synced_no: int, *, met_damage: bool) -> None:
        """What the scan knows once it is over. Without it nothing is taken for torn."""
        self._synced_no, self._met_damage = synced_no, met_damage

    def done_with(self, key: Key, until_no: int) -> None:
        """The streams of a session up to that number are as good as released."""
        for no, (begin, _) in list(self._begins.items()):
            if (begin.uid, begin.session_id) == key and no <= until_no:
                del self._begins[no]

    def keys(self) -> set[Key]:
        """The sessions that have lines."""
        begins = {no: begun.begin for no, begun in self._begins.items()}
        return {(one.uid, one.session_id) for no, one in begins.items() if self._lines.get(no)}

    def joined(self, key: Key, last_in_file: int, proven: int = 0) -> Joined:
        """Lines of one session, as a start would take them; whole ones only."""
        streams = []
        for no, (begin, batch_no) in sorted(self._begins.items()):
            if (begin.uid, begin.session_id) == key:
                own = {seq + begin.number: line for seq, line in self._lines.get(no, [])}
                lines = [Pending(seq, own[seq]) for seq in sorted(own) if line_seq(own[seq]) == seq]
                leapt = begin.meta == LEAPT
                streams.append(FoundLines(begin.number, batch_no, lines, leapt))
        return join(
            streams, last_in_file, self._synced_no, met_damage=self._met_damage, proven=proven
        )


def _lines(items: list[Item]) -> Iterator[tuple[int, bytes]]:
    for item in items:
        event = item.event if isinstance(item, Happened) else None
        if isinstance(event, wire.Custom) and event.kind == "line":
            yield event.seq, bytes(event.payload)
