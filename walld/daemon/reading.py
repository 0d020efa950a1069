"""Reading a reply back: from memory, from segments, from a partial.

Owns: collecting a stream's records and folding them. Refuses: deciding which (`requests.py`).

Pure reading (P11): asked twice gives the same bytes, nothing on disk changes. What is not synced is
read from memory; the rest by the background thread, whose queue also holds the unlinks, so a
place that was looked up is read before its segment can go.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from walld.engine.stream import Stream
from walld.errors import FormatError
from walld.replies.fold import fold
from walld.wal import records

if TYPE_CHECKING:
    from collections.abc import Callable

    _Fold = Callable[[], "tuple[Order, wire.Recovered] | None"]

    from walld_client.wire import messages as wire

    from walld.daemon.workers import Worker
    from walld.engine.engine import Engine
    from walld.partials.store import PartialStore
    from walld.wal.files import SegmentFiles

__all__ = ["Reader"]

_INLINE_BYTES = 64 * 1024
"""A reply up to this size, and all of it in memory, is folded on the loop."""
_FOLDS_A_JOB = 32
"""Replies of one request read in one job of the background: between two, others get their turn."""
Order = tuple[bool, int]
"""(of this log, stream number): start order. Numbers of an earlier log come first."""


class _Located(NamedTuple):
    """A record body on disk."""

    segment_id: int
    offset: int
    length: int


class Reader:
    """Reads replies for queries, partials and carried records."""

    def __init__(
        self, engine: Engine, files: SegmentFiles, store: PartialStore, background: Worker
    ) -> None:
        self._engine = engine
        self._files = files
        self._store = store
        self._background = background
        self.busy = 0
        """Requests being read: what is not urgent waits for them."""

    def job(
        self, stream: Stream, at: int = 0, count: int | None = None
    ) -> tuple[Callable[[], list[records.Item]], int]:
        """(a job that gives a stream's items as they are now, bytes it must read from disk).

        at, count: only these of its records, and nothing that waits. OSError or FormatError from
        the job: some of it cannot be read.
        """
        whole = at == 0 and count is None
        source: list[bytes | _Located] = []
        from_disk = 0
        for place in stream.places(at, count):
            body = self._engine.sealing.in_memory(place)
            if body is not None:
                source.append(body)
                continue
            found = self._engine.segments.locate(place.batch_no)
            assert found is not None, (stream.no, place)
            source.append(_Located(found[0], found[1] + place.offset, place.length))
            from_disk += place.length
        waiting: list[bytes] = []
        if whole:
            source += stream.building
            stream.seal()
            waiting = [item.item for item in stream.waiting]
        base = self._engine.kept.by_no.get(stream.no) if whole else None
        read = self._files.read

        def run() -> list[records.Item]:
            items: list[records.Item] = []
            if base is not None:
                items += _decoded(self._store.read_named(*base).body)
            for piece in source:
                items += _decoded(piece if isinstance(piece, bytes) else read(*piece))
            if waiting:
                items += _decoded(records.join_items(waiting))
            return items

        return run, from_disk + (base is not None)

    # --- for queries ----------------------------------------------------------------------------

    async def replies(
        self, uid: int, streams: list[Stream], names: list[tuple[str, str]]
    ) -> list[tuple[Order, wire.Recovered]]:
        """Streams of the log and partials by name, as far as they got, each with its place.

        What is gone when its turn comes is left out: it was resolved, or kept as a partial, which
        is then read instead. Raises OSError, FormatError.
        """
        todo: deque[Stream | tuple[str, str]] = deque((*streams, *names))
        found: list[tuple[Order, wire.Recovered]] = []
        self.busy += 1
        try:
            while todo:
                folds: list[_Fold] = []
                while todo and len(folds) < _FOLDS_A_JOB:
                    one = todo.popleft()
                    if not isinstance(one, Stream):
                        folds.append(self._of_partial(uid, *one))
                    elif not one.gone:
                        folds.append(self._of_stream(one))
                    elif one.no in self._engine.kept.by_no:
                        todo.append(self._engine.kept.by_no[one.no][1:])
                only = streams[0] if len(streams) == 1 and not names else None
                if only is not None and folds and self._is_small(only):
                    found += _all(folds)
                else:
                    found += await self._background.run(partial(_all, folds))
        finally:
            self.busy -= 1
        return found

    async def orders(
        self, uid: int, names: list[tuple[str, str]]
    ) -> list[tuple[Order, tuple[str, str]]]:
        """Partials by name, each with its place; what is gone is left out."""
        log_uuid = self._engine.log_uuid

        def run() -> list[tuple[Order, tuple[str, str]]]:
            found = []
            for name in names:
                with suppress(FileNotFoundError):
                    facts = self._store.read_facts(uid, *name)
                    found.append(((facts.log_uuid == log_uuid, facts.stream_no), name))
            return found

        return await self._background.run(run)

    def _is_small(self, stream: Stream) -> bool:
        """All of it in memory, and little: a thread would cost more than the fold."""
        return (
            stream.waiting_bytes < _INLINE_BYTES
            and stream.records < 64
            and stream.no not in self._engine.kept.by_no
            and all(self._engine.sealing.in_memory(place) for place in stream.places())
        )

    def _of_stream(self, stream: Stream) -> _Fold:
        read, _ = self.job(stream)
        alive, lost, begin = stream.lost_reason is None, stream.lost_reason, stream.begin
        live, restored_seq, no = alive and not stream.terminal, stream.restored_seq, stream.no
        damage = self._engine.gap_word

        def gap_verdict(_first: int, last: int) -> str:
            return damage if last <= restored_seq else "dropped"

        def run() -> tuple[Order, wire.Recovered]:
            reply = fold(
                begin,
                read(),
                owner_alive=alive,
                live=live,
                lost_reason=lost,
                gap_verdicts=gap_verdict,
            )
            return (True, no), reply

        return run

    def _of_partial(self, uid: int, session: str, name: str) -> _Fold:
        log_uuid = self._engine.log_uuid

        def run() -> tuple[Order, wire.Recovered] | None:
            try:
                kept = self._store.read_named(uid, session, name)
            except FileNotFoundError:
                return None
            items, facts = _decoded(kept.body), kept.facts
            if not items or not isinstance(items[0], records.Begin):
                raise FormatError(f"partial {session}/{name}: its first item is no Begin")
            reply = fold(
                items[0],
                items,
                owner_alive=False,
                live=False,
                lost_reason=facts.lost_reason,
                gap_verdicts=lambda _first, _last: facts.gap_word,
            )
            return (facts.log_uuid == log_uuid, facts.stream_no), reply

        return run


def _all(folds: list[_Fold]) -> list[tuple[Order, wire.Recovered]]:
    return [told for told in (run() for run in folds) if told is not None]


def _decoded(body: bytes) -> list[records.Item]:
    try:
        return records.decode_items(body)
    except (ValueError, RecursionError) as error:
        text = f"a record of {len(body)} bytes cannot be read: {error}"
        raise FormatError(f"{text}; another version of walld may have written it") from None
