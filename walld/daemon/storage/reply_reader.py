"""Reads a reply back from memory, segments and its partial.

Owns: collecting a stream's records and folding them. Refuses: deciding which (`api/replies.py`).

Pure reading (P11): asked twice gives the same bytes, nothing on disk changes. What is not synced is
read from memory. A short reply whose records are all in the page cache is read and folded on the
loop, in one step: each read of a thread costs a wait for the interpreter's lock, 20 ms for a
hundred records of a busy daemon. All else is read by the background thread, whose queue also holds
the unlinks, so a place that was looked up is read before its segment can go.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from walld.daemon.storage.kept_folds import Kept, KeptFolds
from walld.daemon.storage.read_errors import BadRecord, Located, ReadErrors
from walld.engine.stream import Stream
from walld.errors import FormatError
from walld.replies.fold import fold
from walld.wal import records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    _Fold = Callable[[], "tuple[Order, wire.Recovered] | None"]
    _Read = Callable[[int, int, int], bytes]
    """(segment id, offset, length): the bytes."""

    class _Items(Protocol):
        def __call__(self, read: _Read, damaged: list[BadRecord]) -> list[records.Item]: ...

    from walld_client.wire import messages as wire

    from walld.daemon.storage.disk_threads import Worker
    from walld.engine.engine import Engine
    from walld.partials.store import PartialStore
    from walld.wal.segment_files import SegmentFiles

__all__ = ["Order", "ReplyReader"]

_log = logging.getLogger("walld.reply_reader")
_AT_ONCE_BYTES = 64 * 1024
"""A reply up to this size is read and folded on the loop: 10,000 tokens take a millisecond."""
_FOLDS_A_JOB = 32
"""Replies of one request read in one job of the background: between two, others get their turn."""
Order = tuple[bool, int]
"""(of this log, stream number): start order. Numbers of an earlier log come first."""


class _NotCachedError(Exception):
    """Some of it is on disk alone."""


class ReplyReader:
    """Reads replies for queries, partials and carried records."""

    def __init__(
        self, engine: Engine, files: SegmentFiles, store: PartialStore, background: Worker
    ) -> None:
        self._engine = engine
        self._files = files
        self._store = store
        self._background = background
        self.read_errors = ReadErrors(engine, files, background)
        self._kept_folds = KeptFolds()
        self.damaged: list[tuple[tuple[int, str, str], str]] = []
        """Partials that do not verify, met while reading, and why; for `partial_writer.py`."""
        self.busy = 0
        """Requests being read: what is not urgent waits for them."""

    def job(
        self,
        stream: Stream,
        damaged: list[BadRecord],
        at: int = 0,
        count: int | None = None,
    ) -> Callable[[], list[records.Item]]:
        """A job for the background that gives a stream's items as they are now, to be kept.

        at, count: only these of its records, and nothing that waits. damaged: takes each record
        that does not verify; its bytes are copied to quarantine first, for what is kept goes on
        without them. OSError from the job: some of it cannot be read, or not be copied. Whoever
        runs it has `toll` count before the records can move.
        """
        items = self._located(stream, at, count)

        def job() -> list[records.Item]:
            found = items(self._files.read, damaged)
            for bad in damaged:
                if bad.place is not None:
                    self._files.copy_aside(*bad.place[:3])
            self.read_errors.met(stream, damaged)
            return found

        return job

    def _located(self, stream: Stream, at: int = 0, count: int | None = None) -> _Items:
        """What gives a stream's items, as they are now, once it is told how to read from disk.

        damaged: takes each record that does not verify, which is then left out.
        """
        whole = at == 0 and count is None
        source: list[bytes | Located] = []
        for place in stream.places(at, count):
            body = self._engine.batches.in_memory(place)
            if body is not None:
                source.append(body)
                continue
            found = self._engine.segments.locate(place.batch_no)
            assert found is not None, (stream.no, place)
            offset = found[1] + place.offset
            source.append(Located(found[0], offset, place.length, found[1]))
        unplaced = self._unplaced(stream) if whole else None
        base = self._engine.partials.by_no.get(stream.no) if whole else None
        no = stream.no

        def items(read: _Read, damaged: list[BadRecord]) -> list[records.Item]:
            found: list[records.Item] = []
            if base is not None:
                try:
                    found += self._store.read_reply(*base)[1]
                except FormatError as error:
                    self.damaged.append((base, str(error)))
                    raise
            found += _decoded(no, source, read, damaged)
            return found if unplaced is None else found + unplaced(read, damaged)

        return items

    @staticmethod
    def _unplaced(stream: Stream) -> _Items:
        """What gives the items of a stream that have no place in the log now."""
        no, building = stream.no, stream.building
        stream.seal()
        waiting = [item.item for item in stream.waiting]

        def items(read: _Read, damaged: list[BadRecord]) -> list[records.Item]:
            found = _decoded(no, building, read, damaged)
            if waiting:
                found += records.decode_items(records.join_items(waiting))
            return found

        return items

    # --- for queries ----------------------------------------------------------------------------

    async def replies(
        self,
        uid: int,
        streams: list[Stream],
        names: list[tuple[str, str]],
        ended_before_retry: dict[str, set[int]] | None = None,
        made: dict[str, dict[int, Any]] | None = None,
        *,
        with_text: bool = True,
    ) -> list[tuple[Order, wire.Recovered]]:
        """Streams of the log and partials by name, as far as they got, each with its place.

        ended_before_retry: takes by stream id what `fold` tells of earlier attempts. made: of who
        asks again and again: long replies are folded on from the last time (`kept_folds.py`); takes
        by stream id what the one who asked then has put there. not with_text: those are told
        without text.

        What is gone when its turn comes is left out: it was resolved, or kept as a partial, which
        is then read instead; what cannot be read now is a doubt, which the others carry. Raises
        OSError, FormatError.
        """
        if len(streams) == 1 and not names and not streams[0].gone:
            at_once = self._at_once(streams[0], ended_before_retry)
            if at_once is not None:
                await self.read_errors.count()
                return at_once
        todo: deque[Stream | tuple[str, str]] = deque((*streams, *names))
        alone = len(todo) == 1
        found: list[tuple[Order, wire.Recovered]] = []
        unread: list[OSError] = []
        self.busy += 1
        try:
            while todo:
                folds: list[_Fold] = []
                used: list[Kept] = []
                while todo and len(folds) < _FOLDS_A_JOB:
                    one = todo.popleft()
                    if not isinstance(one, Stream):
                        folds.append(
                            self._of_partial(uid, *one, unread, ended_before_retry, alone=alone)
                        )
                    elif not one.gone:
                        fold_it = self._of_stream(one, self._files.read, ended_before_retry)
                        if made is not None and self._is_long(one):
                            fold_it = self._on_from_last(
                                one, fold_it, ended_before_retry, made, used, with_text=with_text
                            )
                        folds.append(fold_it)
                    elif one.no in self._engine.partials.by_no:
                        todo.append(self._engine.partials.by_no[one.no][1:])
                found += await self._background.run(partial(_all, folds))
                for kept in used:
                    self._kept_folds.keep(kept)
            await self.read_errors.count()
        finally:
            self.busy -= 1
        if unread and not found:
            raise unread[0]  # "nothing" would be said of what may be all there is
        if unread:
            found = [(order, replace(reply, doubt=str(unread[0]))) for order, reply in found]
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

    def _at_once(
        self, stream: Stream, ended_before_retry: dict[str, set[int]] | None
    ) -> list[tuple[Order, wire.Recovered]] | None:
        """The reply, on the loop: None where it is long, or a disk may have to be waited for."""
        if self._is_long(stream) or stream.no in self._engine.partials.by_no:
            return None
        try:
            return _all([self._of_stream(stream, self._cached, ended_before_retry)])
        except _NotCachedError:
            return None

    @staticmethod
    def _is_long(stream: Stream) -> bool:
        return stream.waiting_bytes + sum(stream.sizes) > _AT_ONCE_BYTES

    def _cached(self, segment_id: int, offset: int, length: int) -> bytes:
        body = self._files.read_cached(segment_id, offset, length)
        if body is None:
            raise _NotCachedError
        return body

    def _of_stream(
        self, stream: Stream, read: _Read, ended_before_retry: dict[str, set[int]] | None
    ) -> _Fold:
        items = self._located(stream)
        alive, lost, begin = stream.lost_reason is None, stream.lost_reason, stream.begin
        live, no = alive and not stream.terminal, stream.no
        gap_word, known_seq = (
            self._engine.partials.gap_word_of(stream, self._engine.gap_word),
            stream.known_seq,
        )
        damaged: list[BadRecord] = []
        was_damaged = stream.damaged

        def gap_verdict(_first: int, _last: int) -> str:
            return "corrupt" if damaged or was_damaged else gap_word

        def run() -> tuple[Order, wire.Recovered]:
            found = items(read, damaged)
            for bad in damaged:
                _log.error("%s; served as a gap", bad.why)
            self.read_errors.met(stream, damaged)
            reply = fold(
                begin,
                found,
                owner_alive=alive,
                live=live,
                lost_reason=lost,
                gap_verdicts=gap_verdict,
                known_seq=known_seq,
                ended_before_retry=_set_of(ended_before_retry, begin.stream_id),
            )
            return (True, no), reply

        return run

    def _on_from_last(
        self,
        stream: Stream,
        afresh: _Fold,
        ended_before_retry: dict[str, set[int]] | None,
        made: dict[str, dict[int, Any]],
        used: list[Kept],
        *,
        with_text: bool,
    ) -> _Fold:
        """The reply by its kept fold; `afresh` where that cannot go on, or meets damage.
        used: takes the fold, for the next time.
        """
        if stream.damaged or stream.no in self._engine.partials.by_no:
            return afresh
        gap_word = self._engine.partials.gap_word_of(stream, self._engine.gap_word)
        kept = self._kept_folds.take(stream, gap_word, with_text=with_text)
        known, where = len(kept.where), stream.where[:]
        placed = self._located(stream, known, len(where) - known)
        unplaced = self._unplaced(stream)
        alive, lost = stream.lost_reason is None, stream.lost_reason
        stream_id = stream.begin.stream_id
        live, no, known_seq = alive and not stream.terminal, stream.no, stream.known_seq
        read = self._files.read

        def run() -> tuple[Order, wire.Recovered] | None:
            damaged: list[BadRecord] = []
            found = placed(read, damaged), unplaced(read, damaged)
            if damaged or not kept.fold.go_on(*found):
                return afresh()
            kept.where = where
            used.append(kept)
            reply = kept.fold.fold.recovered(
                owner_alive=alive, live=live, lost_reason=lost, known_seq=known_seq
            )
            made[stream_id] = kept.made
            if ended_before_retry is not None:
                ended_before_retry[stream_id] = set(kept.fold.fold.ended_before_retry)
            return (True, no), reply

        return run

    def _of_partial(
        self,
        uid: int,
        session: str,
        name: str,
        unread: list[OSError],
        ended_before_retry: dict[str, set[int]] | None,
        *,
        alone: bool,
    ) -> _Fold:
        log_uuid = self._engine.log_uuid

        def run() -> tuple[Order, wire.Recovered] | None:
            try:
                kept, items = self._store.read_reply(uid, session, name)
            except FileNotFoundError:
                return None
            except OSError as error:
                if alone:
                    raise
                _log.error("%s; the others are served", error)
                unread.append(error)
                return None
            except FormatError as error:
                self.damaged.append(((uid, session, name), str(error)))
                if alone:
                    raise
                # One damaged file must not hide the others; it makes "nothing" unproven.
                _log.error("%s; the others are served", error)
                return None
            begin, facts = items[0], kept.facts
            assert isinstance(begin, records.Begin), (uid, session, name)
            reply = fold(
                begin,
                items,
                owner_alive=False,
                live=False,
                lost_reason=facts.lost_reason,
                gap_verdicts=lambda _first, _last: facts.gap_word,
                known_seq=facts.last_seq,
                ended_before_retry=_set_of(ended_before_retry, begin.stream_id),
            )
            return (facts.log_uuid == log_uuid, facts.stream_no), reply

        return run


def _decoded(
    no: int, source: Iterable[bytes | Located], read: _Read, damaged: list[BadRecord]
) -> list[records.Item]:
    found: list[records.Item] = []
    for piece in source:
        body = piece if isinstance(piece, bytes) else read(*piece[:3])
        try:
            found += records.decode_body(no, body)
        except FormatError as error:
            place = None if isinstance(piece, bytes) else piece
            where = "memory" if place is None else f"segment {place[0]} at {place[1]}"
            damaged.append(BadRecord(f"{error}; read from {where}", place))
    return found


def _set_of(sets: dict[str, set[int]] | None, stream_id: str) -> set[int] | None:
    return None if sets is None else sets.setdefault(stream_id, set())


def _all(folds: list[_Fold]) -> list[tuple[Order, wire.Recovered]]:
    return [told for told in (run() for run in folds) if told is not None]
