"""Merges a reply that a start finds under several stream numbers.

Owns: which pieces are done with, and what is made of those that are there.
Refuses: reading the log (`startup_recovery.py`), what a stream of the engine is
(`restore_streams.py`).

A producer goes on with a reply that a start could not read under a new number, so one reply may
stand in the log under several (`replies/fragments.py`). The rule for its pieces:

- What one of them has and the partial lacks is put into the partial, durably, or kept in
  quarantine, before anything is let go; and the reply is put together anew at each start.
- No number gets a tombstone for that while this start could not read everything: more of it may
  stand in what was not read.
- What was released or resolved under a later number is done with under all earlier ones.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from walld_client.paths import path_name

from walld.errors import FormatError
from walld.partials.file import PartialFacts
from walld.partials.names import PartialOwner, session_of
from walld.partials.store import PartialStore
from walld.replies.fragments import counted_from, ended_later, epoch_of, in_parts
from walld.replies.merge import merge, seqs_of
from walld.wal import ranges, records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from walld.recovery.partial_scan import PartialScan
    from walld.recovery.stream_heads import Found

    Read = Callable[[int, int], bytes]
    """(place, length): the body of a record."""

__all__ = ["FragmentMerge"]

_log = logging.getLogger("walld.recovery")

_MAY_LACK = ("unknown", "corrupt")
"""What the gaps of a partial are put down to that was made when not everything could be read."""
_Names = tuple[int, str, str]


@dataclass(slots=True)
class FragmentMerge:
    """Of one start. Each step takes out of `streams` what is not to be restored from the log."""

    store: PartialStore
    log_uuid: bytes
    streams: dict[int, Found]
    kept: PartialScan
    read: Read
    set_aside: Callable[[int], None]
    """Into quarantine: the bytes of a number."""
    word: str
    """What missing seqs are put down to."""
    is_unread: bool
    """Something could not be read: a later start may find more of any reply."""
    is_whole: bool
    """All is read, and nothing of it was ever set aside: what is not there never was."""
    dead: set[int]
    """Numbers that are done with; it grows by partials that are so under a later number."""
    buried: list[tuple[int, int]] = field(default_factory=list)
    """(number, last seq) of those that get a tombstone: in a partial whole, or done with."""
    apart: set[int] = field(default_factory=set)
    """Numbers that are in a partial as far as they can be read, and get none yet."""
    beyond: dict[int, int] = field(default_factory=dict)
    """Number -> last seq that is there, of those that are more than what the log has, or than the
    partial has: they are restored from both."""
    parts: list[list[int]] = field(default_factory=list)
    """Numbers of each reply that stands under several."""
    _possible_last_seqs: Mapping[int, int] = field(default_factory=dict)
    _by_no: dict[int, _Names] = field(default_factory=dict)
    _kept_begins: dict[int, records.Begin] = field(default_factory=dict)
    """Of partials that have the name of a reply in the log, or of one that has ended."""

    def end(self, ended: Iterable[tuple[int, int, int]]) -> None:
        """First: a reply that ended under a later number has ended. What is left is in parts.

        ended: (number, place, length) of the Begins of those with a tombstone.
        """
        for names, facts in self.kept.facts.items():
            if facts.log_uuid == self.log_uuid and facts.stream_no not in self.dead:
                self._by_no[facts.stream_no] = names
        first = min(map(epoch_of, [*self.streams, *self._by_no]), default=0)
        last = {
            no: begin
            for no, place, length in ended
            if epoch_of(no) > first and (begin := self._begin_at(no, place, length)) is not None
        }
        begins = self._begins()
        named = {(one.uid, path_name(one.stream_id)) for one in [*begins.values(), *last.values()]}
        for no, names in self._by_no.items():
            if no not in begins and (names[0], names[2]) in named:
                begin = self._begin_of_partial(names)
                if begin is not None:
                    self._kept_begins[no] = begin
        for piece, no in ended_later({**self._kept_begins, **begins}, last).items():
            self._ends_as(piece, no)
        self.parts = in_parts(self._begins(), self._kept_begins)

    def put_together(self, possible_last_seqs: Mapping[int, int]) -> None:
        """What has not ended, of each reply as one.

        possible_last_seqs: by number, the seq that it may have got to in what is lost.
        """
        self._possible_last_seqs = possible_last_seqs
        for numbers in self.parts:
            self._join(numbers)
        for no in list(self.streams):
            self._complete(no)
        self._part()

    def _begins(self) -> dict[int, records.Begin]:
        """Of replies in the log."""
        found = {no: one.begin for no, one in self.streams.items() if one.is_reply}
        return {no: begin for no, begin in found.items() if begin is not None}

    # --- done with ------------------------------------------------------------------------------

    def _begin_at(self, no: int, place: int, length: int) -> records.Begin | None:
        try:
            items = records.decode_body(no, self.read(place, length))
        except (OSError, FormatError) as error:
            _log.error("stream %d, done with: its beginning cannot be read: %s", no, error)
            return None
        return next((item for item in items if isinstance(item, records.Begin)), None)

    def _begin_of_partial(self, names: _Names) -> records.Begin | None:
        try:
            first = self.store.read_reply(*names)[1][0]
        except (OSError, FormatError) as error:
            _log.error("%s: %s", "/".join(map(str, names)), error)
            return None
        assert isinstance(first, records.Begin), names
        return first

    def _ends_as(self, piece: int, no: int) -> None:
        _log.warning("stream %d went on as %d, which is done with: so is this", piece, no)
        found = self.streams.pop(piece, None)
        if found is not None:
            self.buried.append((piece, found.index.last_seq))
        self._kept_begins.pop(piece, None)
        if piece in self._by_no:
            self.dead.add(piece)
            del self._by_no[piece]

    # --- one reply ------------------------------------------------------------------------------

    def _join(self, numbers: list[int]) -> None:
        """Into one partial. numbers: of one reply, some of them in the log."""
        begins = {**self._kept_begins, **self._begins()}
        *in_log, last = [no for no in numbers if no in self.streams]
        partials = {no: names for no in numbers if (names := self._by_no.get(no)) is not None}
        try:
            self._write({no: begins[no] for no in numbers}, partials)
        except (OSError, FormatError) as error:
            for no in in_log:
                _log.error("stream %d goes on as %d, and cannot be joined: %s", no, last, error)
                self.set_aside(no)
                del self.streams[no]
            return
        reply = numbers[-1]
        for no in [no for no in (*in_log, last) if no != reply]:
            _log.warning("stream %d goes on as %d: they are one reply again", no, reply)
            last_seq = self.streams.pop(no).index.last_seq
            if self.is_unread:
                self.apart.add(no)
            else:
                self.buried.append((no, last_seq))

    def _write(self, begins: dict[int, records.Begin], partials: dict[int, _Names]) -> None:
        """The partial of all of them, under the last number; those of the others go."""
        reply = max(begins)
        begin, until = begins[reply], 0
        items: list[records.Item] = [begin]
        known: list[ranges.Range] = []
        words = {self.word}
        for no in sorted(begins):
            if no in partials:
                facts, held = self.kept.facts[partials[no]], self.store.read_reply(*partials[no])[1]
                items += counted_from(begin, begins[no], held)
                words.add(facts.gap_word)
                if not (self.is_whole and facts.gap_word == "unknown"):
                    until = max(until, facts.last_seq)
                known = _seqs(held) if no == reply else known
            items += counted_from(begin, begins[no], self._in_log(no))
            until = max(until, self._possible_last_seqs.get(no, 0))
        items = merge(items)
        until = max(until, seqs_of(items[-1])[1])
        session_id = session_of(begin, items)
        names = begin.uid, path_name(session_id), path_name(begin.stream_id)
        if names in self.kept.unread:
            raise FormatError("its partial could not be read")
        old = self.kept.facts.get(names)
        if old is not None and partials.get(old.stream_no) != names:
            raise FormatError("the partial of another reply stands in its place")
        is_there = old is not None and old.stream_no == reply and old.last_seq >= until
        if not is_there or ranges.without(_seqs(items), known):
            word = "corrupt" if "corrupt" in words else "unknown"
            made_at_ms = time.time_ns() // 1_000_000
            facts = PartialFacts(
                *(self.log_uuid, reply, begin.at_ms, made_at_ms, 0, until, "agent_lost", word),
                whose=PartialOwner(begin.producer, begin.number, session_id),
            )
            self._write_file(begin, session_id, facts, items)
        self._restores(reply, items)
        for other in set(partials.values()) - {names}:
            self.store.remove_named(*other)
            del self.kept.facts[other]
        self._by_no = {no: one for no, one in self._by_no.items() if no not in partials}
        self._by_no[reply] = names

    def _write_file(
        self,
        begin: records.Begin,
        session_id: str,
        facts: PartialFacts,
        items: list[records.Item],
    ) -> None:
        body = records.join_items([records.encode_item(item) for item in items])
        self.store.write(begin.uid, session_id, begin.stream_id, facts, body)
        names = begin.uid, path_name(session_id), path_name(begin.stream_id)
        self.kept.facts[names], self.kept.held[names] = facts, seqs_of(items[-1])[1]

    def _restores(self, no: int, items: list[records.Item]) -> None:
        """items: all there is of it, in order. Its owner is who the log's last Begin names."""
        found = self.streams.get(no)
        if found is not None:
            begin = found.begin
            for item in items:
                found.look_at(item)
            found.begin = begin or found.begin
            self.beyond[no] = max((seqs_of(item)[1] for item in items), default=0)

    def _in_log(self, no: int) -> list[records.Item]:
        found = self.streams.get(no)
        if found is None:
            return []
        items: list[records.Item] = []
        for where, size in zip(found.index.where, found.index.sizes, strict=True):
            items += records.decode_body(no, self.read(where, size))
        return items

    # --- one number -----------------------------------------------------------------------------

    def _complete(self, no: int) -> None:
        """A partial made while not all could be read may lack what can be read now. And where a
        segment went with the beginning of a reply, its partial still has that.
        """
        found, names = self.streams[no], self._by_no.get(no)
        if names is None:
            return
        facts = self.kept.facts[names]
        is_further = found.index.last_seq > facts.last_seq
        if found.begin is not None and is_further:
            return  # restored anyway, behind its partial
        if not is_further and facts.gap_word not in _MAY_LACK:
            return
        try:
            held = self.store.read_reply(*names)[1]
            in_log = self._in_log(no)
            is_short = facts.gap_word == "unknown"
            if is_short and self.is_whole and self._fill(names, held, in_log):
                return
            if is_further or ranges.without(_seqs(in_log), _seqs(held)):
                self._restores(no, merge([*in_log, *held]))
        except (OSError, FormatError) as error:
            _log.error("stream %d: its partial cannot be compared with the log: %s", no, error)
            self.set_aside(no)

    def _fill(self, names: _Names, held: list[records.Item], in_log: list[records.Item]) -> bool:
        """Put all there is into its partial, durably: it has no gap then that might be filled, and
        nothing is feared for its end. False where that cannot be: both are restored.
        """
        facts, items = self.kept.facts[names], merge([*held, *in_log])
        begin = held[0]
        assert isinstance(begin, records.Begin), names
        session_id, until = session_of(begin, items), seqs_of(items[-1])[1]
        if names != (begin.uid, path_name(session_id), path_name(begin.stream_id)):
            return False
        has_gaps = bool(ranges.without([(0, until)], _seqs(items)))
        full = facts._replace(last_seq=until, gap_word="unknown" if has_gaps else "dropped")
        if full == facts and _seqs(items) == _seqs(held):
            return True
        try:
            self._write_file(begin, session_id, full, items)
        except OSError as error:
            _log.error("stream %d: its partial stays as it is: %s", facts.stream_no, error)
            return False
        return True

    def _part(self) -> None:
        """Replies of several producers under one id: the last one has it."""
        owners: dict[tuple[int, str], list[int]] = {}
        for no, found in self.streams.items():
            if found.begin is not None and found.is_reply:
                owners.setdefault((found.begin.uid, found.begin.stream_id), []).append(no)
        for numbers in owners.values():
            *earlier, last = sorted(numbers)
            for no in earlier:
                if not self._is_given_again(no, last):
                    continue
                try:
                    if self.is_unread:
                        raise FormatError("its tombstone may stand in what cannot be read")
                    self._write_alone(no)
                except (OSError, FormatError) as error:
                    _log.error("stream %d: its id was given again as %d: %s", no, last, error)
                    self.set_aside(no)
                del self.streams[no]

    def _is_given_again(self, no: int, last: int) -> bool:
        """To another process, while the earlier reply could not be read. A producer itself gives an
        id anew only when it has released what had it.
        """
        first, second = self.streams[no].begin, self.streams[last].begin
        return first is not None and second is not None and first.producer != second.producer

    def _write_alone(self, no: int) -> None:
        begin = self.streams[no].begin
        assert begin is not None, no
        taken = {
            self._names_of(other)
            for other, found in self.streams.items()
            if other != no and found.begin is not None and found.begin.stream_id == begin.stream_id
        }
        if self._names_of(no) in taken:
            raise FormatError("of the same session")
        partials = {no: self._by_no[no]} if no in self._by_no else {}
        self._write({no: begin}, partials)

    def _names_of(self, no: int) -> _Names:
        found = self.streams[no]
        assert found.begin is not None, no
        session_id = found.moved_to or found.begin.session_id
        return found.begin.uid, path_name(session_id), path_name(found.begin.stream_id)


def _seqs(items: list[records.Item]) -> list[ranges.Range]:
    return ranges.merged(seqs_of(item) for item in items)
