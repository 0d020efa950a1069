"""The engine under any history: said, sealed, written, lost, carried, kept, in any order.

A plain model remembers what was accepted. After each step every byte of it must be readable, once
and in order; after each sync what was acknowledged must be in synced batches that are still there;
every count must equal a recount. Steps are those between two awaits of the daemon, so a batch may
be half built, on its way, or being written again while anything else happens.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace

import msgspec
from engine_world import World, entries
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from walld_client.wire import messages as wire

from walld import limits
from walld.engine.batch import Carry, SealedBatch
from walld.engine.partial_index import IndexedPartial
from walld.engine.stream import Connection, Stream
from walld.partials.life import Life
from walld.partials.names import PartialOwner
from walld.replies.merge import merge, token_sizes
from walld.wal import records
from walld.wal.layout import Flag

DEAD = Flag.RELEASED | Flag.RESOLVED


def said_in(items: list[records.Item]) -> list[tuple[int, bytes]]:
    """(seq, text or arguments) of every event, each token of a run on its own."""
    found: list[tuple[int, bytes]] = []
    for item in items:
        if isinstance(item, records.Text):
            at = 0
            sizes = token_sizes(item.lengths)
            assert len(sizes) == item.last_seq - item.first_seq + 1
            for seq, size in enumerate(sizes, item.first_seq):
                found.append((seq, item.text[at : at + size]))
                at += size
        elif isinstance(item, records.Happened):
            event = item.event
            found.append(
                (event.seq, event.arguments or b"" if isinstance(event, wire.Tool) else b"")
            )
    return found


def span_of(items: list[records.Item]) -> tuple[int, int]:
    """First and last seq of a merged record."""
    seqs = [seq for seq, _ in said_in(items)]
    first = 0 if isinstance(items[0], records.Begin) else seqs[0]
    return first, (seqs or [0])[-1]


@dataclass
class Said:
    """A stream as its agent remembers it."""

    start: wire.Start
    accepted: list[tuple[int, bytes]] = field(default_factory=list)
    next_seq: int = 1
    ended: bool = False

    @property
    def key(self) -> str:
        return self.start.stream_id


class Machine(RuleBasedStateMachine):
    """One agent, one engine, one log."""

    @initialize()
    def begin(self) -> None:
        self.world = World()
        self.engine = self.world.engine
        self.agent: Connection = self.world.connect()
        self.said: list[Said] = []
        """Not released, not kept, in start order."""
        self.kept: list[tuple[Said, int]] = []
        self.bodies: dict[tuple[int, str, str], bytes] = {}
        self.world.reader._store = SimpleNamespace(  # type: ignore[assignment]
            read_reply=lambda *names: (None, records.decode_items(self.bodies[names]))
        )
        self.number = 0
        self.on_their_way: list[SealedBatch] = []
        """Sealed, and the write has not returned."""
        self.rewriting: list[SealedBatch] | None = None
        self.syncing: int | None = None
        self.made: list[Carry] = []
        """Carried records read and not yet handed in."""
        self.dead: set[int] = set()
        self.released: set[int] = set()
        self.tombstones: dict[int, set[int]] = {}
        self.seqs: dict[int, list[tuple[int, int, int]]] = {}
        """Batch number -> (stream, first, last) of its records."""

    # --- what the agent does --------------------------------------------------------------------

    def stream(self, said: Said) -> Stream:
        return self.engine.registry.by_key[1000, said.key]

    def pick(self, index: int) -> Said:
        if not self.said:
            self.starts(0, 0)
        return self.said[index % len(self.said)]

    def orphan(self, index: int) -> Stream | None:
        orphans = list(self.engine.orphans.values())
        return orphans[index % len(orphans)] if orphans else None

    def send(self, *messages: msgspec.Struct) -> None:
        self.world.say(self.agent, *messages)

    def starts(self, index: int, size: int) -> None:
        if len(self.said) < 4:
            self.number += 1
            start = wire.Start(self.number, 0, f"r{self.number}", "s")
            self.said.append(Said(start))
            self.send(start)

    def streams(self, index: int, size: int) -> None:
        said = self.pick(index)
        if said.ended:
            return
        said.next_seq += 2 if index == 5 else 0  # a gap
        kind = wire.Reasoning if index == 4 else wire.Token
        for text in (b"abc"[: size % 4], b"", b"x" * size):
            self.send(kind(said.start.stream, said.next_seq, text))
            said.accepted.append((said.next_seq, text))
            said.next_seq += 1

    def calls(self, index: int, size: int) -> None:
        said = self.pick(index)
        if not said.ended:
            arguments = b"x" * (size * 3000)
            self.send(wire.Tool(said.start.stream, said.next_seq, "c", "t", arguments))
            said.accepted.append((said.next_seq, arguments))
            said.next_seq += 1

    def ends(self, index: int, size: int) -> None:
        said = self.pick(index)
        if not said.ended:
            said.ended = True
            self.send(wire.End(said.start.stream, said.next_seq, clean=True))
            said.accepted.append((said.next_seq, b""))
            said.next_seq += 1

    def releases(self, index: int, size: int) -> None:
        said = self.pick(index)
        if said.ended and self.stream(said).lost_reason is None:
            self.said.remove(said)
            self.released.add(self.stream(said).no)
            self.send(wire.Release(said.start.stream, said.next_seq))

    def says_it_twice(self, index: int, size: int) -> None:
        said = self.pick(index)
        if len(said.accepted) > size % 4:
            seq, _ = said.accepted[-1 - size % 4]
            self.send(wire.Token(said.start.stream, seq, b"never this"))

    def dies(self, index: int, size: int) -> None:
        self.engine.lose(self.agent.process, "agent_lost")

    def returns(self, index: int, size: int) -> None:
        """Also with one that was kept as a partial meanwhile."""
        self.agent = self.world.connect()
        self.said += [said for said, _ in self.kept[:1]]
        del self.kept[:1]
        for said in self.said:
            stream = self.engine.registry.by_key.get((1000, said.key))
            synced = stream.synced_seq if stream is not None else -1
            self.send(wire.Resume(said.start, said.next_seq, synced, said.next_seq))

    # --- what the flusher, the writer and the syncer do -----------------------------------------

    @property
    def may_seal(self) -> bool:
        """A flush seals its next batch when the one before is written."""
        return not any(sealed.parts for sealed in self.on_their_way)

    def builds(self, index: int, size: int) -> None:
        if self.may_seal:
            self.engine.batches.seal_some(1 + index % 3, self.engine.batches.now)

    def seals(self, index: int = 0, size: int = 0) -> None:
        sealed = self.engine.batches.finish() if self.may_seal else None
        if sealed is not None:
            self._sealed(sealed)

    def _sealed(self, sealed: SealedBatch) -> None:
        self.on_their_way.append(sealed)
        rows = self.seqs[sealed.batch.batch_no] = []
        for no, first, last, _, flags in entries(sealed):
            if flags & DEAD:
                self.dead.add(no)
                self.tombstones.setdefault(sealed.batch.batch_no, set()).add(no)
            else:
                assert no not in self.dead, "B4: a record behind its tombstone"
                rows.append((no, first, last))

    def writes(self, index: int = 0, size: int = 0) -> None:
        if self.on_their_way and self.rewriting is None:
            self.world.write(self.on_their_way.pop(0))

    def flushes(self, index: int = 0, size: int = 0) -> None:
        if self.rewriting is not None:
            return
        while self.on_their_way:
            self.writes()
        while self.engine.batches.waiting or self.engine.batches.is_building:
            self.engine.batches.seal_some(200, self.engine.batches.now)
            self.seals()
            while self.on_their_way:
                self.writes()
        assert self.engine.batches.queue_bytes == 0

    def begins_a_sync(self, index: int = 0, size: int = 0) -> None:
        if self.rewriting is None:
            self.syncing = self.engine.batches.written_no

    def syncs(self, index: int = 0, size: int = 0) -> None:
        if self.syncing is not None:
            self.engine.synced(max(self.syncing, self.engine.batches.synced_no))
        self.syncing = None

    def says_what_is_synced(self, index: int = 0, size: int = 0) -> None:
        if not self.engine.batches.is_building:
            self._sealed(self.engine.batches.finish_empty())

    def fails(self, index: int = 0, size: int = 0) -> None:
        """A write or a sync; also while what failed before is written again."""
        self.engine.segments.poison(self.engine.batches.synced_no)
        self.rewriting = self.engine.batches.batches_to_rewrite()
        self.syncing = None
        self.world.segment()
        self.engine.recount()

    def writes_again(self, index: int = 0, size: int = 0) -> None:
        if self.rewriting:
            self.world.write(self.rewriting.pop(0))
        elif self.rewriting is not None:
            self.engine.recount()
            self.rewriting = None

    def rolls(self, index: int = 0, size: int = 0) -> None:
        if self.rewriting is None and not self.engine.segments.current.is_empty:
            self.world.segment()

    # --- what the background does ---------------------------------------------------------------

    def makes_a_carry(self, index: int, size: int) -> None:
        stream = self.stream(self.pick(index))
        at, count = size % 3, 1 + size % 2
        if stream.carrying or stream.records < at + count:
            return
        items = merge(self.world.reader.job(stream, [], at, count)())
        array = records.join_items([records.encode_item(item) for item in items])
        body = records.pack_body(stream.no, array)
        if len(body) > limits.BATCH_BYTES_CUT:
            return
        first, last = span_of(items)
        stream.carrying = True
        was = tuple(stream.where[at : at + count])
        flags = Flag.BEGIN if isinstance(items[0], records.Begin) else 0
        self.made.append(Carry(stream, at, count, was, first, last, flags, body))

    def carries(self, index: int = 0, size: int = 0) -> None:
        if self.made:
            self.engine.carry(self.made.pop(0), 0.0)

    def keeps(self, index: int, size: int) -> None:
        stream = self.orphan(index)
        if (
            stream is None
            or stream.has_waiting
            or stream.carrying
            or stream.written_seq < stream.next_seq - 1
        ):
            return
        if any(self.engine.segments.of_batch(p.batch_no) is None for p in stream.places()):
            return
        names = (1000, "s", stream.begin.stream_id)
        items = merge([stream.begin, *self.world.items(stream)])
        body = records.join_items([records.encode_item(item) for item in items])
        begin = stream.begin
        facts = IndexedPartial(
            *(stream.no, stream.next_seq - 1, self.engine.batches.written_no, begin.at_ms),
            whose=PartialOwner(begin.producer, begin.number, stream.session_id),
        )
        self.engine.keep(stream, names[1], names[2], facts)
        self.bodies[names] = body
        (said,) = [said for said in self.said if said.key == names[2]]
        self.said.remove(said)
        self.kept.append((said, stream.no))

    def resolves(self, index: int, size: int) -> None:
        stream = self.orphan(index)
        if stream is None:
            return
        (said,) = [said for said in self.said if said.key == stream.begin.stream_id]
        self.said.remove(said)
        self.released.add(stream.no)
        self.engine.release(stream, Flag.RESOLVED, 0.0)

    def unlinks(self, index: int = 0, size: int = 0) -> None:
        self.world.unlink()
        for names, no in self.engine.partials.unkept(Life.UNWANTED).items():
            self.engine.removed(names, no)

    def settles(self, index: int, size: int) -> None:
        """All is written and synced."""
        self.flushes()
        self.begins_a_sync()
        self.syncs()

    def empties(self, index: int, size: int) -> None:
        """What is needed of the oldest segment is copied to a new one, which is not synced."""
        if self.rewriting is not None:
            return
        self.settles(0, 0)
        self.rolls()
        for place, _ in enumerate(self.said):
            self.makes_a_carry(place, 0)
            self.carries()
        self.flushes()
        self.unlinks()

    # --- what a start would find ----------------------------------------------------------------

    def restarts(self, index: int, size: int) -> None:
        """Killed here, or without power: look at what comes back, and go on as if nothing was."""
        power = index % 2 == 0
        again = self.world.restarted(power=power, kept=self.engine.partials)
        back = {key[1]: stream for key, stream in again.engine.registry.by_key.items()}
        marks = {said.key: self.acknowledged(said, power=power) for said in self.said}
        for said in self.said:
            found = said_in(merge(again.items(back[said.key]))) if said.key in back else []
            mark = marks[said.key]
            if said.key not in back and self.engine.partials.where(1000, said.key) is not None:
                continue  # its partial is there, and nothing newer
            assert found == [
                pair for pair in said.accepted if pair[0] <= (found or [(-1, b"")])[-1][0]
            ]
            assert mark <= (found or [(0, b"")])[-1][0], (said.key, mark, found)
            assert mark < 0 or said.key in back
        assert again.replaced == {}, "nothing is damaged, so nothing goes to quarantine"
        done = {stream.no for stream in again.engine.registry.by_no.values()} & self.released
        told = self.told(power=power)
        assert not done & told, "released, and back again"
        live = {segment.segment_id: segment.live_bytes for segment in again.engine.segments}
        assert live == again.recounted()

    def acknowledged(self, said: Said, *, power: bool) -> int:
        """Highest seq that a client may count on."""
        stream = self.stream(said)
        mark = stream.synced_seq if power else stream.written_seq
        return max([seq for seq, _ in said.accepted if seq <= mark], default=min(mark, 0))

    def told(self, *, power: bool) -> set[int]:
        """Streams whose tombstone is where a start finds it."""
        batches = self.engine.batches
        until = batches.synced_no if power else batches.reached_no
        return {no for batch_no, nos in self.tombstones.items() if batch_no <= until for no in nos}

    STEPS = (
        *("starts", "streams", "streams", "streams", "calls", "ends", "releases", "says_it_twice"),
        *("dies", "returns", "builds", "builds", "seals", "writes", "writes", "flushes", "flushes"),
        *("begins_a_sync", "syncs", "syncs", "says_what_is_synced", "fails", "writes_again"),
        *("writes_again", "rolls", "makes_a_carry", "makes_a_carry", "carries", "carries"),
        *("keeps", "keeps", "resolves", "unlinks", "settles", "empties", "restarts", "restarts"),
    )

    @rule(step=st.sampled_from(STEPS), index=st.integers(0, 5), size=st.integers(0, 100))
    def step(self, step: str, index: int, size: int) -> None:
        """One of these; one rule for all, or hypothesis would leave most of them out."""
        getattr(self, step)(index, size)

    # --- what must hold -------------------------------------------------------------------------

    @invariant()
    def everything_is_readable_once_and_in_order(self) -> None:
        for said in self.said:
            assert self.heard(said) == said.accepted

    def heard(self, said: Said) -> list[tuple[int, bytes]]:
        return said_in(self.world.items(self.stream(said)))

    @invariant()
    def watermarks_are_in_order(self) -> None:
        batches = self.engine.batches
        assert batches.synced_no <= batches.written_no <= batches.reached_no < batches.next_batch
        for stream in self.engine.registry.by_no.values():
            assert -1 <= stream.synced_seq <= stream.written_seq < stream.next_seq

    @invariant()
    def what_is_acknowledged_is_in_batches_that_are_there(self) -> None:
        batches = self.engine.batches
        written = self.seqs_in(range(1, batches.reached_no + 1))
        synced = self.seqs_in(
            batch_no
            for segment in self.engine.segments
            for batch_no in range(segment.first_batch, segment.last_batch + 1)
            if batch_no <= batches.synced_no
        )
        for said in self.said:
            stream = self.stream(said)
            names = self.engine.partials.by_no.get(stream.no)
            base = self.engine.partials.facts(*names) if names is not None else None
            kept = set(range(base.last_seq + 1 if base else 0))
            for mark, found in ((stream.written_seq, written), (stream.synced_seq, synced)):
                acked = {seq for seq, _ in said.accepted if seq <= mark}
                assert acked <= kept | found.get(stream.no, set()), (stream.no, mark)

    def seqs_in(self, batches: Iterable[int]) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for batch_no in batches:
            for no, first, last in self.seqs[batch_no]:
                found.setdefault(no, set()).update(range(first, last + 1))
        return found

    @invariant()
    def counts_equal_a_recount(self) -> None:
        engine, batches = self.engine, self.engine.batches
        waiting = sum(stream.waiting_bytes for stream in engine.registry.by_no.values())
        carried = sum(len(carry.body) for carry in batches._carries)
        assert batches.queue_bytes == waiting + carried
        assert batches.unsynced_bytes == sum(len(s.batch) for s in batches.unsynced.values())
        assert batches.carry_bytes >= carried
        assert all(segment.live_bytes >= 0 for segment in engine.segments)
        if self.rewriting is None:
            live = {segment.segment_id: segment.live_bytes for segment in engine.segments}
            assert live == self.world.recounted()
            assert engine.segments.live_bytes == sum(live.values())

    @invariant()
    def tables_agree(self) -> None:
        """R1."""
        registry = self.engine.registry
        streams = set(registry.by_no.values())
        assert streams == set(registry.by_key.values())
        assert streams == {s for found in registry.by_session.values() for s in found.values()}
        assert streams == {s for p in registry.producers.values() for s in p.streams.values()}
        assert {s.begin.stream_id for s in streams} == {said.key for said in self.said}
        assert not any(stream.gone for stream in streams)

    def teardown(self) -> None:
        """The end of any history: all is written and synced, and nothing is left in a queue."""
        if not hasattr(self, "engine"):
            return
        while self.rewriting is not None:
            self.writes_again()
        self.flushes()
        self.world.sync()
        batches = self.engine.batches
        assert (batches.queue_bytes, batches.unsynced_bytes, batches.waiting) == (0, 0, 0)
        assert batches.carry_bytes == 0
        recorded = self.released & self.seqs_in(self.seqs).keys()
        assert recorded <= self.dead, "released, and a start would find it again"
        for said in self.said:
            stream = self.stream(said)
            assert stream.synced_seq == stream.written_seq
            assert self.heard(said) == said.accepted


def test_any_history() -> None:
    logging.disable()  # a start says what it finds, many times over
    try:
        _run()
    finally:
        logging.disable(logging.NOTSET)


def _run() -> None:
    run_state_machine_as_test(Machine, settings=settings(max_examples=200, stateful_step_count=60))
