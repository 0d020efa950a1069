"""Writes partials of orphaned replies, and removes those nobody needs.

Owns: when a stream's records may become a partial, when the log may let go of them, and the ways a
partial ends: resolved, unwanted, past its retention age. Refuses: the file (`partials/store.py`),
what is done when (`maintenance.py`), room in the log (`compaction.py`).

Invariants
- K3 A partial is durable before its records die in the WAL, and its tombstone is written before the
  file goes.
"""

from __future__ import annotations

import errno
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from walld_client.paths import path_name

from walld.daemon import event_loop
from walld.engine.partial_index import IndexedPartial
from walld.errors import FormatError, Misplaced, Refusal
from walld.partials.ages import AGES_PATH, Ages
from walld.partials.file import PartialFacts
from walld.partials.life import Life
from walld.partials.names import PartialOwner, check_names
from walld.partials.store import PartialStore, path_of
from walld.replies.merge import merge, seqs_of
from walld.wal import records
from walld.wal.index import OFFSET_BITS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from walld.daemon.storage.disk_threads import Worker
    from walld.daemon.storage.flusher import Flusher
    from walld.daemon.storage.read_errors import BadRecord
    from walld.daemon.storage.reply_reader import ReplyReader
    from walld.engine.engine import Engine
    from walld.engine.stream import Stream
    from walld.partials.ages import Name

__all__ = ["PartialWriter"]

_log = logging.getLogger("walld.partial_writer")


class _Clocks(NamedTuple):
    """running_ms: the event loop's, which stands still while the machine sleeps. since_boot_ms: of
    the boot, which does not: sleep is no age, and a wall clock that goes on then has not stepped.
    """

    running_ms: int
    since_boot_ms: int


class PartialWriter:
    """The partials of one engine."""

    def __init__(
        self,
        engine: Engine,
        flusher: Flusher,
        store: PartialStore,
        reader: ReplyReader,
        thread: Worker,
        retention_seconds: float,
    ) -> None:
        self._engine = engine
        self._flusher = flusher
        self._store = store
        self._reader = reader
        self._thread = thread
        self._retention = retention_seconds
        self.before_age: Callable[[int, str, str], Awaitable[None]] = _nothing
        """Done before one goes for its age, by its names."""
        self._refused: set[Name] = set()
        """Past their age, and not let go of: it was said."""
        self._ages: Ages | None = None
        """None until it is read."""
        self._looked_at: _Clocks | None = None

    # --- made -----------------------------------------------------------------------------------

    async def keep(self, stream: Stream) -> None:
        """Make the partial of an orphan; later, while something of it is not written."""
        if not self._may_be_kept(stream) or not await self._has_place(stream):
            return
        if not self._may_be_kept(stream):  # a sync failed meanwhile, say: it is written again
            return
        damaged: list[BadRecord] = []
        was_damaged = stream.damaged
        read = self._reader.job(stream, damaged)
        begin, session_id, has_ended = stream.begin, stream.session_id, stream.terminal
        known_seq = stream.known_seq
        wal_until = self._engine.batches.written_no
        gap_word = self._engine.partials.gap_word_of(stream, self._engine.gap_word)
        log_uuid, reason = self._engine.log_uuid, stream.lost_reason
        made_at_ms = time.time_ns() // 1_000_000
        was = tuple(stream.where)
        names = begin.uid, path_name(session_id), path_name(begin.stream_id)
        old = self._engine.partials.by_no.get(stream.no)

        def job() -> tuple[int, int]:
            items = merge([begin, *read()])
            body = records.join_items([records.encode_item(item) for item in items])
            held_seq = seqs_of(items[-1])[1]
            last_seq = max(held_seq, known_seq)
            for bad in damaged:
                _log.error("%s; kept without it, as a gap", bad.why)
            word = "corrupt" if damaged or was_damaged else gap_word
            check_names(path_of(*names), items, is_hurt=word == "corrupt")
            facts = PartialFacts(
                log_uuid, stream.no, begin.at_ms, made_at_ms, 0, last_seq, reason, word
            )
            self._store.write(begin.uid, session_id, begin.stream_id, facts, body)
            return held_seq, last_seq

        try:
            held_seq, last_seq = await self._thread.run(job)
            await self._reader.read_errors.count()
        except OSError:
            # The file may lie under its name, only that is not durable: tried again; but where the
            # reply is resolved before that it must go too, or a later start would find it.
            if old != names:
                self._engine.partials.move(names, Life.DOUBTED, stream.no)
            raise
        except FormatError as error:
            _log.error("stream %d cannot be kept as a partial yet: %s", stream.no, error)
            if self._reader.damaged:  # what it has there: kept without that, by the next round
                await self.set_aside_damaged()
                return
            self._engine.not_orphaned(stream)  # resolved meanwhile, or its owner is back
            return
        moved_on = stream.has_waiting or stream.carrying or tuple(stream.where) != was
        moved_on = moved_on or self._is_on_its_way(stream)
        goes_on = stream.lost_reason is None or moved_on
        if stream.gone or (old is None and goes_on):
            # Resolved, or its owner is back, while the file was made: it must not outlive this.
            await self._remove_overtaken(names, stream.no)
            return
        facts = IndexedPartial(
            *(stream.no, last_seq, wal_until, begin.at_ms, has_ended),
            possibly_missing=last_seq - max(held_seq, min(stream.anew_seq, last_seq)),
            gap_word="corrupt" if damaged or was_damaged else gap_word,
            whose=PartialOwner(begin.producer, begin.number, session_id),
        )
        if not goes_on:
            self._engine.keep(stream, *names[1:], facts)
        elif old != names:
            self._engine.partials.add(*names, facts)
        await self._leave_earlier(stream.no, old if old != names else None)

    async def _leave_earlier(self, no: int, old: Name | None) -> None:
        """Files of the reply under the names of sessions that it has moved from."""
        partials = self._engine.partials
        earlier = [names for names, one in partials.unkept(Life.DOUBTED).items() if one == no]
        if old is not None and partials.life(old)[0] is Life.KEPT:
            earlier.append(old)
        for names in earlier:
            partials.move(names, Life.LEFT, no)
        if earlier:
            await self._remove_left()

    async def _remove_overtaken(self, names: Name, no: int) -> None:
        """Tried again where it fails: nobody knows of the file until then."""
        if self._engine.partials.life(names)[0] is Life.UNWANTED:
            return  # it had one before, which goes with this one
        self._engine.partials.move(names, Life.DOUBTED, no)
        await self._thread.run(partial(self._store.remove_named, *names))
        self._engine.partials.move(names, Life.NONE, no)

    def _may_be_kept(self, stream: Stream) -> bool:
        """An orphan that is written as a whole, and is where it is to stay."""
        if stream.gone or stream.lost_reason is None or stream.has_waiting or stream.carrying:
            return False
        if stream.no in self._engine.turn_commit.streams:
            return False
        if stream.written_seq < stream.next_seq - 1 and stream.records:
            return False
        return not self._is_on_its_way(stream)

    async def _has_place(self, stream: Stream) -> bool:
        """Nothing that is to go stands under its name, nothing that no start could read, and no
        other reply that is known and was not resolved: then it stays in the log.

        What was not read may be its own beginning, which is gone on from once it can be: OSError
        until then; also one in a directory that no start could list. Another's there is set aside.
        """
        session, name = path_name(stream.session_id), path_name(stream.begin.stream_id)
        names = stream.begin.uid, session, name
        kept = self._engine.partials
        life, no = kept.life(names)
        if life is not Life.NONE and no is not None:
            # Another's of that name, which nobody has resolved: this one stays here.
            return life is not Life.UNWANTED and no == stream.no
        is_listed = names[1:] in kept.places(names[0], stream.begin.stream_id)
        try:
            found = await self._thread.run(partial(self._store.read_facts, *names))
            if stream.is_anew and names in kept.unread:
                # Its own beginning, which a start puts together with what is here; or another's.
                return False
            if (found.log_uuid, found.stream_no) != (self._engine.log_uuid, stream.no):
                raise FormatError(path_of(*names) + ": of another reply")
        except FileNotFoundError:
            if not is_listed:
                return not stream.gone and stream.lost_reason is not None
            kept.remove(*names)
        except FormatError as error:
            await self._move_aside(names, str(error))
        else:
            until = self._engine.batches.written_no
            facts = IndexedPartial(
                *(found.stream_no, found.last_seq, until, found.begun_at_ms),
                gap_word=found.gap_word,
                whose=found.whose,
            )
            if kept.life(names) == (life, no):  # not resolved meanwhile
                kept.add(*names, facts)
        return False  # the next round keeps it: it may have changed meanwhile

    async def _move_aside(self, names: tuple[int, str, str], why: str) -> None:
        path = path_of(*names)
        kept = await self._thread.run(partial(self._store.quarantine, path, why))
        _log.error("%s; moved to %s", why, kept)
        self._engine.put_aside(names)

    def _is_on_its_way(self, stream: Stream) -> bool:
        """A record of it is in a batch that is not written: where it will stand is not known."""
        last = max(stream.where, default=0) >> OFFSET_BITS
        return last > self._engine.batches.written_no

    # --- known ----------------------------------------------------------------------------------

    async def facts(self, uid: int, session: str, name: str) -> IndexedPartial:
        """What is known of a partial, from its header if need be. OSError, FormatError."""
        known = self._engine.partials.facts(uid, session, name)
        if known is None:
            read = await self._thread.run(lambda: self._store.read_facts(uid, session, name))
            known = IndexedPartial(
                read.stream_no, read.last_seq, 0, read.begun_at_ms, whose=read.whose
            )
        return known

    # --- removed --------------------------------------------------------------------------------

    async def resolve_partial(self, uid: int, session: str, name: str) -> None:
        """Remove a partial, after a tombstone where the WAL may still hold records of it (K3).

        Misplaced where it is another's: its name is no leave to remove that; it is set aside.
        Refusal where its owner came back while it was looked at. From the step that decides on it
        is done with: who comes back then begins anew, and nothing gets its name until it is gone.
        """
        begin = None
        try:
            _, items = await self._thread.run(partial(self._store.read_reply, uid, session, name))
            begin = next((item for item in items if isinstance(item, records.Begin)), None)
        except Misplaced as error:
            self._reader.damaged.append(((uid, session, name), str(error)))
            await self.set_aside_damaged()
            raise
        except (OSError, FormatError):
            pass  # who asks for it to go knows it by name
        names, facts = (uid, session, name), await self.facts(uid, session, name)
        self._check_left(names, facts)
        # Or another of its stream may lie where no start could read it (K7).
        is_known = self._engine.partials.facts(*names) is not None
        is_doubted = is_known and self._engine.batches.tombs is not None
        is_buried = is_doubted or facts.wal_until >= self._engine.segments.first_batch
        now = event_loop.now()
        if is_buried:
            self._engine.batches.check_open()
            if begin is not None:
                self._engine.end_unseen(facts.stream_no, begin)
            self._engine.bury(facts, now)
        if begin is not None:
            session_id = begin.session_id if facts.whose is None else facts.whose.session_id
            self._engine.resolved.add(begin, session_id, facts.last_seq, facts.has_ended, -1)
        if not is_known:  # of another log maybe: in this one its number is somebody else's
            await self._remove(*names)
            return
        self._engine.unwant(names, facts.stream_no)
        if is_buried:
            await self._synced(now)
        await self._remove_done_with(names, facts.stream_no)

    def _check_left(self, names: tuple[int, str, str], facts: IndexedPartial) -> None:
        """It is a partial, still, and of nobody who lives. FileNotFoundError, Refusal."""
        if names not in self._engine.partials:
            raise FileNotFoundError(errno.ENOENT, "resolved meanwhile", names[2])
        stream = self._engine.registry.by_no.get(facts.stream_no)
        whose = None if stream is None else (stream.begin.uid, path_name(stream.begin.stream_id))
        if whose == (names[0], names[2]):
            text = "its owner came back meanwhile: recover it again"
            raise Refusal("refused", text, "alive", "gone")

    async def _remove_done_with(self, names: tuple[int, str, str], no: int) -> None:
        """Unless somebody else has removed it: what stands there then is another's."""
        if self._engine.partials.life(names) == (Life.UNWANTED, no):
            await self._thread.run(lambda: self._store.remove_named(*names))
        self._engine.removed(names, no)

    async def _synced(self, now: float) -> None:
        """Until the tombstones of now are durable.

        Written is not enough: a power cut would take the tombstone and leave the removal, and what
        the WAL still has of the reply, which may be its beginning alone, would be all of it.
        """
        synced = event_loop.Bell()
        self._engine.when("synced", synced.ring, now)
        self._flusher.wake()
        await synced.wait()

    async def remove_unwanted(self) -> None:
        """Partials of streams that were released, or resolved before they were made for sure.

        One that cannot be removed holds up no other, and no segment: it is written down as done
        with (K7). Raised is what came last.
        """
        partials = self._engine.partials
        failed = await self._remove_left()
        for names, no in partials.unkept(Life.DOUBTED).items():
            if no in self._engine.registry.by_no:
                continue  # it is tried again
            try:
                await self._thread.run(partial(self._store.remove_named, *names))
            except OSError as error:
                failed = error
                partials.unremoved.add(no)
            else:
                partials.move(names, Life.NONE, no)
        due = partials.unkept(Life.UNWANTED)
        if due:
            await self._synced(event_loop.now())
        for names, no in due.items():
            try:
                await self._remove_done_with(names, no)
            except OSError as error:
                failed = error
                partials.unremoved.add(no)
        if failed is not None:
            raise failed

    async def _remove_left(self) -> OSError | None:
        """What moved replies have left under their earlier names, where a later file has more.

        Of one that is done with meanwhile that is as any other that is: no start is to find it.
        """
        failed: OSError | None = None
        partials = self._engine.partials
        for names, no in partials.unkept(Life.LEFT).items():
            if no not in self._engine.registry.by_no and no not in partials.by_no:
                self._engine.unwant(names, no)
                continue
            try:
                await self._thread.run(partial(self._store.remove_named, *names))
            except OSError as error:
                failed = error
            else:
                partials.move(names, Life.NONE, no)
        return failed

    async def set_aside_damaged(self) -> None:
        """Partials that a reader found damaged go to quarantine at once, as at a start.

        From then on "nothing" is not proven (P11): whose they were, nobody can tell.
        """
        while self._reader.damaged:
            names, why = self._reader.damaged.pop()
            if names not in self._engine.partials.all_names(names[0]):
                continue  # resolved, or set aside, since it was read
            kept = await self._thread.run(partial(self._set_aside, names, why))
            if kept is not None:
                _log.error("%s; moved to %s", why, kept)
                self._miss(names)
                self._engine.put_aside(names)

    def _miss(self, names: tuple[int, str, str]) -> None:
        """Of a reply whose owner went on behind it: what stood there is lost, and a gap."""
        facts = self._engine.partials.facts(*names)
        stream = None if facts is None else self._engine.registry.by_no.get(facts.stream_no)
        if facts is not None and stream is not None:
            stream.lost_record()
            self._engine.lost_acked.count(names[0], stream.begin.stream_id, 0, facts.held_seq)

    def _set_aside(self, names: tuple[int, str, str], why: str) -> str | None:
        """For the thread. None where it is whole now, or gone: made again, or moved, since then."""
        try:
            self._store.read_reply(*names)
        except FileNotFoundError:
            return None
        except FormatError:
            return self._store.quarantine(path_of(*names), why)
        return None

    @property
    def clock_has_stepped(self) -> bool:
        """Since the last look at ages: the next one says so, and is not to wait for its time."""
        if self._ages is None or self._looked_at is None:
            return False
        elapsed_ms, asleep_ms = self._since_look(_clocks())
        step_ms = self._ages.stepped_ms(elapsed_ms, time.time_ns() // 1_000_000, asleep_ms)
        return step_ms is not None

    def _since_look(self, now: _Clocks) -> tuple[int | None, int]:
        """How long the machine ran since the last look, None before it, and how long it slept."""
        if self._looked_at is None:
            return None, 0
        elapsed_ms = now.running_ms - self._looked_at.running_ms
        return elapsed_ms, now.since_boot_ms - self._looked_at.since_boot_ms - elapsed_ms

    async def expire(self) -> None:
        """Partials past their retention age go, by running time (`partials/ages.py`)."""
        made = await self._made()
        ages = self._ages if self._ages is not None else await self._thread.run(self._read_ages)
        now = _clocks()
        elapsed_ms, asleep_ms = self._since_look(now)
        self._ages, self._looked_at = ages, now
        step_ms = ages.look(made, elapsed_ms, time.time_ns() // 1_000_000, asleep_ms)
        if step_ms is not None:
            _log.warning(
                "the wall clock has stepped by %+d s: for a day of running time no partial is "
                "removed for its age",
                step_ms // 1000,
            )
        self._refused &= {names for names, _ in made}
        for names in ages.past(self._retention * 1000):
            try:
                await self.before_age(*names)
                await self.resolve_partial(*names)
            except FileNotFoundError:
                continue  # resolved meanwhile
            except Refusal as error:
                self._say_refused(names, error)
                continue
            except (OSError, FormatError) as error:
                _log.error("retention: partial %s/%s: %s", *names[1:], error)
                continue
            _log.warning("partial of uid %d past its retention age removed", names[0])
        if made:  # else nothing has an age
            await self._thread.run(partial(self._store.write_ages, ages.encode()))

    def _say_refused(self, names: Name, error: Refusal) -> None:
        """Once of each, since what its session does not take today it may never take. Not where its
        owner is back: it is no partial then.
        """
        if error.code == "refused" or names in self._refused:
            return
        self._refused.add(names)
        text = "retention: partial %s/%s is past its age and stays: %s (%s)"
        _log.error(text, *names[1:], error, error.code)

    async def _made(self) -> list[tuple[Name, int]]:
        """Every partial that can be read, and when it was made by its own word."""
        made: list[tuple[Name, int]] = []
        for names in self._engine.partials.all_names():
            try:
                facts = await self._thread.run(partial(self._store.read_facts, *names))
            except (OSError, FormatError) as error:
                _log.error("retention: partial %s/%s: %s", *names[1:], error)
                continue
            made.append((names, facts.made_at_ms))
        return made

    def _read_ages(self) -> Ages:
        try:
            return self._store.read_ages()
        except FormatError as error:
            _log.error("%s: %s; the ages of partials begin anew", AGES_PATH, error)
            return Ages()

    async def _remove(self, uid: int, session: str, name: str) -> None:
        await self._thread.run(lambda: self._store.remove_named(uid, session, name))
        self._engine.partials.remove(uid, session, name)


async def _nothing(_uid: int, _session: str, _name: str) -> None:
    """No session needs anything of it."""


def _clocks() -> _Clocks:
    since_boot_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    return _Clocks(int(event_loop.now() * 1000), since_boot_ms)
