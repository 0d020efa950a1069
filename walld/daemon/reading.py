"""Reading a reply back: from memory, from segments, from a partial.

Owns: collecting a stream's records and folding them. Refuses: deciding which (`requests.py`).

Pure reading (P11): asked twice gives the same bytes, nothing on disk changes. What is not synced is
read from memory; the rest by the background thread, whose queue also holds the unlinks, so a
place that was looked up is read before its segment can go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from walld.errors import FormatError
from walld.replies.fold import fold
from walld.wal import records

if TYPE_CHECKING:
    from collections.abc import Callable

    from walld_client.wire import messages as wire

    from walld.daemon.workers import Worker
    from walld.engine.engine import Engine
    from walld.engine.stream import Stream
    from walld.partials.store import PartialStore
    from walld.wal.files import SegmentFiles

__all__ = ["Reader"]

_INLINE_BYTES = 64 * 1024
"""A reply up to this size, and all of it in memory, is folded on the loop: a thread costs more."""


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

    async def reply(self, stream: Stream) -> wire.Recovered:
        """A stream that is in the log, as far as it got. Raises OSError, FormatError."""
        read, from_disk = self.job(stream)
        alive, lost = stream.lost_reason is None, stream.lost_reason
        live = alive and not stream.terminal
        begin, restored_seq = stream.begin, stream.restored_seq
        damage = self._engine.gap_word

        def gap_verdict(_first: int, last: int) -> str:
            return damage if last <= restored_seq else "dropped"

        def run() -> wire.Recovered:
            return fold(
                begin,
                read(),
                owner_alive=alive,
                live=live,
                lost_reason=lost,
                gap_verdicts=gap_verdict,
            )

        if not from_disk and stream.waiting_bytes < _INLINE_BYTES and stream.records < 64:
            return run()
        return await self._background.run(run)

    async def partial(self, uid: int, session: str, stream: str) -> wire.Recovered:
        """A partial by its names. Raises OSError, FormatError."""

        def run() -> wire.Recovered:
            kept = self._store.read_named(uid, session, stream)
            items = _decoded(kept.body)
            if not items or not isinstance(items[0], records.Begin):
                raise FormatError(f"partial {session}/{stream}: its first item is no Begin")
            facts = kept.facts
            return fold(
                items[0],
                items,
                owner_alive=False,
                live=False,
                lost_reason=facts.lost_reason,
                gap_verdicts=lambda _first, _last: facts.gap_word,
            )

        return await self._background.run(run)


def _decoded(body: bytes) -> list[records.Item]:
    try:
        return records.decode_items(body)
    except (ValueError, RecursionError) as error:
        text = f"a record of {len(body)} bytes cannot be read: {error}"
        raise FormatError(f"{text}; another version of walld may have written it") from None
